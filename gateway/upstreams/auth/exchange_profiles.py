"""Profiles of `exchange`: the words in which an authorization server is asked for a token of the
caller's at a source."""

import base64
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from config.sources import TokenExchange
from gateway.http_client.client_assertions import JWT_BEARER, sign_authentication
from gateway.http_client.token_requests import TokenAnswer

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
JWT = "urn:ietf:params:oauth:token-type:jwt"
USUAL = frozenset({ACCESS_TOKEN, JWT})  # types that a Bearer header may hold


class ExchangeProfile(Protocol):
    @property
    def subject_scope(self) -> str:
        """The scope of a token that can be exchanged, where the gateway asks for that, too; "" for
        the usual one."""

    @property
    def login_scope(self) -> str:
        """The scope with which somebody logs in again, so that the provider asks what it has to for
        the API; "" for the usual one."""

    def scope(self, scopes: Iterable[str]) -> str:
        """The scope of a request; `scopes`: scopes of the operation."""

    def form(self, subject: str, scope: str) -> dict[str, str]:
        """The parameters of a request for the token `subject`. Raises ValueError for a client
        certificate that cannot be used."""

    def has_type(self, answer: TokenAnswer) -> bool:
        """Whether the token is of the type that was asked for."""

    def refusal(self, claims: Mapping[str, Any]) -> str:
        """The reason why a caller's token with these claims cannot be exchanged; "" for none."""


class TokenExchangeProfile:
    """RFC 8693."""

    subject_scope = login_scope = ""

    def __init__(self, settings: TokenExchange) -> None:
        self._settings = settings

    def scope(self, scopes: Iterable[str]) -> str:
        return " ".join(sorted({*self._settings.scopes, *scopes}))

    def form(self, subject: str, scope: str) -> dict[str, str]:
        settings = self._settings
        return {
            "grant_type": GRANT,
            "subject_token": subject,
            "subject_token_type": settings.subject_token_type,
            "audience": settings.audience,
            "resource": settings.resource,
            "scope": scope,
            "requested_token_type": settings.requested_token_type,
        }

    def has_type(self, answer: TokenAnswer) -> bool:
        type_ = self._settings.requested_token_type
        return answer.issued_token_type in ({type_} if type_ else USUAL)  # 2.2.1: required

    def refusal(self, claims: Mapping[str, Any]) -> str:  # noqa: ARG002
        return ""


class EntraOnBehalfOf:
    """The on-behalf-of flow of Entra ID, which has no RFC 8693: for people, not for applications
    themselves. A scope is one of an API as a whole, or of its own names, and never both
    (AADSTS70011), so those of operations are not asked for."""

    def __init__(self, settings: TokenExchange) -> None:
        self._settings = settings
        self.subject_scope = f"{settings.client_id}/.default"  # a token for the gateway itself
        self.login_scope = self.scope(())

    def scope(self, scopes: Iterable[str]) -> str:  # noqa: ARG002
        settings = self._settings
        return " ".join(settings.scopes) or f"{settings.audience}/.default"

    def form(self, subject: str, scope: str) -> dict[str, str]:
        form = {
            "grant_type": JWT_BEARER,
            "requested_token_use": "on_behalf_of",
            "assertion": subject,
            "scope": scope,
        }
        settings = self._settings
        if not settings.certificate:
            return form
        key, thumbprint = self._certificate
        header = {"alg": "PS256", "x5t#S256": thumbprint}
        proof = sign_authentication(settings.client_id, settings.token_url, key, header)
        return {**form, **proof}

    def has_type(self, answer: TokenAnswer) -> bool:  # noqa: ARG002
        return True

    def refusal(self, claims: Mapping[str, Any]) -> str:
        if claims.get("idtyp") == "app" or "scp" not in claims or "oid" not in claims:
            return "only a person's token can be exchanged there, and this one is an application's"
        return ""

    @cached_property
    def _certificate(self) -> tuple[Any, str]:
        """The private key, and the SHA-256 of the certificate, as headers have it. Raises
        ValueError."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509 import load_pem_x509_certificate

        pem = self._settings.certificate.encode()
        try:
            key = load_pem_private_key(pem, None)
            digest = load_pem_x509_certificate(pem).fingerprint(SHA256())
        except TypeError as error:  # encrypted
            raise ValueError("a private key without a password is needed") from error
        return key, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def profile_of(settings: TokenExchange) -> ExchangeProfile:
    entra = settings.profile == "entra_obo"
    return EntraOnBehalfOf(settings) if entra else TokenExchangeProfile(settings)
