"""Servers that speak byte for byte, for what no HTTP library would send."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


def response(
    body: bytes = b"", status: bytes = b"200 OK", headers: bytes = b"", length: int | None = None
) -> bytes:
    """An HTTP/1.1 response; `headers` are whole lines, `length` may lie."""
    declared = len(body) if length is None else length
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, declared, body)


@dataclass
class Script:
    """Answers each connection's one request by the next of `answers`, then hangs up.

    An empty answer hangs up at once; the last answer is repeated.
    """

    answers: Sequence[bytes]
    requests: list[bytes] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def speaking(*answers: bytes) -> AsyncIterator[tuple[str, Script]]:
    """The URL of a server that follows a script, and the script with what was asked."""
    script = Script(answers)
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", script
