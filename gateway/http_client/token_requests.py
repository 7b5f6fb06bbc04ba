"""Token endpoints (RFC 6749, section 3.2) and the gateway's requests to them.

A secret is sent to its own `token_url` only: not after a redirect. Errors contain no address, and
of the server's text only its registered error codes.
"""

import asyncio
import base64
import math
import ssl
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from msgspec import Struct

from registry.documents.fetch import read_at_most
from registry.documents.ssrf_protection import check_url_host, is_private
from schemas.errors import ToolgateError

ANSWER_LIMIT_BYTES = 2**18  # a token of the largest directories is some ten kilobytes
UNSAID_S = 300.0  # lifetime of a token without `expires_in`; a 401 ends it sooner
EARLY_S = 30.0  # renewal before expiry, so that it does not expire on the way
CLAIMS_LIMIT = 2000  # characters
INVALID_GRANT, INVALID_CLIENT = "invalid_grant", "invalid_client"
CONSENT_REQUIRED = "consent_required"
# errors after which a person has to do something in a browser (OpenID Connect Core, 3.1.2.6)
INTERACTIONS = frozenset({"interaction_required", "login_required", CONSENT_REQUIRED})
NO_CONSENT = 65001  # AADSTS65001, which Entra ID calls invalid_grant or interaction_required
# RFC 6749, section 5.2, and RFC 8693, section 2.2.2
_ERRORS = {
    name: name
    for name in (
        *("invalid_request", INVALID_CLIENT, INVALID_GRANT, "unauthorized_client"),
        *("unsupported_grant_type", "invalid_scope", "invalid_target", *INTERACTIONS),
    )
} | {  # words of GitHub and Slack, which answer them with status 200
    "bad_verification_code": INVALID_GRANT,
    "bad_refresh_token": INVALID_GRANT,
    "invalid_code": INVALID_GRANT,
    "invalid_refresh_token": INVALID_GRANT,
    "incorrect_client_credentials": INVALID_CLIENT,
    "invalid_client_id": INVALID_CLIENT,
    "bad_client_secret": INVALID_CLIENT,
}

_BEARER_TYPES = ("bearer", "user")  # the latter is Slack's word for tokens of people


class TokenFailed(ToolgateError):
    """No token was issued; the text follows the name of a source and holds no secret or address."""

    def __init__(
        self, text: str, rejected: bool = False, error: str = "", claims: str = ""
    ) -> None:
        super().__init__(text)
        self.rejected = rejected  # a definite refusal: a retry would fail too
        self.error = error  # its code (RFC 6749, section 5.2), if the server named one
        self.claims = claims  # that another login has to satisfy, in JSON (Entra ID)


class ClientCredentials(Struct, frozen=True):
    """Client credentials and token_url. Without a secret the client is a public one."""

    token_url: str
    client_id: str
    client_secret: str = ""
    client_auth: Literal["header", "body"] = "header"
    public: bool = False  # whether the token_url has to be a public address


class TokenAnswer(Struct, frozen=True):
    access_token: str
    token_type: str | None = None  # required, and left out by some
    expires_in: float | str | None = None  # some servers send the number as a string
    issued_token_type: str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class AccessToken(Struct, frozen=True):
    text: str
    ends: float  # s, monotonic clock

    @classmethod
    def lasting(cls, text: str, requested_at: float, lasts_s: float | None) -> "AccessToken":
        """A token of this lifetime, which is renewed before it ends; an endless one is taken as not
        said. `requested_at`: s, monotonic clock."""
        lasts_s = UNSAID_S if lasts_s is None or not math.isfinite(lasts_s) else lasts_s
        return cls(text, requested_at + lasts_s - min(EARLY_S, lasts_s / 2))


