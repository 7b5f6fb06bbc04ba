"""Fetch a description from a path, a file URL or an http(s) URL, bounded in size and time.

The operator chose the location, so it may be private. Redirects and references were chosen by
others: from a public host a redirect leads to public addresses only, and a reference always, unless
settings allow more.
"""

import os
import re
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from socket import AF_UNSPEC, AddressFamily
from urllib.parse import urlsplit
from urllib.request import url2pathname

import aiohttp
import anyio
from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from anyio import to_thread
from yarl import URL

from registry.documents import ssrf_protection
from schemas.errors import ImportRejected
from schemas.refused_certificates import certificate_reason
from schemas.urls import without_credentials


async def read_at_most(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes | None:
    """Read the whole body; None as soon as it exceeds the limit. Raises aiohttp.ClientError."""
    body = bytearray()
    async for chunk in response.content.iter_any():  # decompressed: a bomb counts in full
        body += chunk
        if len(body) > limit_bytes:
            return None
    return bytes(body)


GUARD = "imports.private_networks"  # the setting that lets it fetch from private addresses
REDIRECT_LIMIT = 10  # browsers follow 20; a description that moved has one
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NOT_MODIFIED = 304
_FRESH_S = 2.0  # RFC 9110, 8.8.2.2: dates have seconds
_VALIDATOR = 500  # characters of one
# of a URL without its scheme: example.com/, localhost:8000
_HOST = re.compile(r"([\w-]+\.)*[\w-]+(:\d+(/|$)|\.[a-z]{2,}/)", re.IGNORECASE)
_HEADERS = {
    "Accept": "application/json, application/yaml, text/yaml;q=0.9, */*;q=0.5",
    "User-Agent": "toolgate",
}


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Names of the settings that limit a fetch, for its errors, and what is sent besides."""

    limit_bytes: str
    timeout_s: str
    headers: tuple[tuple[str, str], ...] = ()
    same_origin: bool = False  # redirects to another origin are refused


class StatusRefused(ImportRejected):
    """An answer with another status than 200. `challenge`: its WWW-Authenticate."""

    def __init__(self, text: str, status: int, challenge: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.challenge = challenge


OF_DESCRIPTIONS = FetchSettings("imports.document_limit_bytes", "imports.fetch_timeout_s")


@dataclass(frozen=True, slots=True)
class FetchedDocument:
    """A document as fetched, undecoded."""

    data: bytes
    location: str  # absolute path, or the URL after redirects, without credentials
    private: bool = field(default=False, compare=False)  # may refer to private networks
    validator: tuple[str, str] = ("", "")  # conditional header of a later request; empty: none
    unchanged: bool = False  # it is as it was with the validator given; `data` is empty
    fresh_s: float | None = field(default=None, compare=False)  # as its server says, if it does


async def fetch(
    location: str,
    *,
    limit_bytes: int,
    timeout_s: float,
    private_networks: bool,
    by_operator: bool = True,
    validator: tuple[str, str] = ("", ""),
    redirects: int = REDIRECT_LIMIT,
    settings: FetchSettings = OF_DESCRIPTIONS,
) -> FetchedDocument:
    """Read `location`: a path, `file://` or http(s) URL. `timeout_s` holds for all redirects.
    `by_operator`: an operator chose it; else it must be public. `validator`: of what was fetched
    before. `redirects`: how many are followed. `settings`: names of the settings of the limits.

    Raises `ImportRejected`, which names the remedy.
    """
    path = local_path(location)
    if path is None:
        return await _fetch_url(
            location,
            limit_bytes,
            timeout_s,
            private_networks,
            by_operator=by_operator,
            validator=validator,
            redirects=redirects,
            settings=settings,
        )
    return await to_thread.run_sync(_read_file, path, limit_bytes, location)


def local_path(location: str) -> Path | None:
    """The path; None for an http(s) URL. Raises `ImportRejected` for anything else."""
    scheme = location.partition("://")[0].lower() if "://" in location else None
    if scheme in ("http", "https"):
        return None
    if scheme not in (None, "file"):
        display_url = without_credentials(location)
        raise ImportRejected(f"Cannot read {display_url}: expected a path or an http(s) URL.")
    path = Path(location) if scheme is None else _path_of(location)
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ImportRejected(f"Cannot read {path}: {error}.") from error


def has_credentials(location: str) -> bool:
    """Whether the URL contains a user or a password."""
    return "://" in location and "@" in location.split("/")[2]


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ImportRejected(f"Cannot read {url}: a file URL has three slashes, file:///path.")
    return Path(url2pathname(parts.path))


def _read_file(absolute: Path, limit_bytes: int, location: str) -> FetchedDocument:
    try:
        mode = absolute.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ImportRejected(f"{absolute} is a directory; name the file in it.")
        if not stat.S_ISREG(mode):
            raise ImportRejected(f"{absolute} is not a regular file.")
        with absolute.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError as error:
        hint = " A URL begins with http:// or https://." if _HOST.match(location) else ""
        raise ImportRejected(f"{absolute} does not exist.{hint}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImportRejected(f"Cannot read {absolute}: {reason}.") from error
    if len(data) > limit_bytes:
        raise _too_large(str(absolute), limit_bytes)
    return FetchedDocument(data, str(absolute))


async def _fetch_url(
    location: str,
    limit_bytes: int,
    timeout_s: float,
    private_networks: bool,
    *,
    by_operator: bool,
    validator: tuple[str, str],
    redirects: int,
    settings: FetchSettings,
) -> FetchedDocument:
    try:
        url = ssrf_protection.read_url(location)
    except ValueError as error:
        display_url = without_credentials(location)
        raise ImportRejected(f"Cannot fetch {display_url}: {error}.") from error
    try:
        with anyio.fail_after(timeout_s):
            return await _follow(
                url,
                limit_bytes,
                private_networks,
                by_operator=by_operator,
                validator=validator,
                redirects=redirects,
                settings=settings,
            )
    except TimeoutError as error:
        raise ImportRejected(
            f"Cannot fetch {_public_url(url)}: no answer within {timeout_s:g} s"
            f" (setting {settings.timeout_s})."
        ) from error


async def _follow(
    url: URL,
    limit_bytes: int,
    private_networks: bool,
    *,
    by_operator: bool,
    validator: tuple[str, str],
    redirects: int,
    settings: FetchSettings,
) -> FetchedDocument:
    """Follow redirects by hand: each address is checked before connecting."""
    trusted = private_networks
    resolver: AbstractResolver = _Recorder()
    if not by_operator and not trusted:
        resolver = ssrf_protection.PublicResolver()
        _check_literal(url, f"Cannot fetch {_public_url(url)}")
    for hop in range(redirects + 1):
        headers = (*settings.headers, validator) if validator[0] else settings.headers
        async with _get(url, resolver, headers) as response:
            if hop == 0 and isinstance(resolver, _Recorder):
                trusted = trusted or resolver.private(url)
            if response.status not in _REDIRECTS or "Location" not in response.headers:
                if response.status == _NOT_MODIFIED and validator[0]:
                    return FetchedDocument(
                        b"", _public_url(url), trusted, validator, unchanged=True
                    )
                data = await _read_response(response, url, limit_bytes, settings)
                return FetchedDocument(
                    data,
                    _public_url(url),
                    trusted,
                    _validator(response),
                    fresh_s=freshness(response.headers),
                )
            target = _redirect_target(url, response.headers["Location"])
        if settings.same_origin and target.origin() != url.origin():
            place = _public_url(target)
            raise ImportRejected(f"{_public_url(url)} redirects to another origin: {place}.")
        if not trusted:
            _check_literal(target, f"{_public_url(url)} redirects to {_public_url(target)}")
        url = target
        resolver = ThreadedResolver() if trusted else ssrf_protection.PublicResolver()
    raise ImportRejected(f"Cannot fetch {_public_url(url)}: more than {redirects} redirects.")


class _Recorder(AbstractResolver):
    """Resolver that records the addresses that it returned to the connection."""

    def __init__(self) -> None:
        self._inner = ThreadedResolver()
        self._seen: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_UNSPEC
    ) -> list[ResolveResult]:
        answers = await self._inner.resolve(host, port, family)
        self._seen.update(answer["host"] for answer in answers)
        return answers

    async def close(self) -> None:
        await self._inner.close()

    def private(self, url: URL) -> bool:
        """Whether all addresses were private; a public name with one private address is not."""
        addresses = self._seen or {url.host or ""}  # a literal address is not resolved
        return not any(ssrf_protection.is_public(address) for address in addresses)


@asynccontextmanager
async def _get(
    url: URL, resolver: AbstractResolver, further: tuple[tuple[str, str], ...]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send one GET; failures, also while the body is read, become `ImportRejected`."""
    connector = aiohttp.TCPConnector(resolver=resolver)
    timeout = aiohttp.ClientTimeout(total=None)  # the caller holds the deadline
    headers = {**_HEADERS, **dict(further)}
    session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)
    try:
        async with session, session.get(url, allow_redirects=False) as response:
            yield response
    except (aiohttp.ClientError, ValueError) as error:
        raise ImportRejected(f"Cannot fetch {_public_url(url)}: {_reason(error)}.") from error


