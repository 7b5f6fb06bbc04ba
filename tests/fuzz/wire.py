"""A plain HTTP/1.1 connection that sends exactly the bytes it is given."""

import asyncio
from collections.abc import Callable

import httptools

from tests.fuzz.judge import Answer

READ_BYTES = 1 << 16
PATIENCE_S = 60  # a loaded machine is slow, not wrong


class Dropped(Exception):
    """The server closed the connection without a complete answer."""


class Connection:
    """One connection after the other: a new one where the server has closed the last."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> Answer:
        """Raises Dropped, or TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            if self._streams is not None:
                try:
                    return await self._exchange(*self._streams, request)
                except (Dropped, OSError):
                    self.close()  # it may have been closed before this request came
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                return await self._exchange(*self._streams, request)
            except OSError as error:
                raise Dropped(str(error)) from error

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> Answer:
        writer.write(request)
        received = _Received()
        while not received.complete:
            data = await reader.read(READ_BYTES)
            if not data:
                raise Dropped("no complete answer")
            received.feed(data)
            if received.is_stream and b"\n\n" in received.body.replace(b"\r\n", b"\n"):
                self.close()  # heard enough; these may never end
                return received.answer
        if not received.parser.should_keep_alive():
            self.close()
        return received.answer


class _Received:
    """An answer as it comes in."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.feed: Callable[[bytes], None] = self.parser.feed_data
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self._chunks: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        if self.is_stream:
            self.body = b"".join(self._chunks)

    def on_message_complete(self) -> None:
        self.complete = True
        self.body = b"".join(self._chunks)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def answer(self) -> Answer:
        return Answer(self.parser.get_status_code(), self.headers, self.body)
