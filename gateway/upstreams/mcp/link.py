"""The way to one MCP server, whatever it runs over: what its users hold, and what they hear."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Raw

from gateway.upstreams.http.connections import UpstreamFailed
from schemas.mcp.revisions import Revision


class Hearer(Protocol):
    """Hears what a server says while a request of ours runs."""

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        """The server waits while this runs: what it says next is not read before."""

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request of the server's. A Fault becomes the error that it gets."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """How long to wait for an answer, in seconds."""

    idle_s: float  # begun anew by all that is heard of the request; stands still while we are asked
    most_s: float  # whatever is heard


@dataclass(frozen=True, slots=True)
class Hello:
    """How we present ourselves to a server."""

    client: Mapping[str, Any]  # clientInfo
    capabilities: Mapping[str, Any] = field(default_factory=dict)  # what we can be asked


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server said of itself in one era."""

    revision: Revision
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""


class Link(Protocol):
    """One session at a server of a handshake revision, or the way to a stateless one."""

    facts: Facts

    @property
    def revision(self) -> Revision:
        return self.facts.revision

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.facts.capabilities

    @property
    def hears(self) -> bool:
        """Whether the server can say anything beside the answers to our requests."""
        return True

    @property
    def alive(self) -> bool:
        """Whether another request may be made; those that run are not affected."""

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

        A progress token in `params._meta` is ours on the wire, and the caller's again in what
        `hearer` gets. Cancelling it cancels the request at the server too.
        """

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Raises as `request` does."""

    async def close(self) -> None:
        """End the session; requests that still run fail."""


class StatelessWay(Link, Protocol):
    """The way to a server of 2026-07-28."""

    def listen(
        self, wanted: Mapping[str, Any], hearer: Hearer
    ) -> AbstractAsyncContextManager["asyncio.Future[Any]"]:
        """`subscriptions/listen` for the filter `wanted`. Inside, `hearer` is notified; the future
        is done when the server ends that, with UpstreamFailed when it did not mean to.

        The server has acknowledged the filter when the inside begins: `hearer` knows what it
        honours. Raises as `request` does.
        """


class SessionLost(UpstreamFailed):
    """The server does not know the session any more, or its process has ended."""

    def __init__(self, text: str, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent  # the server may have begun the request; else it can be repeated safely
