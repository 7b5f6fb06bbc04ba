"""The gateway as a client of an authorization server: given by an operator, known by its own
document (CIMD), or registered (RFC 7591), in this order.

A registration belongs to an issuer and a callback, and is stored once for all nodes.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from config.networks import is_loopback
from gateway.connections.oauth.guarded_requests import Reach
from gateway.connections.oauth.server_metadata import AuthorizationServer
from gateway.http_client.client_assertions import sign_authentication
from registry.connections.gateway_registrations import RegisteredClients, Registration
from schemas.errors import ToolgateError

JWKS = "/.well-known/jwks.json"  # of the login
CLIENT_NAME = "Toolgate"
FIELD_LIMIT = 4096  # characters of an id or a secret

AuthMethod = Literal["basic", "post", "private_key_jwt", "none"]

WIRE_NAMES: dict[AuthMethod, str] = {  # of token_endpoint_auth_method
    "basic": "client_secret_basic",
    "post": "client_secret_post",
    "private_key_jwt": "private_key_jwt",
    "none": "none",
}
METHODS = {name: method for method, name in WIRE_NAMES.items()}


class ClientMissing(ToolgateError):
    """The gateway is not known at an authorization server; the text says what an operator sets."""


class OAuthClient(Struct, frozen=True, kw_only=True):
    """The gateway, as one authorization server knows it."""

    id: str
    secret: str = ""
    method: AuthMethod = "none"
    kind: Literal["given", "document", "registered"] = "given"


@dataclass(frozen=True, slots=True)
class AssertionKey:
    """The key that signs the gateway's authentication (RFC 7523)."""

    id: str
    private: Any  # as pyjwt takes it
    algorithm: str = "ES256"

    def sign(self, client_id: str, audience: str) -> dict[str, str]:
        """The parameters of a request that authenticate the gateway."""
        header = {"alg": self.algorithm, "kid": self.id}
        return sign_authentication(client_id, audience, self.private, header)


@dataclass(frozen=True, slots=True)
class ClientDocuments:
    """The documents of the gateway about itself: one for servers that know signed authentication,
    and a public one for the others."""

    public_url: str  # without a final "/"
    callbacks: tuple[str, ...]

    @property
    def jwks_uri(self) -> str:
        """The keys of the login, which sign the gateway's authentication, too: neither can stand in
        for the other, since the issuer of one is the gateway and that of the other a document."""
        return f"{self.public_url}{JWKS}"

    def url(self, method: AuthMethod) -> str:
        name = "client.json" if method == "private_key_jwt" else "public-client.json"
        return f"{self.public_url}/oauth/{name}"

    def method(self, server: AuthorizationServer) -> AuthMethod | None:
        """The method of the document for a server; None where none can be used."""
        if not (server.accepts_documents and self.public_url.startswith("https://")):
            return None
        methods = server.token_endpoint_auth_methods_supported
        return "private_key_jwt" if "private_key_jwt" in methods else "none"

    def body(self, method: AuthMethod) -> bytes:
        """The document, in JSON."""
        document = {
            "client_id": self.url(method),
            "client_uri": self.public_url,
            **_metadata(self.callbacks, method, self.jwks_uri),
        }
        return msgspec.json.encode(document)


class _Registered(Struct):
    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


