"""The context of a message: identity, session, client."""

import asyncio
import hashlib
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from config.value_types import CodeDisclosure, DisclosureMode
from schemas.errors import Fault, MethodNotFound
from schemas.hybrid import (
    AUTH_TOKEN_SCOPE_MISMATCH,
    SCOPE_TOKEN_SCOPE_MISMATCH,
    ScopeMismatch,
    Side,
)
from schemas.mcp.messages import META_CAPABILITIES, ListKind
from schemas.mcp.revisions import Revision

REQUEST_ID_BYTES = 1024  # of ids and progress tokens, which clients choose and we keep
OUTBOX_LIMIT = 1000  # unsent messages; beyond it the client is not reading
KEY_MARK = "key:"  # prefix of `mark` for API keys
OUTBOX_BYTES = 16 << 20  # of unsent messages, beyond the first: bounds memory per client


class _Prepared:
    """Cache of guards for exactly one principal, which lives as long as its cached credential:
    by guard, what it was made by, and itself. No field: it is not compared, copied or encoded."""

    __slots__ = ("prepared",)
    prepared: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Principal(_Prepared):
    id: str
    tenant: str  # the `host_id` of the design documents
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    hook_roles: frozenset[str] = frozenset()  # those of `roles` that only hooks have given
    # Fingerprint of the credential, not usable as one: KEY_MARK and the id of an API key, or the
    # beginning of the SHA-256 of a token; "": none.
    mark: str = ""
    makers: frozenset[str] = frozenset()  # of the API key, if it is one: see `ApiKey`

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", {})

    @property
    def people(self) -> frozenset[str]:
        """All persons who may be behind a request: its sender, and the makers of its key."""
        return self.makers | {self.id}

    @property
    def key(self) -> tuple[str, str]:
        """Stable identity, independent of the token's other claims."""
        return self.tenant, self.id


@dataclass(frozen=True, slots=True)
class Identity:
    """The claimed identity of an HTTP request, and whether it is verified.

    The verdict is a value, because the need for authentication depends on the request: some actions
    are public, and the portal paths validate the data first.
    """

    principal: Principal
    refusal: Fault | None = None  # why authentication failed; None: verified, or not required
    verified: bool = False  # by a credential; False with `auth.mode: none`
    scope_token: frozenset[str] | Fault | None = None  # of X-Scope-Token, if that was sent
    # whether it is still valid; None: always
    still: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes of the caller; an application's X-Scope-Token takes precedence over the user's
        token. Raises the Fault of an invalid token."""
        spoken = self.scope_token
        if isinstance(spoken, Fault):
            raise spoken
        return self.principal.scopes if spoken is None else spoken

    def require_scope(self, scopes: Collection[str]) -> None:
        """Demand one of the scopes, if the caller is verified and there are any. Raises
        ScopeMismatch, and the Fault of an invalid X-Scope-Token."""
        if scopes and self.verified and self.scopes.isdisjoint(scopes):
            is_auth_token = self.scope_token is None
            kind = AUTH_TOKEN_SCOPE_MISMATCH if is_auth_token else SCOPE_TOKEN_SCOPE_MISMATCH
            raise ScopeMismatch(kind, self.scopes, scopes)


Identify = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, Identity]]
"""Who sent the HTTP request of this ASGI scope."""


NOT_MIRRORED: Mapping[str, str] = {}


class AsyncPreference(Struct):
    """`Prefer: respond-async` (RFC 7240) of a client, and the address of the job that its call has
    become; "": none."""

    location: str = ""


class CallHeaders(Struct, frozen=True):
    """The headers of a hybrid call, for its service."""

    side: Side | None = None  # the portal path that it came by
    auth_first: bool = True
    idempotency_key: str | None = None
    authorization: str | None = None  # passed on only if the source allows it
    scope_token: str | None = None  # likewise
    correlation_id: str | None = None
    traceability_id: str | None = None
    traceparent: str | None = None  # W3C Trace Context
    client: str = ""  # client address
    respond_async: AsyncPreference | None = None  # None: calls answer at once
    # Mcp-Param-*: lower-case rest, value; None: the call is nested in another's arguments
    mirrored: Mapping[str, str] | None = NOT_MIRRORED


NO_CALL_HEADERS = CallHeaders()


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options in the query, besides a toolset; None: the settings' default."""

    profile: str | None = None  # profile of lists; None: that of the client's name
    mode: DisclosureMode | None = None  # how many tools lists disclose
    code: CodeDisclosure | None = None  # how lists disclose programs
    agent: str | None = None  # agent whose skills apply, where no token names one


NO_OPTIONS = QueryOptions()


