"""Settings of the login: the authorization server of the gateway."""

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct, field

from config.access import CLIENT_PROVIDER, RESERVED_ISSUER, USERS_PROVIDER, Auth
from config.networks import is_unencrypted
from config.value_types import (
    Amount,
    ClaimName,
    ClientId,
    Count,
    HostId,
    HttpUrl,
    IssuerName,
    OptionalUrl,
    PasswordLength,
    RedirectUri,
    ScopeName,
    Seconds,
    Text,
)

EVERYBODY = "*"  # key of `login.scopes`: all people who log in
LONGEST_TOKEN_S = 82_800
TOO_LONG = f"expected at most {LONGEST_TOKEN_S}, a day less an hour: revocations last a day"


class ProviderSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `login.providers`: an OpenID provider at which people log in."""

    issuer: HttpUrl
    client_id: Text
    client_secret: Text = ""
    client_auth: Literal["basic", "post"] = "basic"
    title: Text = ""  # on pages; "": the name of the entry
    scopes: tuple[ScopeName, ...] = ("openid", "profile", "email")
    authorize: Mapping[Text, Text] = field(default_factory=dict)  # further parameters
    subject_claim: ClaimName = "sub"
    roles_claim: ClaimName = "roles"
    roles: Mapping[Text, Text] = field(default_factory=dict)  # value of that claim -> role
    claims: tuple[ClaimName, ...] = ()  # that rules may read
    tenant: HostId | None = None
    tenant_claim: ClaimName = ""
    tenants: Mapping[str, HostId] = field(default_factory=dict)
    id_jag: bool = False  # whether its identity assertions are grants
    id_jag_email: bool = False  # whether a verified e-mail names a person whose `sub` does not

    @property
    def identifying_claims(self) -> tuple[str, ...]:
        """Claims that decide on who a person is, and what they may do."""
        return self.subject_claim, self.roles_claim, self.tenant_claim


class LoginClient(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `login.clients`: a client that needs no registration."""

    name: Text = ""  # on pages; "": its id
    redirect_uris: tuple[RedirectUri, ...] = ()
    secret: Text = ""  # "": a public client, unless it has jwks_uri
    jwks_uri: OptionalUrl = ""  # of a client that signs its authentication
    grants: tuple[Literal["authorization_code", "client_credentials", "id_jag"], ...] = (
        "authorization_code",
    )
    roles: tuple[Text, ...] = ()  # of the client itself, for client_credentials
    scopes: tuple[ScopeName, ...] = ()  # likewise
    access_s: Seconds | None = None  # None: login.access_s


class PasswordSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`login.password`: passwords of the gateway's own users."""

    length: PasswordLength
    invitation_s: Seconds
    failures: Count
    delay_s: Seconds
    hashes: Count


class LoginSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    providers: Mapping[IssuerName, ProviderSettings]
    clients: Mapping[ClientId, LoginClient]
    registration: Literal["open", "cimd", "closed"]
    redirects: tuple[Text, ...]  # patterns of redirect URIs of registered clients; none: any
    users: bool
    users_totp: Literal["optional", "required"]
    password: PasswordSettings
    scopes: Mapping[str, tuple[ScopeName, ...]]  # by role, or EVERYBODY
    access_s: Seconds
    refresh_grace_s: Seconds
    idle_s: Seconds
    session_s: Seconds
    unchecked_s: Seconds
    check_s: Seconds
    key_s: Seconds
    document_s: Seconds
    document_least_s: Seconds
    document_most_s: Seconds
    key_sets: Count
    timeout_s: Seconds
    requests: Amount
    per_s: Seconds
    registrations: Count
    registrations_per_hour: Amount


Problems = Iterator[tuple[tuple[str, ...], str]]
"""Key paths below an entry, and what was expected there."""


def provider_problems(name: str, provider: ProviderSettings) -> Problems:
    if name in (RESERVED_ISSUER, USERS_PROVIDER, CLIENT_PROVIDER):
        yield (), f"expected another name: {name}:NAME is another principal"
    if is_unencrypted(provider.issuer):
        yield ("issuer",), "expected an https:// URL, but for a server on loopback"
    if "openid" not in provider.scopes:
        yield ("scopes",), "expected openid among them"
    if provider.id_jag_email and not provider.id_jag:
        yield ("id_jag_email",), "expected id_jag beside it, whose assertions these are"
    if provider.tenants and not provider.tenant_claim:
        yield ("tenants",), "expected tenant_claim beside it, whose values these are"
    if provider.tenant and provider.tenant_claim:
        yield ("tenant",), "expected tenant or tenant_claim, found both"


def known_as(auth: Auth, name: str, provider: ProviderSettings) -> str:
    """The prefix of a provider's principals: that of the same issuer in `auth.issuers`, so that a
    person with either token is one."""
    issuers = auth.issuers.items()
    return next(
        (issuer_name for issuer_name, issuer in issuers if issuer.issuer == provider.issuer), name
    )


def shared_names(auth: Auth, providers: Mapping[str, ProviderSettings]) -> Iterator[str]:
    """Providers whose principals have the prefix of another issuer: one name would be two
    people."""
    issuers = {name: issuer.issuer for name, issuer in auth.issuers.items()}
    for name, provider in providers.items():
        is_own_issuer = auth.issuer and auth.issuer == provider.issuer
        prefix = known_as(auth, name, provider)
        if not is_own_issuer and issuers.setdefault(prefix, provider.issuer) != provider.issuer:
            yield name


def client_problems(client: LoginClient) -> Problems:
    if "authorization_code" in client.grants and not client.redirect_uris:
        yield (), "expected redirect_uris, to which a browser comes back"
    if client.access_s and client.access_s > LONGEST_TOKEN_S:
        yield ("access_s",), TOO_LONG
    machine = {"client_credentials", "id_jag"} & {*client.grants}
    if machine and not (client.secret or client.jwks_uri):
        text = f"expected secret or jwks_uri beside {min(machine)}, or anybody is this client"
        yield ("grants",), text
