"""Who asks, over which session, until when: what travels with a message."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from config.types import DisclosureMode
from registry.catalog.catalog import Kind
from schemas.errors import Fault
from schemas.hybrid import Side
from schemas.mcp.messages import META_CAPABILITIES
from schemas.mcp.revisions import Revision

REQUEST_ID_BYTES = 1024  # of ids and progress tokens: clients choose them, and we remember them
OUTBOX_LIMIT = 1000  # unsent messages; a client that leaves more is not reading any
KEY_MARK = "key:"  # begins the mark of who came with an API key
OUTBOX_BYTES = 16 << 20  # of them, beyond the first: no client is to fill the memory of the others


@dataclass(frozen=True, slots=True)
class Principal:
    id: str
    tenant: str  # the `host_id` of the design documents
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    # Equal for equal credentials, and of no use to anybody else: KEY_MARK and the id of an API key,
    # or the beginning of the SHA-256 of a token; "": nobody's.
    mark: str = ""
    makers: frozenset[str] = frozenset()  # of the API key, if it is one: see `ApiKey`

    @property
    def people(self) -> frozenset[str]:
        """Everybody who may stand behind a request: who sent it, and who made the key for it."""
        return self.makers | {self.id}

    @property
    def key(self) -> tuple[str, str]:
        """Who it is, whatever the token of the day says about them."""
        return self.tenant, self.id


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an HTTP request says that it comes from, and whether that is so.

    The verdict is a value, because who needs to be known depends on what is asked: some actions
    are for everybody, and the portal paths check the data first.
    """

    principal: Principal
    refusal: Fault | None = None  # why the principal is nobody; None: verified, or nobody must be
    verified: bool = False  # by a token; False with `auth.mode: none`
    scope_token: frozenset[str] | Fault | None = None  # of X-Scope-Token, if that was sent
    # whether it is verified even now; None: for ever
    still: Callable[[], bool] | None = field(default=None, compare=False, repr=False)


Identify = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, Identity]]
"""Who sent the HTTP request of this ASGI scope."""


@dataclass(frozen=True, slots=True)
class CallHeaders:
    """What a hybrid call carries besides its data: the headers that its service may want."""

    side: Side | None = None  # the portal path that it came by
    auth_first: bool = True
    idempotency_key: str | None = None
    authorization: str | None = None  # passed on only where the source says so
    scope_token: str | None = None  # likewise
    correlation_id: str | None = None
    traceability_id: str | None = None
    client: str = ""  # address of who sent it
    # Mcp-Param-*: lower-case rest, value; None: the call stands inside another's arguments
    mirrored: Mapping[str, str] | None = field(default_factory=dict)


NO_LETTER = CallHeaders()


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """What the query of an address asks for, besides a toolset; None: as the settings have it."""

    profile: str | None = None  # that lists are written for; None: that of the client's name
    mode: DisclosureMode | None = None  # whether lists have all tools
    agent: str | None = None  # whose skills are here, where no token says it


NO_WISHES = QueryOptions()


class Outbox:
    """Encoded messages that wait for one client's stream; overflowing ends the stream."""

    __slots__ = ("_messages", "_size", "_wake", "closed", "on_overflow", "stale", "still", "told")

    def __init__(self, told: str = "") -> None:
        self.on_overflow: Callable[[], None] | None = None  # who reads may be stuck in sending
        self._messages: list[bytes] = []
        self._size = 0  # bytes
        self._wake: asyncio.Future[None] | None = None  # an Event takes 0.7 KB
        self.closed = False
        self.stale = False  # the stream's log has, or may have, more than was read of it
        self.told = told  # the version of the lists that the client knows of, with what waits here
        self.still: Callable[[], bool] | None = None  # whether who reads may (Identity.still)

    def put(self, message: bytes) -> None:
        if self._fits(message):
            self._messages.append(message)
            self._size += len(message)
        else:
            self.closed = True
            if self.on_overflow is not None:
                self.on_overflow()
        self._notify()

    def put_once(self, message: bytes) -> None:
        """Like `put`, unless the same news already waits."""
        if message not in self._messages:
            self.put(message)

    def stir(self) -> None:
        """Have the reader look at the stream's log."""
        self.stale = True
        self._notify()

    def discard(self, message: bytes) -> None:
        """Take back news that has become none."""
        if message in self._messages:
            self._messages.remove(message)
            self._size -= len(message)

    def hand_over(self, successor: "Outbox | None" = None) -> "Outbox":
        """An outbox with what waits here; the stream that follows this one ends."""
        successor = successor or Outbox()
        successor._messages += self._messages  # noqa: SLF001
        successor._size += self._size  # noqa: SLF001
        self.clear()
        successor.told = self.told
        self.close()
        return successor

    def close(self) -> None:
        """End the stream that follows this outbox, after what it still holds."""
        self.closed = True
        self._notify()

    def clear(self) -> None:
        """Forget what waits: nobody will read it here."""
        self._messages, self._size = [], 0

    async def take(self, timeout_s: float | None) -> list[bytes]:
        """What has gathered, in order; empty after `timeout_s`, when stale, or when closed."""
        if not self._messages and not self.closed and not self.stale:
            self._wake = asyncio.get_running_loop().create_future()
            try:
                if timeout_s is None:
                    await self._wake
                else:
                    async with asyncio.timeout(timeout_s):
                        await self._wake
            except TimeoutError:
                return []
            finally:
                self._wake = None
        taken = self._messages
        self.clear()
        return taken

    def _fits(self, message: bytes) -> bool:
        """A message of any length does when it is the first."""
        waiting = len(self._messages)
        room = OUTBOX_BYTES - self._size
        return not waiting or (waiting < OUTBOX_LIMIT and len(message) <= room)

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