class Outbox:
    """Queue of encoded messages for one client's stream; overflow ends the stream."""

    __slots__ = (
        "_messages",
        "_size",
        "_wake",
        "closed",
        "lists_version",
        "on_overflow",
        "stale",
        "still",
    )

    def __init__(self, lists_version: str = "") -> None:
        self.on_overflow: Callable[[], None] | None = None  # the reader may be blocked in sending
        self._messages: list[bytes] = []
        self._size = 0  # bytes
        self._wake: asyncio.Future[None] | None = None  # an Event takes 0.7 KB
        self.closed = False
        self.stale = False  # the stream's log has, or may have, unread events
        self.lists_version = lists_version  # of the client, once it has what waits here
        self.still: Callable[[], bool] | None = None  # `Identity.still` of the reader

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
        """`put`, unless an equal message already waits."""
        if message not in self._messages:
            self.put(message)

    def stir(self) -> None:
        """Make the reader read the stream's log."""
        self.stale = True
        self._notify()

    def discard(self, message: bytes) -> None:
        """Remove a waiting message that is no longer valid."""
        if message in self._messages:
            self._messages.remove(message)
            self._size -= len(message)

    def hand_over(self, successor: "Outbox | None" = None) -> "Outbox":
        """Move the messages to a new outbox; closes this one's stream."""
        successor = successor or Outbox()
        successor._messages += self._messages  # noqa: SLF001
        successor._size += self._size  # noqa: SLF001
        self.clear()
        successor.lists_version = self.lists_version
        self.close()
        return successor

    def close(self) -> None:
        """Close the stream of this outbox once it is drained."""
        self.closed = True
        self._notify()

    def clear(self) -> None:
        """Drop all waiting messages."""
        self._messages, self._size = [], 0

    async def take(self, timeout_s: float | None) -> list[bytes]:
        """The waiting messages, in order; empty after `timeout_s`, when stale, or when closed."""
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
        messages = self._messages
        self.clear()
        return messages

    def _fits(self, message: bytes) -> bool:
        """Whether a message fits; the first may have any length."""
        waiting = len(self._messages)
        room = OUTBOX_BYTES - self._size
        return not waiting or (waiting < OUTBOX_LIMIT and len(message) <= room)

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


@dataclass(slots=True, eq=False)
class Session:
    """The negotiated session of a client of a handshake revision."""

    id: str
    revision: Revision
    principal: Principal
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    calls_limit: int = 100  # concurrent calls
    toolset: str | None = None  # of the endpoint that opened it
    log_level: str | None = None  # minimum level of notifications/message; None: unset
    subscriptions: set[str] = field(default_factory=set)  # URIs of resources, as clients know them
    skills: set[str] = field(default_factory=set)  # names of those in use
    last_used: float = field(default_factory=time.monotonic)  # s, monotonic clock
    outbox: Outbox = field(default_factory=Outbox)
    running: "dict[int | str, asyncio.Task[Any]]" = field(default_factory=dict)
    streams: int = 0  # open server-to-client streams, at this node
    has_stream: bool = False  # this node has its standalone stream
    pending_requests: int = 0  # of ours to the client
    last_event_id: str | None = ""  # log id of the last event sent; None: not known at this node
    announced_lists: frozenset[ListKind] = frozenset()  # lists with change notifications
    watched: set[str] = field(default_factory=set)  # URIs of resources that this node watches
    version: int = 0  # of its record
    fingerprint: str = ""  # digest of its id in the audit log, once it is there
    renewed: float = field(default_factory=time.monotonic)  # when the store was last read
    ended: bool = False

    def touch(self) -> None:
        self.last_used = time.monotonic()

    def cancel(self, request_id: int | str, reason: str = "") -> bool:
        """Cancel a running request; False for an unknown id (it may just have ended)."""
        task = self.running.get(request_id)
        return task.cancel(Cancellation(reason)) if task is not None else False

    def end(self) -> None:
        """Cancel all running requests of this client here."""
        self.ended = True
        self.outbox.close()
        for task in list(self.running.values()):
            task.cancel(CANCELLED_BY_CLIENT)


REASON_CHARACTERS = 1000  # of a cancellation, as peers pass it on


class Cancellation(Struct, frozen=True):
    """Message of the CancelledError in a task that a peer cancelled: the client of a request, or
    the server that asked for it."""

    reason: str = ""

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "Cancellation":
        """The cancellation in the params of notifications/cancelled."""
        reason = params.get("reason")
        return cls(reason[:REASON_CHARACTERS] if isinstance(reason, str) else "")


CANCELLED_BY_CLIENT = Cancellation()


def reason_of(error: BaseException) -> str:
    """The reason that a peer gave for a CancelledError; "": none."""
    message = error.args[0] if error.args else None
    return message.reason if isinstance(message, Cancellation) else ""


