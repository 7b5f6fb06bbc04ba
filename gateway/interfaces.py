"""Protocols and value types at the boundaries between layers."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.context import Context, Principal, Session
from registry.catalog.catalog_events import CatalogEvents
from registry.database.person_rows import ErasedPerson
from schemas.jsonrpc import Request
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import Eras
from schemas.signals import AsyncSignal, Signal
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult

CompleteResults = Callable[[Principal, Sequence[Tool]], Awaitable[Sequence[Tool]]]
"""Gives the tools, in their order, with output schemas where a principal may know more of their
results than the tools describe."""

Handler = Callable[[Context, Request], Awaitable[Any]]
"""Serve one request: returns what becomes the `result` (any JSON-encodable value), or raises a
`Fault`."""


class Route(Struct, frozen=True):
    """The messages that one chain of middleware serves: of one revision, and of one method."""

    revision: Revision
    method: str  # "": any without a route of its own; "notifications/": any such notification


Middleware = Callable[[Handler, Route], Handler]
"""Wrap the handler of a route, once for each; a route that needs nothing keeps its handler. What is
wrapped runs once per message, so many times in a batch."""


class HookEffects(Struct, frozen=True):
    """Decisions of hooks about a call, besides its arguments."""

    answer: ToolResult | None = None  # instead of the service's
    headers: Mapping[str, str] = {}  # for the service


class ToolCall(Struct, frozen=True):
    """A call of a tool, passed through the guards to its execution."""

    tool: Tool
    source: Source | None  # None for the gateway's own tools
    arguments: Any  # validated by the tool's input schema; any JSON for an unchecked hybrid action
    context: Context
    hooked: HookEffects | None = None  # None: no hook acted


Execute = Callable[[ToolCall], Coroutine[Any, Any, ToolResult | RelayedResult]]
"""Execute a call: its result, also that of a tool that failed. Raises Fault."""


class Guard(Protocol):
    """Wraps what executes calls; those of every front, and each call of a batch."""

    def applies(self, tool: Tool, source: Source | None) -> bool:
        """Whether calls of `tool` have to pass. The answer holds until the catalog, the settings
        or the policy rules change."""

    def guard(self, execute: Execute) -> Execute:
        """Wrap the execution of calls to which the guard applies. A guard that acts only before the
        call returns the wrapped coroutine: one of its own would be resumed with every answer."""


class RepeatableCommand(Struct, frozen=True):
    """A command with an Idempotency-Key."""

    principal: Principal
    service: str
    key: str  # its Idempotency-Key
    body: bytes  # equal for equal requests


Once = Callable[
    [RepeatableCommand, Callable[[], Awaitable[ToolResult]]], Coroutine[Any, Any, ToolResult]
]
"""Run a command, or give the result that it gave before. Raises StatusFault."""


class Upstream(Protocol):
    """Executes the call that a binding of its kind describes.

    `arguments` are validated by the tool's input schema; for a hybrid action without one they are
    any JSON.
    """

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult | RelayedResult: ...


@runtime_checkable
class PreparedUpstream(Upstream, Protocol):
    """An upstream that prepares a tool for all of its calls. What it prepares lives as long as the
    catalog, so it holds nothing of settings, credentials and callers."""

    def prepare(self, tool: Tool) -> Execute: ...


class RelayRequest(Struct, frozen=True):
    """A request for another MCP server, in that server's own names and URIs."""

    source: Source
    method: str
    params: dict[str, Any]  # whole: with the client's `_meta`, inputResponses, requestState, task
    eras: Eras = "both"  # eras of the server that support the request
    headers: Mapping[str, str] = {}  # Mcp-Param-*, for 2026-07-28 servers
    hooked: Mapping[str, str] = {}  # headers of hooks, for a server with an address


