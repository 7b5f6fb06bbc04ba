"""A server whose connections are plain functions: when to read, and exactly which bytes to send."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

Talk = Callable[["Peer"], Awaitable[None]]


@dataclass
class Peer:
    """The server's end of one connection; `number` counts them from 0."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def head(self) -> bytes:
        """The next request without its body."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_for_close(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(OSError):
            while await self.reader.read(65536):
                pass


@dataclass
class Exact:
    url: str = ""
    connections: int = 0
    left: int = 0  # connections whose function has ended
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def all_left(self) -> None:
        while self.left < self.connections:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[Exact]:
    """A server on which each connection is `talk`, and closed after it."""
    exact = Exact()

    async def serve_peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, exact.connections)
        exact.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await talk(peer)
        finally:
            exact.left += 1
            exact.changed.set()
            writer.close()

    server = await asyncio.start_server(serve_peer, "127.0.0.1", 0)
    async with server:
        exact.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield exact
