"""HTTP client for services: one connection pool for each source, limits, retries.

Failures of a service are `UpstreamFailed`, whose text a caller may see: it names the source, never
its address.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urljoin

import aiohttp
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from config.settings import UpstreamSettings as Limits
from config.sources import SourceSettings
from gateway.context import Context
from gateway.http_client.deadline import RunningCall
from gateway.http_client.failure_texts import failure_text, is_outage
from gateway.http_client.http1 import Http1Response, Site, Stream, TooLarge
from gateway.upstreams.auth.caller import Caller, OwnAudiences
from gateway.upstreams.auth.delegation import auth_headers, on_behalf, renew_caller
from gateway.upstreams.auth.personal_accounts import Connector, SourceAccount
from gateway.upstreams.http.file_arguments import StreamedBody
from gateway.upstreams.http.source_pools import (
    NOBODY,
    SourcePool,
    SourcePools,
    UpstreamFailed,
    read,
)
from schemas.source import Source

log = logging.getLogger("toolgate.upstream")

# RFC 9110, 9.2.2, and the method of draft-ietf-httpbis-safe-method-w-body
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"})
CREDENTIALS_REFUSED = frozenset({401, 403})
RETRIED_STATUSES = frozenset({502, 503, 504})


class HttpRequest(Struct, frozen=True):
    method: str
    target: str  # encoded path and query, beginning with /
    headers: Mapping[str, str]
    body: bytes | None = None
    server: str | None = None  # the operation's own server, instead of the source's
    idempotent: bool = False  # may be retried, although its method is not idempotent
    upload: StreamedBody | None = None  # a body with files in it that `Uploads` has to open first
    stream: Stream | None = None  # a body that is read while it is sent, so once only
    caller: Caller | None = None  # whose token is sent, or what it is exchanged for
    scopes: tuple[str, ...] = ()  # scopes that the exchanged token must have
    hooked: Mapping[str, str] | None = None  # headers of hooks, which win over all others
    proofs: tuple[str, ...] = ()  # names of headers that prove who `account` is
    account: SourceAccount | None = None  # of a person, whose credentials are in the request


class Download(Struct, frozen=True):
    """A stored body, too long for a result."""

    handle: str  # to read it by
    name: str  # of the file
    mime_type: str
    size: int  # bytes


class HttpResponse(Struct, frozen=True):
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    download: Download | None = None  # instead of the body


Reader = Callable[[Http1Response, int], Awaitable[bytes | Download]]
"""Reads a body, of which at most so many bytes may be held in memory. Raises TooLarge."""


class Client:
    """Sends requests to sources."""

    def __init__(
        self,
        limits: Limits,
        sources: Mapping[str, SourceSettings],
        audiences: OwnAudiences = NOBODY,
        connector: Connector | None = None,
    ) -> None:
        """`audiences`: the gateway's own names, in tokens; `connector`: of people's accounts
        at sources. Raises TlsUnusable."""
        self.connections = SourcePools(limits, sources, audiences, connector)

    async def close(self) -> None:
        await self.connections.close()

    async def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """Apply new settings; running calls keep the old ones. Raises TlsUnusable."""
        self.connections.configure(limits, sources)

    async def send(
        self, source: Source, request: HttpRequest, reader: Reader = read
    ) -> HttpResponse:
        """Send, retry where that is safe, and read the whole answer. Raises UpstreamFailed."""
        pool = self.connections.of(source)
        if request.caller is None:
            return await self.forward(pool, request, reader)
        caller, scopes = request.caller, request.scopes
        headers = await auth_headers(pool, caller, scopes)
        response = await self.forward(pool, _with(request, headers), reader)
        again = request.stream is None  # which is read once only
        if response.status not in CREDENTIALS_REFUSED:
            return response
        challenge = response.headers.get("WWW-Authenticate", "")
        renewed = await renew_caller(
            pool, caller, headers, status=response.status, challenge=challenge, scopes=scopes
        )
        if renewed is not None and again:
            headers = await auth_headers(pool, renewed, scopes)
            response = await self.forward(pool, _with(request, headers), reader)
        return response

    async def forward(
        self,
        pool: SourcePool,
        request: HttpRequest,
        reader: Reader = read,
        *,
        headers: Mapping[str, str] | None = None,
        inline_bytes: int = 0,
    ) -> HttpResponse:
        """`send`, to the source of `pool`, but without its `caller`. `headers`: all that are sent,
        instead of those of the request and the configured ones. A body of at most `inline_bytes`
        that came with its head is not passed to `reader`."""
        # in one function: every call of a service passes here
        if headers is None:
            own, proofs = request.headers, request.proofs
            headers = pool.call_headers(own, proofs) if pool.headers else own
        if request.hooked is not None:
            headers = hooked_headers(pool, headers, request.hooked)
        limits = self.connections.limits
        limit_bytes, pause_s = limits.response_limit_bytes, limits.retry_backoff_s
        repeatable = (request.idempotent or request.method in IDEMPOTENT) and request.stream is None
        retries = pool.retries if repeatable else 0
        inline_bytes = min(inline_bytes, limit_bytes)
        call = pool.deadlines.begin()
        try:
            site = pool.own_site if request.server is None else None
            if site is None:
                site = _site(pool, request.server)
            while True:
                try:
                    response = await pool.http.request(
                        site,
                        request.method,
                        request.target,
                        headers,
                        body=request.stream or request.body,
                        repeatable=repeatable,
                    )
                    data: bytes | Download
                    if response.body is not None and len(response.body) <= inline_bytes:
                        data = response.body
                    else:
                        try:
                            data = await reader(response, limit_bytes)
                        finally:
                            response.close()
                except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                    if retries == 0:
                        raise
                else:
                    if retries == 0 or response.status not in RETRIED_STATUSES:
                        body, download = (b"", data) if isinstance(data, Download) else (data, None)
                        return HttpResponse(
                            response.status, response.reason, response.headers, body, download
                        )
                retries -= 1
                await asyncio.sleep(pause_s)
                pause_s *= 2
        except (asyncio.CancelledError, aiohttp.ClientError, OSError, TooLarge) as error:
            raise _failure(pool, call, error) from error
        finally:
            del pool.deadlines.running[call]
            if call.expired:
                call.settle()

    def base_path(self, source: Source) -> str:
        """The path of the source's base URL, without a slash at its end; "" for the root."""
        _, _, address = (self.connections.of(source).base_url or "").partition("://")
        _, slash, path = address.partition("/")
        return slash + path

    async def caller(self, source: Source, context: Context) -> Caller | None:
        """The caller to authenticate as at `source`, if it requires one. Raises UpstreamFailed, and
        what a Connector raises."""
        return await on_behalf(self.connections.of(source), source, context)


