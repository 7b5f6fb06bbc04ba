"""Connections to sources: one pool for each source, with its TLS settings.

Certificate verification cannot be switched off.
"""

import asyncio
import re
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import aiohttp
from yarl import URL

from config.settings import UpstreamSettings as Limits
from config.source_conflicts import FRAMING
from config.sources import SchemeSettings, SourceSettings, Tls
from gateway.http_client.deadline import Deadlines
from gateway.http_client.http1 import DEFAULT_HEADERS, FixedHeaders, Http1Response, Site, TooLarge
from gateway.http_client.pool import Pool
from gateway.upstreams.auth.caller import OwnAudiences
from gateway.upstreams.auth.personal_accounts import Connector, fold_schemes
from gateway.upstreams.auth.service_tokens import AccessTokens, SourceExchange
from registry.documents.ssrf_protection import PublicResolver, check_url_host
from schemas.errors import ToolgateError
from schemas.source import Source

NO_PASSWORD = ""  # of an encrypted key: OpenSSL must not prompt for one


class TlsUnusable(ToolgateError):
    """Certificates that cannot be used; names the setting and the file."""


class Contexts:
    """TLS contexts of one source."""

    def __init__(self, name: str, tls: Tls | None) -> None:
        """Raises TlsUnusable."""
        self.calls: ssl.SSLContext | bool = True
        # For its token_url, possibly a third party's: no client certificate is shown there.
        self.tokens: ssl.SSLContext | bool = True
        if tls is None:
            return
        self.calls = _context(name, tls.ca_file)
        _show(self.calls, name, tls)
        # a context of its own in any case: True would make aiohttp use that of the calls
        self.tokens = _context(name, "")
        if tls.ca_file:
            self.tokens.load_verify_locations(cafile=tls.ca_file)


USUAL = Contexts("", None)


def contexts(sources: Mapping[str, SourceSettings]) -> dict[str, Contexts]:
    """TLS contexts of the sources with TLS settings of their own. Raises TlsUnusable."""
    return {
        name: Contexts(name, source.tls)
        for name, source in sources.items()
        if source.tls is not None
    }


