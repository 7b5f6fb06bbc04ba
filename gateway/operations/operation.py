"""Operations: declared once, for routers, OpenAPI, tools and lists."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from config.value_types import END, HostId, RuleName, SchemeName, SourceName, ToolsetName
from gateway.context import Context, Principal
from gateway.operations.job_declarations import NO_JOB, AsJob, Job
from gateway.operations.member_texts import NAME_TEXTS, MemberText, MemberTexts
from gateway.operations.paging import Pages
from gateway.operations.problems import ProblemDetails, unavailable
from registry.database.postgres import Pool
from schemas.tool import Annotations

ALL, READ_ALL = "admin", "admin:read"
BODY, IF_MATCH, IF_NONE_MATCH = "body", "if_match", "if_none_match"  # arguments of calls

Method = Literal["GET", "POST", "PUT", "DELETE"]
Effect = Literal["read", "act", "change", "remove"]
"""What an operation does: it changes nothing; does something each time; leaves things as it says,
however often; takes something away."""

EFFECTS: Mapping[Method, Effect] = {
    "GET": "read",
    "POST": "act",
    "PUT": "change",
    "DELETE": "remove",
}

Line = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]*" + END,
        max_length=255,
        description="at most 255 characters on one line",
    ),
]
ToolName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,128}" + END,
        description="the name of a tool, of A-Z, a-z, 0-9, _ and -",
    ),
]
SkillName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]+(-[a-z0-9]+)*" + END,
        max_length=64,
        description="the name of a skill, of words of a-z and 0-9 with - between",
    ),
]
AgentName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,125}" + END,
        description="the name of an agent, of A-Z, a-z, 0-9, . _ and -",
    ),
]
VersionNumber = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,8}" + END, description="the number of a version")
]
Identifier = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}" + END, description="an id of A-Z, a-z, 0-9, _ and -")
]
Time = Annotated[datetime, Meta(tz=True, description="a time with its zone, as RFC 3339 has it")]

# Types of the path parameters.
NAMES: Mapping[str, Any] = {
    "source": SourceName,
    "tool": ToolName,
    "toolset": ToolsetName,
    "rule": RuleName,
    "scheme": SchemeName,
    "skill": SkillName,
    "dependency": SkillName,
    "version": VersionNumber,
    "agent": AgentName,
    "key": Identifier,
    "session": Identifier,
    "approval": HostId,
    "revocation": HostId,
    "job": HostId,
}


def check_time(time: datetime | None) -> None:
    """Raises ValueError near the limits of the times of Python or PostgreSQL."""
    if time is not None and not 1900 <= time.year <= 9990:
        raise ValueError("Expected a time between the years 1900 and 9990")


def allows(principal: Principal, scope: str) -> bool:
    """Whether the principal holds `scope` or a scope that implies it. The empty scope is public."""
    return not scope or not principal.scopes.isdisjoint(scopes_of(scope))


def scopes_of(scope: str) -> frozenset[str]:
    """`scope`, and the scopes that include it: one of them is enough."""
    is_admin_read = scope.startswith("admin:") and scope.endswith(":read")
    of_api = scope.split(":")[0] == ALL
    return frozenset({scope, *([ALL] if of_api else []), *([READ_ALL] if is_admin_read else [])})


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


@dataclass(frozen=True, slots=True)
class OperationInput:
    """A parsed request."""

    principal: Principal
    names: Mapping[str, str]  # path parameters
    _: KW_ONLY
    query: Any  # of the operation's type
    body: Any
    context: Context | None = None  # of the tool call; None: called by the HTTP API alone
    present: Any = None  # the resource to change, as its GET returns it, where `match` is not ""
    job: Job = NO_JOB  # takes the progress of operations that run as jobs

    @property
    def tenant(self) -> str:
        return self.principal.tenant


class OperationOutput(Struct, frozen=True):
    """A response with more than its body."""

    value: Any
    status: int | None = None  # None: the operation's
    location: str = ""  # below the API: of the created resource
    untold: Any = None  # body for an idempotent repetition, if different
    text: str = ""  # of the tool's result; "": the value as JSON


class TaggedView(Struct, frozen=True):
    """A view whose ETag ignores the `untagged` members: they change by themselves, which must not
    invalidate a client's edit."""

    untagged: ClassVar[frozenset[str]] = frozenset()