def _failure(
    pool: SourcePool, call: RunningCall, error: asyncio.CancelledError | Exception
) -> UpstreamFailed:
    """The failure of a call, which is logged. Raises CancelledError again, unless the deadline is
    its reason."""
    if isinstance(error, asyncio.CancelledError):
        if not (call.expired and call.settle()):
            raise error
        error = TimeoutError()
    log.warning("upstream_failed", extra={"source": pool.source, "error": type(error).__name__})
    late = type(error) is TimeoutError
    text = f"{pool.source} {failure_text(error, pool.timeout_s)}"
    return UpstreamFailed(text, late, is_outage(error))


def replace_headers(headers: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The headers with `others`, which replace those of the same name in any case."""
    names = {name.lower() for name in others}
    own_headers = {name: value for name, value in headers.items() if name.lower() not in names}
    return {**own_headers, **others}


class HookedHeaders(dict[str, str]):
    """Headers of a request that has yet to get its configured ones; those of hooks replace them."""

    def __init__(self, headers: Mapping[str, str], hooked: Mapping[str, str]) -> None:
        super().__init__(replace_headers(headers, hooked))
        self.hooked = hooked


def hooked_headers(
    pool: SourcePool, headers: Mapping[str, str], hook_headers: Mapping[str, str]
) -> HookedHeaders:
    """The headers of a request with those of hooks, which go to addresses of the operator alone.
    Raises UpstreamFailed."""
    if not pool.trusted:
        raise UpstreamFailed(pool.untrusted_text("headers of hooks"))
    return HookedHeaders(headers, hook_headers)


def headers_of_hooks(source: Source, context: Context) -> Mapping[str, str]:
    """The headers that hooks add to a call of `source`."""
    hooked = context.hooked
    return hooked.headers if hooked is not None and hooked.place == source.place else {}


def _with(request: HttpRequest, headers: Mapping[str, str]) -> HttpRequest:
    """`request` with these headers instead of its own of the same names."""
    own_headers = {n: value for n, value in request.headers.items() if n not in headers}
    return replace(request, headers={**own_headers, **headers})


def _site(pool: SourcePool, server: str | None) -> Site:
    return pool.site(address_of(pool, server))


def address_of(pool: SourcePool, server: str | None) -> str:
    """The URL that the targets of requests follow. Raises UpstreamFailed for a source without
    one."""
    if server is not None and pool.trusted and not _same_origin(pool.base_url, server):
        server = None  # the operator's address applies to all operations
    base = pool.base_url if server is None else _join_server(pool.base_url, server)
    if base is None:
        raise UpstreamFailed(
            f"{pool.source} has no address: its description names no server. "
            f"Set sources.{pool.source}.base_url, or import it with --base-url"
        )
    return base


def _join_server(base: str | None, server: str) -> str | None:
    """The URL of an operation's own server, which may be relative."""
    if "://" in server:
        return server.rstrip("/")
    return base and urljoin(f"{base}/", server).rstrip("/")


def _same_origin(base: str | None, server: str) -> bool:
    """Whether an operation's own server has the origin of `base`."""
    if "://" not in server:
        return True
    try:
        return base is not None and URL(base).origin() == URL(server).origin()
    except ValueError:
        return False