class Peer(Protocol):
    """The client of a running request: sends it messages before the answer."""

    async def notify(self, message: bytes) -> None:
        """Send an encoded notification that belongs to the request."""

    async def ask(self, method: str, params: Any) -> Any:
        """Send a request to the client; returns its result; only in sessions. Raises
        ClientRequestFailed with the client's error, or when it does not support it or does not
        answer in time."""

    async def keep_alive(self) -> None:
        """Keep intermediaries from closing a silent stream."""


Asker = Callable[[dict[str, Any]], Awaitable[Any]]
"""Answers a form of a server (the params of elicitation/create) where no client can be asked."""

FORMS: Mapping[str, Any] = {"elicitation": {"form": {}}}  # capabilities of an Asker


class AuditDraft(Struct):
    """Draft of an audit record: each layer that serves the message fills in its part."""

    subject: str = ""  # name of the tool, prompt or resource
    source: str = ""
    decision: Literal["allow", "deny", "approve", ""] = ""
    rule: str = ""  # the name of the rule that decided
    arguments: bytes = b""  # encoded
    redacted: bytes = b""  # arguments redacted for storage, where configured
    result_bytes: int = 0
    connection: str = ""  # ids of the connections that the call was made with
    owner: str = ""  # of a shared account among them
    hooks: str = ""  # JSON of the hooks that ran


class RunMark(Struct, frozen=True, omit_defaults=True):
    """Marks calls that come from a run of an agent, or of a program, through any number of
    tools."""

    tainted: bool = False  # its model has read text from outside
    code: bool = False  # a program makes them
    sources: tuple[str, ...] = ()  # whose answers the program has had
    calls: int = 0  # that it made before


@dataclass(slots=True)
class Hold:
    """Where a call of a program is put that needs an approval, instead of being stored by itself:
    the program may have others that wait for the same decision. It concerns the call with this
    request id alone, not those that its tool makes."""

    request_id: str
    run: str
    code_digest: bytes
    number: int  # of the call in its run
    request: Any = None  # ApprovalRequest of the held call
    arguments: str = ""  # its arguments, for display
    waits_s: float = 0.0  # how long it may wait
    limit: int = 0  # of approvals that its caller may wait for


@dataclass(frozen=True)
class Upload:
    """Bytes of a request beside its arguments, which are approved and audited with these."""

    data: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex."""
        return hashlib.sha256(self.data).hexdigest()


class ServiceHeaders(Struct, frozen=True):
    """Headers of hooks, for one source: calls below this one may be of others."""

    place: str  # of the source
    headers: Mapping[str, str]


class Context(Struct):
    """The context of one message."""

    identity: Identity
    revision: Revision
    request_id: str
    session: Session | None = None
    peer: Peer | None = None  # None where the front can send only the answer
    asker: Asker | None = None  # of a wing that makes the call: it is asked instead of the peer
    headers: CallHeaders = NO_CALL_HEADERS
    toolset: str | None = None  # restricts to its tools; None: all
    options: QueryOptions = NO_OPTIONS
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)  # of a relayed call
    note: AuditDraft | None = None  # None: no audit
    fault: Fault | None = None  # the error of a failed message
    run: RunMark | None = None  # None: not made for a run of an agent or a program
    upload: Upload | None = None
    hold: Hold | None = None
    absent: bool = False  # made later, perhaps without its person
    attempt: int = 1  # of a call that is made again where it failed
    hooked: ServiceHeaders | None = None
    agent_hops: int = 0  # agents that have handed the request on (A2A)
    borrows: bool | None = None  # with a shared account, as rules have read; None: they have not

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    def require_identity(self) -> None:
        """Raises the Fault of a failed authentication, if any."""
        if self.identity.refusal is not None:
            raise self.identity.refusal

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the client of a session, or the asker. Raises ClientRequestFailed, and MethodNotFound
        if there is neither."""
        if self.asker is not None:  # only forms, by its capabilities
            return await self.asker(params)
        if self.session is None or self.peer is None:
            raise MethodNotFound(f"This client cannot be asked: {method[:100]}")
        return await self.peer.ask(method, params)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Client capabilities, from its session or the request's `_meta`."""
        if self.asker is not None:
            return FORMS
        if self.session is not None:
            return self.session.capabilities
        meta = self.params.get("_meta")
        client_capabilities = meta.get(META_CAPABILITIES) if isinstance(meta, dict) else None
        return client_capabilities if isinstance(client_capabilities, dict) else {}


_request_ids = map(f"{secrets.token_hex(4)}-{{:x}}".format, itertools.count(1))
new_request_id: Callable[[], str] = _request_ids.__next__
"""A request id: unique over processes and restarts, and short, as every log line has it."""
