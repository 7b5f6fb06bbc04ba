"""Authorization servers, as their metadata describe them (RFC 8414), and as they are pinned."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.connections.oauth.guarded_requests import Reach

LIST_LIMIT, NAME_LIMIT = 1000, 500  # items of a list in metadata, and characters of one
# Its documents (OpenID Connect Discovery) do not list the methods of PKCE, which it has.
# `resource` beside scopes is refused there (AADSTS9010010).
ENTRA_HOSTS = (
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "sts.windows.net",
)


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """The server at which a person allows the gateway to act for them at one service."""

    authorization_endpoint: str
    token_endpoint: str
    issuer: str = ""  # "": known by its endpoints only
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    resource: str = ""  # RFC 8707; "": none is sent
    scopes: tuple[str, ...] = ()  # that the service named, in its metadata or a challenge
    scopes_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    announces_iss: bool = False  # RFC 9207
    accepts_documents: bool = False  # client ids that are URLs of documents (CIMD)

    @property
    def pin(self) -> tuple[str, ...]:
        """The part whose change an operator has to agree to (CON-5)."""
        return (
            self.issuer,
            self.authorization_endpoint,
            self.token_endpoint,
            self.registration_endpoint or "",
            self.revocation_endpoint or "",
            self.resource,
        )


class _Metadata(Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


def read_server(document: Mapping[str, Any], reach: Reach) -> AuthorizationServer:
    """The server that a document describes. Raises ValueError."""
    try:
        metadata = msgspec.convert(document, _Metadata)
    except msgspec.ValidationError as error:
        raise ValueError(f"its metadata: {error}") from error
    for name in (
        "authorization_endpoint",
        "token_endpoint",
        "registration_endpoint",
        "revocation_endpoint",
    ):
        url = getattr(metadata, name)
        try:
            if url is not None:
                reach.check(url)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return AuthorizationServer(
        issuer=metadata.issuer,
        authorization_endpoint=metadata.authorization_endpoint,
        token_endpoint=metadata.token_endpoint,
        registration_endpoint=metadata.registration_endpoint,
        revocation_endpoint=metadata.revocation_endpoint,
        scopes_supported=usable_names(metadata.scopes_supported or ()),
        token_endpoint_auth_methods_supported=usable_names(
            metadata.token_endpoint_auth_methods_supported or ()
        ),
        code_challenge_methods_supported=usable_names(
            metadata.code_challenge_methods_supported or ()
        ),
        announces_iss=metadata.authorization_response_iss_parameter_supported is True,
        accepts_documents=metadata.client_id_metadata_document_supported is True,
    )


def usable_names(names: Iterable[str]) -> tuple[str, ...]:
    """The scopes or methods of a list that can be stored and asked for."""
    return tuple(name for name in names if 0 < len(name) <= NAME_LIMIT and name.isprintable())[
        :LIST_LIMIT
    ]


def named_server(authorization_url: str, token_url: str, reach: Reach) -> AuthorizationServer:
    """The server of the URLs in a description, or in settings. Raises ValueError."""
    for name, url in (("authorizationUrl", authorization_url), ("tokenUrl", token_url)):
        try:
            reach.check(url)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return AuthorizationServer(authorization_endpoint=authorization_url, token_endpoint=token_url)