Handle = Callable[[OperationInput], Awaitable[Any]]
"""Returns the body of the response, or an OperationOutput. Raises ProblemDetails, and the errors
of `answering`."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: Method
    path: str  # "/sources/{source}"; "": it has no route, and is a tool alone
    summary: str
    scope: str  # "": any authenticated caller
    handle: Handle
    gives: Any = None  # response type; None: no body
    status: int = 200
    query: type[Struct] = NoQuery
    body: Any = None  # request type; None: no body
    optional_body: bool = False
    match: Literal["", "optional", "required"] = ""  # whether If-Match is accepted
    of: str = ""  # the GET operation whose ETag If-Match names; "": of the same path
    audited: bool = True  # False: its success tells a reader of the audit log nothing
    secret: bool = False  # its requests must not be stored, not even as a digest
    creates: bool = False  # a PUT that creates with If-None-Match: *
    destroys: bool = False  # a POST that takes something away for good, as DELETE does
    hints: Annotations | None = None  # of the tool; None: those of its effect
    waits: bool = False  # it may take long, and is cancelled when its HTTP client goes away
    problems: tuple[int, ...] = field(default=())  # besides the common ones
    no_tool: str = ""  # why it is no MCP tool; "": it is one
    tool: str = ""  # its name where it is not the id
    forwards: str = ""  # the argument that names a tool that it calls later: rules judge that one
    job: AsJob | None = None  # None: it answers at once
    types: Mapping[str, Any] = field(default_factory=dict)  # of path parameters, beside NAMES
    details: str = ""  # what a model has to know beside the summary
    brief: bool = False  # `details` say what it gives, and its tool has no output schema
    members: MemberTexts = field(default_factory=dict)  # beside NAME_TEXTS
    selects: Mapping[str, str] = field(default_factory=dict)
    """Members of the body that choose tools, and what matchTools calls them: forms show a count."""

    def __post_init__(self) -> None:
        if self.job is not None and self.secret:
            raise ValueError(f"{self.id}: requests with secrets are not stored, as jobs are")
        if self.job is not None and self.job.schedule and (self.names or self.body is not None):
            raise ValueError(f"{self.id}: only operations without parameters run on a schedule")

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part[1:-1] for part in self.parts if part.startswith("{"))

    def type_of(self, name: str) -> Any:
        """The type of a path parameter."""
        return self.types.get(name) or NAMES[name]

    def text_of(self, name: str) -> MemberText | None:
        """The words about a member of the body, or about a path parameter."""
        return self.members.get(name) or (NAME_TEXTS.get(name) if name in self.names else None)

    @property
    def effect(self) -> Effect:
        """The effect of its method, except that a POST with a read scope is "read", and one that
        destroys "remove"."""
        if self.scope.endswith(":read"):
            return "read"
        return "remove" if self.destroys else EFFECTS[self.method]

    @property
    def reports(self) -> bool:
        """Whether it may take long enough for a client to want its progress."""
        return self.waits or self.job is not None

    @property
    def keeps_answers(self) -> bool:
        """Whether requests with the same Idempotency-Key are executed once. What is read is not
        recorded; the jobs that read are."""
        always_job = self.job is not None and self.job.always
        return self.method == "POST" and (self.effect != "read" or always_job)

    @property
    def tool_name(self) -> str:
        return self.tool or self.id

    @property
    def tag(self) -> str:
        return self.parts[0]


ALL_TENANTS = "This takes the role {role}: it is about all tenants."


@dataclass(frozen=True, slots=True)
class OperationDependencies:
    opened: Callable[[], Pool | None]  # None until the database was reached
    pages: Pages
    host_id: str  # the tenant of the gateway
    operator_role: str

    def is_own(self, request: OperationInput) -> bool:
        """Whether the settings apply to the tenant."""
        return request.tenant == self.host_id

    def is_operator(self, request: OperationInput) -> bool:
        """Whether the caller may see the settings. Issuers of other tenants name roles freely."""
        return self.is_own(request) and self.operator_role in request.principal.roles

    def require_operator(self, request: OperationInput, text: str = ALL_TENANTS) -> None:
        """Raises ProblemDetails, with the name of the role in `text`."""
        if not self.is_operator(request):
            detail = text.replace("{role}", self.operator_role)
            raise ProblemDetails(403, "insufficient-role", detail)

    @property
    def pool(self) -> Pool:
        """Raises ProblemDetails."""
        pool = self.opened()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        return pool
