"""Connections to the sources: one pool for each, and whom it trusts with what."""

import asyncio
import socket
from collections.abc import Mapping
from types import MappingProxyType, UnionType

import aiohttp
from yarl import URL

from config.settings import SourceSettings
from config.settings import Upstream as Limits
from gateway.upstreams.tokens import Tokens
from registry.addresses import PrivateAddress, PublicResolver, check_url_host
from schemas.errors import ToolgateError
from schemas.source import Source

DEFAULT_HEADERS = {"User-Agent": "toolgate", "Accept": "application/json, */*;q=0.8"}


class UpstreamFailed(ToolgateError):
    """No usable answer came; says why without saying where from."""

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late  # it may come yet, but nobody waits


class TooLarge(Exception):
    """An answer is longer than we read."""

    def __init__(self, limit_bytes: int, setting: str = "upstream.response_limit_bytes") -> None:
        super().__init__(f"answered more than {limit_bytes} bytes ({setting})")


class Pool:
    """The connections to one source, and how it wants to be called."""

    def __init__(self, source: Source, adjusted: SourceSettings, limits: Limits) -> None:
        self.source = source.name
        self.address = adjusted.base_url or _address(source)  # None while nobody knows
        self.base_url = self.address.rstrip("/") if self.address else None  # paths follow it
        self.trusted = adjusted.base_url is not None or source.base_url_trusted
        self.headers = dict(adjusted.headers)
        self.credentials = adjusted.credentials
        self.require_credentials = adjusted.require_credentials
        self.forward_token = adjusted.forward_token
        self.timeout_s = adjusted.timeout_s or limits.timeout_s
        self.retries = limits.retries if adjusted.retries is None else adjusted.retries
        self.tokens = Tokens(self.timeout_s)
        self.limits = limits
        self.retired = False  # nobody is to begin anything with it
        self.unheld = asyncio.Event()  # nobody keeps it open beyond a call's time
        self.unheld.set()
        self._holders = 0
        self.http = self._session(limits.connections)
        self._streams: aiohttp.ClientSession | None = None

    @property
    def streams(self) -> aiohttp.ClientSession:
        """Connections that do not count, for what lasts, and for what a call that holds one of the
        others waits for."""
        if self._streams is None:
            self._streams = self._session(0)
        return self._streams

    def hold(self) -> None:
        """Keep it open until `release`, however long that is."""
        self._holders += 1
        self.unheld.clear()

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self.unheld.set()

    def with_configured(self, asked: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a call; configured ones win, and go only where the operator sends
        them. Raises UpstreamFailed."""
        if not self.headers:
            return asked
        if not self.trusted:
            raise UpstreamFailed(self.untrusted("configured headers"))
        configured = {name.lower() for name in self.headers}
        kept = {name: value for name, value in asked.items() if name.lower() not in configured}
        return {**kept, **self.headers}

    def untrusted(self, secret: str) -> str:
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
        except ValueError as error:
            raise aiohttp.InvalidURL(address) from error
        if not self.trusted:
            check_url_host(str(url))
        return url

    async def close(self) -> None:
        self.retired = True
        await self.tokens.close()
        await self.http.close()
        if self._streams is not None:
            await self._streams.close()

    def _session(self, connections: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=connections, resolver=None if self.trusted else PublicResolver()
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # one caller's cookies are not another's
            headers=DEFAULT_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_timeout_s),
        )


class Connections:
    """The pools of all sources."""

    def __init__(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        self.limits = limits
        self._sources = sources
        self._pools: dict[str, tuple[Source, Pool]] = {}
        self._closing: dict[Pool, asyncio.Task[None]] = {}

    async def close(self) -> None:
        pools = {pool for _, pool in self._pools.values()} | set(self._closing)
        self._pools = {}
        for task in self._closing.values():
            task.cancel()
        for pool in pools:
            await pool.close()

    def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """Take new settings; calls that are running end as they began."""
        self.limits, self._sources = limits, sources
        for source, _ in list(self._pools.values()):
            self._retire(source)

    def of(self, source: Source) -> Pool:
        known = self._pools.get(source.name)
        if known is not None and known[0] is source:
            return known[1]
        if known is not None and _target(known[0]) == _target(source):
            self._pools[source.name] = (source, known[1])
            return known[1]
        if known is not None:
            self._retire(source)
        pool = Pool(source, self._sources.get(source.name, _NOTHING), self.limits)
        self._pools[source.name] = (source, pool)
        return pool

    def _retire(self, source: Source) -> None:
        """Close the pool of `source` once every call that it still serves must have ended."""

        async def close(pool: Pool) -> None:
            await asyncio.sleep(pool.timeout_s)
            await pool.unheld.wait()
            await pool.close()
            del self._closing[pool]

        _, pool = self._pools.pop(source.name)
        pool.retired = True
        self._closing[pool] = asyncio.create_task(close(pool))


_NOTHING = SourceSettings(headers=MappingProxyType({}))


def _target(source: Source) -> tuple[str | None, bool]:
    return _address(source), source.base_url_trusted


def _address(source: Source) -> str | None:
    """Where the source says that it is; an MCP server describes itself at the place where it is
    called."""
    return source.base_url or (source.location if source.kind == "mcp" else None)


def declared_within(response: aiohttp.ClientResponse, limit_bytes: int) -> bool:
    """Whether the answer says that it is no longer, and says it of what will be read: compressed,
    it may grow."""
    declared = response.content_length
    return (
        declared is not None
        and declared <= limit_bytes
        and "Content-Encoding" not in response.headers
    )


async def read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The whole body. Raises TooLarge as soon as it is known to be."""
    if declared_within(response, limit_bytes):
        return await response.read()
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():  # decompressed: a bomb counts in full
        size += len(chunk)
        if size > limit_bytes:
            raise TooLarge(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def why(error: Exception, timeout_s: float) -> str:
    """The cause in words that follow the name of a source, without addresses."""
    if type(error) is TimeoutError:
        return f"did not answer within {timeout_s:g} s"
    if isinstance(error, PrivateAddress) or isinstance(error.__cause__, PrivateAddress):
        return "lies in a private network and only its description says so; set its base_url"
    if isinstance(error, TooLarge):
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
