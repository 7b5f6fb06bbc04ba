"""Link to one MCP server, independent of transport, and handlers of the messages it receives."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from msgspec import Raw, Struct

from gateway.context import Context, Peer
from gateway.protocol.client_features import RefusalReason, for_client, for_server
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.message_parsers import ServerMessage
from schemas.errors import MethodNotFound
from schemas.jsonrpc import Notification, encode
from schemas.mcp.messages import (
    LOG_LEVELS,
    META_LOG_LEVEL,
    PROGRESS,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from schemas.mcp.revisions import Revision

LIMIT = 1000  # messages

MESSAGE = "notifications/message"
ELICITATION_COMPLETE = "notifications/elicitation/complete"  # 2025-11-25 alone
CHANGES = frozenset({TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED, RESOURCE_UPDATED})

SEVERITY = {level: place for place, level in enumerate(LOG_LEVELS)}


class MessageHandler(Protocol):
    """Receives notifications and requests of a server while a request of ours runs."""

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Handle a notification. The server's next message is not read before this returns:
        backpressure."""

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        """Handle a request of the server: its result. A Fault becomes the error that the server
        gets."""


class Timeout(Struct, frozen=True):
    """Time limits of an answer, in seconds."""

    # restarted by every message of the request; paused while the gateway handles the server's
    # requests
    idle_s: float
    deadline_s: float  # deadline in any case


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """How the gateway introduces itself to a server."""

    client: Mapping[str, Any]  # clientInfo
    # what the server may request of us
    capabilities: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """Self-description of a server in one era."""

    revision: Revision
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""


class Link(Protocol):
    """One session at a server of a handshake revision, or the link to a stateless one."""

    facts: ServerDescription

    @property
    def revision(self) -> Revision:
        return self.facts.revision

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.facts.capabilities

    @property
    def receives_messages(self) -> bool:
        """Whether messages other than answers to our requests can be received."""
        return True

    @property
    def alive(self) -> bool:
        """Whether another request may be made; running requests are not affected."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        handler: MessageHandler | None,
        timeout: Timeout,
        *,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        """Send a request; returns the members of the result. Raises RelayedFault with the server's
        error as it came, SessionLost and UpstreamFailed.

        A progress token in `params._meta` is replaced by ours on the wire, and restored in what
        `handler` gets. Cancelling the task cancels the request at the server too.
        """

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Raises as `request` does."""

    async def close(self) -> None:
        """End the session; running requests fail."""


class SubscribableLink(Link, Protocol):
    """Link to a server of 2026-07-28."""

    def listen(
        self, filter_: Mapping[str, Any], handler: MessageHandler
    ) -> AbstractAsyncContextManager["asyncio.Future[Any]"]:
        """Open `subscriptions/listen` for `filter_`. Inside, `handler` is notified; the
        future is done when the server ends the stream, with UpstreamFailed if that was no regular
        end.

        The block begins once the server has acknowledged the filter: `handler` has received what it
        honours. Raises as `request` does.
        """


class SessionLost(UpstreamFailed):
    """The server does not know the session any more, or its process has ended."""

    def __init__(self, text: str, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent  # the server may have begun the request; else a retry is safe


class Mailbox:
    def __init__(self) -> None:
        self.over: Exception | None = None  # set once no more messages can come
        self._waiting: deque[ServerMessage] = deque()
        self._woken = asyncio.Event()

    def put(self, message: ServerMessage, required: bool = False) -> None:
        if required or len(self._waiting) < LIMIT:
            self._waiting.append(message)
            self._woken.set()

    def fail(self, error: Exception) -> None:
        self.over = self.over or error
        self._woken.set()

    async def get(self) -> ServerMessage:
        while not self._waiting:
            if self.over is not None:
                raise self.over
            self._woken.clear()
            await self._woken.wait()
        return self._waiting.popleft()


class NullHandler:
    """A MessageHandler that drops notifications and rejects requests."""

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ARG002
        raise MethodNotFound(f"No client is here to answer: {method[:100]}")


OnChange = Callable[[str, dict[str, Any]], None]


class ClientHandler:
    """A MessageHandler that forwards to one client its messages, in the shape of its revision."""

    def __init__(self, context: Context, on_change: OnChange) -> None:
        """A handler that forwards to the client of `context`; `on_change` gets changes of lists and
        resources, which concern more clients than this one."""
        self._context = context
        self._on_change = on_change
        self._progress_value = -inf  # last that was forwarded: a retried call begins again

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        peer = self._context.peer
        if method in CHANGES:
            self._on_change(method, params)
        elif peer is None:
            return
        elif method == PROGRESS:
            await self._progress(peer, params)
        elif self._concerns(method, params):
            await peer.notify(encode(Notification(method, params)))

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        return await self._context.ask(method, params)

    async def _progress(self, peer: Peer, params: dict[str, Any]) -> None:
        """Forward progress under the client's own token: a call that was parked began under that of
        an earlier request. Progress must increase: what goes back, or is no number, is dropped."""
        token, value = _meta(self._context).get("progressToken"), params.get("progress")
        if token is None or isinstance(value, bool) or not isinstance(value, int | float):
            return
        if value >= self._progress_value:
            self._progress_value = value
            relayed = {**params, "progressToken": token}
            await peer.notify(encode(Notification(PROGRESS, relayed)))

    def _concerns(self, method: str, params: dict[str, Any]) -> bool:
        if method == MESSAGE:
            return self._wants(params.get("level"))
        revision = self._context.revision
        return method == ELICITATION_COMPLETE and revision.handshake and revision.elicits_urls

    def _wants(self, level: Any) -> bool:
        least_level = wanted_level(self._context)
        if least_level is None:
            return False
        return SEVERITY.get(level, 0) >= least_level if isinstance(level, str) else True


class TranslatingHandler:
    """A MessageHandler that translates a server's requests for a client of another revision."""

    def __init__(
        self,
        inner: MessageHandler,
        *,
        client: Revision,
        capabilities: Mapping[str, Any],
        asker: str,
        server: Revision,
    ) -> None:
        """A handler for a client of revision `client`. `capabilities`: those of the client.
        `asker`: name of the server, shown to the client if it deals with several servers; else
        empty."""
        self._inner = inner
        self._revision = client
        self._capabilities = dict(capabilities)
        self._asker = asker
        self._server = server
        self.missing: dict[str, Any] = {}  # capabilities that the client would have needed

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        await self._inner.on_notification(method, params)

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        if method == "ping":
            return {}
        request = for_client(method, params, self._revision, self._capabilities, asker=self._asker)
        if isinstance(request, RefusalReason):
            self.missing |= request.required
            raise MethodNotFound(request.reason)
        result = await self._inner.on_request(method, request)
        return for_server(method, params, result, self._server)


def wanted_level(context: Context) -> int | None:
    """Minimum severity of log messages for the client; None: it wants none.

    A session that set no level gets what its server sends (`logging`, the handshake revisions); a
    2026-07-28 request that names no level gets none.
    """
    if context.session is not None:
        return SEVERITY.get(context.session.log_level or "", 0)
    level = _meta(context).get(META_LOG_LEVEL)
    return SEVERITY.get(level) if isinstance(level, str) else None


def _meta(context: Context) -> Mapping[str, Any]:
    meta = context.params.get("_meta")
    return meta if isinstance(meta, dict) else {}
