"""Accounts by OAuth: which server gives tokens for a source, a person's way there and back, and the
renewal of what came of it."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from config.settings import Settings
from config.sources import Connect, SchemeSettings
from gateway.connections.oauth.discovery import (
    DETAIL,
    Discovered,
    Discovery,
    DiscoveryFailed,
    DiscoveryStep,
    McpServer,
)
from gateway.connections.oauth.gateway_as_client import (
    WIRE_NAMES,
    AssertionKey,
    AuthMethod,
    ClientDocuments,
    ClientMissing,
    OAuthClient,
    OAuthClients,
    given_client,
)
from gateway.connections.oauth.grants import (
    AuthorizationRefused,
    GrantFailed,
    Grants,
    PendingAuthorization,
    Tokens,
    choose_scopes,
)
from gateway.connections.oauth.guarded_requests import Reach, RequestFailed
from gateway.connections.oauth.server_metadata import AuthorizationServer, named_server
from gateway.connections.required_accounts import connect_of
from gateway.connections.token_renewals import RenewalFailed, RenewalRefused, Renewed
from gateway.http_client.token_requests import TokenFailed
from gateway.login.access_tokens import LoginKeys
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secret_digests import secret_digest
from registry.access.secrets import Keys, SecretRefused
from registry.connections.accounts import Connection, Connections, NewConnection, Owner, Secret
from registry.connections.gateway_registrations import RegisteredClients
from registry.database.postgres import AWAY, Pool
from registry.login.signing_keys import ALGORITHM
from registry.sources.tool_store import ToolStore
from schemas.binding import Credential
from schemas.errors import ToolgateError, Unavailable
from schemas.source import DescribedLogin, Source

OAUTH_KINDS = ("oauth2", "openIdConnect", "bearer")
STATE_BYTES = 32
NO_PARAMETERS: Mapping[str, str] = {}
PIN_CHANGED = "The service names another login than before."


class OAuthRefused(ToolgateError):
    """No connection can be made. The text is for the log; `reason` is safe to show."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class Pending(Struct, frozen=True):
    """A browser at an authorization server, and what its answer is redeemed with."""

    source: str
    schemes: tuple[str, ...]
    server: AuthorizationServer
    client: OAuthClient
    attempt: PendingAuthorization
    away: bool


