"""HTTP/1.1 from the client's side: one connection, which carries one request at a time.

llhttp (through httptools) reads the responses, in its strict mode: differing or repeated lengths,
a length beside chunks, folded headers, bare LF and control characters are refused. What llhttp
does not check is checked here: sizes, transfer codings, and bytes that belong to no response. A
connection in any doubt is closed, never used again.

Errors are aiohttp's where it has one, since its client fetches remote files and tokens.
"""

import asyncio
import math
import re
import select
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, cast

import aiohttp
from httptools import HttpParserError, HttpResponseParser
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

# a head, the trailers, and the framing of chunks beyond CHUNK_FRAMING_BYTES each
HEAD_BYTES = 65536
HEADERS = 128  # of one response, as in aiohttp
CHUNK_FRAMING_BYTES = 64  # size line and CRLF; more of a chunk counts as part of a head
BUFFER_BYTES = 262144  # body bytes that wait for their reader; no more are read from the socket
JOINED_BODY_BYTES = 65536  # longest body that is copied behind its head, to be one write

BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # their lack of a body is not declared
DEFAULT_HEADERS = {
    "User-Agent": "toolgate",
    "Accept": "application/json, */*;q=0.8",
    "Accept-Encoding": "gzip, deflate",
}


class ConnectFailed(aiohttp.ClientConnectionError):
    """No connection was made, so nothing was sent. The cause says why."""


class MalformedResponse(aiohttp.ClientError):
    """A response that violates HTTP or a limit of its framing."""


class MalformedRequest(aiohttp.ClientError):
    """A request that would not be one request: its target or a header has forbidden characters."""


class TooLarge(Exception):
    """An answer exceeds a size limit."""

    def __init__(self, limit_bytes: int, setting: str = "upstream.response_limit_bytes") -> None:
        super().__init__(f"answered more than {limit_bytes} bytes ({setting})")


class Stream:
    """A body that is read while it is sent, once. `length` is None if unknown."""

    def __init__(self, chunks: AsyncIterator[bytes], length: int | None) -> None:
        self.chunks = chunks
        self.length = length


class Origin(NamedTuple):
    """Connection-pool key: scheme, host and port."""

    tls: bool
    host: str  # as resolved, and as verified in the certificate
    port: int


class Http1Request(NamedTuple):
    method: str
    target: str  # path and query, which follow the path of the site
    headers: Mapping[str, str]
    body: bytes | Stream | None = None


class FixedHeaders(dict[str, str]):
    """Headers of requests that are sent again and again: encoded once for a site and a method, all
    of them with a body or all without."""

    site: "Site | None" = None
    method = ""
    has_body = False
    tail = b""  # of heads: all but the request line, and the length of a body


class TracedHeaders(dict[str, str]):
    """Headers of one request: `fixed`, encoded before, which name no trace, and `traceparent`."""

    __slots__ = ("fixed", "traceparent")

    def __init__(self, fixed: FixedHeaders, traceparent: str) -> None:
        super().__init__(fixed, traceparent=traceparent)
        self.fixed = fixed
        self.traceparent = traceparent