def _context(name: str, ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as error:
        raise _unusable(name, "ca_file", ca_file, error, expected="certificates in PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _show(context: ssl.SSLContext, name: str, tls: Tls) -> None:
    if not tls.cert_file:
        return
    _readable(name, "cert_file", tls.cert_file)
    if tls.key_file:
        _readable(name, "key_file", tls.key_file)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file or None, password=lambda: NO_PASSWORD)
    except (OSError, ValueError) as error:
        expected = "a certificate in PEM and the key to it, without a password"
        raise _unusable(name, "cert_file", tls.cert_file, error, expected=expected) from error


def _readable(name: str, key: str, path: str) -> None:
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise _unusable(name, key, path, error, expected="a file") from error


def _unusable(name: str, key: str, path: str, error: Exception, *, expected: str) -> TlsUnusable:
    reason = f"expected {expected}"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        reason = error.strerror.lower()
    return TlsUnusable(f"sources.{name}.tls.{key}: {path}: {reason}")


Entries = Mapping[str, SchemeSettings]  # by the security scheme that each satisfies
NO_ENTRIES: Entries = MappingProxyType({})
NOBODY = OwnAudiences()
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.1
TOKENS_BYTES = 2**20  # limit of cached tokens that the gateway fetched for one source


class UpstreamFailed(ToolgateError):
    """No usable answer was received; the text gives the reason without an address."""

    def __init__(self, text: str, late: bool = False, down: bool = False, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail  # follows the text where operators read it: it may hold addresses
        self.late = late  # it may still arrive, but after the timeout
        self.down = down  # an outage: the failure is not specific to the request


class SourcePool:
    """The connections to one source, and its settings for calls."""

    def __init__(
        self,
        source: Source,
        settings: SourceSettings,
        limits: Limits,
        *,
        entries: Entries = NO_ENTRIES,
        own: OwnAudiences = NOBODY,
        tls: Contexts = USUAL,
        connector: Connector | None = None,
    ) -> None:
        """`entries`: credentials of the registry; `own`: the gateway's own names; `connector`:
        None where people have no accounts here."""
        self.source = source.name
        self.address = settings.base_url or _address(source)  # None while unknown
        self.base_url = self.address.rstrip("/") if self.address else None  # paths follow it
        self.trusted = settings.base_url is not None or source.base_url_trusted
        self._is_reviewed = source.options.is_reviewed
        unnamed = {} if source.facts.schemes else as_headers(entries)
        self.headers = {**unnamed, **settings.headers}
        # settings take precedence over the database
        self.credentials = {**entries, **settings.credentials}
        self._confined = () if limits.token_private_networks else _besides(entries, settings)
        self.require_credentials = settings.require_credentials
        self.timeout_s = settings.timeout_s or limits.timeout_s
        self.deadlines = Deadlines(self.timeout_s)  # of calls
        self.retries = limits.retries if settings.retries is None else settings.retries
        self.tokens = AccessTokens(TOKENS_BYTES)
        self.tls = tls
        self.own = own
        self.forward_token = settings.forward_token
        self.same_trust_domain = settings.same_trust_domain
        self.exchange = (
            SourceExchange(settings.exchange, self.timeout_s, tls.tokens)
            if settings.exchange
            else None
        )
        self.redirected_to: str | None = (
            None  # where the server sent its last requests, if anywhere
        )
        self.login_tokens = None if connector is None else connector.login_tokens
        mode = settings.connect.mode
        self.connector = None if connector is None or mode == "off" else connector.of_mode(mode)
        self.by_caller = (
            self.forward_token or self.exchange is not None or self.connector is not None
        )
        self.personal = fold_schemes(settings.connect.schemes)  # schemes; none: all
        own_header = (settings.connect.header,) if self.connector is not None else ()
        self.proofs = (*CALLER_TOKENS, *own_header)  # by which callers authenticate themselves
        self.limits = limits
        self.retired = False  # no new use may begin
        self.unheld = asyncio.Event()  # no long-lived user keeps it open
        self.unheld.set()
        self._holders = 0
        self.http = self._pool(limits.connections)
        self.own_site: Site | None = None  # of `base_url`, once a call has needed it
        self.fixed_headers: FixedHeaders | None = None  # of all calls, where they have the same
        self._unlimited: Pool | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._public: aiohttp.ClientSession | None = None

    @property
    def unlimited_pool(self) -> Pool:
        """Connections outside the limit, for long-lived streams, and for messages that a call waits
        for while it holds one of the others."""
        if self._unlimited is None:
            self._unlimited = self._pool(0)
        return self._unlimited

    @property
    def public(self) -> aiohttp.ClientSession:
        """Connections to public addresses only, for URLs not written by the operator."""
        if self._public is None:
            self._public = self._session(0, PublicResolver())
        return self._public

    @property
    def streams(self) -> aiohttp.ClientSession:
        """Connections outside the limit, for tokens, which a call waits for."""
        if self._streams is None:
            self._streams = self._session(0, self._resolver())
        return self._streams

    def hold(self) -> None:
        """Keep it open until `release`, however long that is."""
        self._holders += 1
        self.unheld.clear()

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self.unheld.set()

    def call_headers(
        self, headers: Mapping[str, str], proofs: Collection[str] = ()
    ) -> Mapping[str, str]:
        """The headers of a caller's call. Where people have accounts, no configured header goes
        along that would authenticate the operator. Raises UpstreamFailed."""
        return self.with_configured(headers, proofs, personal=self.connector is not None)

    def with_configured(
        self, own: Mapping[str, str], proofs: Collection[str] = (), *, personal: bool = False
    ) -> Mapping[str, str]:
        """The headers of a request; configured ones win over all but `proofs`, by which the caller
        is authenticated, and are sent only to addresses set by the operator. `personal`: without
        any configured one that authenticates. Raises UpstreamFailed."""
        if not self.headers:
            return own
        if not (self.trusted or self._is_reviewed):
            raise UpstreamFailed(self.untrusted_text("configured headers"))
        headers = self.headers
        if self.by_caller:  # a caller's tokens win: configured ones are for requests without them
            names = (*self.proofs, *proofs)
            proved = {name.lower() for name in names if name in own}
            if personal or (proved and self.connector is not None):  # nothing of the operator's
                proved = {name.lower() for name in names}
            headers = {name: value for name, value in headers.items() if name.lower() not in proved}
        configured = {name.lower() for name in headers}
        passed = {name: value for name, value in own.items() if name.lower() not in configured}
        return {**passed, **headers}

    def confines(self, entry: SchemeSettings) -> bool:
        """Whether the token_url of `entry` has to be public: it comes from the registry."""
        return any(entry is confined for confined in self._confined)

    def untrusted_text(self, secret: str) -> str:
        return (
            f"{self.source} has {secret}, but only its description says where it is: "
            f"set sources.{self.source}.base_url"
        )

    def url(self, address: str) -> URL:
        """`address` as one that may be called. Raises InvalidURL and PrivateAddress."""
        try:
            url = URL(address, encoded=True)
            if url.host is None:
                raise ValueError("no host")
            if not self.trusted:
                check_url_host(str(url))
        except ValueError as error:
            raise aiohttp.InvalidURL(address) from error
        return url

    def site(self, address: str) -> Site:
        """`address` as one that requests can be sent to. Raises InvalidURL and PrivateAddress."""
        site = Site(self.url(address))
        if address == self.base_url:
            self.own_site = site
        return site

    async def close(self) -> None:
        self.retired = True
        await self.tokens.close()
        if self.exchange is not None:
            await self.exchange.close()
        await self.http.close()
        for session in (self._unlimited, self._streams, self._public):
            if session is not None:
                await session.close()

    def _resolver(self) -> PublicResolver | None:
        return None if self.trusted else PublicResolver()

    def _pool(self, connections: int) -> Pool:
        return Pool(
            self.tls.calls,
            self._resolver(),
            limit=connections,
            connect_timeout_s=self.limits.connect_timeout_s,
            idle_s=self.limits.connection_idle_s,
            dns_ttl_s=self.limits.dns_ttl_s,
            head_limit_bytes=self.limits.head_limit_bytes,
            headers_limit=self.limits.headers_limit,
        )

    def _session(self, connections: int, resolver: PublicResolver | None) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=connections,
            resolver=resolver,
            ssl=self.tls.calls,
            keepalive_timeout=self.limits.connection_idle_s,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # callers must not share cookies
            headers=DEFAULT_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_timeout_s),
        )


