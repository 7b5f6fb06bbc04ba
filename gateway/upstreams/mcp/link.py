"""Link to one MCP server, independent of transport: its interface, and the Hearer of messages."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Raw

from gateway.upstreams.http.connections import UpstreamFailed
from schemas.mcp.revisions import Revision


class Hearer(Protocol):
    """Receives notifications and requests of a server while a request of ours runs."""

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        """The server's next message is not read before this returns: backpressure."""

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request of the server's. A Fault becomes the error that it gets."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """Time limits of an answer, in seconds."""

    idle_s: float  # restarted by every message of the request; paused while the server asks us
    most_s: float  # deadline in any case


@dataclass(frozen=True, slots=True)
class Hello:
    """How the gateway introduces itself to a server."""

    client: Mapping[str, Any]  # clientInfo
    capabilities: Mapping[str, Any] = field(default_factory=dict)  # what we can be asked


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Self-description of a server in one era."""

    revision: Revision
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""


class Link(Protocol):
    """One session at a server of a handshake revision, or the link to a stateless one."""

    facts: LinkFacts

    @property
    def revision(self) -> Revision:
        return self.facts.revision

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.facts.capabilities

    @property
    def hears(self) -> bool:
        """Whether messages other than answers to our requests can be received."""
        return True

    @property
    def alive(self) -> bool:
        """Whether another request may be made; running requests are not affected."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        hearer: Hearer | None,
        timeout: Timeout,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        """The members of the result. Raises RelayedFault with the server's error as it came,
        SessionLost and UpstreamFailed.

        A progress token in `params._meta` is replaced by ours on the wire, and restored in what
        `hearer` gets. Cancelling the task cancels the request at the server too.
        """

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Raises as `request` does."""

    async def close(self) -> None:
        """End the session; running requests fail."""


class StatelessWay(Link, Protocol):
    """Link to a server of 2026-07-28."""

    def listen(
        self, wanted: Mapping[str, Any], hearer: Hearer
    ) -> AbstractAsyncContextManager["asyncio.Future[Any]"]:
        """`subscriptions/listen` for the filter `wanted`. Inside, `hearer` is notified; the future
        is done when the server ends the stream, with UpstreamFailed if that was no regular end.

        The block begins once the server has acknowledged the filter: `hearer` has received what it
        honours. Raises as `request` does.
        """


class SessionLost(UpstreamFailed):
    """The server does not know the session any more, or its process has ended."""

    def __init__(self, text: str, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent  # the server may have begun the request; else a retry is safe
