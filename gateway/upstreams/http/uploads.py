"""Remote files in calls: opened, checked and streamed while they are sent.

A caller names a URL or a resource; neither it nor its redirects may lead into a private network,
unless settings allow it. A URL is streamed. A resource is read whole, by this gateway's
`resources/read` for the same caller.
"""

import binascii
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import ThreadedResolver
from anyio import to_thread
from msgspec import Raw, Struct
from msgspec.structs import replace
from yarl import URL

from config.settings import UpstreamSettings as Limits
from gateway.context import Context
from gateway.http_client.deadline import Deadline
from gateway.http_client.http1 import Stream
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.file_arguments import (
    ANY_TYPE,
    CallFile,
    Piece,
    RemoteFile,
    StreamedBody,
    known_type,
    media_type_of,
    name_of,
)
from gateway.upstreams.http.source_pools import UpstreamFailed
from registry.documents.ssrf_protection import (
    PrivateAddress,
    PublicResolver,
    check_url_host,
    read_url,
)

REDIRECT_LIMIT = 5  # in a row
FETCHED_LIMIT = 100  # files of one call: each holds a connection until all are sent
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK_BYTES = 65536
_HEADERS = {"User-Agent": "toolgate", "Accept": "*/*", "Accept-Encoding": "identity"}

ReadResource = Callable[[str, Context], Awaitable[Mapping[str, Raw] | None]]
"""The members of what `resources/read` says of a URI to this caller; None when it cannot."""


class _Content(Struct, frozen=True, rename="camel"):
    """One member of `contents` (MCP, `TextResourceContents` and `BlobResourceContents`)."""

    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


_contents = msgspec.json.Decoder(list[_Content])


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file that is about to be sent."""

    argument: str
    before: bytes
    media_type: str | None
    response: aiohttp.ClientResponse
    length: int | None


class Uploads:
    """Opens the remote files of calls. `limits` returns the current ones."""

    def __init__(self, limits: Callable[[], Limits], read_resource: ReadResource) -> None:
        self._limits = limits
        self._read_resource = read_resource

    @asynccontextmanager
    async def open(self, request: HttpRequest, context: Context) -> AsyncIterator[HttpRequest]:
        """`request` with a body that can be sent, inside. Raises UpstreamFailed."""
        upload, limits = request.upload, self._limits()
        if upload is None:
            yield request
            return
        if sum(isinstance(piece, RemoteFile) for piece in upload.pieces) > FETCHED_LIMIT:
            raise UpstreamFailed(f"more than {FETCHED_LIMIT} files that lie elsewhere")
        async with AsyncExitStack() as stack:
            sending = _Sending(limits.upload_limit_bytes)
            until = time.monotonic() + limits.timeout_s  # for all of them
            for piece in upload.pieces:
                sending.add(await self._piece(piece, until, context, stack))
            try:
                yield sending.request(request, upload)
            except UpstreamFailed as error:
                if sending.failure is None:
                    raise
                raise sending.failure from error  # why the body broke off

    async def _piece(
        self, piece: Piece, until: float, context: Context, stack: AsyncExitStack
    ) -> "bytes | _Opened | _Held":
        if isinstance(piece, bytes):
            return piece
        argument, limits = piece.file.argument, self._limits()
        try:
            with Deadline(max(0.0, until - time.monotonic())):
                if piece.file.uri.lower().startswith(("http://", "https://")):
                    opening = _fetch(piece.file, limits.upload_private_networks)
                    return _of_url(piece, await stack.enter_async_context(opening))
                return await self._resource(piece, context)
        except TimeoutError as error:
            text = f"{argument}: the file did not come within {limits.timeout_s:g} s"
            raise UpstreamFailed(text, late=True) from error

    async def _resource(self, piece: RemoteFile, context: Context) -> "_Held":
        file = piece.file
        data, media_type = await self.resource(file, context)
        with_type = replace(file, media_type=file.media_type or known_type(media_type))
        return _Held(*_head(piece, with_type), data)

    async def resource(self, file: CallFile, context: Context) -> tuple[bytes, str | None]:
        """Bytes and declared media type of a file that is a resource. Raises UpstreamFailed."""
        members = await self._read_resource(file.uri, context)
        try:
            # in a thread: there may be many megabytes
            return await to_thread.run_sync(_first, (members or {})["contents"])
        except (KeyError, ValueError, msgspec.DecodeError, binascii.Error) as error:
            raise UpstreamFailed(f"{file.argument}: there is no such resource") from error


class _Held(Struct, frozen=True):
    """A file that is in memory."""

    before: bytes
    media_type: str | None
    data: bytes


class _Sending:
    """The body of one request, within its size limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.failure: UpstreamFailed | None = None
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes | _Opened] = []
        self._left = limit_bytes
        self._media_type: str | None = None

    def add(self, piece: bytes | _Opened | _Held) -> None:
        if isinstance(piece, bytes):
            self._pieces.append(piece)
            return
        self._media_type = piece.media_type
        size = len(piece.data) if isinstance(piece, _Held) else piece.length
        if size is not None and size > self._left:
            raise self._too_large()
        if isinstance(piece, _Held):
            self._left -= len(piece.data)
            self._pieces += [piece.before, piece.data]
        else:
            self._pieces.append(piece)

    def request(self, request: HttpRequest, upload: StreamedBody) -> HttpRequest:
        content_type = upload.content_type or self._media_type or ANY_TYPE
        headers = {**request.headers, "Content-Type": content_type}
        in_memory = [piece for piece in self._pieces if isinstance(piece, bytes)]
        if len(in_memory) == len(self._pieces):
            return replace(request, headers=headers, body=b"".join(in_memory), upload=None)
        length = self._length()
        if length is not None:
            headers["Content-Length"] = str(length)
        return replace(request, headers=headers, upload=None, stream=Stream(self._chunks(), length))

    def _length(self) -> int | None:
        """Of the whole body; None when the length of a file is unknown."""
        total = 0
        for piece in self._pieces:
            if isinstance(piece, bytes):
                total += len(piece)
            elif piece.length is None:
                return None
            else:
                total += len(piece.before) + piece.length
        return total

    async def _chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            yield piece.before
            try:
                async for chunk in piece.response.content.iter_chunked(_CHUNK_BYTES):
                    self._left -= len(chunk)
                    if self._left < 0:
                        raise self._too_large()
                    yield chunk
            except aiohttp.ClientError as error:
                self.failure = UpstreamFailed(f"{piece.argument}: the file broke off")
                raise self.failure from error

    def _too_large(self) -> UpstreamFailed:
        self.failure = UpstreamFailed(
            f"the files are larger than {self._limit_bytes:,} bytes (upstream.upload_limit_bytes)"
        )
        return self.failure