class Site:
    """The address that requests are sent to: an origin, a path that their targets follow, and
    their default headers."""

    __slots__ = ("_lines", "_path", "origin")

    def __init__(self, url: URL) -> None:
        """Raises aiohttp.InvalidURL."""
        host, port, name = url.raw_host, url.port, url.host_port_subcomponent
        if url.scheme not in ("http", "https") or not host or not port or not name:
            raise aiohttp.InvalidURL(str(url))
        if not host.isascii():
            raise aiohttp.InvalidURL(str(url))
        self.origin = Origin(url.scheme == "https", host.rstrip("."), port)
        path = url.raw_path_qs
        self._path = "" if path == "/" else path
        headers = {"Host": name, **DEFAULT_HEADERS}
        if url.user is not None:
            headers["Authorization"] = _basic(url)
        self._lines = {name.lower(): f"{name}: {value}" for name, value in headers.items()}

    def head(self, request: Http1Request) -> bytes:
        """Request line and headers. Raises MalformedRequest."""
        method, target, headers, body = request
        path = self._path + target.partition("#")[0] or "/"
        if " " in path or not path.isprintable():
            raise MalformedRequest("control characters in its path")
        try:
            line = f"{method} {path} HTTP/1.1\r\n".encode()
            if type(headers) is TracedHeaders:
                line += f"traceparent: {headers.traceparent}\r\n".encode()
                headers = headers.fixed
            if type(headers) is not FixedHeaders or isinstance(body, Stream):
                return line + self._tail(method, headers, body)
            if headers.site is not self or headers.method != method:
                self._prepare(headers, method, has_body=body is not None)
            if headers.has_body is (body is None):
                return line + self._tail(method, headers, body)
            if body is None:
                return line + headers.tail
            return b"%b%bContent-Length: %d\r\n\r\n" % (line, headers.tail, len(body))
        except UnicodeEncodeError as error:
            raise MalformedRequest("lone surrogates in its path or a header") from error

    def _prepare(self, headers: FixedHeaders, method: str, *, has_body: bool) -> None:
        """Encode headers once. Raises as `_tail` does."""
        tail = self._tail(method, headers, b"" if has_body else None)
        headers.tail = tail.replace(_NO_LENGTH, b"\r\n", 1)[:-2] if has_body else tail
        headers.site, headers.method, headers.has_body = self, method, has_body

    def _tail(
        self, method: str, headers: Mapping[str, str], body: "bytes | Stream | None"
    ) -> bytes:
        """Headers, and the empty line after them. Raises MalformedRequest, and
        UnicodeEncodeError."""
        lines = self._lines.copy()
        for name, value in headers.items():
            lines[_field(name)] = f"{name}: {value}"
        if body is None and method in BODILESS:
            lines.pop("content-length", None)
            lines.pop("transfer-encoding", None)
        else:
            _frame(lines, method, body)
        fields = "\r\n".join(lines.values())
        breaks = len(lines) - 1
        if (
            _NOT_IN_FIELDS.search(fields)
            or fields.count("\r") != breaks
            or fields.count("\n") != breaks
        ):
            raise MalformedRequest("control characters in a header")
        head = f"{fields}\r\n\r\n"
        return head.encode("ascii") if head.isascii() else _encode_lines(head)


def _basic(url: URL) -> str:
    """The credentials of a URL as a header. Raises aiohttp.InvalidURL."""
    try:
        return aiohttp.encode_basic_auth(url.user or "", url.password or "")
    except ValueError as error:  # a colon in the user's name, or a lone surrogate
        raise aiohttp.InvalidURL(str(url)) from error


