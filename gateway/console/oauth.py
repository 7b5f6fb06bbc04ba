"""Logins of the console at an authorization server: code flow with PKCE (RFC 7636), as a backend
for the browser, which sees no token (OAuth 2.0 for Browser-Based Applications, 6.1).

The token has to be good for the admin API, and the visitor may do what it says there. With the
scope `openid` the answer has an ID token, whose nonce binds it to the login (OpenID Connect Core).
"""

import base64
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from config.access import ConsoleSettings
from config.settings import Settings
from gateway.guards.authorization_server import AuthorizationServer
from registry.documents.fetch import read_at_most
from schemas.errors import Unreachable

log = logging.getLogger("toolgate.console")

TOKEN_BYTES = 65_536  # of an answer with tokens
RANDOM_BYTES = 32
REFUSALS = (400, 401, 403)  # statuses of error responses of a token endpoint
PASSING = ("temporarily_unavailable", "server_error", "slow_down")  # codes of those that pass


class LoginFailed(Exception):
    """A login did not succeed; the message is safe to show."""


class PendingLogin(Struct, frozen=True, array_like=True):
    """A login that has begun, kept in a cookie of the browser that began it."""

    state: str
    verifier: str
    below: str  # the page to open afterwards
    nonce: str = ""  # that the ID token has to repeat; "": none is asked for

    def seal(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def unseal(cls, text: str) -> "PendingLogin":
        """Raises LoginFailed."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text), type=cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise LoginFailed("This login was not begun here, or too long ago.") from error


class _Metadata(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    end_session_endpoint: str = ""


class LoginTokens(Struct, frozen=True):
    """Answer of the authorization server to a code or a refresh token."""

    access_token: str
    refresh_token: str = ""
    id_token: str = ""


class _ErrorResponse(Struct):
    error: str


IdToken = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""The claims of an ID token for a client; None for one that is not good."""


class OAuthLogin:
    """Logins at the first authorization server of the settings."""

    def __init__(self, settings: Settings, root: str, id_token: IdToken) -> None:
        """`root` is the path of the console."""
        self._settings: ConsoleSettings = settings.console
        self.issuer = settings.oauth.authorization_servers[0]
        self._timeout_s = settings.oauth.metadata_timeout_s
        self._server = AuthorizationServer(self.issuer, settings.oauth)
        public = settings.server.public_url.rstrip("/")
        self._resource = f"{public}{settings.admin.path}"
        self._home = f"{public}{root}"
        self._redirect = f"{self._home}/callback"
        self._id_token = id_token
        self._is_openid = "openid" in settings.console.scopes

    async def begin(self, below: str) -> tuple[str, PendingLogin]:
        """The URL to send the browser to. Raises LoginFailed and Unreachable."""
        made = secrets.token_urlsafe
        nonce = made(RANDOM_BYTES) if self._is_openid else ""
        pending = PendingLogin(made(RANDOM_BYTES), made(RANDOM_BYTES), below, nonce)
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self._settings.scopes),
            "state": pending.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self._resource,
            **({"nonce": nonce} if nonce else {}),
        }
        metadata = await self._metadata()
        return _with(metadata.authorization_endpoint, query), pending

    async def tokens(self, pending: PendingLogin, answer: Mapping[str, str]) -> LoginTokens:
        """The tokens for the answer of the authorization server. Raises LoginFailed and
        Unreachable."""
        if not hmac.compare_digest(pending.state.encode(), answer.get("state", "").encode()):
            raise LoginFailed("This login was not begun here, or too long ago.")
        metadata = await self._metadata()
        if "iss" in answer and answer["iss"] != metadata.issuer:  # RFC 9207
            raise LoginFailed("The answer is from another authorization server.")
        if "code" not in answer:
            raise LoginFailed(f"The authorization server refused: {answer.get('error', '')[:100]}")
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": self._redirect,
            "code_verifier": pending.verifier,
            "resource": self._resource,
        }
        tokens = await self._exchange(metadata.token_endpoint, form)
        if pending.nonce:
            await self._check(tokens.id_token, metadata.issuer, pending.nonce)
        return tokens

    async def renew(self, refresh_token: str) -> LoginTokens:
        """New tokens for a refresh token. Raises LoginFailed where it is refused, and Unreachable
        for every other answer: with an outage no session ends."""
        try:
            metadata = await self._metadata()
        except LoginFailed as error:
            raise AwayServer from error
        form = {
            "grant_type": "refresh_token",
            "refresh_token": refresh_token,
            "resource": self._resource,
        }
        tokens = await self._exchange(metadata.token_endpoint, form)
        # without a new one the former goes on (RFC 6749, 6)
        return tokens if tokens.refresh_token else replace(tokens, refresh_token=refresh_token)

    async def revoke(self, refresh_token: str) -> None:
        """Tell the authorization server that a session has ended (RFC 7009), if it wants to know
        and can be reached."""
        with suppress(LoginFailed, Unreachable):
            metadata = await self._metadata()
            if metadata.revocation_endpoint:
                await self._post_form(metadata.revocation_endpoint, {"token": refresh_token})

    async def end_url(self) -> str:
        """Where a visitor ends the session at the authorization server itself (OpenID Connect
        RP-Initiated Logout 1.0); "" where that has no such page, or cannot be reached."""
        try:
            metadata = await self._metadata()
        except (LoginFailed, Unreachable):
            return ""
        if not metadata.end_session_endpoint.startswith(("https://", "http://")):
            return ""
        told = {"client_id": self._settings.client_id, "post_logout_redirect_uri": self._home}
        return _with(metadata.end_session_endpoint, told)

    async def _check(self, id_token: str, issuer: str, nonce: str) -> None:
        """Whether the ID token answers this login. Raises LoginFailed."""
        claims = await self._id_token(id_token, self._settings.client_id) if id_token else None
        if claims is None or claims.get("iss") != issuer or claims.get("nonce") != nonce:
            raise LoginFailed("The ID token is not good, or not for this login.")

    async def _exchange(self, url: str, form: dict[str, str]) -> LoginTokens:
        """Raises LoginFailed, and Unreachable where nobody has answered."""
        status, body = await self._post_form(url, form)
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(body, type=LoginTokens)
        log.warning("console_login_failed", extra={"status": status})
        if status not in REFUSALS or _error_of(body) in ("", *PASSING):
            raise AwayServer
        raise LoginFailed("The authorization server gave no token.")

    async def _post_form(self, url: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Raises Unreachable."""
        own, secret = self._settings.client_id, self._settings.client_secret
        auth = aiohttp.BasicAuth(own, secret) if secret else None
        if auth is None:
            form = {**form, "client_id": own}  # RFC 6749, 2.3: one way of authentication
        timeout = aiohttp.ClientTimeout(self._timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http,
                http.post(url, data=form, auth=auth, allow_redirects=False) as response,
            ):
                return response.status, await read_at_most(response, TOKEN_BYTES) or b""
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AwayServer from error

    async def _metadata(self) -> _Metadata:
        """Raises LoginFailed and Unreachable."""
        try:
            return msgspec.json.decode(await self._server.metadata(), type=_Metadata)
        except msgspec.MsgspecError as error:
            raise LoginFailed("The metadata of the authorization server is incomplete.") from error


def _error_of(body: bytes) -> str:
    """The code of an error response (RFC 6749, 5.2); "" for anything else, as a page of a proxy."""
    try:
        return msgspec.json.decode(body, type=_ErrorResponse).error
    except msgspec.MsgspecError:
        return ""


class AwayServer(Unreachable):
    status = 502

    def __init__(self) -> None:
        super().__init__("The authorization server does not answer")


def _with(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
