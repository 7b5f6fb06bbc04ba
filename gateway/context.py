"""Who asks, over which session, until when: what travels with a message."""

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas.errors import Fault
from schemas.hybrid import Side
from schemas.mcp.revisions import Revision

OUTBOX_LIMIT = 1000  # unsent messages; a client that leaves more is not reading any


@dataclass(frozen=True, slots=True)
class Principal:
    id: str
    tenant: str  # the `host_id` of the design documents
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class Letter:
    """What a hybrid call carries besides its data: the headers that its service may want."""

    side: Side | None = None  # the portal path that it came by
    auth_first: bool = True
    idempotency_key: str | None = None
    authorization: str | None = None  # passed on only where the source says so
    scope_token: str | None = None  # likewise
    correlation_id: str | None = None
    traceability_id: str | None = None
    client: str = ""  # address of who sent it


NO_LETTER = Letter()


class Outbox:
    """Encoded messages that wait for one client's stream; overflowing ends the stream."""

    __slots__ = ("_messages", "_wake", "closed")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._wake: asyncio.Event | None = None
        self.closed = False

    def put(self, message: bytes) -> None:
        if len(self._messages) >= OUTBOX_LIMIT:
            self.closed = True
        else:
            self._messages.append(message)
        self._notify()

    def put_once(self, message: bytes) -> None:
        """Like `put`, unless the same news already waits."""
        if message not in self._messages:
            self.put(message)

    def hand_over(self) -> "Outbox":
        """A new outbox with what waits here; the stream that follows this one ends."""
        successor = Outbox()
        successor._messages, self._messages = self._messages, successor._messages
        self.close()
        return successor

    def close(self) -> None:
        """End the stream that follows this outbox, after what it still holds."""
        self.closed = True
        self._notify()

    async def take(self, timeout_s: float) -> list[bytes]:
        """What has gathered, in order; empty after `timeout_s`, or when closed."""
        if not self._messages and not self.closed:
            self._wake = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
            finally:
                self._wake = None
        taken = list(self._messages)
        self._messages.clear()
        return taken

    async def batches(self, keep_alive_s: float) -> AsyncIterator[list[bytes]]:
        """What has gathered, again and again until closed; empty to keep a silent stream alive."""
        while True:
            messages = await self.take(keep_alive_s)
            if self.closed and not messages:
                return  # closed with messages left: the next round takes them
            yield messages

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()


@dataclass(slots=True, eq=False)
class Session:
    """What one client of a handshake revision agreed with us on."""

    id: str
    revision: Revision
    principal: Principal
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    calls_limit: int = 100  # calls that may run at a time
    last_used: float = field(default_factory=time.monotonic)  # s, monotonic clock
    outbox: Outbox = field(default_factory=Outbox)
    running: "dict[int | str, asyncio.Task[Any]]" = field(default_factory=dict)
    streams: int = 0  # open server-to-client streams

    def touch(self) -> None:
        self.last_used = time.monotonic()

    def cancel(self, request_id: int | str) -> bool:
        """Stop a running request; False when there is none by that id (it may just have ended)."""
        task = self.running.get(request_id)
        return task.cancel(CANCELLED_BY_CLIENT) if task is not None else False

    def end(self) -> None:
        """Stop everything that runs for this client."""
        self.outbox.close()
        for task in list(self.running.values()):
            task.cancel(CANCELLED_BY_CLIENT)


CANCELLED_BY_CLIENT = "cancelled by the client"


class Peer(Protocol):
    """The client of a request that is being served, for what it is told before its answer."""

    async def notify(self, message: bytes) -> None:
        """Send an encoded notification that belongs to the request."""

    async def keep_alive(self) -> None:
        """Keep intermediaries from closing a silent stream."""


@dataclass(slots=True)
class Context:
    """One message's surroundings."""

    identity: Identity
    revision: Revision
    request_id: str
    session: Session | None = None
    peer: Peer | None = None  # None where the front has no way to say anything but the answer
    letter: Letter = NO_LETTER

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    def require_identity(self) -> None:
        """Raises the Fault that says why nobody knows who asks, if so."""
        if self.identity.refusal is not None:
            raise self.identity.refusal


_instance = secrets.token_hex(4)
_counter = itertools.count(1)


def new_request_id() -> str:
    """Unique over processes and restarts, and short: it stands in every log line and error."""
    return f"{_instance}-{next(_counter):x}"