_NO_LENGTH = b"\r\nContent-Length: 0\r\n"
_NOT_IN_FIELDS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_KEEP_ALIVE_TIMEOUT = re.compile(r"(?:^|[\s,;])timeout\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2


def _encode_lines(head: str) -> bytes:
    """Header lines as browsers send and ASGI servers read them, in Latin-1; in UTF-8 those that
    have other characters. Raises UnicodeEncodeError."""
    lines = head.split("\r\n")
    return b"\r\n".join(
        line.encode("latin-1" if max(line, default="") <= "\xff" else "utf-8") for line in lines
    )


@lru_cache(1024)
def _field(name: str) -> str:
    """A header's name in lower case. Raises MalformedRequest."""
    if _TOKEN.fullmatch(name) is None:
        raise MalformedRequest("a header's name is not one")
    return name.lower()


def _frame(lines: dict[str, str], method: str, body: bytes | Stream | None) -> None:
    """Declare where the body ends, instead of what the caller's headers say about that."""
    if _TOKEN.fullmatch(method) is None:
        raise MalformedRequest("its method is not one")
    lines.pop("content-length", None)
    lines.pop("transfer-encoding", None)
    if body is None:
        if method not in BODILESS:
            lines["content-length"] = "Content-Length: 0"
        return
    length = len(body) if isinstance(body, bytes) else body.length
    if length is None:
        lines["transfer-encoding"] = "Transfer-Encoding: chunked"
    else:
        lines["content-length"] = f"Content-Length: {length}"
    lines.setdefault("content-type", "Content-Type: application/octet-stream")


class State(Enum):
    """Parser state: the meaning of the server's next bytes."""

    IDLE = auto()  # nothing: no request is under way
    HEAD = auto()  # a status line and headers, perhaps of an interim response
    BODY = auto()
    DONE = auto()  # nothing: the response is complete, and its reader has not closed it
    CLOSED = auto()


class Http1Connection(asyncio.Protocol):
    """A connection to a server, with the response that arrives on it.

    `exchange` takes it from IDLE to HEAD; the server's bytes from there to BODY and DONE; `reuse`
    back to IDLE. Any doubt about it leads to CLOSED.
    """

    def __init__(
        self,
        origin: Origin,
        release: "Callable[[Http1Connection], None]",
        head_limit_bytes: int = HEAD_BYTES,
        headers_limit: int = HEADERS,
    ) -> None:
        """`release` takes the connection back when its response is closed."""
        self._head_limit_bytes = head_limit_bytes
        self._headers_limit = headers_limit
        self.origin = origin
        self.release = release
        self.state = State.IDLE
        self.idle_since = self.idle_until = 0.0
        self.keep_alive_s = math.inf  # how long it may be idle, as its server said
        self.silent = True  # no byte of the present response has arrived
        self.closed = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)  # old servers
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None  # waits for a change of the response
        self._writer: asyncio.Future[None] | None = None  # waits for room to write
        self._writing_paused = False
        self._sending: asyncio.Task[None] | None = None  # of a streamed body
        self._sent = True  # the whole request
        self._status = 0
        self._headers: CIMultiDict[str] | None = None  # of the present response
        self._chunks: list[bytes] = []  # of the body, not taken yet
        self._keep_alive = False

    @property
    def idle(self) -> bool:
        """Whether a request can be sent."""
        return self.state is State.IDLE and not self.transport.is_closing()

    def is_readable(self) -> bool:
        """Whether the server has sent or closed something that the event loop has not seen yet: in
        its turn a request comes before what arrived meanwhile."""
        ready = select.poll()
        ready.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(ready.poll(0))

    @property
    def _is_awaiting(self) -> bool:
        """Whether a request was sent whose response is not complete."""
        return self.state is State.HEAD or self.state is State.BODY

    # -- the request --

    async def exchange(self, request: Http1Request, head: bytes) -> "Http1Response":
        """Send a request, whose encoded head is `head`, and wait for the head of its response.
        Unless that comes, the connection is closed. Raises aiohttp.ClientError."""
        # in one function: every upstream call passes here
        self._method = request.method
        self._reason = b""
        self._fields: list[tuple[str, str]] = []
        self._chunks = []
        self._buffered_bytes = 0
        self._framing_bytes = 0
        self._until_end = False  # the end of the connection is that of the body
        self._keep_alive = False
        self._reading_paused = False
        self.silent = True
        self.state = State.HEAD
        try:
            if request.body is None:
                self.transport.write(head)
            else:
                self._send(head, request.body)
            while self.state is State.HEAD:
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
            if self._headers is None:
                raise self._failure()
        except BaseException:
            self.abort()
            raise
        if "Keep-Alive" in self._headers:
            self.keep_alive_s = _keep_alive_s(self._headers["Keep-Alive"])
        response = Http1Response(
            request, self._status, self._reason.decode("utf-8", "surrogateescape"), self._headers
        )
        if (
            self.state is State.DONE
            and not self._reading_paused
            and "Content-Encoding" not in response.headers
        ):
            response.body = b"".join(self._chunks)
            if (  # `reuse`, in place
                self._keep_alive
                and self._sent
                and not self.transport.is_closing()
                and self.transport.get_write_buffer_size() == 0
            ):
                self.state = State.IDLE
                self._sending = None
                self._headers = None
                self._chunks.clear()
            self.release(self)
        else:
            response.connection = self
        return response

    def _send(self, head: bytes, body: bytes | Stream) -> None:
        if isinstance(body, Stream):
            self._sent = False
            self.transport.write(head)
            self._sending = asyncio.create_task(self._send_stream(body))
            self._sending.add_done_callback(self._stream_ended)
        elif len(body) <= JOINED_BODY_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    async def _send_stream(self, body: Stream) -> None:
        remaining = body.length
        async for chunk in body.chunks:
            if not chunk:
                continue
            if remaining is None:
                chunk = b"%x\r\n%b\r\n" % (len(chunk), chunk)
            elif (remaining := remaining - len(chunk)) < 0:
                break
            self.transport.write(chunk)
            if self._writing_paused:
                self._writer = asyncio.get_running_loop().create_future()
                await self._writer
        if remaining:
            raise aiohttp.ClientConnectionError("the body has another length than it declared")
        if remaining is None:
            self.transport.write(b"0\r\n\r\n")
        self._sent = True

    def _stream_ended(self, sending: "asyncio.Task[None]") -> None:
        error = None if sending.cancelled() else sending.exception()
        if error is not None and self._is_awaiting:
            broken = aiohttp.ClientConnectionError("the body could not be sent")
            broken.__cause__ = error
            self.fail(broken)

    # -- the response, as its reader takes it --

    @property
    def is_drained(self) -> bool:
        """Whether the response is complete, and all of its body was taken."""
        return self.state is State.DONE and not self._chunks

    async def take(self) -> bytes:
        """The bytes of the body that have arrived, at least one; empty at its end. Raises
        aiohttp.ClientError."""
        while not self._chunks:
            if self.state is State.DONE:
                return b""
            if self.state is not State.BODY:
                raise self._failure()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        chunks, self._chunks, self._buffered_bytes = self._chunks, [], 0
        if self._reading_paused and self.state is not State.CLOSED:
            self._reading_paused = False
            self.transport.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def reuse(self) -> bool:
        """Whether the connection can carry another request; else it is closed."""
        if (
            self.state is State.DONE
            and self._keep_alive
            and self._sent
            and not self._reading_paused
            and not self.transport.is_closing()
            and self.transport.get_write_buffer_size() == 0
        ):
            self.state = State.IDLE
            self._sending = None
            self._headers = None
            self._chunks.clear()
            return True
        self.abort()
        return False

    def abort(self) -> None:
        """Close the connection at once, whatever it was at."""
        if self._sending is not None:
            self._sending.cancel()
        self.state = State.CLOSED
        self.transport.abort()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _failure(self) -> Exception:
        return self._error or aiohttp.ServerDisconnectedError()

    def fail(self, error: Exception) -> None:
        """Close the connection; who waits for it gets the error."""
        self._error = error
        self.abort()
        self._wake()

    def _end(self, keep_alive: bool) -> None:
        self.state = State.DONE
        self._keep_alive = keep_alive

    # -- events of the transport --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_awaiting:  # bytes that belong to no response
            self._keep_alive = False
            if self.state is State.IDLE:
                self.abort()
            return
        self.silent = False
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._refuse(error)
        if self._framing_bytes > self._head_limit_bytes:
            self.fail(MalformedResponse("its head or its framing is too long"))
        self._framing_bytes = max(0, self._framing_bytes)  # many chunks allow no long one
        self._wake()

    def _refuse(self, error: HttpParserError) -> None:
        """Handle bytes that the parser cannot read, perhaps behind a complete response."""
        self._keep_alive = False
        if self.state is not State.DONE:
            self.fail(MalformedResponse(str(error)))

    def eof_received(self) -> None:
        self._on_end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end(error)
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _on_end(self, error: Exception | None) -> None:
        """Handle the end of what the server sends, which completes some bodies."""
        self._keep_alive = False
        if self.state is State.BODY and self._until_end and error is None:
            self._end(keep_alive=False)
        elif self.state is State.BODY:
            self.fail(aiohttp.ClientPayloadError("the body is not complete"))
        elif self.state is State.HEAD:
            self.fail(aiohttp.ServerDisconnectedError())
        elif self.state is State.IDLE:
            self.abort()
        self._wake()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    # -- events of the parser --

    def on_message_begin(self) -> None:
        if self.state is State.DONE:
            raise MalformedResponse("bytes follow the response")
        self._reason = b""
        self._fields = []

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        try:
            text = value.decode().strip(" \t")
        except UnicodeDecodeError:
            text = value.decode("latin-1").strip(" \t")  # which servers of the ASGI kind send
        self._fields.append((name.decode("ascii"), text))  # trailers are counted, but not used
        if len(self._fields) > self._headers_limit:
            raise MalformedResponse("it has too many headers")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:
                raise MalformedResponse("a protocol that was not asked for")
            return  # an interim response: the final one follows
        headers = CIMultiDict(self._fields)
        self._until_end = _is_until_end(headers)
        self._status, self._headers, self.state = status, headers, State.BODY
        if self._method == "HEAD":
            self._end(keep_alive=False)  # llhttp cannot be told that there is no body

    def on_body(self, chunk: bytes) -> None:
        if self.state is not State.BODY:
            return
        self._framing_bytes -= len(chunk)
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        if self._buffered_bytes > BUFFER_BYTES and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def on_chunk_header(self) -> None:
        self._framing_bytes -= CHUNK_FRAMING_BYTES

    def on_message_complete(self) -> None:
        if self.state is State.BODY:
            self._end(self._parser.should_keep_alive())