def _validator(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """The condition of a later request: an entity tag, or a date (RFC 9110, 13.1). None for what
    was changed a moment ago: it may change again within the second that both are made of."""
    if _is_fresh(response.headers):
        return "", ""
    for name, condition in (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since")):
        value = response.headers.get(name, "")
        if 0 < len(value) <= _VALIDATOR and value.isprintable():
            return condition, value
    return "", ""


def freshness(headers: Mapping[str, str]) -> float | None:
    """How long an answer is fresh for a shared cache from now on, s (RFC 9111, 4.2.1); None: it
    does not say."""
    control = headers.get("Cache-Control", "").lower()
    parts = (part.partition("=") for part in control.split(","))
    directives = {name.strip(): value.strip(' "') for name, _, value in parts}
    if {"no-store", "no-cache", "private"} & directives.keys():
        return 0.0
    try:
        if age := directives.get("s-maxage", directives.get("max-age")):
            return max(0.0, float(int(age)) - int(headers.get("Age", 0)))
        ends = parsedate_to_datetime(headers["Expires"])
        return max(0.0, (ends - parsedate_to_datetime(headers["Date"])).total_seconds())
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _is_fresh(headers: Mapping[str, str]) -> bool:
    """Whether a document was changed in the last seconds, by the clock of its server."""
    try:
        changed = parsedate_to_datetime(headers.get("Last-Modified", ""))
        date = parsedate_to_datetime(headers.get("Date", ""))
        return (date - changed).total_seconds() < _FRESH_S
    except (ValueError, TypeError):  # one of them is missing, is no date, or has no zone
        return False


async def _read_response(
    response: aiohttp.ClientResponse, url: URL, limit_bytes: int, settings: FetchSettings
) -> bytes:
    if response.status != 200:
        hint = " (it needs credentials)" if response.status in (401, 403) else ""
        text = f"{_public_url(url)} answered {response.status} {response.reason}{hint}."
        challenge = response.headers.get("WWW-Authenticate", "")
        raise StatusRefused(text, response.status, challenge)
    data = await read_at_most(response, limit_bytes)
    if data is None:
        raise _too_large(_public_url(url), limit_bytes, settings)
    return data


def _redirect_target(url: URL, header: str) -> URL:
    try:
        target = url.join(ssrf_protection.read_url(header))
    except ValueError as error:
        raise ImportRejected(
            f"{_public_url(url)} redirects to {header!r}, which is no URL."
        ) from error
    if target.scheme not in ("http", "https"):
        raise ImportRejected(
            f"{_public_url(url)} redirects to {_public_url(target)}, which is not http(s)."
        )
    if url.scheme == "https" and target.scheme == "http":
        raise ImportRejected(
            f"{_public_url(url)} redirects from https to {_public_url(target)}; "
            "name that URL if you mean it."
        )
    return target


def _check_literal(url: URL, context: str) -> None:
    try:
        ssrf_protection.check_url_host(str(url))
    except ssrf_protection.PrivateAddress as error:
        raise ImportRejected(f"{context}: {error}; refused unless {GUARD} is true.") from error
    except ValueError as error:
        raise ImportRejected(f"{context}: {error}.") from error


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        cause = error.os_error
        if isinstance(cause, ssrf_protection.PrivateAddress):
            return f"{cause}; refused unless {GUARD} is true"
        return f"the host name {error.host} cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return certificate_reason(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        # asyncio's own text repeats the address of the message
        return os.strerror(error.errno).lower() if error.errno else str(error.os_error)
    return str(error) or type(error).__name__


def _public_url(url: URL) -> str:
    """The URL without user and password."""
    return str(url.with_user(None) if url.user or url.password else url)


def _too_large(
    location: str, limit_bytes: int, settings: FetchSettings = OF_DESCRIPTIONS
) -> ImportRejected:
    return ImportRejected(
        f"{location} is larger than {limit_bytes:,} bytes (setting {settings.limit_bytes})."
    )
