"""Clients of the login: of the settings, registered (RFC 7591), or by a document about themselves.

A client whose id is an https URL publishes its metadata there (CIMD,
draft-ietf-oauth-client-id-metadata-document). The document is fetched as foreign text is: from
public addresses, without redirects, within a few kilobytes and seconds; the last one stays where a
fetch fails. How a client is resolved is the same at every endpoint.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from jwt.exceptions import PyJWTError
from msgspec import Struct

from config.settings import Settings
from gateway.console.texts import visible
from gateway.context import new_request_id
from gateway.guards.jwt_verifier import TokenVerifier
from gateway.guards.token_issuers import Issuer, KeySource, Tenants
from gateway.guards.verification_keys import KeysMissing, LocalKeys, UnusableKey, read_jwks
from gateway.login.client_keys import ClientKeys
from gateway.login.login_errors import LoginError
from gateway.login.redirects import is_loopback, matches, redirect_problem
from gateway.state.rate_windows import LocalRates
from registry.database.postgres import Pool
from registry.documents.fetch import FetchedDocument, fetch
from registry.login.logins_and_grants import Logins
from registry.login.registered_clients import Clients, StoredClient
from schemas.errors import ImportRejected
from schemas.retry_after import whole_seconds

log = logging.getLogger("toolgate.login")

DOCUMENT_BYTES = 5120  # CIMD, 6.6 recommends this limit
JWKS_BYTES = 65_536
REDIRECTS = 20  # of one client
FLOOD_S = 600.0  # after which a registration that nobody used makes room, if there is no other
IDS = re.compile(r"[\x21-\x7e]{1,2000}")
HOSTS = re.compile(r"[A-Za-z0-9._-]+")  # of documents, as they are: nothing decodes or maps them
NAME_LIMIT = 100  # characters
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_S = 600.0  # longest lifetime of one that is taken
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
METHODS = ("none", *SECRET_METHODS, "private_key_jwt")
GRANTS = ("authorization_code", "refresh_token")
RETRY_S = 10.0  # after a document could not be fetched
KEYS_RETRY_S = 5  # after which a client whose keys cannot be had is to try again

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class ClientMetadata(Struct, frozen=True):
    """Members of a registration, or of a document, that the login reads (RFC 7591, 2)."""

    redirect_uris: tuple[str, ...] = ()
    client_name: str = ""
    client_uri: str = ""
    token_endpoint_auth_method: str | None = None
    grant_types: tuple[str, ...] = GRANTS
    scope: str = ""
    jwks_uri: str = ""
    jwks: dict[str, Any] | None = None
    application_type: str = ""
    client_id: str = ""


class LoginClient(Struct, frozen=True, kw_only=True):
    """A client, from wherever it is known."""

    id: str
    kind: Literal["configured", "registered", "document"]
    name: str
    redirects: tuple[str, ...]
    method: AuthMethod
    digest: bytes = b""  # SHA-256 of the secret
    jwks_uri: str = ""
    jwks: dict[str, Any] | None = None
    grants: frozenset[str] = frozenset({"authorization_code"})
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    access_s: float = 0.0

    def redirect(self, uri: str | None) -> str | None:
        """The redirect URI of a request, if the client may ask for it; without one the only one
        that it has."""
        if uri is None:
            return self.redirects[0] if len(self.redirects) == 1 else None
        return uri if any(matches(uri, redirect) for redirect in self.redirects) else None

    @property
    def host(self) -> str:
        """The host that has published the document; "" where nobody vouches for the name."""
        return urlsplit(self.id).netloc if self.kind == "document" else ""


COMMAND_LINE = LoginClient(
    id="toolgate-cli",
    kind="registered",  # any program of the person's computer can use its id
    name="toolgate (command line)",
    redirects=("http://127.0.0.1/callback",),
    method="none",
)


def is_document_url(client_id: str) -> bool:
    """Whether a client id is the URL of a document: https, with a path (CIMD, 3)."""
    if not client_id.startswith("https://") or not IDS.fullmatch(client_id):
        return False
    try:
        parts = urlsplit(client_id)
        _ = parts.port
    except ValueError:
        return False
    segments = parts.path.lower().replace("%2e", ".").split("/")
    return (
        HOSTS.fullmatch(parts.netloc.partition(":")[0]) is not None
        and parts.path not in ("", "/")
        and not {".", ".."} & set(segments)
        and "@" not in parts.netloc
        and not {"#", "\\"} & set(client_id)
    )


class LoginClients:
    def __init__(self, settings: Settings, pool: Callable[[], Pool]) -> None:
        """`pool` raises LoginError while there is no database."""
        self._settings = settings
        self._login = settings.login
        self._pool = pool
        self._failed: dict[str, float] = {}  # documents that could not be fetched, monotonic s
        self._rates = LocalRates()
        self._keys = ClientKeys(settings, self._fetch_keys)

    async def find(self, client_id: str) -> LoginClient | None:
        """The client with this id; None where nobody has it."""
        entry = self._login.clients.get(client_id)
        if entry is not None:
            secret = entry.secret.encode()
            method: AuthMethod = "client_secret_basic" if secret else "none"
            return LoginClient(
                id=client_id,
                kind="configured",
                name=entry.name or client_id,
                redirects=entry.redirect_uris,
                method="private_key_jwt" if entry.jwks_uri else method,
                digest=hashlib.sha256(secret).digest() if secret else b"",
                jwks_uri=entry.jwks_uri,
                grants=frozenset(entry.grants),
                roles=entry.roles,
                scopes=entry.scopes,
                access_s=entry.access_s or 0.0,
            )
        if client_id == COMMAND_LINE.id:
            return COMMAND_LINE
        if self._login.registration == "closed" or not IDS.fullmatch(client_id):
            return None
        if is_document_url(client_id):
            return await self._find_document(client_id)
        if self._login.registration != "open":
            return None
        stored = await self._store.find(client_id)
        if stored is None or stored.kind != "registered":
            return None
        return self._client(stored)

    async def register(self, metadata: ClientMetadata, network: str) -> dict[str, Any]:
        """Register a client; the answer of RFC 7591, 3.2.1. `network`: of the address that asks.
        Raises LoginError."""
        if self._login.registration != "open":
            raise LoginError(403, "access_denied", "clients are not registered here")
        most = self._login.registrations_per_hour
        wait_s = most and self._rates.take(("register", network), most, 3600.0)
        if wait_s:
            text = "too many registrations of your address (login.registrations_per_hour)"
            raise LoginError(429, "temporarily_unavailable", text, retry_s=whole_seconds(wait_s))
        problem = self._problem(metadata)
        if problem is not None:
            raise problem
        method = metadata.token_endpoint_auth_method or "none"
        client_id, secret = secrets.token_urlsafe(16), ""
        document = {
            "redirect_uris": [*metadata.redirect_uris],
            "client_name": _name(metadata.client_name),
            "token_endpoint_auth_method": method,
            "grant_types": [grant for grant in metadata.grant_types if grant in GRANTS],
            "response_types": ["code"],
            **({"client_uri": metadata.client_uri[:500]} if metadata.client_uri else {}),
            **({"scope": metadata.scope[:1000]} if metadata.scope else {}),
            **({"jwks_uri": metadata.jwks_uri} if metadata.jwks_uri else {}),
            **({"jwks": metadata.jwks} if metadata.jwks and method == "private_key_jwt" else {}),
            **({"application_type": metadata.application_type[:20]}
               if metadata.application_type else {}),
        }  # fmt: skip
        if method in SECRET_METHODS:
            secret = secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).digest() if secret else None
        stored = StoredClient(client_id, "registered", document, digest)
        if not await self._store.add(stored, self._login.registrations, FLOOD_S):
            raise LoginError(
                503, "temporarily_unavailable", "too many clients have registered; try again later"
            )
        issued = {"client_id": client_id, "client_id_issued_at": int(time.time())}
        return {
            **document,
            **issued,
            **({"client_secret": secret, "client_secret_expires_at": 0} if secret else {}),
        }

    async def authenticate(
        self, form: Mapping[str, str], authorization: str, audiences: Sequence[str]
    ) -> LoginClient:
        """The client of a request to the token endpoint (OAuth 2.1, 2.4). `audiences`: of signed
        assertions. Raises LoginError."""
        client_id, secret, basic = form.get("client_id", ""), form.get("client_secret", ""), False
        assertion = form.get("client_assertion", "")
        if authorization[:6].lower() == "basic ":
            user, password = _read_basic(authorization[6:])
            if client_id not in ("", user) or secret or assertion:
                raise LoginError(400, "invalid_request", "authenticate in one way, not in several")
            client_id, secret, basic = user, password, True
        elif assertion:
            if form.get("client_assertion_type") != ASSERTION or secret:
                raise LoginError(400, "invalid_request", f"expected the assertion type {ASSERTION}")
            client_id = _subject(assertion, client_id)
        client = await self.find(client_id) if client_id else None
        if client is None:
            # a client that hears this registers again
            raise LoginError(401, "invalid_client", "this client is not known here")
        if client.method == "private_key_jwt":
            if not assertion:
                raise LoginError(401, "invalid_client", "expected a client_assertion")
            await self._check_assertion(client, assertion, audiences)
        elif client.method == "none":
            if secret or assertion:
                raise LoginError(401, "invalid_client", "this client has no secret")
        elif assertion or not hmac.compare_digest(
            hashlib.sha256(secret.encode()).digest(), client.digest
        ):
            raise LoginError(401, "invalid_client", "its secret is another one", basic=basic)
        return client

    async def note_use(self, client: LoginClient) -> None:
        """Remember that a client got a token: those that never did are forgotten soon."""
        await self._store.note_use(client.id)

    @property
    def _store(self) -> Clients:
        return Clients(self._pool(), self._settings.tenant.host_id)

    def _client(self, client: StoredClient) -> LoginClient:
        metadata = msgspec.convert(client.document, ClientMetadata)
        method = metadata.token_endpoint_auth_method or "none"
        return LoginClient(
            id=client.client_id,
            kind=client.kind,
            name=_name(metadata.client_name) or client.client_id[:NAME_LIMIT],
            redirects=tuple(
                uri
                for uri in metadata.redirect_uris
                if redirect_problem(uri, self._login.redirects) is None
            ),
            method=msgspec.convert(method, AuthMethod),
            digest=client.secret or b"",
            jwks_uri=metadata.jwks_uri,
            jwks=metadata.jwks,
        )

    async def _find_document(self, client_id: str) -> LoginClient | None:
        stored = await self._store.find(client_id)
        now = datetime.now(UTC)
        if stored is not None and stored.fresh_until is not None and stored.fresh_until > now:
            return self._client(stored)
        if time.monotonic() - self._failed.get(client_id, -RETRY_S) >= RETRY_S:
            try:
                document, fresh_s = await self._fetch_document(client_id)
            except (ImportRejected, LoginError) as error:
                log.info("client_document_refused", extra={"client": client_id[:200],
                                                           "reason": str(error)[:300]})  # fmt: skip
                if len(self._failed) > 1000:
                    self._failed.clear()
                self._failed[client_id] = time.monotonic()
            else:
                fresh = now + timedelta(seconds=fresh_s)
                stored = StoredClient(client_id, "document", document, None, fresh)
                await self._store.put_document(stored, self._login.registrations)
        return None if stored is None else self._client(stored)

    async def _fetch_document(self, client_id: str) -> tuple[dict[str, Any], float]:
        """The document, and how long it is good, s. Raises ImportRejected and LoginError."""
        fetched = await self._fetch(client_id, DOCUMENT_BYTES)
        try:
            document, metadata = read_metadata(fetched.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise LoginError(400, "invalid_client", "its document is not as expected") from error
        if metadata.client_id != client_id:
            raise LoginError(400, "invalid_client", "its document is about another client_id")
        if not metadata.client_name:
            raise LoginError(400, "invalid_client", "its document has no client_name")
        if metadata.token_endpoint_auth_method in SECRET_METHODS or "client_secret" in document:
            raise LoginError(400, "invalid_client", "a published document has no secret")
        problem = self._problem(metadata)
        if problem is not None:
            raise problem
        client_members = {name: document[name] for name in ClientMetadata.__struct_fields__
                if name in document}  # fmt: skip
        client_members["token_endpoint_auth_method"] = metadata.token_endpoint_auth_method or "none"
        login, fresh_s = self._login, fetched.fresh_s
        if fresh_s is None:
            return client_members, login.document_s
        return client_members, min(max(fresh_s, login.document_least_s), login.document_most_s)

    async def _fetch(
        self, url: str, limit_bytes: int, *, by_operator: bool = False, purpose: str = "document"
    ) -> FetchedDocument:
        """The document at `url`. `by_operator`: an operator chose the URL; else a stranger did, and
        neither a file nor a private network is read, whatever holds for imports. Requests are
        limited for each `purpose`, so that those for documents leave room for those for keys.
        Raises ImportRejected."""
        if not by_operator:
            if not url.startswith("https://"):
                raise ImportRejected("expected an https:// URL")
            most, host = self._login.requests, urlsplit(url).netloc.lower()
            if most and self._rates.take((purpose, host), most, self._login.per_s):
                raise ImportRejected("its host is asked too often (login.requests)")
        return await fetch(
            url,
            limit_bytes=limit_bytes,
            timeout_s=self._login.timeout_s,
            private_networks=by_operator and self._settings.imports.private_networks,
            by_operator=by_operator,
            redirects=0,
        )

    def _problem(self, metadata: ClientMetadata) -> LoginError | None:
        """The reason why a client is not taken."""
        method = metadata.token_endpoint_auth_method or "none"
        if not 0 < len(metadata.redirect_uris) <= REDIRECTS:
            text = f"expected 1 to {REDIRECTS} redirect_uris, found {len(metadata.redirect_uris)}"
            return LoginError(400, "invalid_redirect_uri", text)
        for uri in metadata.redirect_uris:
            if reason := redirect_problem(uri, self._login.redirects):
                return LoginError(400, "invalid_redirect_uri", f"{uri[:200]}: {reason}")
        if method not in METHODS:
            text = f"expected token_endpoint_auth_method out of {', '.join(METHODS)}"
            return LoginError(400, "invalid_client_metadata", text)
        if method == "private_key_jwt" and not (metadata.jwks_uri or metadata.jwks):
            text = "expected jwks_uri or jwks with private_key_jwt"
            return LoginError(400, "invalid_client_metadata", text)
        if metadata.jwks_uri and not metadata.jwks_uri.startswith("https://"):
            text = "expected jwks_uri to be an https:// URL"
            return LoginError(400, "invalid_client_metadata", text)
        if "authorization_code" not in metadata.grant_types:
            text = "expected authorization_code among grant_types"
            return LoginError(400, "invalid_client_metadata", text)
        return None

    async def _check_assertion(
        self, client: LoginClient, assertion: str, audiences: Sequence[str]
    ) -> None:
        """A signed authentication (RFC 7523, 3), good once. Raises LoginError."""
        try:
            claims = await self._verify(client, assertion, audiences)
            until = datetime.fromtimestamp(float(claims["exp"]), UTC)
        except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, OverflowError) as error:
            raise LoginError(401, "invalid_client", f"its assertion: {error}") from error
        if claims["sub"] != client.id:
            raise LoginError(401, "invalid_client", "its assertion is about another client")
        leeway = timedelta(seconds=self._settings.auth.leeway_s)
        if until - datetime.now(UTC) > timedelta(seconds=ASSERTION_S) + leeway:
            raise LoginError(401, "invalid_client", "its assertion is good for too long")
        logins = Logins(self._pool(), self._settings.tenant.host_id)
        if not await logins.use_once(f"{client.id} {claims['jti']}", until + leeway):
            raise LoginError(401, "invalid_client", "its assertion was used before")

    async def _verify(
        self, client: LoginClient, assertion: str, audiences: Sequence[str]
    ) -> Mapping[str, Any]:
        """The claims of a client's assertion. Raises PyJWTError for one that is not good, and
        LoginError."""
        keys = await self._keys_of(client)
        issuer = Issuer(iss=client.id, keys=keys, tenants=Tenants(""), required=("jti", "sub"))
        verifier = TokenVerifier(self._settings.auth, [issuer], time.time)
        try:
            return await verifier.made_for(assertion.encode(), *audiences)
        except KeysMissing as error:
            number, url = new_request_id(), client.jwks_uri[:200]
            log.warning("client_keys_missing", extra={"request_id": number, "url": url})
            text = "the keys of this client cannot be had at the moment; try again later"
            raise LoginError(
                503, "temporarily_unavailable", text, retry_s=KEYS_RETRY_S, number=number
            ) from error

    async def _keys_of(self, client: LoginClient) -> KeySource:
        """The keys with which a client signs. Raises LoginError."""
        if client.jwks is None:
            return await self._keys.of(client.jwks_uri, by_operator=client.kind == "configured")
        try:
            ring = read_jwks(msgspec.json.encode(client.jwks), self._settings.auth.algorithms)
        except UnusableKey as error:
            raise LoginError(401, "invalid_client", f"its jwks: {error}") from error
        return LocalKeys(ring, lambda: ring)

    async def _fetch_keys(self, url: str, by_operator: bool) -> bytes:
        """Raises ImportRejected."""
        return (await self._fetch(url, JWKS_BYTES, by_operator=by_operator, purpose="keys")).data


def is_unverifiable(client: LoginClient, redirect: str) -> bool:
    """Whether any program on the visitor's computer could be this client: it has no secret, or
    registered itself, and its redirect leads to a program there (RFC 8252, 8.6). A document is
    public, and so is no proof."""
    local = is_loopback(redirect) or not redirect.startswith(("http:", "https:"))
    is_authenticated = client.kind != "registered" and client.method != "none"
    return local and not is_authenticated


def read_metadata(body: bytes) -> tuple[dict[str, Any], ClientMetadata]:
    """Metadata as it was sent, without members that are null, and as it is read. Raises
    MsgspecError, ValueError and RecursionError."""
    members = msgspec.json.decode(body, type=dict[str, Any])
    document = {name: value for name, value in members.items() if value is not None}
    if b"\\u0000" in msgspec.json.encode(document):
        raise ValueError("expected no character NUL")  # which PostgreSQL does not store
    return document, msgspec.convert(document, ClientMetadata)


def _name(text: str) -> str:
    """A name of foreign text, on one line."""
    return visible(re.sub(r"\s+", " ", text).strip()[:NAME_LIMIT])


def _read_basic(credentials: str) -> tuple[str, str]:
    """User and password, which are form-encoded (OAuth 2.1, 2.4.1). Raises LoginError."""
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise LoginError(400, "invalid_request", "the Basic credentials are no base64") from error
    user, colon, password = text.partition(":")
    if not colon:
        raise LoginError(400, "invalid_request", "the Basic credentials have no colon")
    return unquote_plus(user), unquote_plus(password)


def _subject(assertion: str, client_id: str) -> str:
    """The client that an assertion is about, unverified. Raises LoginError."""
    try:
        claims = jwt.decode(assertion, options={"verify_signature": False})
    except (PyJWTError, ValueError) as error:
        raise LoginError(401, "invalid_client", "its assertion is no JWT") from error
    subject = claims.get("sub")
    if not isinstance(subject, str) or client_id not in ("", subject):
        raise LoginError(401, "invalid_client", "its assertion is about another client")
    return subject
