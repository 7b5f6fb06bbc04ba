"""HTTP to the services: one pool of connections for each source, limits, retries.

What a service does wrong is an `UpstreamFailed`, whose text a caller may see: it names the source,
never its address.
"""

import asyncio
import io
import logging
import socket
from collections.abc import Mapping, Sequence
from types import MappingProxyType, UnionType

import aiohttp
from msgspec import Struct
from yarl import URL

from config.settings import SourceSettings
from config.settings import Upstream as Limits
from gateway.upstreams.deadline import Deadline
from registry.addresses import PrivateAddress, PublicResolver, check_url_host
from schemas.errors import ToolgateError
from schemas.source import Source

log = logging.getLogger("toolgate.upstream")

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})  # RFC 9110, 9.2.2
RETRIED = frozenset({502, 503, 504})
LARGE_BODY_BYTES = 2**20
DEFAULT_HEADERS = {"User-Agent": "toolgate", "Accept": "application/json, */*;q=0.8"}


class UpstreamFailed(ToolgateError):
    """No usable answer came; says why without saying where from."""

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late  # it may come yet, but nobody waits


class _TooLarge(Exception):
    pass


class HttpRequest(Struct, frozen=True):
    method: str
    target: str  # encoded path and query, beginning with /
    headers: Mapping[str, str]
    body: bytes | None = None
    form: Sequence[tuple[str, str]] | None = None  # sent as multipart/form-data, if not None
    server: str | None = None  # the operation's own server, instead of the source's
    idempotent: bool = False  # may be repeated, although its method does not say so


class HttpResponse(Struct, frozen=True):
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class _Pool:
    """The connections to one source, and how it wants to be called."""

    def __init__(self, source: Source, adjusted: SourceSettings, limits: Limits) -> None:
        base_url = adjusted.base_url or source.base_url
        self.base_url = base_url.rstrip("/") if base_url else None
        self.trusted = adjusted.base_url is not None or source.base_url_trusted
        self.headers = dict(adjusted.headers)
        self.forward_token = adjusted.forward_token
        self.timeout_s = adjusted.timeout_s or limits.timeout_s
        self.retries = limits.retries if adjusted.retries is None else adjusted.retries
        connector = aiohttp.TCPConnector(
            limit=limits.connections, resolver=None if self.trusted else PublicResolver()
        )
        self.http = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # one caller's cookies are not another's
            headers=DEFAULT_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_timeout_s),
        )