class Relay(Protocol):
    """Client of upstream MCP servers of any era."""

    async def request(self, request: RelayRequest, context: Context) -> dict[str, Raw]:
        """Send a request; returns the members of the result. Raises the server's error as a Fault
        with code and data unchanged, and Unreachable when there is no answer."""

    async def watch(self, source: Source, uri: str) -> None:
        """Subscribe to updates of the resource `uri` of `source`; reference-counted. Raises Fault
        when the server refuses."""

    async def unwatch(self, source: Source, uri: str) -> None:
        """Undo one `watch`."""


class Event(Struct, frozen=True):
    id: str  # unique in its stream, and later ones are greater; visible ASCII without "."
    data: bytes


class Log(Protocol):
    """Append-only streams of events, which any node can write and read: the one thing that nodes
    share besides sessions. Events beyond a stream's limits are dropped.

    All methods raise Unavailable when the store does not answer.
    """

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for another process."""

    async def append(self, stream: str, data: bytes) -> str:
        """Add an event; returns its id. Readers see the events of a stream in one order, and none
        appears later before one that was already read."""

    async def read(self, stream: str, after: str, limit: int = 1000) -> Sequence[Event]:
        """At most `limit` events that follow the id `after`; "" begins with the oldest kept. Raises
        InvalidParams for an id that was never of this stream."""

    async def last(self, stream: str) -> str:
        """The id of the newest event; "" for an empty stream."""

    def watch(self, stream: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Inside, call `wake` soon after any node has appended to `stream`, perhaps more often."""

    async def drop(self, stream: str) -> None:
        """Delete the stream."""


class SessionRecord(Struct, frozen=True):
    """Session state that nodes share to serve it."""

    id: str
    revision: str
    tenant: str
    principal: str
    toolset: str | None
    client: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None = None
    subscriptions: tuple[str, ...] = ()  # URIs of resources, as the client knows them
    lists_version: str = ""  # when it was opened
    skills: tuple[str, ...] = ()  # names of those in use
    version: int = 0  # grows with every change
    nodes: tuple[str, ...] = ()  # ids of nodes that have, or had, it open


class SessionChange(Struct, frozen=True):
    """A change of a session, requested by its client; omitted fields stay unchanged."""

    log_level: str | UnsetType = UNSET
    client: dict[str, Any] | UnsetType = UNSET
    capabilities: dict[str, Any] | UnsetType = UNSET
    subscribe: tuple[str, ...] = ()  # URIs of resources
    unsubscribe: tuple[str, ...] = ()
    use: tuple[str, ...] = ()  # names of skills
    leave: tuple[str, ...] = ()


class SessionStore(Protocol):
    """Sessions by id, until their idle time to live expires.

    Nodes write changes, never their own copy: requests of one session reach several nodes
    concurrently. An unreadable record counts as missing, and is logged.

    All methods raise Unavailable when the store does not answer.
    """

    shared: bool  # other nodes see the same sessions

    async def put(self, record: SessionRecord, ttl_s: float) -> None:
        """Store a new session."""

    async def get(self, session_id: str) -> SessionRecord | None: ...

    async def hold(self, session_id: str, node: str, ttl_s: float) -> SessionRecord | None:
        """The session; registers `node` as having it open, and renews its time to live. A later
        change either sees the node in the record or is in what this returns."""

    async def change(
        self, session_id: str, change: SessionChange, ttl_s: float
    ) -> SessionRecord | None:
        """Apply a change to the current record; returns the new one."""

    async def delete(self, session_id: str) -> bool:
        """Delete a session; whether it existed."""

    async def all(self) -> Sequence[SessionRecord]:
        """Sessions that have not expired."""

    async def purge(self) -> int:
        """Remove what has expired; returns the number of sessions."""

    async def beat(self, node: str, ttl_s: float) -> None:
        """Heartbeat: `node` counts as alive for `ttl_s`."""

    async def is_alive(self, node: str) -> bool:
        """Whether `node` is alive."""

    async def secret(self) -> bytes:
        """32 random bytes that all nodes of this store share."""


