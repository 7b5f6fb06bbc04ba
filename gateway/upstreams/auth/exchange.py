"""The caller's token exchanged for one of a source's (OAuth 2.0 Token Exchange, RFC 8693)."""

import ssl
import time
from collections.abc import Iterable

import aiohttp

from config.sources import TokenExchange
from gateway.upstreams.auth.caller import Caller
from gateway.upstreams.auth.token_endpoint import (
    AccessToken,
    Login,
    TokenEndpoint,
    TokenFailed,
    client_token,
)
from gateway.upstreams.auth.tokens import AccessTokens

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
JWT = "urn:ietf:params:oauth:token-type:jwt"
USUAL = frozenset({ACCESS_TOKEN, JWT})  # what a Bearer header may hold
TOKEN_LIMIT_BYTES = 32768  # servers take no longer headers

_OWN = ("gateway",)
_Key = tuple[str, str]  # digest of the caller's token, scope; the rest is the same for a source


class SourceExchange:
    """The exchanges of one source."""

    def __init__(
        self, settings: TokenExchange, timeout_s: float, tls: ssl.SSLContext | bool
    ) -> None:
        self._settings = settings
        self._tokens = AccessTokens(settings.cached_bytes)
        login = Login(
            settings.token_url, settings.client_id, settings.client_secret, settings.client_auth
        )
        self._endpoint = TokenEndpoint(login, "this caller", timeout_s, tls)
        self._own_endpoint = TokenEndpoint(login, "the gateway itself", timeout_s, tls)

    @property
    def has_own(self) -> bool:
        return self._settings.actor == "client"

    async def token(
        self, http: aiohttp.ClientSession, caller: Caller, scopes: Iterable[str]
    ) -> str:
        """What the source gets instead of the caller's token. Raises TokenFailed."""
        scope = self._scope(scopes)

        async def fetch() -> AccessToken:
            actor = await self.own(http) if self.has_own else ""
            try:
                return await self._exchanged(http, caller, scope, actor)
            except TokenFailed as error:
                # it may be the actor's token that is no longer good
                if not (actor and error.refused and self._tokens.forget(_OWN, actor)):
                    raise
            return await self._exchanged(http, caller, scope, await self.own(http))

        return await self._tokens.get((caller.digest, scope), fetch)

    def refused(self, caller: Caller, scopes: Iterable[str], token: str) -> bool:
        """The source refused `token`: whether another one may do better."""
        return self._tokens.forget((caller.digest, self._scope(scopes)), token)

    async def own(self, http: aiohttp.ClientSession) -> str:
        """The gateway's own token: the actor, and who it is where there is no caller. Raises
        TokenFailed."""

        async def fetch() -> AccessToken:
            return await client_token(self._own_endpoint, http, "")

        return await self._tokens.get(_OWN, fetch)

    def own_refused(self, token: str) -> bool:
        return self._tokens.forget(_OWN, token)

    async def close(self) -> None:
        await self._tokens.close()

    def _scope(self, scopes: Iterable[str]) -> str:
        return " ".join(sorted({*self._settings.scopes, *scopes}))

    async def _exchanged(
        self, http: aiohttp.ClientSession, caller: Caller, scope: str, actor: str
    ) -> AccessToken:
        settings = self._settings
        form = {
            "grant_type": GRANT,
            "subject_token": caller.token,
            "subject_token_type": settings.subject_token_type,
            "audience": settings.audience,
            "resource": settings.resource,
            "scope": scope,
            "requested_token_type": settings.requested_token_type,
        }
        if actor:
            form |= {"actor_token": actor, "actor_token_type": ACCESS_TOKEN}
        asked, epoch_s = time.monotonic(), time.time()
        sent = {name: value for name, value in form.items() if value}
        answer = await self._endpoint.ask(http, sent)
        # section 2.2.1: required
        wanted = {settings.requested_token_type} if settings.requested_token_type else USUAL
        if answer.issued_token_type not in wanted:
            raise self._endpoint.failed("issued a token of another type than was wanted")
        token = self._endpoint.token(answer, asked)
        if len(token.text) > TOKEN_LIMIT_BYTES:
            raise self._endpoint.failed("answered a token that cannot be sent")
        if caller.ends is None:
            return token
        return AccessToken(token.text, min(token.ends, asked + caller.ends - epoch_s))