class SourcePools:
    """The pools of all sources."""

    def __init__(
        self,
        limits: Limits,
        sources: Mapping[str, SourceSettings],
        own: OwnAudiences = NOBODY,
        connector: Connector | None = None,
    ) -> None:
        """`own`: the gateway's own names, as audiences of tokens. Raises TlsUnusable."""
        self.limits = limits
        self._connector = connector
        self._sources = sources
        self._tls = contexts(sources)
        self._own = own
        self._stored: Mapping[str, Entries] = {}
        self._pools: dict[str, tuple[Source, SourcePool]] = {}
        self._closing: dict[SourcePool, asyncio.Task[None]] = {}

    async def close(self) -> None:
        pools = {pool for _, pool in self._pools.values()} | set(self._closing)
        self._pools = {}
        for task in self._closing.values():
            task.cancel()
        for pool in pools:
            await pool.close()

    def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """Apply new settings; running calls keep the old ones. Raises TlsUnusable, before any
        change."""
        self._tls = contexts(sources)
        self.limits, self._sources = limits, sources
        for source, _ in list(self._pools.values()):
            self._retire(source)

    def store(self, credentials: Mapping[str, Entries]) -> None:
        """Replace the credentials of the registry, by source, for new calls."""
        before, self._stored = self._stored, credentials
        for source, _ in list(self._pools.values()):
            if before.get(source.place) != credentials.get(source.place):
                self._retire(source)

    def headers_of(self, name: str) -> Mapping[str, str]:
        """The headers of a source without security schemes, which may not be imported yet."""
        stored, adjusted = self._stored.get(name, NO_ENTRIES), self._sources.get(name, _NOTHING)
        return {**as_headers(stored), **adjusted.headers}

    def environment_of(self, source: Source) -> Mapping[str, str]:
        """The stored credentials of a command: variables by their names."""
        stored = self._stored.get(source.place, NO_ENTRIES)
        return {name: entry.value for name, entry in stored.items() if entry.value}

    def tls_of(self, name: str) -> ssl.SSLContext | bool:
        return self._tls.get(name, USUAL).calls

    def of(self, source: Source) -> SourcePool:
        entry = self._pools.get(source.place)
        if entry is not None and entry[0] is source:
            return entry[1]
        if entry is not None and _target(entry[0]) == _target(source):
            self._pools[source.place] = (source, entry[1])
            return entry[1]
        if entry is not None:
            self._retire(source)
        place = source.place
        pool = SourcePool(
            source,
            self._sources.get(place, _NOTHING),
            self.limits,
            entries=self._stored.get(place, NO_ENTRIES),
            own=self._own,
            tls=self._tls.get(place, USUAL),
            connector=self._connector,
        )
        self._pools[place] = (source, pool)
        return pool

    def _retire(self, source: Source) -> None:
        """Close the pool of `source` once every call that it still serves must have ended."""

        async def close(pool: SourcePool) -> None:
            await asyncio.sleep(pool.timeout_s)
            await pool.unheld.wait()
            await pool.close()
            del self._closing[pool]

        _, pool = self._pools.pop(source.place)
        pool.retired = True
        self._closing[pool] = asyncio.create_task(close(pool))


