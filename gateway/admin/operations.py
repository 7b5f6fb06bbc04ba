"""What an operation of the API is: declared once, for who serves it and who describes it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from config.types import END, HostId, RuleName, SchemeName, SourceName, ToolsetName
from gateway.context import Principal

ALL, READ_ALL = "admin", "admin:read"

Method = Literal["GET", "POST", "PUT", "DELETE"]

Line = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]*" + END,
        max_length=255,
        description="at most 255 characters on one line",
    ),
]
ToolName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}" + END, description="the name of a tool")
]
Identifier = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}" + END, description="the id of what is meant")
]
Time = Annotated[datetime, Meta(tz=True, description="a time with its zone, as RFC 3339 has it")]
Cursor = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,1024}" + END,
        description="`next` of the page before, unchanged",
    ),
]

# What stands in braces in the paths.
NAMES: Mapping[str, Any] = {
    "source": SourceName,
    "tool": ToolName,
    "toolset": ToolsetName,
    "rule": RuleName,
    "scheme": SchemeName,
    "key": Identifier,
    "session": Identifier,
    "approval": HostId,
    "revocation": HostId,
}


def check_time(time: datetime | None) -> None:
    """Raises ValueError for one that is at the end of what Python or PostgreSQL can tell."""
    if time is not None and not 1900 <= time.year <= 9990:
        raise ValueError("Expected a time between the years 1900 and 9990")


def allows(principal: Principal, scope: str) -> bool:
    """Whether the principal has `scope`, or one that holds it."""
    held = scope.startswith("admin:") and scope.endswith(":read")
    of_api = scope.split(":")[0] == ALL
    enough = {scope, *([ALL] if of_api else []), *([READ_ALL] if held else [])}
    return bool(enough & principal.scopes)


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing can be asked for."""


class Paging(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a list."""

    limit: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    after: Cursor | None = None


@dataclass(frozen=True, slots=True)
class OperationInput:
    """A request that has been read."""

    principal: Principal
    names: Mapping[str, str]  # those in the path
    query: Any  # as the operation declares it
    body: Any
    present: Any = None  # what is to be changed, as its GET gives it, where `match` is not ""

    @property
    def tenant(self) -> str:
        return self.principal.tenant


@dataclass(frozen=True, slots=True)
class OperationOutput:
    """An answer that is more than its body."""

    value: Any
    status: int | None = None  # None: the operation's
    location: str = ""  # below the API: of what was made
    untold: Any = None  # what a repetition gets instead, if not the same


Handle = Callable[[OperationInput], Awaitable[Any]]
"""Gives the body of the answer, or Given. Raises Problem, and the errors of `answering`."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: Method
    path: str  # "/sources/{source}"
    summary: str
    scope: str  # "" of what everybody may who is known
    handle: Handle
    gives: Any = None  # type of the answer; None: it has no body
    status: int = 200
    query: type[Struct] = NoQuery
    body: Any = None  # type; None: it takes none
    optional_body: bool = False
    match: Literal["", "optional", "required"] = ""  # whether If-Match says what is to be changed
    of: str = ""  # the GET operation whose answer If-Match names; "": the one of the same path
    secret: bool = False  # what its requests hold must not be remembered, not even as a digest
    creates: bool = False  # a PUT that If-None-Match: * makes create
    problems: tuple[int, ...] = field(default=())  # besides those that every operation may have

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part[1:-1] for part in self.parts if part.startswith("{"))

    @property
    def tag(self) -> str:
        return self.parts[0]
