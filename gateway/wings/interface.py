"""The wing interface: static description (Wing), dependencies (WingParts) and contributions.

A wing is a folder `gateway/wings/NAME/` whose `wing.py` has a `Wing`, and a row of
`gateway.wings.table`. Wings do not import each other: they meet through operations, which they call
like any other tool.
"""

import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import unquote

from msgspec import Raw, Struct, json
from prometheus_client.registry import Collector
from starlette.types import ASGIApp

from config.access import Auth, OAuth
from config.login import LoginSettings
from gateway.context import Context, Identify, Identity, Principal, new_request_id
from gateway.interfaces import CompleteResults, Events, Handler, Log, PersonEraser, ToolCall
from gateway.operations.operation import Operation
from gateway.operations.paging import Pages
from gateway.operations.resource_view import ResourceView
from gateway.telemetry.traces import Operate, no_trace
from gateway.wings.document_library import Library
from gateway.wings.models.messages import ChatModels, Payer
from registry.access.secrets import Keys
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.database.migrate import Component
from registry.database.postgres import Database, Pool
from registry.embedding.embedder import Embedder
from registry.embedding.search_kinds import SearchKind
from registry.search.query import SearchQuery, SearchResult
from schemas.errors import Unavailable
from schemas.jsonrpc import Request
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import Tool, ToolResult