CALLER_TOKENS = ("Authorization", "X-Scope-Token")  # headers of a caller's tokens, passed on

_NOTHING = SourceSettings(headers=MappingProxyType({}))


def as_headers(entries: Entries) -> dict[str, str]:
    """Stored credentials of a source without security schemes: headers by their names."""
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.value and _HEADER_NAME.fullmatch(name) and name.lower() not in FRAMING
    }


def _besides(entries: Entries, settings: SourceSettings) -> tuple[SchemeSettings, ...]:
    """The stored entries that no settings replace."""
    return tuple(entry for scheme, entry in entries.items() if scheme not in settings.credentials)


def _target(source: Source) -> tuple[str | None, bool]:
    return _address(source), source.base_url_trusted


def _address(source: Source) -> str | None:
    """The source's own address; an MCP server describes itself where it is called."""
    return source.base_url or (source.location if source.facts.server else None)


def declared_within(response: Http1Response, limit_bytes: int) -> bool:
    """Whether Content-Length is within the limit and counts the bytes that will be read: a
    compressed body may grow."""
    declared = response.content_length
    return (
        declared is not None
        and declared <= limit_bytes
        and "Content-Encoding" not in response.headers
    )


async def read(response: Http1Response, limit_bytes: int) -> bytes:
    """The whole body. Raises TooLarge as soon as the limit is exceeded."""
    if response.body is not None and len(response.body) <= limit_bytes:
        return response.body
    if declared_within(response, limit_bytes):
        return await response.read()
    body = bytearray()
    async for chunk in response.iter_any():  # decompressed: a bomb counts in full
        body += chunk
        if len(body) > limit_bytes:
            raise TooLarge(limit_bytes)
    return bytes(body)