class OAuthAccounts:
    """Implements `Renewals`."""

    def __init__(self, settings: Callable[[], Settings], pool: Callable[[], Pool]) -> None:
        """`pool` raises Unavailable until the database has answered."""
        self._settings = settings
        self._pool = pool
        now = settings()
        self._host_id = now.tenant.host_id
        self._public_url = now.server.public_url.rstrip("/")
        sealing = Keys.of(now.secrets)
        self._vault = Vault(sealing, self._host_id)
        self.keys = LoginKeys(now.login, sealing, self._host_id, pool)
        self._limits = now.connections
        self._discovery = Discovery(self._limits)
        self._clients = OAuthClients(self._documents)

    def host_of(self, source: Source, credentials: Sequence[Credential]) -> str:
        """The host at which a person logs in; "" where they type a key instead."""
        connect = connect_of(self._settings(), source.place)
        if connect.oauth is False or not _schemes(credentials):
            return ""
        url = connect.authorization_url or connect.issuer
        if url is None and (logins := _logins(source, credentials)):
            reach = self._reach(connect, source.place, source)
            if connect.oauth or connect.client or all(map(reach.is_named, logins[0].urls)):
                url = logins[0].urls[0]
        if url is None and (source.facts.server or connect.oauth):
            url = source.base_url or source.location
        return "" if url is None else urlsplit(url).hostname or ""

    async def begin(
        self,
        source: Source,
        credentials: Sequence[Credential],
        former: Sequence[Connection],
        *,
        pinned: dict[str, Any] | None,
        login: Mapping[str, str] = NO_PARAMETERS,
        away: bool,
    ) -> tuple[str, str, Pending]:
        """The URL to send a browser to, the state that it brings back, and what the answer is
        redeemed with. `former`: the person's connections to the source; `pinned`: its server at
        the first connection; `login`: further parameters. Raises OAuthRefused."""
        connect, place = connect_of(self._settings(), source.place), source.place
        try:
            reach = self._reach(connect, source.place, source)
            server = (await self._server(source, credentials, connect, reach)).server
            check_pin(server, pinned, connect, place)
            client = await self._clients.find(
                server,
                self.callback(place),
                reach,
                self._rows,
                configured_client=_configured_client(connect, server),
                setting=f"sources.{place}.connect.client",
            )
        except (DiscoveryFailed, ClientMissing, RequestFailed, SecretRefused, ValueError) as error:
            raise OAuthRefused(str(error)) from error
        needed = {scope for credential in credentials for scope in credential.scopes}
        granted = {scope for row in former for scope in row.scopes}
        scopes = choose_scopes(server, connect.scopes, more=sorted(needed | granted))
        state = secrets.token_urlsafe(STATE_BYTES)
        stricter = msgspec.structs.replace(connect, authorize={**connect.authorize, **login})
        grants = await self._grants(server, client, reach, stricter)
        url, attempt = grants.begin(self.callback(place), state, scopes)
        return url, state, Pending(place, _schemes(credentials), server, client, attempt, away)

    async def redeem(
        self, source: Source, pending: Pending, answer: Mapping[str, str]
    ) -> list[NewConnection]:
        """The connections that an answer to a browser gives. Raises OAuthRefused."""
        connect = connect_of(self._settings(), source.place)
        try:
            reach = self._reach(connect, source.place, source)
            grants = await self._grants(pending.server, pending.client, reach, connect)
            tokens = await grants.redeem(pending.attempt, answer)
        except AuthorizationRefused as error:
            raise OAuthRefused(str(error), str(error)) from error
        except (GrantFailed, ValueError) as error:
            raise OAuthRefused(str(error)) from error
        return [
            NewConnection(
                scheme,
                "oauth",
                _secret(tokens, pending.client),
                scopes=tokens.scopes,
                issuer=pending.server.issuer,
                client_id=pending.client.id,
                server=msgspec.to_builtins(pending.server),
                away=pending.away,
                lasts_s=tokens.lasts_s,
            )
            for scheme in pending.schemes
        ]

    async def renew(self, owner: Owner, row: Connection, secret: Secret) -> Renewed:
        if not secret.refresh:
            raise RenewalRefused("the service gave no refresh token")
        connect = connect_of(self._settings(), owner.source)
        server = msgspec.convert(row.server, AuthorizationServer)
        client = self._current_client(connect, server, secret)
        try:
            reach = await self._stored_reach(connect, owner.source)
            grants = await self._grants(server, client, reach, connect)
            try:
                tokens = await grants.renew(secret.refresh, tuple(row.scopes))
            except GrantFailed as error:
                if error.reason != "client":
                    raise
                registered = await self._clients.replace(
                    client, server, self.callback(owner.source), reach, rows=self._rows
                )
                if registered is None:
                    raise
                client = registered
                grants = await self._grants(server, client, reach, connect)
                tokens = await grants.renew(secret.refresh, tuple(row.scopes))
        except GrantFailed as error:
            if error.reason == "over":
                raise RenewalRefused(str(error)) from error
            raise RenewalFailed(str(error)) from error
        except (ClientMissing, RequestFailed, SecretRefused, ValueError, Unavailable) as error:
            raise RenewalFailed(str(error)) from error
        return Renewed(_secret(tokens, client), tokens.lasts_s, tokens.scopes)

    async def revoke(self, owner: Owner, row: Connection, secret: Secret) -> None:
        connect = connect_of(self._settings(), owner.source)
        server = msgspec.convert(row.server, AuthorizationServer)
        if connect.revocation_url is not None:
            server = msgspec.structs.replace(server, revocation_endpoint=connect.revocation_url)
        client = self._current_client(connect, server, secret)
        try:
            reach = await self._stored_reach(connect, owner.source)
            grants = await self._grants(server, client, reach, connect)
        except (ValueError, Unavailable, *AWAY) as error:
            raise RenewalFailed(str(error)) from error
        if secret.refresh:
            await grants.revoke(secret.refresh, "refresh_token")
        else:
            await grants.revoke(secret.entry.token or "", "access_token")

    async def examine(
        self, source: Source, credentials: Sequence[Credential]
    ) -> AsyncIterator[DiscoveryStep]:
        """The steps of a connection that need no person and store nothing: a doctor shows them. The
        last one has failed, or all is well."""
        settings, place = self._settings(), source.place
        connect = connect_of(settings, place)
        rows = Connections(self._pool(), self._host_id, Keys.of(settings.secrets))
        pinned = await rows.pinned_server(place)
        try:
            reach = self._reach(connect, place, source)
            discovered = await self._server(source, credentials, connect, reach)
        except DiscoveryFailed as failure:
            for step in failure.steps:
                yield step
            return
        except ValueError as error:
            yield DiscoveryStep("server", str(error), failed=True)
            return
        for step in discovered.steps:
            yield step
        server = discovered.server
        yield DiscoveryStep(
            "server", f"{server.authorization_endpoint} and {server.token_endpoint}"
        )
        yield DiscoveryStep("resource", server.resource or "none is sent")
        try:
            check_pin(server, pinned, connect, place)
        except OAuthRefused as error:
            yield DiscoveryStep("pin", str(error), failed=True)
            return
        yield DiscoveryStep("callback", self.callback(place))
        async for step in self._examine_client(connect, place, server, reach):
            yield step

    async def _examine_client(
        self, connect: Connect, place: str, server: AuthorizationServer, reach: Reach
    ) -> AsyncIterator[DiscoveryStep]:
        setting, configured_client = (
            f"sources.{place}.connect.client",
            _configured_client(connect, server),
        )
        is_known = configured_client is not None or self._documents.method(server) is not None
        if server.registration_endpoint and not is_known:  # left to the first connection
            yield DiscoveryStep(
                "client", f"the gateway registers itself at {server.registration_endpoint}"
            )
            return
        callback = self.callback(place)
        try:
            client = await self._clients.find(
                server,
                callback,
                reach,
                self._rows,
                configured_client=configured_client,
                setting=setting,
            )
        except ClientMissing as error:
            yield DiscoveryStep("client", str(error), failed=True)
            return
        method, methods = WIRE_NAMES[client.method], server.token_endpoint_auth_methods_supported
        if methods and method not in methods:
            text = f"{setting}.auth: expected one of {', '.join(methods)[:DETAIL]}, found {method}"
            yield DiscoveryStep("client", text, failed=True)
            return
        yield DiscoveryStep("client", f"{client.id}, which authenticates by {method}")
        grants = await self._grants(server, client, reach, connect)
        yield await self._try_code(grants, server, place)

    async def _try_code(
        self, grants: Grants, server: AuthorizationServer, place: str
    ) -> DiscoveryStep:
        """A code that nobody was given has to be refused, and the client must not be."""
        _, attempt = grants.begin(self.callback(place), "", ())
        answer = {"code": "of-the-doctor", **({"iss": server.issuer} if server.issuer else {})}
        try:
            await grants.redeem(attempt, answer)
        except GrantFailed as error:
            refused = isinstance(error.__cause__, TokenFailed) and error.__cause__.rejected
            if error.reason == "client":
                text = f"{error}: is sources.{place}.connect.client right?"
                return DiscoveryStep("token", text, failed=True)
            detail = "the client is known" if error.reason == "over" else str(error)
            return DiscoveryStep("token", detail, failed=not refused)
        return DiscoveryStep("token", "a code that nobody was given is taken", failed=True)

    def seal(self, state: str, pending: Pending) -> bytes:
        """Raises SecretRefused."""
        return self._vault.seal(
            msgspec.json.encode(pending), SealedColumn.CONNECTION_ATTEMPT, place_of_attempt(state)
        )

    def unseal(self, state: str, sealed: bytes) -> Pending:
        """Raises SecretRefused."""
        place = place_of_attempt(state)
        plain = self._vault.unseal(sealed, SealedColumn.CONNECTION_ATTEMPT, place)
        return msgspec.json.decode(plain, type=Pending)

    def callback(self, place: str) -> str:
        """The redirect URI of a source: an address of its own guards against mix-up where a server
        does not name itself (RFC 9700, 4.4)."""
        return f"{self._public_url}/connect/{quote(place, safe='')}/callback"

    def document(self, method: AuthMethod) -> bytes:
        """The document of the gateway about itself (CIMD)."""
        return self._documents.body(method)

    async def _server(
        self, source: Source, credentials: Sequence[Credential], connect: Connect, reach: Reach
    ) -> Discovered:
        """Raises DiscoveryFailed and ValueError."""
        if connect.authorization_url and connect.token_url:
            server = named_server(connect.authorization_url, connect.token_url, reach)
            discovered = Discovered(server, ())
        elif source.facts.server:
            mcp_server = McpServer(
                url=source.base_url or source.location,
                issuer=connect.issuer or "",
                resource=connect.resource,
            )
            discovered = await self._discovery.of_mcp_server(mcp_server, reach)
        elif connect.issuer:
            discovered = await self._discovery.of_issuer(connect.issuer, reach)
        else:
            discovered = await self._described_server(source, credentials, connect, reach)
        changes: dict[str, Any] = {}
        if connect.resource not in ("auto", "off"):
            changes["resource"] = connect.resource
        if connect.revocation_url:
            changes["revocation_endpoint"] = connect.revocation_url
        server = msgspec.structs.replace(discovered.server, **changes)
        return Discovered(server, discovered.steps)

    async def _described_server(
        self, source: Source, credentials: Sequence[Credential], connect: Connect, reach: Reach
    ) -> Discovered:
        """The server that the description of a source names, at addresses of the operator only: it
        receives secrets. Raises DiscoveryFailed and ValueError."""
        setting, logins = f"sources.{source.place}.connect", _logins(source, credentials)
        if len(logins) != 1:
            text = f"its description names {len(logins) or 'no'} logins for what is asked for"
            raise ValueError(
                f"{text}; expected {setting}.issuer, or authorization_url and token_url"
            )
        (login,) = logins
        keys = ("authorization_url", "token_url") if login.token_url else ("issuer",)
        missing = " and ".join(f"{setting}.{key}" for key in keys)
        check_described(login.urls, reach, missing)
        if login.document_url:
            discovered = await self._discovery.of_issuer(login.document_url, reach)
            server = discovered.server
            named = server.authorization_endpoint, server.token_endpoint
            check_described(named, reach, missing)
            return discovered
        server = named_server(login.authorization_url, login.token_url, reach)
        steps: tuple[DiscoveryStep, ...] = ()
        if connect.client is None:  # its metadata may say how the gateway gets known there
            issuer = urljoin(login.authorization_url, "/").rstrip("/")
            try:
                published_server = await self._discovery.of_issuer(issuer, reach)
            except DiscoveryFailed as error:
                text = f"register the gateway with the redirect URI {self.callback(source.place)}"
                raise ValueError(f"{error}; {text}, and set {setting}.client") from error
            if published_server.server.pin[1:3] == server.pin[1:3]:  # both endpoints
                server, steps = published_server.server, published_server.steps
        return Discovered(msgspec.structs.replace(server, scopes_supported=login.scopes), steps)

    async def _stored_reach(self, connect: Connect, place: str) -> Reach:
        """The addresses that may be asked for a source as it is stored now. Raises ValueError."""
        source = await ToolStore(self._pool()).source(self._host_id, place)
        return self._reach(connect, place, source)

    def _reach(self, connect: Connect, place: str, source: Source | None) -> Reach:
        """The addresses that may be asked for a source. Raises ValueError."""
        urls = [
            *(connect.issuer, connect.authorization_url),
            *(connect.token_url, connect.revocation_url),
        ]
        adjusted = self._settings().sources.get(place)
        if adjusted is not None:
            urls += [adjusted.mcp, adjusted.base_url, adjusted.openapi, adjusted.graphql]
        if source is not None and source.base_url_trusted:
            urls.append(source.base_url)
        named = (url for url in urls if url and url.startswith(("https://", "http://")))
        return Reach(self._limits, named)

    async def _grants(
        self, server: AuthorizationServer, client: OAuthClient, reach: Reach, connect: Connect
    ) -> Grants:
        """Raises Unavailable."""
        key = await find_key(client, self.keys)
        return Grants(
            server, client, reach, key=key, authorize=connect.authorize, token=connect.token
        )

    def _current_client(
        self, connect: Connect, server: AuthorizationServer, secret: Secret
    ) -> OAuthClient:
        """The client that a grant was made for, with the secret that it has now."""
        client = msgspec.convert(secret.client, OAuthClient)
        configured_client = _configured_client(connect, server)
        return (
            configured_client
            if configured_client is not None and configured_client.id == client.id
            else client
        )

    @property
    def _documents(self) -> ClientDocuments:
        places = [
            place
            for place, adjusted in self._settings().sources.items()
            if adjusted.connect.has_page
        ]
        return ClientDocuments(self._public_url, tuple(map(self.callback, places)))

    @property
    def _rows(self) -> RegisteredClients:
        return RegisteredClients(self._pool(), self._host_id, self._vault)