@dataclass(slots=True, eq=False)
class Session:
    """What one client of a handshake revision agreed with us on."""

    id: str
    revision: Revision
    principal: Principal
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    calls_limit: int = 100  # calls that may run at a time
    toolset: str | None = None  # whose endpoint it was opened at
    log_level: str | None = None  # least severe notifications/message that it wants; None: unsaid
    subscriptions: set[str] = field(default_factory=set)  # URIs of resources, as clients know them
    skills: set[str] = field(default_factory=set)  # names of those that it uses
    last_used: float = field(default_factory=time.monotonic)  # s, monotonic clock
    outbox: Outbox = field(default_factory=Outbox)
    running: "dict[int | str, asyncio.Task[Any]]" = field(default_factory=dict)
    streams: int = 0  # open server-to-client streams, at this node
    tells: bool = False  # whether this node has the one that tells it of changes
    asked: int = 0  # requests of ours that the client has not answered yet
    heard: str | None = ""  # id in the log of what its stream said last; None: this node was away
    news: frozenset[Kind] = frozenset()  # the lists of whose changes it wants to hear
    watched: set[str] = field(default_factory=set)  # URIs of resources that this node watches
    version: int = 0  # of the record that this is a copy of
    renewed: float = field(default_factory=time.monotonic)  # when the store was last asked
    ended: bool = False

    def touch(self) -> None:
        self.last_used = time.monotonic()

    def cancel(self, request_id: int | str) -> bool:
        """Stop a running request; False when there is none by that id (it may just have ended)."""
        task = self.running.get(request_id)
        return task.cancel(CANCELLED_BY_CLIENT) if task is not None else False

    def end(self) -> None:
        """Stop everything that runs here for this client."""
        self.ended = True
        self.outbox.close()
        for task in list(self.running.values()):
            task.cancel(CANCELLED_BY_CLIENT)


CANCELLED_BY_CLIENT = "cancelled by the client"


class Peer(Protocol):
    """The client of a request that is being served, for what it is told before its answer."""

    async def notify(self, message: bytes) -> None:
        """Send an encoded notification that belongs to the request."""

    async def ask(self, method: str, params: Any) -> Any:
        """The client's result for a request of ours; only in sessions. Raises AskFailed with the
        client's error, or when it cannot be asked or does not answer in time."""

    async def keep_alive(self) -> None:
        """Keep intermediaries from closing a silent stream."""


@dataclass(slots=True)
class AuditDraft:
    """What is to be remembered of a message: whoever serves it writes down what they know."""

    subject: str = ""  # name of the tool, prompt or resource
    source: str = ""
    decision: Literal["allow", "deny", "approve", ""] = ""
    rule: str = ""  # the name of the rule that decided
    arguments: bytes = b""  # encoded
    shown: bytes = b""  # the arguments as they may be kept, where that is wanted
    result_bytes: int = 0


@dataclass(slots=True)
class Context:
    """One message's surroundings."""

    identity: Identity
    revision: Revision
    request_id: str
    session: Session | None = None
    peer: Peer | None = None  # None where the front has no way to say anything but the answer
    letter: CallHeaders = NO_LETTER
    toolset: str | None = None  # whose tools alone are here; None: all
    wishes: QueryOptions = NO_WISHES
    params: Mapping[str, Any] = field(default_factory=dict)  # of a call that is handed on
    note: AuditDraft | None = None  # None where nothing is remembered
    failed: Fault | None = None  # what the message failed by, once it did

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    def noted(self, note: AuditDraft) -> "Context":
        """The same surroundings with a note of their own. (`dataclasses.replace` takes 6 us.)"""
        other = object.__new__(Context)
        for name in _FIELDS:
            setattr(other, name, getattr(self, name))
        other.note = note
        return other

    def require_identity(self) -> None:
        """Raises the Fault that says why nobody knows who asks, if so."""
        if self.identity.refusal is not None:
            raise self.identity.refusal

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can be asked, as it said in its session or in the request's `_meta`."""
        if self.session is not None:
            return self.session.capabilities
        meta = self.params.get("_meta")
        said = meta.get(META_CAPABILITIES) if isinstance(meta, dict) else None
        return said if isinstance(said, dict) else {}


_FIELDS = tuple(one.name for one in fields(Context))
_instance = secrets.token_hex(4)
_counter = itertools.count(1)


def new_request_id() -> str:
    """Unique over processes and restarts, and short: it stands in every log line and error."""
    return f"{_instance}-{next(_counter):x}"