def _first(contents: Raw) -> tuple[bytes, str | None]:
    """Bytes and media type of a resource."""
    [content, *_] = _contents.decode(contents)
    if content.blob is None:
        return (content.text or "").encode(), content.mime_type
    return binascii.a2b_base64(content.blob, strict_mode=bool(content.blob)), content.mime_type


def _head(piece: RemoteFile, file: CallFile) -> tuple[bytes, str | None]:
    """The bytes before the file, and its media type."""
    media_type = media_type_of(file)
    return piece.head(name_of(file, media_type), file.media_type), media_type


def _of_url(piece: RemoteFile, response: aiohttp.ClientResponse) -> _Opened:
    stated_type = response.content_type if "Content-Type" in response.headers else None
    named = piece.file.media_type or known_type(stated_type if stated_type != ANY_TYPE else None)
    before, media_type = _head(piece, replace(piece.file, media_type=named))
    plain = "Content-Encoding" not in response.headers  # else its length is another one
    length = response.content_length if plain else None
    return _Opened(piece.file.argument, before, media_type, response, length)


@asynccontextmanager
async def _fetch(file: CallFile, private: bool) -> AsyncIterator[aiohttp.ClientResponse]:
    """The response of `file.uri`. Raises UpstreamFailed, which contains no address."""
    argument = file.argument
    connector = aiohttp.TCPConnector(resolver=ThreadedResolver() if private else PublicResolver())
    timeout = aiohttp.ClientTimeout(total=None)  # opening and sending have deadlines of their own
    jar = aiohttp.DummyCookieJar()
    async with (
        aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=_HEADERS, cookie_jar=jar
        ) as session,
        AsyncExitStack() as stack,
    ):
        try:
            response = await _follow(session, file, private, stack)
        except PrivateAddress as error:
            raise _private(argument) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error.__cause__, PrivateAddress):
                raise _private(argument) from error
            raise UpstreamFailed(f"{argument}: its URL cannot be fetched") from error
        yield response


async def _follow(
    session: aiohttp.ClientSession, file: CallFile, private: bool, stack: AsyncExitStack
) -> aiohttp.ClientResponse:
    """Follows redirects itself: each address is checked before it is connected to."""
    url = URL(file.uri)
    for _ in range(REDIRECT_LIMIT + 1):
        if not private:
            check_url_host(str(url))
        response = await stack.enter_async_context(session.get(url, allow_redirects=False))
        if response.status == 200:
            return response
        if response.status not in REDIRECTS or "Location" not in response.headers:
            raise UpstreamFailed(f"{file.argument}: its URL answered {response.status}")
        try:
            target = url.join(read_url(response.headers["Location"]))
        except ValueError as error:
            raise UpstreamFailed(f"{file.argument}: its URL redirects to no URL") from error
        if target.scheme not in ("http", "https") or (url.scheme, target.scheme) == _DOWN:
            raise UpstreamFailed(f"{file.argument}: its URL redirects to what is not fetched")
        response.close()
        url = target
    raise UpstreamFailed(f"{file.argument}: its URL redirects more than {REDIRECT_LIMIT} times")


_DOWN = ("https", "http")


def _private(argument: str) -> UpstreamFailed:
    return UpstreamFailed(
        f"{argument}: its URL leads into a private network (upstream.upload_private_networks)"
    )
