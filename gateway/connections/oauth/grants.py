"""Grants of a person at an authorization server: asked for by a browser, redeemed, renewed, and
given back.

Codes, verifiers and tokens stand in no error. Texts of a server are passed on as far as its
registered codes and a short description go.
"""

import math
import secrets
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlencode

from msgspec import Struct

from gateway.connections.oauth.gateway_as_client import AssertionKey, OAuthClient
from gateway.connections.oauth.guarded_requests import GUARD, Reach
from gateway.connections.oauth.server_metadata import AuthorizationServer
from gateway.http_client.client_assertions import JWT_BEARER
from gateway.http_client.token_requests import (
    INTERACTIONS,
    INVALID_CLIENT,
    INVALID_GRANT,
    ClientCredentials,
    TokenAnswer,
    TokenEndpoint,
    TokenFailed,
)
from schemas.errors import ToolgateError
from schemas.pkce import challenge_of

UNSAID_S = 3600.0  # lifetime of a token without `expires_in` that can be renewed
LONGEST_S = 10 * 365 * 86_400.0
VERIFIER_BYTES = 48
TOKEN_LIMIT = 32_768  # characters; servers accept no longer headers
SCOPES_LIMIT = 8192  # characters; a URL asks for them again
DESCRIPTION_LIMIT = 200  # characters
OFFLINE = "offline_access"
PURPOSE = "this account"

FailureReason = Literal["over", "client", "later"]
_REASONS: dict[str, FailureReason] = {
    INVALID_GRANT: "over",
    INVALID_CLIENT: "client",
    **dict.fromkeys(INTERACTIONS, "over"),  # as of Entra ID, where a second factor is due
}


class AuthorizationRefused(ToolgateError):
    """The answer that a browser brought gives no code; the message is safe to show."""


class GrantFailed(ToolgateError):
    """A server gave no tokens; the text follows the name of a source. `reason`: `over`, the grant
    has ended, `client`, the server does not know the gateway, or `later`, for now."""

    def __init__(self, text: str, reason: FailureReason) -> None:
        super().__init__(text)
        self.reason = reason


class PendingAuthorization(Struct, frozen=True):
    """The part of an authorization request that its answer is checked with: to be kept in secret
    until then."""

    issuer: str
    announces_iss: bool
    client_id: str
    redirect_uri: str
    verifier: str
    scopes: tuple[str, ...]


class Tokens(Struct, frozen=True):
    """Tokens of one person at one service."""

    access: str
    lasts_s: float | None  # of the access token; None: unknown, and it cannot be renewed
    refresh: str | None
    scopes: tuple[str, ...]  # granted


def choose_scopes(
    server: AuthorizationServer, configured_scopes: Iterable[str], *, more: Iterable[str] = ()
) -> tuple[str, ...]:
    """Scopes to ask for: `configured_scopes`, else those that the service named; with `more`
    (granted before, and asked for by a challenge), and offline_access where it is listed."""
    scopes = dict.fromkeys((*(tuple(configured_scopes) or server.scopes), *more))
    if scopes and OFFLINE in server.scopes_supported:
        scopes[OFFLINE] = None
    return tuple(scopes)


