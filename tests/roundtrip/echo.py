"""A server that keeps what it is sent, byte for byte, and answers `{}`. HTTP/1.1 on sockets: no
framework between the wire and the judge."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    target: str  # as on the wire
    headers: tuple[tuple[str, str], ...]  # names in lower case
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def one(self, name: str) -> str | None:
        found = self.all(name)
        return found[0] if len(found) == 1 else None


@dataclass
class Echo:
    port: int = 0
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self) -> list[Received]:
        """What came since the last time."""
        taken, self.received = self.received, []
        return taken

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(reader):
                request = await _request(head, reader)
                self.received.append(request)
                writer.write(_ANSWER + (b"" if request.method == "HEAD" else b"{}"))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, limit=2**24)
    async with server:
        echo.port = server.sockets[0].getsockname()[1]
        yield echo


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return b""


async def _request(head: bytes, reader: asyncio.StreamReader) -> Received:
    first, *lines = head[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    pairs = [line.partition(b":")[::2] for line in lines]
    headers = tuple(
        (name.decode().lower(), value.decode("utf-8", "surrogateescape").strip(" \t"))
        for name, value in pairs
    )
    return Received(method.decode(), target.decode(), headers, await _body(dict(headers), reader))


async def _body(headers: dict[str, str], reader: asyncio.StreamReader) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