class Verdict(Struct, frozen=True):
    granted: int  # uses
    remaining: int  # further uses that would be allowed now
    retry_after_s: float  # until the next use is allowed; 0 when granted

    @property
    def is_allowed(self) -> bool:
        return self.granted > 0


class Counter(Protocol):
    async def hit(self, key: str, limit: int, window_s: float, count: int = 1) -> Verdict:
        """Count one use of `key`, or up to `count`; at most `limit` in any sliding `window_s`
        seconds, across all nodes. Raises Unavailable when the store does not answer."""


RateKey = tuple[str, ...]
"""Which limit it is, and whose."""


class RateBound(NamedTuple):
    """One rate limit: at most `most` uses of a key per window."""

    limit: str  # the setting
    bucket: tuple[RateKey, float]  # the key, and the seconds of the window
    most: int
    text: str  # of a refusal, after "Too many"


TakeAll = Callable[[], tuple[int, float | None] | None]
"""Counts one use of each bound: see `Rates.take_all`."""


class Rates(Protocol):
    """Rate limits on the path of every call: synchronous where possible."""

    def prepare(self, bounds: Sequence[RateBound]) -> TakeAll:
        """`take_all` of bounds that are counted often, such as those of a credential."""

    def take_all(
        self, bounds: Sequence[RateBound], first: int = 0
    ) -> tuple[int, float | None] | None:
        """Count one use of each bound from the position `first` on; None if all are allowed. Else
        the position of the first that is not counted, and the seconds until it is allowed, or None
        where only `acquire` can decide. Raises Unavailable."""

    async def acquire(self, key: RateKey, limit: int, window_s: float) -> float:
        """Count one use of `key` with a round trip to the shared counter: 0, or the seconds until
        it is allowed. Raises Unavailable."""

    def give_back(self, key: RateKey, window_s: float) -> None:
        """Undo what was just taken."""

    async def settle(self) -> None:
        """Wait for what runs in the background."""


class PersonEraser(Protocol):
    """Counts and erases what one place holds of a person. Repeating an erasure erases no more."""

    @property
    def place(self) -> str: ...
    @property
    def remains(self) -> str:
        """Data that stays there, and the reason; "": nothing stays."""

    @property
    def is_copy(self) -> bool:
        """Whether it may hold memories of a person, so that it goes with these, too."""

    async def count_person(self, person: ErasedPerson) -> int: ...
    async def erase_person(self, person: ErasedPerson) -> int: ...


class Events(CatalogEvents, frozen=True):
    """Events of one gateway process: made first, and handed to each part when it is made."""

    rules_changed: Signal[str] = msgspec.field(default_factory=Signal)
    """The policy rules of a tenant differ from those before."""

    source_recovered: Signal[str] = msgspec.field(default_factory=Signal)
    """The server of a source answers again."""

    watch_changed: AsyncSignal[tuple[str, str | None], str, bool] = msgspec.field(
        default_factory=AsyncSignal
    )
    """A resource (tenant and toolset, URI) got its first listener here (True), or lost its last
    one. Listeners raise Fault when its server refuses."""

    subscription_changed: AsyncSignal[Session, SessionChange] = msgspec.field(
        default_factory=AsyncSignal
    )
    """A client subscribed to a resource or unsubscribed; awaited until it is stored."""

    session_ended: Signal[Session] = msgspec.field(default_factory=Signal)
    """A session is no longer open here: at each node that had it, also when that shuts down and
    others continue with it. Opened elsewhere, its principal has no more than its id and tenant."""

    person_erased: AsyncSignal[str, str] = msgspec.field(default_factory=AsyncSignal)
    """All that is held of a person (tenant, id of its principal) is erased; awaited until the
    listeners have erased theirs."""

    draining: Signal[()] = msgspec.field(default_factory=Signal[()])
    """A graceful shutdown begins: no new work, and streams are closed."""