class Grants:
    """Grants for one client at one server."""

    def __init__(
        self,
        server: AuthorizationServer,
        client: OAuthClient,
        reach: Reach,
        *,
        key: AssertionKey | None = None,
        authorize: Mapping[str, str] | None = None,
        token: Mapping[str, str] | None = None,
    ) -> None:
        """`authorize`, `token`: further parameters of both requests, which replace none."""
        self._server = server
        self._client = client
        self._reach = reach
        self._key = key
        self._authorize = authorize or {}
        self._token = token or {}

    def begin(
        self, redirect_uri: str, state: str, scopes: tuple[str, ...]
    ) -> tuple[str, PendingAuthorization]:
        """The URL for the browser, and what has to be kept until it is back."""
        verifier = secrets.token_urlsafe(VERIFIER_BYTES)
        query = {
            **self._authorize,
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **({"scope": " ".join(scopes)} if scopes else {}),
            **self._resource,
        }
        url = self._server.authorization_endpoint
        attempt = PendingAuthorization(
            self._server.issuer,
            self._server.announces_iss,
            self._client.id,
            redirect_uri,
            verifier,
            scopes,
        )
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}", attempt

    async def redeem(self, attempt: PendingAuthorization, answer: Mapping[str, str]) -> Tokens:
        """The tokens for the answer of a server to the browser. Raises AuthorizationRefused and
        GrantFailed."""
        if (attempt.issuer, attempt.client_id) != (self._server.issuer, self._client.id):
            raise AuthorizationRefused("the authorization server has changed in the meantime")
        code = _read_code(attempt, answer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        return await self._request(form, attempt.scopes, refresh=None)

    async def renew(self, refresh_token: str, scopes: tuple[str, ...]) -> Tokens:
        """New tokens; `scopes`: granted so far. The refresh token stays where the answer has none.
        Raises GrantFailed."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._request(form, scopes, refresh=refresh_token)

    async def assert_identity(self, assertion: str, scopes: tuple[str, ...]) -> Tokens:
        """Tokens for the person of whom a provider gave an assertion (ID-JAG). Raises
        GrantFailed."""
        form = {"grant_type": JWT_BEARER, "assertion": assertion}
        form |= {"scope": " ".join(scopes)} if scopes else {}
        return await self._request(form, scopes, refresh=None)

    async def revoke(self, token: str, hint: Literal["access_token", "refresh_token"]) -> bool:
        """Give a token back (RFC 7009); whether the server took it."""
        url = self._server.revocation_endpoint
        if url is None:
            return False
        form = {"token": token, "token_type_hint": hint}
        try:
            self._reach.check(url)
            async with self._reach.session(url) as http:
                status, _ = await self._endpoint(url).post(http, self._identify(form))
        except (TokenFailed, GrantFailed, ValueError):
            return False
        return 200 <= status < 300

    @property
    def _resource(self) -> dict[str, str]:
        return {"resource": self._server.resource} if self._server.resource else {}

    async def _request(
        self, form: Mapping[str, str], scopes: tuple[str, ...], *, refresh: str | None
    ) -> Tokens:
        url = self._server.token_endpoint
        endpoint = self._endpoint(url)
        form = self._identify({**self._token, **form, **self._resource})
        try:
            self._reach.check(url)
            async with self._reach.session(url) as http:
                answer = await endpoint.request(http, form)
            lasts_s = endpoint.lifetime_s(answer)
        except TokenFailed as error:
            raise GrantFailed(str(error), _REASONS.get(error.error, "later")) from error
        except ValueError as error:
            raise GrantFailed(f"has no token for {PURPOSE}: {error}", "later") from error
        refresh = answer.refresh_token or refresh
        if len(answer.access_token) > TOKEN_LIMIT or len(refresh or "") > TOKEN_LIMIT:
            text = f"expected tokens of at most {TOKEN_LIMIT} characters"
            raise GrantFailed(f"has no token for {PURPOSE}: {text}", "later")
        granted = _granted_scopes(answer, scopes)
        text = " ".join(granted)
        if len(text) > SCOPES_LIMIT or not text.isprintable():
            text = f"expected scopes of at most {SCOPES_LIMIT} printable characters"
            raise GrantFailed(f"has no token for {PURPOSE}: {text}", "later")
        return Tokens(answer.access_token, _lifetime_s(lasts_s, refresh), refresh, granted)

    def _endpoint(self, url: str) -> TokenEndpoint:
        client = self._client
        credentials = ClientCredentials(
            url,
            client.id,
            client.secret if client.method in ("basic", "post") else "",
            "body" if client.method == "post" else "header",
            public=not self._reach.is_free(url),
        )
        timeout_s = self._reach.limits.request_s
        return TokenEndpoint(credentials, PURPOSE, timeout_s, tls=True, guard=GUARD)

    def _identify(self, form: Mapping[str, str]) -> dict[str, str]:
        """`form` with the id of the client, which servers of the official SDK want beside Basic,
        and its signed authentication, where it has one. Raises GrantFailed."""
        form = {**form, "client_id": self._client.id}
        if self._client.method != "private_key_jwt":
            return form
        if self._key is None:
            text = "the key that signs the gateway's authentication is missing"
            raise GrantFailed(f"has no token for {PURPOSE}: {text}", "later")
        audience = self._server.issuer or self._server.token_endpoint
        return {**form, **self._key.sign(self._client.id, audience)}


def _read_code(attempt: PendingAuthorization, answer: Mapping[str, str]) -> str:
    """The code of an answer from the right server (RFC 9207). Raises AuthorizationRefused."""
    named = answer.get("iss")
    if named is None and attempt.announces_iss:
        raise AuthorizationRefused("the answer does not name its issuer, as its server announces")
    if named is not None and attempt.issuer and named != attempt.issuer:
        raise AuthorizationRefused("the answer is from another server")
    if error := answer.get("error"):
        description = answer.get("error_description", "")
        text = " ".join(f"{error[:100]} {description[:DESCRIPTION_LIMIT]}".split())
        raise AuthorizationRefused(f"the server refused: {text}")
    if not answer.get("code"):
        raise AuthorizationRefused("the answer has no code")
    return answer["code"]


def _lifetime_s(lasts_s: float | None, refresh: str | None) -> float | None:
    """The lifetime of an access token. One without `expires_in` lasts an hour if it can be renewed,
    else, as of GitHub's OAuth apps, until the service refuses it."""
    if lasts_s is None:
        return None if refresh is None else UNSAID_S
    return min(max(lasts_s, 0.0), LONGEST_S) if math.isfinite(lasts_s) else 0.0


def _granted_scopes(answer: TokenAnswer, wanted_scopes: tuple[str, ...]) -> tuple[str, ...]:
    """The scopes granted: those asked for where the answer names none (RFC 6749, section 5.1).
    GitHub and Slack separate them by commas."""
    if answer.scope is None:
        return wanted_scopes
    return tuple(dict.fromkeys(answer.scope.replace(",", " ").split()))
