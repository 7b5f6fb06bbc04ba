"""Logins of the console at an authorization server: code flow with PKCE (RFC 7636), as a backend
for the browser, which sees no token (OAuth 2.0 for Browser-Based Applications, 6.1).

The token has to be good for the admin API, and the visitor may do what it says there.
"""

import base64
import hashlib
import hmac
import logging
import secrets
from urllib.parse import urlencode

import aiohttp
import msgspec
from msgspec import Struct

from config.access import ConsoleSettings
from config.settings import Settings
from gateway.guards.authorization_server import AuthorizationServer
from registry.documents.fetch import read_at_most

log = logging.getLogger("toolgate.console")

TOKEN_BYTES = 65_536  # of an answer with tokens
RANDOM_BYTES = 32


class LoginFailed(Exception):
    """A login did not succeed; the message is safe to show."""


class PendingLogin(Struct, frozen=True, array_like=True):
    """A login that has begun, kept in a cookie of the browser that began it."""

    state: str
    verifier: str
    below: str  # the page to open afterwards

    def sealed(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def opened(cls, text: str) -> "PendingLogin":
        """Raises LoginFailed."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text), type=cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise LoginFailed("This login was not begun here, or too long ago.") from error


class _Metadata(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _Tokens(Struct):
    access_token: str


class OAuthLogin:
    """Logins at the first authorization server of the settings."""

    def __init__(self, settings: Settings, root: str) -> None:
        """`root` is the path of the console."""
        self._settings: ConsoleSettings = settings.console
        self.issuer = settings.oauth.authorization_servers[0]
        self._timeout_s = settings.oauth.metadata_timeout_s
        self._server = AuthorizationServer(self.issuer, settings.oauth)
        public = settings.server.public_url.rstrip("/")
        self._resource = f"{public}{settings.admin.path}"
        self._redirect = f"{public}{root}/callback"

    async def begun(self, below: str) -> tuple[str, PendingLogin]:
        """The URL to send the browser to. Raises LoginFailed and Unreachable."""
        made = secrets.token_urlsafe
        pending = PendingLogin(made(RANDOM_BYTES), made(RANDOM_BYTES), below)
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
        }
        metadata = await self._metadata()
        joint = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{joint}{urlencode(query)}", pending

    async def token(self, pending: PendingLogin, answer: dict[str, str]) -> str:
        """The access token for the answer of the authorization server. Raises LoginFailed and
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
            "client_id": self._settings.client_id,
        }
        return await self._exchanged(metadata.token_endpoint, form)

    async def _exchanged(self, url: str, form: dict[str, str]) -> str:
        """Raises LoginFailed."""
        secret, timeout = self._settings.client_secret, aiohttp.ClientTimeout(self._timeout_s)
        auth = aiohttp.BasicAuth(self._settings.client_id, secret) if secret else None
        if auth is not None:
            del form["client_id"]  # RFC 6749, 2.3: one way of authentication
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http,
                http.post(url, data=form, auth=auth, allow_redirects=False) as response,
            ):
                body = await read_at_most(response, TOKEN_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise LoginFailed("The authorization server does not answer.") from error
        try:
            return msgspec.json.decode(body or b"", type=_Tokens).access_token
        except msgspec.MsgspecError as error:
            log.warning("console_login_failed", extra={"status": response.status})
            raise LoginFailed("The authorization server gave no token.") from error

    async def _metadata(self) -> _Metadata:
        """Raises LoginFailed and Unreachable."""
        try:
            return msgspec.json.decode(await self._server.metadata(), type=_Metadata)
        except msgspec.MsgspecError as error:
            raise LoginFailed("The metadata of the authorization server is incomplete.") from error
