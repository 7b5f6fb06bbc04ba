"""Tokens that the gateway fetches for itself: the client credentials grant (RFC 6749, section 4.4).

The secret goes to the `token_url` of the settings and nowhere else: not to one that a description
names, and not after a redirect.
"""

import asyncio
import base64
import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import aiohttp
import msgspec
from msgspec import Struct

from config.settings import SchemeSettings
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.upstream")

ANSWER_LIMIT_BYTES = 2**18  # a token of the largest directories is some ten kilobytes
UNSAID_S = 300.0  # how long a token is used whose end nobody states; a 401 ends it sooner
EARLY_S = 30.0  # before its end, so that it does not end on the way
# Between two tokens that were refused: a service that answers 401 for reasons of its own must not
# have every call ask for one.
REFUSED_S = 30.0
# RFC 6749, section 5.2: the words that may be passed on, because they are not the server's own
_ERRORS = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client"}
    | {"unsupported_grant_type", "invalid_scope"}
)


class TokenFailed(ToolgateError):
    """There is no token; the text follows the name of a source and holds no secret or address."""


class _Token(Struct, frozen=True):
    text: str
    ends: float  # s, monotonic clock


class _Answer(Struct, frozen=True):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - required, and left out by some
    expires_in: float | str | None = None  # some write the number as a text


class Tokens:
    """Those of one source, by the security scheme they are for."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._held: dict[str, _Token] = {}
        self._fetching: dict[str, asyncio.Task[_Token]] = {}
        self._refused: dict[str, float] = {}  # when one was, s, monotonic clock

    async def get(self, http: aiohttp.ClientSession, scheme: str, login: SchemeSettings) -> str:
        """The token in use, or a new one; however many ask, one request is made. Raises
        TokenFailed."""
        held = self._held.get(scheme)
        if held is not None and held.ends > time.monotonic():
            return held.text
        if scheme not in self._fetching:
            task = asyncio.create_task(self._renew(http, scheme, login))
            task.add_done_callback(_seen)
            self._fetching[scheme] = task
        # One of those who wait may give up; the others still want it.
        return (await asyncio.shield(self._fetching[scheme])).text

    def forget(self, scheme: str, text: str) -> bool:
        """The service refused the token `text`: whether another one may do better."""
        held = self._held.get(scheme)
        if held is None or held.text != text:
            return True  # another call has seen to it
        now = time.monotonic()
        if now - self._refused.get(scheme, -REFUSED_S) < REFUSED_S:
            return False
        self._refused[scheme] = now
        del self._held[scheme]
        return True

    async def close(self) -> None:
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(
        self, http: aiohttp.ClientSession, scheme: str, login: SchemeSettings
    ) -> _Token:
        try:
            token = await self._fetch(http, scheme, login)
            self._held[scheme] = token
            return token
        except TokenFailed as error:
            log.warning("token_failed", extra={"scheme": scheme, "reason": str(error)})
            raise
        finally:
            del self._fetching[scheme]

    async def _fetch(
        self, http: aiohttp.ClientSession, scheme: str, login: SchemeSettings
    ) -> _Token:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await _post(http, login)
        except TimeoutError as error:
            late = f"did not answer within {self._timeout_s:g} s"
            raise TokenFailed(_said(scheme, late)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TokenFailed(_said(scheme, "could not be reached")) from error
        if not 200 <= status < 300:
            raise TokenFailed(_said(scheme, f"answered HTTP {status}{_reason(body)}"))
        return _read(scheme, body, asked)


def _seen(task: asyncio.Task[_Token]) -> None:
    """Its failure is told to whoever waits; that may be nobody any more."""
    if not task.cancelled():
        task.exception()


async def _post(http: aiohttp.ClientSession, login: SchemeSettings) -> tuple[int, bytes]:
    form = {"grant_type": "client_credentials"}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if login.scopes:
        form["scope"] = " ".join(login.scopes)
    name, secret = login.client_id or "", login.client_secret or ""
    if login.client_auth == "body":
        form |= {"client_id": name, "client_secret": secret}
    else:
        # section 2.3.1: form-encoded first, so that a ":" in them is none
        headers["Authorization"] = basic(quote_plus(name), quote_plus(secret))
    async with http.post(
        login.token_url or "",
        data=urlencode(form).encode(),
        headers=headers,
        allow_redirects=False,
    ) as response:
        return response.status, await _start(response)


async def _start(response: aiohttp.ClientResponse) -> bytes:
    """The body up to the limit: what is longer is no token, nor any JSON once it is cut."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= ANSWER_LIMIT_BYTES:
            break
    return body[:ANSWER_LIMIT_BYTES]


def basic(username: str, password: str) -> str:
    """RFC 7617, in UTF-8."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _read(scheme: str, body: bytes, asked: float) -> _Token:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        lasts_s = UNSAID_S if answer.expires_in is None else float(answer.expires_in)
    except (msgspec.DecodeError, ValueError) as error:
        raise TokenFailed(_said(scheme, "answered something that is no token")) from error
    if answer.token_type.lower() != "bearer":
        raise TokenFailed(_said(scheme, "answered a token that is not of the type Bearer"))
    if not answer.access_token.isascii() or not answer.access_token.isprintable():
        raise TokenFailed(_said(scheme, "answered a token that cannot be sent"))
    return _Token(answer.access_token, asked + lasts_s - min(EARLY_S, lasts_s / 2))


def _reason(body: bytes) -> str:
    try:
        answer: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    return f" ({error})" if error in _ERRORS else ""


def _said(scheme: str, what: str) -> str:
    return f"has no token for {scheme}: its token_url {what}"
