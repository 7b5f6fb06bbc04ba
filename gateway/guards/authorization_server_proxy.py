"""Proxy for the authorization server's metadata (RFC 8414), for clients of older revisions.

Clients of MCP 2025-03-26 look for it at the origin of the MCP server. The document is passed on
unchanged: its `issuer` is the authorization server's, and clients that compare it with our origin
do not speak that revision.
"""

import asyncio
import logging
import time

import aiohttp
import msgspec
from anyio import Lock

from config.access import OAuth
from registry.documents.fetch import read_at_most
from schemas.errors import Unreachable
from schemas.issuers import is_same_issuer, well_known

log = logging.getLogger("toolgate.auth")

RETRY_S = 5.0  # backoff after a failure, so that retries of clients are not all passed on
REQUIRED_MEMBERS = ("issuer", "token_endpoint")


class NoMetadata(Unreachable):
    status = 502

    def __init__(self) -> None:
        super().__init__("The metadata of the authorization server cannot be had at the moment")


class _Unusable(Exception):
    """The metadata cannot be used; the message is safe to log."""


class AuthorizationServer:
    def __init__(self, issuer: str, settings: OAuth) -> None:
        self._issuer = issuer
        self._settings = settings
        self._cached: bytes | None = None
        self._good_until = 0.0  # s, monotonic clock
        self._fetching = Lock()

    async def metadata(self) -> bytes:
        """The encoded document, unchanged; single-flight. Raises NoMetadata."""
        if time.monotonic() >= self._good_until:
            async with self._fetching:
                if time.monotonic() >= self._good_until:
                    await self._renew()
        if self._cached is None:
            raise NoMetadata
        return self._cached

    async def _renew(self) -> None:
        try:
            self._cached = await self._fetch()
            self._good_until = time.monotonic() + self._settings.metadata_ttl_s
        except _Unusable as error:
            log.warning("metadata_unusable", extra={"issuer": self._issuer, "reason": str(error)})
            self._cached = None
            self._good_until = time.monotonic() + RETRY_S

    async def _fetch(self) -> bytes:
        """The document from the first well-known location that has it. Raises _Unusable."""
        try:
            async with asyncio.timeout(self._settings.metadata_timeout_s), _client() as http:
                for url in well_known(self._issuer):
                    body = await self._read(http, url)
                    if body is not None:
                        return check_metadata(body, self._issuer)
        except TimeoutError as error:
            late = f"no answer within {self._settings.metadata_timeout_s:g} s"
            raise _Unusable(late) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Unusable(type(error).__name__) from error
        raise _Unusable("it is at none of the usual places")

    async def _read(self, http: aiohttp.ClientSession, url: str) -> bytes | None:
        """The body; None for 404."""
        limit = self._settings.metadata_bytes
        async with http.get(url, allow_redirects=False) as response:
            if response.status != 200:
                return None
            body = await read_at_most(response, limit)
        if body is None:
            raise _Unusable(f"longer than {limit} bytes (oauth.metadata_bytes)")
        return body


def check_metadata(body: bytes, issuer: str) -> bytes:
    """`body`, if it is metadata of `issuer` (RFC 8414, section 3.3). Raises _Unusable."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Unusable("it is no JSON") from error
    if not isinstance(document, dict):
        raise _Unusable("it is no JSON object")
    for name in REQUIRED_MEMBERS:
        if not isinstance(document.get(name), str):
            raise _Unusable(f"it has no {name}")
    if not is_same_issuer(document["issuer"], issuer):
        raise _Unusable(f"its issuer is another one: {document['issuer'][:200]!r}")
    return body


def _client() -> aiohttp.ClientSession:
    """A new session per fetch: fetches are rare."""
    return aiohttp.ClientSession(
        headers={"Accept": "application/json"}, cookie_jar=aiohttp.DummyCookieJar()
    )
