"""A relay to a server that can freeze: it keeps and accepts connections, and passes no byte on.

A stopped server looks like this, since the kernel goes on to accept and to acknowledge.
"""

import asyncio
import socket
from asyncio import Protocol, Transport
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from config.settings import DatabaseSettings
from tests.backends import idle_backends

SOCKET = ".s.PGSQL.5432"


class FreezingRelay:
    def __init__(self, target: Path) -> None:
        self.target = target
        self.frozen = False
        self.accepted = 0  # connections
        self.transports: set[Transport] = set()

    def freeze(self) -> None:
        self.frozen = True
        for transport in self.transports:
            transport.pause_reading()

    def thaw(self) -> None:
        self.frozen = False
        for transport in self.transports:
            transport.resume_reading()

    def close(self) -> None:
        for transport in self.transports:
            transport.abort()


class _End(Protocol):
    """One end of a relayed connection."""

    def __init__(self, relay: FreezingRelay, other: "_End | None" = None) -> None:
        self._relay = relay
        self._other = other
        self.transport: Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("Transport", transport)
        self._relay.transports.add(self.transport)
        if self._relay.frozen:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        assert self._other is not None
        assert self._other.transport is not None
        self._other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.transport is not None
        self._relay.transports.discard(self.transport)
        if self._other is not None and self._other.transport is not None:
            self._other.transport.close()


class _Accepted(_End):
    """The end of a client, which connects to the server at once, without a wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relay.accepted += 1
        self._other = _End(self._relay, self)
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._relay.target))
        server.setblocking(False)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(
            loop.create_unix_connection(lambda: cast("_End", self._other), sock=server)
        )
        if self.transport is not None:
            self.transport.pause_reading()
        self._connecting.add_done_callback(self._begin_reading)

    def _begin_reading(self, _task: object) -> None:
        if self.transport is not None and not self._relay.frozen:
            self.transport.resume_reading()


@asynccontextmanager
async def freezing(
    settings: DatabaseSettings, directory: Path, **bounds: float
) -> AsyncIterator[tuple[DatabaseSettings, FreezingRelay]]:
    """The database of `settings` through a relay, whose socket is in `directory`.

    Its backends are not used again: they would be reset without the event loop of the relay.
    """
    parts = conninfo_to_dict(settings.url)
    name = str(parts["dbname"])
    idle_backends.forbid(name)
    relay = FreezingRelay(Path(str(parts["host"])) / SOCKET)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: _Accepted(relay), directory / SOCKET)
    url = make_conninfo(settings.url, host=str(directory))
    limits = {"answer_timeout_s": 0.2, "connect_timeout_s": 1.0, **bounds}
    try:
        yield replace(settings, url=url, **limits), relay
    finally:
        server.close()
        relay.close()
        idle_backends.allow(name)