CallTool = Callable[[Context, str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool by its name with what the caller of the context may do: policy, limits, guardrails
and audit hold as for a client. Raises Fault."""


class ResourceContents(Struct, frozen=True):
    """The `contents` of a resource, as MCP has them, and the source that they come from; "": the
    gateway's own."""

    contents: Raw
    source: str


ReadResource = Callable[[Context, str], Awaitable[ResourceContents | None]]
"""Reads a resource by its URI, as `resources/read` gives it to the caller; None: there is none for
them."""

CheckCall = Callable[[Context, str, Mapping[str, Any]], Tool]
"""Judges a call that is to be made later: the tool, if the caller may call it with these arguments.
Raises InvalidParams; a tool that is hidden or denied is unknown."""

View = Callable[[Context], Catalog]
"""The tools that a caller sees at its endpoint. Raises the Fault of an invalid X-Scope-Token."""

Answer = Callable[[Context, Request, Handler], Awaitable[Any]]
"""Answers a request of MCP, or lets the handler of the gateway do it."""

Notify = Callable[[Principal, str | None, str, bytes], Awaitable[bool]]
"""Sends a message to an open session of a principal, by toolset and id; False: there is none.
Raises Unavailable."""

OnCallEnd = Callable[[ToolCall, bool], None]
"""Is told of a call after its end, and whether it succeeded. It must not wait."""

Screen = Callable[[Principal, str, Any], Any]
"""The structured result that a tool of the wing would have, as guardrails leave it to a principal;
None: a rule refuses it. For what a wing gives to others than callers, such as a model that it asks
in the background. Rules are found by the name of the tool and by its source."""

SignDetached = Callable[[bytes, Mapping[str, str]], Awaitable[tuple[str, str]]]
"""Signs bytes with the key of the login: the protected header of the JWS, with these members, and
the signature. Raises Unavailable."""


Subject = Literal[
    "approvals", "schedules", "jobs", "sources", "budgets", "connections", "certificates"
]
"""Kinds of concerns."""


class Sentence(Struct, frozen=True):
    """A text in English with {names} for its values. The console translates it by `text`; a text
    of strangers has no values, and stays as it is."""

    text: str
    values: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.text.format(**self.values) if self.values else self.text


class Concern(NamedTuple):
    """A fact that operators of a tenant should be told of, as long as it is one."""

    subject: Subject
    key: str  # among those of its subject: one incident of it is open
    title: Sentence
    detail: Sentence
    path: str  # page of the console
    share: float = 1.0  # of a budget: how much of it is used


Concerns = Callable[[str], Awaitable[Sequence[Concern]]]
"""The concerns of a tenant. Raises psycopg.OperationalError."""


def pressing_concerns(concerns: Iterable[Concern], share: float) -> list[Concern]:
    """All concerns but those of budgets of which less than this share is used."""
    return [item for item in concerns if item.subject != "budgets" or item.share >= share]


Credential = Literal["login", "key"]
"""How callers authenticate: with OAuth, or a token that they have."""


class CallerSettings(Struct, frozen=True):
    """The settings by which callers prove who they are."""

    auth: Auth
    oauth: OAuth
    login: LoginSettings

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """Kinds that callers may have, the usual one first; none: nobody needs one."""
        if self.auth.mode == "none":
            return ()
        has_login = self.login.enabled or bool(self.oauth.authorization_servers)
        if self.auth.mode == "keys" or not has_login:
            return ("key",)
        return ("login", "key") if self.auth.api_keys else ("login",)


Task = Callable[[], Coroutine[Any, Any, None]]

LOCAL = "local"  # the subject of all callers while auth.mode is "none"
ANONYMOUS = "anonymous"  # the id of their principal


class WingEvent(Protocol):
    """An event of a run. Numbers grow; a reader that was cut off goes on behind one."""

    @property
    def number(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


FollowRun = Callable[[Context, str, int], AsyncIterator[WingEvent]]
"""The events of a run for its owner, behind a number, up to its end. Raises ProblemDetails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WingParts:
    """The parts of a gateway that a wing uses, while it is open."""

    settings: Any  # its section
    tenant: str  # of the gateway; callers may be of others
    public_url: str = ""  # of the gateway, as `server.public_url`
    mcp_url: str = ""  # of its endpoint with all tools, below `public_url`
    callers: CallerSettings
    database: Database  # reachable, with the tables of the wing
    call: CallTool
    check: CheckCall
    read: ReadResource
    view: View
    catalogs: Catalogs  # of all tenants: to be read only
    events: Events
    embedder: Callable[[str], Embedder | None]  # of queries, by purpose; None: not available
    search: Callable[[SearchQuery], Awaitable[SearchResult]]
    models: ChatModels  # of the settings; nothing is connected before the first request
    identify: Identify  # the caller of an HTTP request, for `apps`
    notify: Notify
    result: Callable[[ToolResult, Context], Any]  # of tools/call, as its caller's revision has it
    keys: Keys = field(default_factory=Keys)  # that encrypt secrets (`secrets.key`)
    log: Log | None = None  # streams of events, at all nodes; None in `toolgate worker`
    library: Callable[[], Library | None] = lambda: None  # of the open wing that keeps documents
    follow: Callable[[], FollowRun | None] = lambda: None  # of the open wing that has the agent
    operate: Operate = no_trace  # the span of what is no message
    sign: SignDetached | None = None  # None: there is no login here
    screen: Screen = lambda _principal, _tool, value: value
    console_url: str = ""  # of the console; "": there is none, or no public URL
    certificate: str = ""  # file of the gateway's own, if it speaks TLS
    sources_down: Callable[[], Mapping[str, str]] = dict  # what is wrong, by source of the gateway
    concerns: Callable[[], Mapping[str, Concerns]] = dict  # of open wings, by name

    @property
    def pool(self) -> Pool:
        return self.database.pool


@dataclass(frozen=True, slots=True, kw_only=True)
class WingResource:
    """A resource, or a template of resources."""

    uri: str  # or a URI template
    name: str
    description: str
    read: Callable[[Context, str], Awaitable[str | None]]
    """Gives the text at a URI; None: there is none. Raises Fault."""

    media_type: str = "text/plain"


def structure_of(result: ToolResult) -> Raw | None:
    """The structured content of a result; None: the call failed, as for what the caller may not
    read. Raises Unavailable for a call that may succeed later."""
    structure = result.structured_content
    if not isinstance(structure, Raw):
        return None
    if not result.is_error:
        return structure
    problem = json.decode(structure)
    if problem.get("status") == Unavailable.status:
        raise Unavailable(problem["detail"])
    return None


def document_resource(
    call: CallTool, operation: str, *, uri: str, pattern: str, name: str, description: str
) -> WingResource:
    """Documents as a template of resources: `operation` gives the text, or that of the lines which
    end the URI (#L10, #L10-L20). The names of groups in `pattern` are those of its arguments."""
    regex = re.compile(pattern + r"(?:#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?)?", re.ASCII)

    async def read(context: Context, address: str) -> str | None:
        match = regex.fullmatch(address)
        if match is None:
            return None
        arguments: dict[str, Any] = {
            argument: unquote(text) for argument, text in match.groupdict().items() if text
        }
        if "first" in arguments:
            first = arguments["first"]
            arguments |= {"first": int(first), "last": int(arguments.get("last", first))}
        structure = structure_of(await call(context, operation, arguments))
        return None if structure is None else str(json.decode(structure).get("text", ""))

    return WingResource(uri=uri, name=name, description=description, read=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class WingPrompt:
    """A prompt of one message of the user."""

    name: str
    description: str
    arguments: Mapping[str, str]  # descriptions by name; all are required
    text: Callable[[Context, Mapping[str, str]], Awaitable[str]]
    """Gives the message for arguments. Raises Fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WingContributions:
    """Contributions of an open wing to its gateway."""

    operations: Sequence[Operation] = ()  # their ids begin with the wing's name and `_`
    tasks: Sequence[Task] = ()  # run until the wing is closed; an error reopens the wing
    resources: Sequence[WingResource] = ()
    prompts: Sequence[WingPrompt] = ()
    listed: bool = True  # False: this machine cannot serve its tools, whose calls say why
    collectors: Sequence[Collector] = ()  # of metrics
    apps: Mapping[str, ASGIApp] = field(default_factory=dict)  # by path: one of the wing's `mounts`
    pages: Sequence[ResourceView] = ()  # of the console
    answers: Mapping[str, Answer] = field(default_factory=dict)  # by method: `methods` of the wing
    reconfigure: Callable[[Any], Callable[[], None]] | None = None
    """Checks another section of settings, after `config.reload`, and gives what applies it. Raises
    ToolgateError. None: settings need a restart."""
    call_ended: OnCallEnd | None = None  # where the wing observes calls
    complete_results: CompleteResults | None = None  # where the wing learns of results
    library: Library | None = None  # where the wing keeps documents
    follow: FollowRun | None = None  # where the wing has runs of the agent
    concerns: Concerns | None = None  # where the wing has budgets or schedules
    erasers: Sequence[PersonEraser] = ()  # of its tables


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of `toolgate doctor`."""

    status: Literal["ok", "warning", "failed"]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """Dependencies of a wing's operations of the admin API."""

    settings: Any  # the wing's section
    pool: Callable[[], Pool]
    """Raises ProblemDetails while the wing is not open: its tables may not be there."""

    pages: Pages
    events: Events
    tenant: str = ""  # of the gateway
    keys: Keys = field(default_factory=Keys)  # that encrypt secrets


Administration = Callable[[AdminAccess], Sequence[Operation]]
"""The operations of the admin API for a wing, with `admin:` scopes and ids of that API. They are
listed whether the wing is open or not."""

Checks = Callable[[Any, str, Pool | None], AsyncIterator[Finding]]
"""Checks a wing that is not open: by its section of the settings, the tenant of the gateway, and
connections; None: without a database, for `toolgate config check`."""
Commands = Mapping[str, tuple[str, str]]  # name -> "module:attribute", summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Wing:
    """Static description of a wing, known before it is open. All but its name and `open` is
    optional."""

    name: str
    open: Callable[[WingParts], AbstractAsyncContextManager[WingContributions]]
    """Opened once the database responds, and again, after a pause, whenever it failed; closed
    before the database is."""

    title: str = ""  # "": its name
    migrations: Component | None = None
    refers_to: tuple[str, ...] = ()  # wings whose tables its own refer to: they are made first
    kinds: tuple[SearchKind, ...] = ()  # whose views and triggers its migrations make
    path: str = ""  # of its REST API; "": /NAME/v1
    # Further paths, whose applications it offers. The one at the path of the REST API gets the
    # requests there that accept `text/event-stream`.
    mounts: tuple[str, ...] = ()
    body_limits: Mapping[str, str] = field(default_factory=dict)
    """By path, one of `mounts`: the member of the wing's section of the settings that limits its
    request bodies, in bytes. Other paths have `server.body_limit_bytes`."""

    public: frozenset[str] = frozenset()
    """Those of `mounts` that pages of any origin may read. They answer CORS themselves."""

    refuses: frozenset[str] = frozenset()
    """Those of `body_limits` whose applications refuse unknown callers themselves, with the status
    of their own contract. They have to do so before they read a body."""

    methods: tuple[str, ...] = ()  # of MCP, that it answers itself where it wants to
    observes: Callable[[Any], bool] | None = None
    """Whether it observes calls of tools that are not its own, by its section of the settings."""

    admin: Administration | None = None  # for operators; None: the admin API has none of it
    mistakes: Callable[[Any], Iterable[str]] | None = None
    """Sentences on what its section of the settings has that can never work, beyond its types: then
    a gateway does not start."""

    checks: Checks | None = None  # for `toolgate doctor` and `toolgate config check`
    commands: Commands = field(default_factory=dict)  # beside its operations
    no_job_tools: str = ""  # why the operations on its jobs are no tools; "": they are

    def __post_init__(self) -> None:
        if unknown := self.body_limits.keys() - set(self.mounts):
            raise ValueError(f"{self.name}: body_limits names {min(unknown)}, which is no mount")

    @property
    def root(self) -> str:
        return self.path or f"/{self.name}/v1"


def background(principal: Principal) -> Context:
    """The context of calls that a task makes for a principal, which has no more than its scopes."""
    return Context(Identity(principal, verified=True), V2025_11_25, new_request_id())


def payer_of(context: Context) -> Payer:
    """The payer of requests to models that a call of this context makes."""
    return Payer(*context.principal.key, context.toolset or "")


def is_open(identity: Identity) -> bool:
    """Whether callers need not authenticate, so that this one is the local user."""
    return not identity.verified and identity.refusal is None and identity.principal.id == ANONYMOUS


def subject_of(identity: Identity) -> str | None:
    """The subject that the caller acts as; None: anonymous, and owner of nothing."""
    if identity.verified:
        return identity.principal.id
    return LOCAL if is_open(identity) else None
