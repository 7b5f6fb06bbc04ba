"""MCP over the standard input and output of a process: one JSON text on each line."""

import time

from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.mcp.backoff import Respawn
from gateway.upstreams.mcp.duplex import DuplexLink
from gateway.upstreams.mcp.link import Hearer, Hello, LinkFacts, SessionLost, Timeout
from gateway.upstreams.mcp.process import LineProcess, ProcessCommand
from schemas.mcp.revisions import V2025_11_25, Revision


class Stdio:
    """A Carrier: one process of a source's command."""

    def __init__(self, command: ProcessCommand, link: DuplexLink, respawn: Respawn) -> None:
        self.name = command.name
        self.limit_bytes = command.line_limit_bytes
        self._command = command
        self._link = link
        self._respawn = respawn
        self._process: LineProcess | None = None
        self._since = 0.0

    @property
    def open(self) -> bool:
        return self._process is not None and self._process.running

    async def start(self) -> None:
        """Raises UpstreamFailed, also during the backoff after the last process ended."""
        self._respawn.check()
        self._since = time.monotonic()
        try:
            self._process = await LineProcess.start(self._command, self._link.arrived, self._ended)
        except OSError as error:
            self._respawn.ended(0.0, "could not be started")
            raise UpstreamFailed(f"{self.name} could not be started") from error

    async def send(self, body: bytes) -> None:
        if self._process is None or not self._process.running:
            raise SessionLost(f"{self.name} has ended", sent=False)
        if not self._process.write(body):
            raise UpstreamFailed(f"{self.name} does not read what it is sent")

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()

    def _ended(self, why: str) -> None:
        self._respawn.ended(time.monotonic() - self._since, why)
        self._link.lost(SessionLost(f"{self.name} {why}", sent=True))


async def open_stdio(
    command: ProcessCommand,
    respawn: Respawn,
    hello: Hello,
    background: Hearer,
    timeout: Timeout,
    *,
    asks_limit: int,
    revision: Revision = V2025_11_25,
) -> DuplexLink:
    """Start a process and begin its session. Raises RelayedFault and UpstreamFailed."""
    link = DuplexLink(background, hello, command.name, asks_limit)
    link.carrier = carrier = Stdio(command, link, respawn)
    try:
        await carrier.start()
        await link.begin(revision, timeout)
    except UpstreamFailed:
        useless = carrier.open
        await link.close()
        if useless:
            respawn.ended(0.0, "was started and did not begin a session")
        raise
    except BaseException:
        await link.close()
        raise
    return link


async def open_stdio_stateless(
    command: ProcessCommand, respawn: Respawn, hello: Hello, background: Hearer, facts: LinkFacts
) -> DuplexLink:
    """Start a process that is known to speak 2026-07-28. Raises UpstreamFailed."""
    link = DuplexLink(background, hello, command.name, 0)
    link.facts = facts
    link.carrier = carrier = Stdio(command, link, respawn)
    try:
        await carrier.start()
    except BaseException:
        await link.close()
        raise
    return link
