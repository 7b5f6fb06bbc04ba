"""Accounts without a page (`connect.mode: id_jag`): the provider of the login asserts to an MCP
server's authorization server who its caller is, and that gives a token for them
(draft-ietf-oauth-identity-assertion-authz-grant; MCP, Enterprise-Managed Authorization).

The authorization server is named by the operator and never by the MCP server, which could lead
assertions elsewhere.
"""

import hashlib
import time
from collections.abc import Callable

import msgspec

from config.settings import Settings
from config.sources import Connect, SchemeSettings
from gateway.connections.oauth.discovery import Discovery, DiscoveryFailed
from gateway.connections.oauth.gateway_as_client import given_client
from gateway.connections.oauth.grants import GrantFailed, Grants
from gateway.connections.oauth.guarded_requests import Reach
from gateway.connections.oauth_accounts import find_key
from gateway.connections.required_accounts import connect_header_value
from gateway.context import Context
from gateway.http_client.token_requests import INTERACTIONS, AccessToken, TokenFailed
from gateway.login.access_tokens import LoginKeys
from gateway.login.provider_tokens import ProviderTokens
from gateway.upstreams.auth.caller import bare
from gateway.upstreams.auth.delegation import login_fault
from gateway.upstreams.auth.personal_accounts import Connector, Security, SourceAccount
from gateway.upstreams.auth.service_tokens import AccessTokens
from registry.connections.accounts import Owner
from schemas.errors import Forbidden, Unavailable
from schemas.source import Source

CACHE_BYTES = 16_777_216


class IdentityAssertions:
    """Implements `Connector`."""

    def __init__(
        self, settings: Callable[[], Settings], login_tokens: ProviderTokens, keys: LoginKeys
    ) -> None:
        """`keys` sign the gateway's authentication where a server wants that."""
        self._keys = keys
        self.login_tokens = login_tokens
        self._settings = settings
        self._limits = settings().connections
        self._discovery = Discovery(self._limits)
        self._tokens = AccessTokens(CACHE_BYTES)

    def of_mode(self, mode: str) -> Connector:  # noqa: ARG002
        return self

    async def account(
        self,
        source: Source,
        security: Security,  # noqa: ARG002 - of no MCP server
        context: Context,
    ) -> SourceAccount | None:
        refused = f"{source.name} was not called: its callers log in at the gateway, and "
        if not context.identity.verified or not self.login_tokens.has_issued(context.principal):
            raise Forbidden(f"{refused}this one has not")
        if context.absent:
            raise Forbidden(f"{refused}this one is absent")
        principal = context.principal
        owner = Owner(principal.tenant, principal.id, source.place)
        return await self._find_account(owner)

    async def renew(
        self,
        account: SourceAccount,
        *,
        status: int,
        challenge: str,  # noqa: ARG002
    ) -> SourceAccount | None:
        (authorization,) = account.headers.values()
        key = self._token_key(account.owner)
        if status != 401 or not self._tokens.invalidate(key, bare(authorization)):
            return None
        return await self._find_account(account.owner)

    async def _find_account(self, owner: Owner) -> SourceAccount:
        adjusted = self._settings().sources[owner.source]
        connect = adjusted.connect

        async def fetch() -> AccessToken:
            return await self._fetch(owner, connect, adjusted.base_url or adjusted.mcp or "")

        try:
            token = await self._tokens.get(self._token_key(owner), fetch)
        except TokenFailed as error:
            if error.error in INTERACTIONS:
                link = self.login_tokens.link(owner.source, error.claims)
                raise login_fault(owner.source, link, "expired") from error
            text = f"{owner.source} {error}"
            raise (Forbidden(text) if error.rejected else Unavailable(text)) from error
        key = hashlib.sha256(f"id_jag {owner}".encode()).hexdigest()
        headers = {connect.header: connect_header_value(connect, SchemeSettings(token=token))}
        return SourceAccount(owner, key, (), {}, headers=headers)

    def _token_key(self, owner: Owner) -> bytes:
        """The key of a token in the cache: a person's, for the settings as they are now."""
        adjusted = self._settings().sources[owner.source]
        return msgspec.json.encode([str(owner), adjusted.connect, adjusted.base_url, adjusted.mcp])

    async def _fetch(self, owner: Owner, connect: Connect, url: str) -> AccessToken:
        """A token of a person at the server. Raises TokenFailed."""
        resource = url if connect.resource in ("auto", "off") else connect.resource
        requested_at = time.monotonic()
        try:
            reach = Reach(self._limits, [connect.issuer or ""])
            server = (await self._discovery.of_issuer(connect.issuer or "", reach)).server
            assertion = await self.login_tokens.identity_assertion(
                (owner.tenant, owner.principal),
                audience=server.issuer,
                resource=resource,
                scope=" ".join(connect.scopes),
            )
            if connect.resource != "off":
                server = msgspec.structs.replace(server, resource=resource)
            client = connect.client
            if client is None:
                raise ValueError("expected connect.client")
            oauth_client = given_client(server, client.id, client.secret, client.auth)
            key = await find_key(oauth_client, self._keys)
            grants = Grants(server, oauth_client, reach, key=key, token=connect.token)
            tokens = await grants.assert_identity(assertion, connect.scopes)
        except (DiscoveryFailed, ValueError) as error:
            raise TokenFailed(f"has no token for this caller: {error}") from error
        except GrantFailed as error:
            raise TokenFailed(str(error), rejected=error.reason != "later") from error
        return AccessToken.lasting(tokens.access, requested_at, tokens.lasts_s)