@lru_cache(64)
def _keep_alive_s(header: str) -> float:
    """How long a connection may be idle by a `Keep-Alive` header, with a margin for the way."""
    match = _KEEP_ALIVE_TIMEOUT.search(header)
    if match is None:
        return math.inf
    timeout_s = float(match[1])
    return max(timeout_s - 1, timeout_s / 2)


def _is_until_end(headers: CIMultiDict[str]) -> bool:
    """Whether only the end of the connection ends the body. Raises MalformedResponse."""
    codings = headers.getall("Transfer-Encoding", None)
    if codings is None:
        return "Content-Length" not in headers
    if len(codings) > 1 or codings[0].lower() != "chunked":
        raise MalformedResponse("its transfer coding is not chunked alone")
    return False


class Http1Response(Struct):
    """A response whose body is read as it arrives, decompressed. Its connection is held until
    `close`, unless `body` is set: the whole of it had arrived with the head."""

    request: Http1Request
    status: int
    reason: str
    headers: CIMultiDict[str]
    body: bytes | None = None
    connection: Http1Connection | None = None  # while it is held

    @property
    def complete(self) -> bool:
        """Whether nothing of the body is left to be read."""
        return self.connection is None or self.connection.is_drained

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        declared = self.headers.get("Content-Type", "application/octet-stream")
        return declared.partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """Declared length of the body, which a response to HEAD does not send."""
        declared = self.headers.get("Content-Length")
        return None if declared is None else int(declared)

    async def read(self) -> bytes:
        """The whole body. Raises aiohttp.ClientError."""
        if self.body is not None:
            return self.body
        return b"".join([chunk async for chunk in self.iter_any()])

    def iter_any(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come. Raises aiohttp.ClientError."""
        encoding = self.headers.get("Content-Encoding", "").lower()
        if encoding in _UNDECODABLE:
            raise MalformedResponse(f"its content coding {encoding} was not asked for")
        return self._inflate(encoding) if encoding in _WINDOWS else self._plain()

    def close(self) -> None:
        """Give the connection back; it is closed if the body was not read to its end."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.release(connection)

    def fail(self, error: Exception) -> None:
        """Let the reader of the body have an error in place of what has not come."""
        if self.connection is not None:
            self.connection.fail(error)

    def _require_connection(self) -> Http1Connection:
        if self.connection is None:
            raise aiohttp.ClientConnectionError("the connection was given back")
        return self.connection

    async def _plain(self) -> AsyncIterator[bytes]:
        if self.body is not None:
            if self.body:
                yield self.body
            return
        while chunk := await self._require_connection().take():
            yield chunk

    async def _inflate(self, encoding: str) -> AsyncIterator[bytes]:
        inflater: Inflater | None = None
        async for chunk in self._plain():
            inflater = inflater or Inflater(encoding, chunk)
            for piece in inflater.pieces(chunk):
                yield piece
        if inflater is not None:
            inflater.end()


_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # wbits of zlib
_UNDECODABLE = frozenset({"br", "zstd", "compress"})


class Inflater:
    """Decompresses a body, at most PIECE_BYTES at once: a bomb is counted while it grows."""

    PIECE_BYTES = 262144
    SLICE_BYTES = 16384  # zlib copies what follows a member, at most the rest of a slice
    OVERHEAD_BYTES = 2**20  # by which input may exceed output: empty members have no end otherwise

    def __init__(self, encoding: str, beginning: bytes) -> None:
        wbits = _WINDOWS[encoding]
        if encoding == "deflate" and beginning[0] & 0x0F != 8:
            wbits = -15  # without the header of zlib, as some servers understand "deflate"
        self._wbits = wbits
        self._stream = zlib.decompressobj(wbits)
        self._overhead_bytes = 0

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Raises aiohttp.ClientPayloadError."""
        for start in range(0, len(chunk), self.SLICE_BYTES):
            part = chunk[start : start + self.SLICE_BYTES]
            self._overhead_bytes += len(part)
            for piece in self._pieces(part):
                self._overhead_bytes = max(0, self._overhead_bytes - len(piece))
                yield piece
            if self._overhead_bytes > self.OVERHEAD_BYTES:
                raise aiohttp.ClientPayloadError("the compressed body is longer than what it holds")

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        more = False  # the output was full, and its rest is inside of zlib
        while chunk or more:
            if self._stream.eof:  # RFC 1952, 2.2: a gzip file may have several members
                self._stream = zlib.decompressobj(self._wbits)
            try:
                piece = self._stream.decompress(chunk, self.PIECE_BYTES)
            except zlib.error as error:
                raise aiohttp.ClientPayloadError("the body cannot be decompressed") from error
            chunk = self._stream.unconsumed_tail or self._stream.unused_data
            more = len(piece) == self.PIECE_BYTES and not self._stream.eof
            if piece:
                yield piece

    def end(self) -> None:
        """Raises aiohttp.ClientPayloadError when the body is not complete."""
        if not self._stream.eof:
            raise aiohttp.ClientPayloadError("the compressed body is not complete")
