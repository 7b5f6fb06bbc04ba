"""Asking for tokens (RFC 6749, section 4.4; RFC 8693).

A secret goes to its own `token_url` and nowhere else: not to one that a description names, and not
after a redirect. That of a secret in the database leads to public addresses only. What goes wrong
is told without an address, and of what the server says only words that are not its own.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote_plus, urlencode

import aiohttp
import msgspec
from msgspec import Struct

from registry.documents.addresses import check_url_host, is_private
from registry.documents.fetch import read_at_most
from schemas.errors import ToolgateError

ANSWER_LIMIT_BYTES = 2**18  # a token of the largest directories is some ten kilobytes
UNSAID_S = 300.0  # how long a token is used whose end nobody states; a 401 ends it sooner
EARLY_S = 30.0  # before its end, so that it does not end on the way
# RFC 6749, section 5.2, and RFC 8693, section 2.2.2
_ERRORS = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client"}
    | {"unsupported_grant_type", "invalid_scope", "invalid_target"}
)


class TokenFailed(ToolgateError):
    """There is no token; the text follows the name of a source and holds no secret or address."""

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused  # the server said no, and would say so again


class Login(Struct, frozen=True):
    """Who asks, and where. Without a secret the client is a public one."""

    token_url: str
    client_id: str
    client_secret: str = ""
    client_auth: Literal["header", "body"] = "header"
    public: bool = False  # whether the token_url has to be a public address


class TokenAnswer(Struct, frozen=True):
    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - required, and left out by some
    expires_in: float | str | None = None  # some write the number as a text
    issued_token_type: str = ""


class AccessToken(Struct, frozen=True):
    text: str
    ends: float  # s, monotonic clock


class TokenEndpoint:
    """One `token_url`, and how it is asked."""

    def __init__(
        self, login: Login, purpose: str, timeout_s: float, tls: ssl.SSLContext | bool
    ) -> None:
        """`purpose` is what its tokens are for, as errors say it; `tls`: True for the system's
        certificates."""
        self.login = login
        self._purpose = purpose
        self._timeout_s = timeout_s
        self._tls = tls

    async def ask(self, http: aiohttp.ClientSession, form: Mapping[str, str]) -> TokenAnswer:
        """Raises TokenFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._post(http, form)
        except TimeoutError as error:
            raise self.failed(f"did not answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if is_private(error):
                text = "leads into a private network (upstream.token_private_networks)"
                raise self.failed(text) from error
            raise self.failed("could not be reached") from error
        if not 200 <= status < 300:
            refused = 400 <= status < 500
            raise self.failed(f"answered HTTP {status}{_reason(body)}", refused=refused)
        return self._read(body)

    def token(self, answer: TokenAnswer, asked: float) -> AccessToken:
        """What may be sent, and how long. Raises TokenFailed. `asked`: s, monotonic clock."""
        try:
            lasts_s = UNSAID_S if answer.expires_in is None else float(answer.expires_in)
        except ValueError as error:
            raise self.failed("answered something that is no token") from error
        if answer.token_type.lower() != "bearer":
            raise self.failed("answered a token that is not of the type Bearer")
        if not answer.access_token.isascii() or not answer.access_token.isprintable():
            raise self.failed("answered a token that cannot be sent")
        return AccessToken(answer.access_token, asked + lasts_s - min(EARLY_S, lasts_s / 2))

    def failed(self, what: str, *, refused: bool = False) -> TokenFailed:
        return TokenFailed(f"has no token for {self._purpose}: its token_url {what}", refused)

    async def _post(
        self, http: aiohttp.ClientSession, form: Mapping[str, str]
    ) -> tuple[int, bytes]:
        if self.login.public:  # a literal address reaches no resolver
            check_url_host(self.login.token_url)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        name, secret = self.login.client_id, self.login.client_secret
        if not secret:
            form = {**form, "client_id": name}
        elif self.login.client_auth == "body":
            form = {**form, "client_id": name, "client_secret": secret}
        else:
            # section 2.3.1: form-encoded first, so that a ":" in them is none
            headers["Authorization"] = basic(quote_plus(name), quote_plus(secret))
        async with http.post(
            self.login.token_url,
            data=urlencode(form).encode(),
            headers=headers,
            allow_redirects=False,
            ssl=self._tls,
        ) as response:
            # what is longer is no token
            return response.status, await read_at_most(response, ANSWER_LIMIT_BYTES) or b""

    def _read(self, body: bytes) -> TokenAnswer:
        try:
            return msgspec.json.decode(body, type=TokenAnswer)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self.failed("answered something that is no token") from error


async def client_token(
    endpoint: TokenEndpoint, http: aiohttp.ClientSession, scope: str
) -> AccessToken:
    """One of the gateway's own: the client credentials grant. Raises TokenFailed."""
    form = {"grant_type": "client_credentials"}
    if scope:
        form["scope"] = scope
    asked = time.monotonic()
    return endpoint.token(await endpoint.ask(http, form), asked)


def basic(username: str, password: str) -> str:
    """RFC 7617, in UTF-8."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _reason(body: bytes) -> str:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    return f" ({error})" if isinstance(error, str) and error in _ERRORS else ""