class TokenEndpoint:
    """One `token_url`, and the requests to it."""

    def __init__(
        self,
        login: ClientCredentials,
        purpose: str,
        timeout_s: float,
        tls: ssl.SSLContext | bool,
        *,
        guard: str = "upstream.token_private_networks",
    ) -> None:
        """`purpose` names the tokens in errors; `tls`: True for the system's certificates. `guard`:
        the setting that lets a public `login` lead into private networks."""
        self.login = login
        self._purpose = purpose
        self._timeout_s = timeout_s
        self._tls = tls
        self._guard = guard

    async def request(self, http: aiohttp.ClientSession, form: Mapping[str, str]) -> TokenAnswer:
        """Request a token with `form`. Raises TokenFailed. An answer without a token is an error
        whatever its status."""
        status, body = await self.post(http, form)
        good, (code, claims) = 200 <= status < 300, _refusal(body)
        if good and not code:
            try:
                return msgspec.json.decode(body, type=TokenAnswer)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise self.failure("answered something that is no token") from error
        why = f" ({code})" if code else ""
        rejected = good or 400 <= status < 500
        code = code if rejected else ""  # of an outage, no code is believed
        failure = self.failure(f"answered HTTP {status}{why}", rejected=rejected, error=code)
        failure.claims = claims if code in INTERACTIONS else ""
        raise failure

    async def post(self, http: aiohttp.ClientSession, form: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to `form`, sent with the client's authentication. Raises
        TokenFailed if there is none."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(http, form)
        except TimeoutError as error:
            raise self.failure(f"did not answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if is_private(error):
                text = f"leads into a private network ({self._guard})"
                raise self.failure(text) from error
            raise self.failure("could not be reached") from error

    def token(self, answer: TokenAnswer, requested_at: float) -> AccessToken:
        """The token in `answer`, with its expiry. Raises TokenFailed. `requested_at`: when it was
        requested (s, monotonic clock)."""
        return AccessToken.lasting(answer.access_token, requested_at, self.lifetime_s(answer))

    def lifetime_s(self, answer: TokenAnswer) -> float | None:
        """Lifetime of the token in `answer`, which can be sent; None where it is not said. Raises
        TokenFailed."""
        if (answer.token_type or "Bearer").lower() not in _BEARER_TYPES:
            raise self.failure("answered a token that is not of the type Bearer")
        if not answer.access_token:
            raise self.failure("answered something that is no token")
        if not answer.access_token.isascii() or not answer.access_token.isprintable():
            raise self.failure("answered a token that cannot be sent")
        try:
            return None if answer.expires_in is None else float(answer.expires_in)
        except ValueError as error:
            raise self.failure("answered something that is no token") from error

    def failure(self, problem: str, *, rejected: bool = False, error: str = "") -> TokenFailed:
        text = f"has no token for {self._purpose}: its token_url {problem}"
        return TokenFailed(text, rejected, error)

    async def _post(
        self, http: aiohttp.ClientSession, form: Mapping[str, str]
    ) -> tuple[int, bytes]:
        if self.login.public:  # a literal address bypasses the resolver
            check_url_host(self.login.token_url)
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",  # GitHub answers a form without it
        }
        name, secret = self.login.client_id, self.login.client_secret
        if not secret:
            form = {**form, "client_id": name}
        elif self.login.client_auth == "body":
            form = {**form, "client_id": name, "client_secret": secret}
        else:
            # section 2.3.1: form-encoded first, which escapes ":"; a blank as %20, since some
            # servers read no "+"
            headers["Authorization"] = basic(quote(name, safe=""), quote(secret, safe=""))
        async with http.post(
            self.login.token_url,
            data=urlencode(form).encode(),
            headers=headers,
            allow_redirects=False,
            ssl=self._tls,
        ) as response:
            # a longer body is no token
            return response.status, await read_at_most(response, ANSWER_LIMIT_BYTES) or b""


def basic(username: str, password: str) -> str:
    """Basic credentials (RFC 7617), in UTF-8."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _refusal(body: bytes) -> tuple[str, str]:
    """The registered error code of an answer, and the claims that it asks for; "" where it has
    none."""
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "", ""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if not isinstance(error, str):
        return "", ""
    numbers, claims = answer.get("error_codes"), answer.get("claims")
    if isinstance(numbers, list) and NO_CONSENT in numbers:
        error = CONSENT_REQUIRED
    is_sendable = isinstance(claims, str) and len(claims) <= CLAIMS_LIMIT
    return _ERRORS.get(error, ""), claims if is_sendable else ""