def check_described(urls: Iterable[str], reach: Reach, missing: str) -> None:
    """Raises ValueError for a URL to which a description alone leads; `missing`: the settings that
    would name it."""
    for url in urls:
        # a query could name another client, whose request the service's own page then shows
        if "?" in url or not reach.is_named(url):
            raise ValueError(
                f"its description has people log in at {url}, which is no plain URL at an address "
                f"of the settings: set {missing} to what is right"
            )


def check_pin(
    server: AuthorizationServer, pin: dict[str, Any] | None, connect: Connect, place: str
) -> None:
    """Raises OAuthRefused where a service names another server than at the first connection, and
    its operator has not named that."""
    if pin is None or connect.issuer or connect.authorization_url:
        return
    if msgspec.convert(pin, AuthorizationServer).pin != server.pin:
        named = server.issuer or f"{server.authorization_endpoint} and {server.token_endpoint}"
        keys = "issuer" if server.issuer else "authorization_url and token_url"
        text = (
            f"{place} names another authorization server than before: {named}; set "
            f"sources.{place}.connect.{keys} to it if that is right"
        )
        raise OAuthRefused(text, PIN_CHANGED)


async def find_key(client: OAuthClient, keys: LoginKeys) -> AssertionKey | None:
    """The key of a client that signs its authentication. Raises Unavailable."""
    if client.method != "private_key_jwt":
        return None
    key = await keys.current()
    return AssertionKey(key.id, key.private, ALGORITHM)


def place_of_attempt(state: str) -> str:
    """The row of an attempt, as PostgreSQL writes its key."""
    return f"\\x{secret_digest(state).hex()}"


def _schemes(credentials: Sequence[Credential]) -> tuple[str, ...]:
    return tuple(each.scheme for each in credentials if each.kind in OAUTH_KINDS)


def _logins(source: Source, credentials: Sequence[Credential]) -> list[DescribedLogin]:
    """The different logins that a description has for the wanted schemes."""
    named = (source.logins.get(each.scheme) for each in credentials)
    return [*dict.fromkeys(login for login in named if login is not None)]


def _configured_client(connect: Connect, server: AuthorizationServer) -> OAuthClient | None:
    client = connect.client
    if client is None:
        return None
    return given_client(server, client.id, client.secret, client.auth)


def _secret(tokens: Tokens, client: OAuthClient) -> Secret:
    return Secret(
        SchemeSettings(token=tokens.access), tokens.refresh or "", msgspec.to_builtins(client)
    )