class Client:
    """Sends requests to sources."""

    def __init__(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        self._limits = limits
        self._sources = sources
        self._pools: dict[str, tuple[Source, _Pool]] = {}
        self._closing: dict[_Pool, asyncio.Task[None]] = {}

    async def close(self) -> None:
        pools = {pool for _, pool in self._pools.values()} | set(self._closing)
        self._pools = {}
        for task in self._closing.values():
            task.cancel()
        for pool in pools:
            await pool.http.close()

    async def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """Take new settings; calls that are running end as they began."""
        self._limits, self._sources = limits, sources
        for source, _ in list(self._pools.values()):
            self._retire(source)

    async def send(self, source: Source, request: HttpRequest) -> HttpResponse:
        """Send, again where that is safe, and read the whole answer. Raises UpstreamFailed."""
        pool = self._pool(source)
        server = None if pool.trusted else request.server
        headers = _with_configured(request.headers, pool, source)
        try:
            url = _url(pool, source, server, request.target)
            with Deadline(pool.timeout_s):
                return await self._attempts(pool, request, url, headers)
        except (aiohttp.ClientError, OSError, _TooLarge) as error:
            log.warning(
                "upstream_failed", extra={"source": source.name, "error": type(error).__name__}
            )
            late = type(error) is TimeoutError
            why = f"{source.name} {_why(error, pool.timeout_s)}"
            raise UpstreamFailed(why, late) from error

    def base_path(self, source: Source) -> str:
        """The path of the source's base URL, without a slash at its end; "" for the root."""
        _, _, address = (self._pool(source).base_url or "").partition("://")
        _, slash, path = address.partition("/")
        return slash + path

    def forwards_token(self, source: Source) -> bool:
        """Whether the source gets its callers' own tokens. Raises UpstreamFailed where it should
        and only its description says where that is."""
        pool = self._pool(source)
        if pool.forward_token and not pool.trusted:
            raise UpstreamFailed(_untrusted(source, "forward_token"))
        return pool.forward_token

    def _pool(self, source: Source) -> _Pool:
        known = self._pools.get(source.name)
        if known is not None and known[0] is source:
            return known[1]
        if known is not None and _same_target(known[0], source):
            self._pools[source.name] = (source, known[1])
            return known[1]
        if known is not None:
            self._retire(source)
        pool = _Pool(source, self._sources.get(source.name, _NOTHING), self._limits)
        self._pools[source.name] = (source, pool)
        return pool

    def _retire(self, source: Source) -> None:
        """Close the pool of `source` once every call that it still serves must have ended."""

        async def close(pool: _Pool) -> None:
            await asyncio.sleep(pool.timeout_s)
            await pool.http.close()
            del self._closing[pool]

        _, pool = self._pools.pop(source.name)
        self._closing[pool] = asyncio.create_task(close(pool))

    async def _attempts(
        self, pool: _Pool, request: HttpRequest, url: URL, headers: Mapping[str, str]
    ) -> HttpResponse:
        repeatable = request.idempotent or request.method in IDEMPOTENT
        retries = pool.retries if repeatable else 0
        pause_s = self._limits.retry_backoff_s
        while True:
            try:
                response = await self._once(pool, request, url, headers)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                if retries == 0:
                    raise
            else:
                if retries == 0 or response.status not in RETRIED:
                    return response
            retries -= 1
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def _once(
        self, pool: _Pool, request: HttpRequest, url: URL, headers: Mapping[str, str]
    ) -> HttpResponse:
        payload = _payload(request)
        async with pool.http.request(
            request.method,
            url,
            headers=headers,
            data=payload,
            allow_redirects=False,
            # where aiohttp would call no body at all an octet-stream
            skip_auto_headers=_TYPE if payload is None and request.method in _WITH_BODY else None,
        ) as response:
            body = await self._read(response)
            return HttpResponse(response.status, response.reason or "", response.headers, body)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._limits.response_limit_bytes
        declared = response.content_length
        if (
            declared is not None
            and declared <= limit
            and "Content-Encoding" not in response.headers
        ):
            return await response.read()
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():  # decompressed: a bomb counts in full
            size += len(chunk)
            if size > limit:
                raise _TooLarge(f"answered more than {limit} bytes (upstream.response_limit_bytes)")
            chunks.append(chunk)
        return b"".join(chunks)


_NOTHING = SourceSettings(headers=MappingProxyType({}))
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_TYPE = ("Content-Type",)  # aiohttp would call a body that is not there an octet stream


def _payload(request: HttpRequest) -> bytes | io.BytesIO | aiohttp.FormData | None:
    """The body for one attempt: aiohttp sends a form or a file once only."""
    if request.form is not None:
        form = aiohttp.FormData(default_to_multipart=True)
        for name, text in request.form:
            form.add_field(name, text)
        return form
    if request.body is not None and len(request.body) > LARGE_BODY_BYTES:
        return io.BytesIO(request.body)  # sent in pieces
    return request.body


def _same_target(a: Source, b: Source) -> bool:
    return (a.base_url, a.base_url_trusted) == (b.base_url, b.base_url_trusted)


def _with_configured(asked: Mapping[str, str], pool: _Pool, source: Source) -> Mapping[str, str]:
    """The headers of a call; configured ones win, and go only where the operator sends them."""
    if not pool.headers:
        return asked
    if not pool.trusted:
        raise UpstreamFailed(_untrusted(source, "configured headers"))
    configured = {name.lower() for name in pool.headers}
    kept = {name: value for name, value in asked.items() if name.lower() not in configured}
    return {**kept, **pool.headers}


def _untrusted(source: Source, secret: str) -> str:
    return (
        f"{source.name} has {secret}, but only its description says where it is: "
        f"set sources.{source.name}.base_url"
    )


def _url(pool: _Pool, source: Source, server: str | None, target: str) -> URL:
    base = pool.base_url if server is None else server.rstrip("/")
    if base is None:
        raise UpstreamFailed(
            f"{source.name} has no address: its description names no server. "
            f"Set sources.{source.name}.base_url, or import it with --base-url"
        )
    try:
        url = URL(base + target, encoded=True)
        if url.host is None:
            raise ValueError("no host")
    except ValueError as error:
        raise aiohttp.InvalidURL(base) from error
    if not pool.trusted:
        check_url_host(str(url))
    return url


def _why(error: Exception, timeout_s: float) -> str:
    """The cause in words, without addresses."""
    if type(error) is TimeoutError:
        return f"did not answer within {timeout_s:g} s"
    if isinstance(error, PrivateAddress) or isinstance(error.__cause__, PrivateAddress):
        return "lies in a private network and only its description says so; set its base_url"
    if isinstance(error, _TooLarge):
        return str(error)
    for kind, words in _CAUSES:
        if isinstance(error, kind):
            return words
    return "could not be reached"


_CAUSES: tuple[tuple[type[Exception] | UnionType, str], ...] = (
    (
        aiohttp.ClientConnectorDNSError | socket.gaierror,
        "could not be reached: its host name does not resolve",
    ),
    (aiohttp.ClientSSLError, "could not be reached: TLS failed"),
    (
        aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError,
        "has no usable address; set its base_url",
    ),
    (
        aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError,
        "could not be reached: the connection was refused or timed out",
    ),
    (
        aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError,
        "closed the connection before its answer was complete",
    ),
    (aiohttp.ClientResponseError, "sent an answer that cannot be read"),
)
