"""Access tokens of providers for people who logged in at the gateway, whose own token no other
party knows: got by the refresh token of their newest login, which one node at a time uses."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlencode
from uuid import UUID

import anyio

from config.settings import Settings
from gateway.context import Principal
from gateway.http_client.token_requests import CLAIMS_LIMIT, AccessToken, TokenFailed
from gateway.login.browser_sessions import origin_of
from gateway.login.providers import (
    PersonLeft,
    Provider,
    ProviderAnswer,
    ProviderAway,
    ProviderRefused,
)
from gateway.upstreams.auth.exchange_profiles import profile_of
from gateway.upstreams.auth.service_tokens import AccessTokens
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import Keys, SecretRefused
from registry.database.postgres import AWAY, Pool, unavailability
from registry.login.logins_and_grants import LOGIN_MARK, Logins
from schemas.errors import Unavailable

CACHE_BYTES = 16_777_216
POLL_S = 0.1  # while another node renews
WAIT_S = 30.0
FAILURE = "has no token for this caller: "
AGAIN = "login_required"
NO_LOGIN = f"{FAILURE}their login has none of a provider (see login.providers)"


class ProviderTokens:
    """Implements `LoginTokens`."""

    def __init__(self, settings: Settings, pool: Callable[[], Pool]) -> None:
        """`pool` raises Unavailable until the database has answered."""
        self._pool = pool
        self._host_id = settings.tenant.host_id
        self._public_url = settings.server.public_url.rstrip("/")
        self._vault = Vault(Keys.of(settings.secrets), self._host_id)
        entries = settings.login.providers.items()
        self._providers = {name: Provider(name, entry, settings) for name, entry in entries}
        self._tokens = AccessTokens(CACHE_BYTES)

    def has_issued(self, principal: Principal) -> bool:
        is_page = principal.mark.startswith(LOGIN_MARK)
        return is_page or principal.claims.get("iss") == self._public_url

    def link(self, source: str, claims: str, client_id: str = "") -> str:
        client_ids = (provider.entry.client_id for provider in self._providers.values())
        if client_id and client_id not in client_ids:
            return ""
        query = {"for": source, **({"claims": claims} if claims else {})}
        return f"{self._public_url}/login?{urlencode(query)}"

    async def access_token(self, principal: Principal, token_url: str, scope: str) -> str:
        login, provider = await self._login(principal.key)
        with _failing(provider):
            endpoint = await provider.token_endpoint()
        if origin_of(endpoint) != origin_of(token_url):  # to whom it would tell the person's token
            text = (
                f"they logged in at {provider.title}, whose tokens another server cannot exchange"
            )
            raise TokenFailed(FAILURE + text)

        async def fetch() -> AccessToken:
            requested_at = time.monotonic()
            with _failing(provider):
                answer = await self._renew(login, provider, scope)
            return AccessToken.lasting(answer.access_token, requested_at, answer.lasts_s)

        return await self._tokens.get((login, scope), fetch)

    async def identity_assertion(
        self, person: tuple[str, str], *, audience: str, resource: str, scope: str
    ) -> str:
        """An assertion of a person (tenant, principal) by their provider. Raises TokenFailed."""
        login, provider = await self._login(person)
        with _failing(provider):
            answer = await self._renew(login, provider, "")
            if not answer.id_token:
                raise ProviderRefused(f"{provider.title} sends no ID token at a renewal")
            return await provider.identity_assertion(
                answer.id_token, audience=audience, resource=resource, scope=scope
            )

    async def _login(self, person: tuple[str, str]) -> tuple[UUID, Provider]:
        """The newest login of a person at a provider. Raises TokenFailed."""
        try:
            newest = await self._logins.find_upstream(*person)
        except AWAY as error:
            raise Unavailable(unavailability(error)) from error
        provider = None if newest is None else self._providers.get(newest[1])
        if newest is None or provider is None:
            raise TokenFailed(NO_LOGIN)
        return newest[0], provider

    async def _renew(self, login: UUID, provider: Provider, scope: str) -> ProviderAnswer:
        """New tokens of a login's person. Raises what `_failing` knows."""
        with anyio.fail_after(WAIT_S):
            while (sealed := await self._logins.begin_renewal(login)) is None:
                if await self._logins.find(str(login)) is None:
                    raise PersonLeft("their login has ended")
                await asyncio.sleep(POLL_S)
        return await self._renew_alone(login, provider, sealed, scope)

    async def _renew_alone(
        self, login: UUID, provider: Provider, sealed: bytes, scope: str
    ) -> ProviderAnswer:
        place = SealedColumn.PROVIDER_REFRESH_TOKEN, str(login)
        sealed_token = None
        try:
            answer = await provider.tokens(self._vault.unseal(sealed, *place).decode(), scope)
            if answer.refresh_token:
                sealed_token = self._vault.seal(answer.refresh_token.encode(), *place)
            return answer
        finally:
            with anyio.CancelScope(shield=True):  # the former one may be good no longer
                await self._logins.end_renewal(login, sealed_token)

    @property
    def _logins(self) -> Logins:
        """Raises Unavailable."""
        return Logins(self._pool(), self._host_id)


@contextmanager
def _failing(provider: Provider) -> Iterator[None]:
    """Failures of a provider inside become TokenFailed."""
    try:
        yield
    except PersonLeft as error:
        text = f"{FAILURE}{provider.title} does not renew their login"
        raise TokenFailed(text, rejected=True, error=AGAIN) from error
    except ProviderRefused as error:
        raise TokenFailed(f"{FAILURE}{error}", rejected=True) from error
    except (ProviderAway, SecretRefused) as error:
        raise TokenFailed(f"{FAILURE}{error}") from error
    except (TimeoutError, *AWAY) as error:
        raise TokenFailed(f"{FAILURE}their login is being renewed") from error


def wanted_of_provider(
    settings: Settings, source: str, provider: Provider, claims: str
) -> Mapping[str, str]:
    """Parameters with which somebody logs in again for a source: its API, for which the provider
    asks what it has to, and the claims that it wanted. None where they log in as another client
    than the one that exchanges tokens."""
    adjusted = settings.sources.get(source)
    exchange = None if adjusted is None else adjusted.exchange
    if exchange is None or exchange.client_id != provider.entry.client_id:
        return {}
    parameters = {"scope": profile_of(exchange).login_scope}
    if claims.startswith("{") and len(claims) <= CLAIMS_LIMIT:
        parameters["claims"] = claims
    return parameters
