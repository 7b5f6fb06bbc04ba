"""Who may log in, which programs they use, and what both have been given. All of it in memory."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from secrets import compare_digest

from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, TokenMixin

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
SCOPES = ("orders:read", "orders:write", "orders:refund")
OPENID = "openid"
CODE_S = 60


@dataclass(frozen=True)
class User:
    name: str
    password: str
    scopes: frozenset[str]  # the most that this user can give to a program
    roles: tuple[str, ...] = ()


USERS = {
    user.name: user
    for user in (
        User("ada", "lovelace", frozenset(SCOPES), ("manager",)),
        User("bob", "the-builder", frozenset({"orders:read"}), ("clerk",)),
    )
}


@dataclass(frozen=True)
class Grantee:
    """Whom a token is about, and whom it is for: what goes into it."""

    subject: str
    audience: str
    roles: tuple[str, ...] = ()
    actor: Mapping[str, object] | None = None  # RFC 8693, section 4.1
    ends: float | None = None  # s since the epoch; None: as usual

    def get_user_id(self) -> str:
        return self.subject


@dataclass
class Client(ClientMixin):
    """A program (RFC 7591, section 2)."""

    client_id: str
    secret: str = ""  # "": it cannot keep one
    name: str = ""
    redirect_uris: tuple[str, ...] = ()
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    scopes: frozenset[str] = frozenset(SCOPES)
    auth_methods: tuple[str, ...] = ("client_secret_basic", "client_secret_post")
    receives: str = ""  # URL of what it is; it may exchange the tokens that are for that

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str | None:
        return self.redirect_uris[0] if len(self.redirect_uris) == 1 else None

    def get_allowed_scope(self, scope: str | None) -> str:
        return within(scope, self.scopes)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.redirect_uris

    def check_client_secret(self, client_secret: str) -> bool:
        return compare_digest(self.secret.encode(), client_secret.encode())

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method in (self.auth_methods if self.secret else ("none",))

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types


@dataclass(frozen=True)
class Code(AuthorizationCodeMixin):
    code: str
    client_id: str
    redirect_uri: str | None
    scope: str
    grantee: Grantee
    code_challenge: str
    code_challenge_method: str
    nonce: str = ""  # of OpenID Connect; "": none was asked for
    ends: float = field(default_factory=lambda: time.time() + CODE_S)

    def get_redirect_uri(self) -> str | None:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass(frozen=True)
class RefreshToken(TokenMixin):
    text: str
    client_id: str
    scope: str
    grantee: Grantee

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Accounts:
    clients: dict[str, Client] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    refresh_tokens: dict[str, RefreshToken] = field(default_factory=dict)

    def add(self, *clients: Client) -> None:
        self.clients.update({client.client_id: client for client in clients})


def logged_in(name: str, password: str) -> User | None:
    user = USERS.get(name)
    known = user is not None and compare_digest(user.password.encode(), password.encode())
    return user if known else None


def is_below(url: str, resource: str) -> bool:
    return url == resource or url.startswith(resource.rstrip("/") + "/")


def within(scope: str | None, allowed: Iterable[str]) -> str:
    """The part of `scope` that is allowed, in its order; without any, all that is."""
    wanted = (scope or "").split() or sorted(allowed)
    return " ".join(one for one in wanted if one in set(allowed))
