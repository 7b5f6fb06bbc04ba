"""Requests to addresses that foreign documents name, and which of these may be asked.

The operator names some origins (the URL of a source, `connect.issuer`), which may be anywhere. Any
other address came from a foreign document: https, public unless the settings allow more. Names are
resolved once, for the connection itself; redirects are not followed.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import aiohttp
from aiohttp import ThreadedResolver

from config.connections import ConnectionsSettings
from registry.documents.fetch import read_at_most
from registry.documents.ssrf_protection import PublicResolver, check_url_host, is_private, read_url
from schemas.errors import ToolgateError

GUARD = "connections.private_networks"  # the setting that lets documents lead anywhere
URL_LIMIT = 2000  # characters


class RequestFailed(ToolgateError):
    """No answer was had; the text names the address."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    challenges: tuple[str, ...] = ()  # WWW-Authenticate


class Reach:
    """The addresses that the OAuth client of one source may ask, and requests to them."""

    def __init__(self, limits: ConnectionsSettings, named: Iterable[str] = ()) -> None:
        """`named`: URLs in the settings, whose origins are trusted. Raises ValueError."""
        self.limits = limits
        self.named = frozenset(origin_of(url) for url in named if url)

    def is_free(self, url: str) -> bool:
        """Whether the host of a URL may be private, and its traffic unencrypted."""
        return self.limits.private_networks or origin_of(url) in self.named

    def is_named(self, url: str) -> bool:
        """Whether a URL is at an origin that the operator names."""
        try:
            return origin_of(url) in self.named
        except ValueError:
            return False

    def check(self, url: str) -> None:
        """Raises ValueError for an address that may not be asked, nor be shown to a browser."""
        if len(url) > URL_LIMIT or not url.isascii() or not url.isprintable():
            raise ValueError(f"expected a URL of at most {URL_LIMIT} characters of ASCII")
        if not url.startswith(("https://", "http://")):
            raise ValueError(f"expected an https:// URL, found {url[:200]!r}")
        parts = read_url(url)
        if not parts.host or parts.user or parts.password or {"#", "\\", " "} & set(url):
            raise ValueError(f"expected a URL of a host and a path only, found {url[:200]!r}")
        if self.is_free(url):
            return
        if parts.scheme != "https":
            raise ValueError(f"expected an https:// URL, found {url[:200]!r}")
        try:
            check_url_host(url)
        except OSError as error:
            raise ValueError(f"{error}; refused unless {GUARD} is true") from error

    def session(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
        """A client for requests to `url`, which has been checked."""
        resolver = ThreadedResolver() if self.is_free(url) else PublicResolver()
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "User-Agent": "toolgate"},
            timeout=aiohttp.ClientTimeout(self.limits.request_s),
        )

    async def get(self, url: str) -> Answer:
        """Raises RequestFailed."""
        return await self._ask("GET", url)

    async def post(
        self, url: str, body: Mapping[str, object], *, reads_body: bool = True
    ) -> Answer:
        """Post a JSON object; without `reads_body` the answer may be a stream. Raises
        RequestFailed."""
        return await self._ask("POST", url, body, reads_body=reads_body)

    async def _ask(
        self,
        method: str,
        url: str,
        body: Mapping[str, object] | None = None,
        *,
        reads_body: bool = True,
    ) -> Answer:
        try:
            self.check(url)
            async with (
                self.session(url) as http,
                http.request(method, url, json=body, allow_redirects=False) as response,
            ):
                challenges = tuple(response.headers.getall("WWW-Authenticate", ()))
                data: bytes | None = b""
                if reads_body and response.status < 300:  # of others nothing else is needed
                    data = await read_at_most(response, self.limits.document_bytes)
                if data is None:
                    raise ValueError(f"longer than {self.limits.document_bytes} bytes")
                return Answer(response.status, data, challenges)
        except TimeoutError as error:
            late = f"no answer within {self.limits.request_s:g} s"
            raise RequestFailed(f"{url[:200]}: {late}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = f"{error.__cause__ or error}" if is_private(error) else _reason(error)
            raise RequestFailed(f"{url[:200]}: {why}") from error


def origin_of(url: str) -> str:
    """The origin of a URL, with its port. Raises ValueError."""
    parts = read_url(url)
    return f"{parts.scheme}://{parts.host}:{parts.port}"


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else "it cannot be reached"