class OAuthClients:
    def __init__(self, documents: ClientDocuments) -> None:
        """One for the process: callers at one issuer wait here, not with a connection to the
        database each."""
        self._documents = documents
        self._turns: defaultdict[tuple[str, str, str], anyio.Lock] = defaultdict(anyio.Lock)

    async def find(
        self,
        server: AuthorizationServer,
        callback: str,
        reach: Reach,
        rows: RegisteredClients,
        *,
        configured_client: OAuthClient | None = None,
        setting: str = "connect.client",
    ) -> OAuthClient:
        """The client to use at a server. `configured_client`: of the settings; `setting`: its name,
        for errors. Raises ClientMissing, RequestFailed and SecretRefused."""
        if configured_client is not None:
            return configured_client
        method = self._documents.method(server)
        if method is not None:
            return OAuthClient(id=self._documents.url(method), method=method, kind="document")
        if server.registration_endpoint is None:
            raise ClientMissing(
                f"{server.issuer or server.token_endpoint} registers no clients, and reads no"
                f" documents of clients: register the gateway there, with the redirect URI"
                f" {callback}, and set {setting} to the id and the secret that you get"
            )
        return await self._register_once(server, callback, reach, rows)

    async def replace(
        self,
        dead: OAuthClient,
        server: AuthorizationServer,
        callback: str,
        reach: Reach,
        *,
        rows: RegisteredClients,
    ) -> OAuthClient | None:
        """Register anew where a server no longer knows a registered client; None for another kind.
        Within an hour of the last registration that one is returned. Raises as `find`."""
        if dead.kind != "registered" or server.registration_endpoint is None:
            return None
        return await self._register_once(server, callback, reach, rows, dead=dead.id)

    async def _register_once(
        self,
        server: AuthorizationServer,
        callback: str,
        reach: Reach,
        rows: RegisteredClients,
        *,
        dead: str = "",
    ) -> OAuthClient:
        issuer = server.issuer or server.token_endpoint

        async def register() -> Registration:
            return await _register(server, callback, reach, self._documents.jwks_uri)

        async with self._turns[rows.host_id, issuer, callback]:
            registration = await rows.find(issuer, callback)
            if registration is None or not registration.is_good or registration.client_id == dead:
                registration = await rows.find_or_add(issuer, callback, register, dead=dead)
        return OAuthClient(
            id=registration.client_id,
            secret=registration.secret,
            method=msgspec.convert(registration.method, AuthMethod),
            kind="registered",
        )


def given_client(
    server: AuthorizationServer, client_id: str, secret: str = "", method: AuthMethod | None = None
) -> OAuthClient:
    """A client of the settings. Without a method, the one that the server knows for a secret."""
    if method is None:
        method = choose_method(server, ("basic", "post")) if secret else "none"
    return OAuthClient(id=client_id, secret=secret, method=method or "basic")


def choose_method(
    server: AuthorizationServer, preferences: Sequence[AuthMethod]
) -> AuthMethod | None:
    """The first of a server's methods that is among `preferences`; without a list that is Basic
    (RFC 8414, section 2). Servers of MCP's SDK list, and stand, `client_secret_post` better."""
    supported = server.token_endpoint_auth_methods_supported or (WIRE_NAMES["basic"],)
    return next((METHODS[name] for name in supported if METHODS.get(name) in preferences), None)


async def _register(
    server: AuthorizationServer, callback: str, reach: Reach, jwks_uri: str
) -> Registration:
    """Register at a server. Raises ClientMissing and RequestFailed."""
    url = server.registration_endpoint or ""
    method = (
        choose_method(server, ("basic", "post"))
        or choose_method(server, ("private_key_jwt",))
        or choose_method(server, ("none",))
    )
    if method is None:
        listed = ", ".join(server.token_endpoint_auth_methods_supported)[:300]
        raise ClientMissing(f"{url}: none of its authentication methods is known here: {listed}")
    answer = await reach.post(url, _metadata((callback,), method, jwks_uri))
    if answer.status not in (200, 201):
        raise ClientMissing(f"{url}: HTTP {answer.status}, instead of a registration")
    try:
        registered = msgspec.json.decode(answer.body, type=_Registered)
        return _read_registration(registered, method)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClientMissing(f"{url} answered no registration: {error}") from error


def _read_registration(client: _Registered, auth_method: AuthMethod) -> Registration:
    """The registration that a server made of a client with `auth_method`. Raises ValueError."""
    secret = client.client_secret or ""
    for text in (client.client_id, secret):
        if len(text) > FIELD_LIMIT or not text.isprintable():
            raise ValueError("an id or a secret that cannot be sent")
    if not client.client_id:
        raise ValueError("an empty client_id")
    name = client.token_endpoint_auth_method or WIRE_NAMES[auth_method]
    if name not in METHODS:
        raise ValueError(f"the unknown token_endpoint_auth_method {name[:100]!r}")
    method = METHODS[name]
    if method in ("basic", "post") and not secret:
        method = "none"
    ends = client.client_secret_expires_at or 0.0
    return Registration(client.client_id, secret, method, ends)


def _metadata(callbacks: Sequence[str], method: AuthMethod, jwks_uri: str) -> dict[str, object]:
    """Metadata of the gateway as a client (RFC 7591, section 2)."""
    local = all(is_loopback(urlsplit(callback).hostname or "") for callback in callbacks)
    return {
        "client_name": CLIENT_NAME,
        "redirect_uris": [*callbacks],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": WIRE_NAMES[method],
        "application_type": "native" if local else "web",  # RFC 8252: web has no http redirects
        **({"jwks_uri": jwks_uri} if method == "private_key_jwt" else {}),
    }
