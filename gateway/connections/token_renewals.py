"""Renewal of tokens: an interface that the OAuth client of connections implements."""

from typing import Protocol

from msgspec import Struct

from registry.connections.accounts import Connection, Owner, Secret
from schemas.errors import ToolgateError


class Renewed(Struct, frozen=True):
    """A renewed token, before it is stored."""

    secret: Secret
    lasts_s: float | None
    scopes: tuple[str, ...]


class RenewalRefused(ToolgateError):
    """The authorization server refuses the refresh token: its person has to connect again."""


class RenewalFailed(ToolgateError):
    """No answer, or none that can be used: the refresh token may still be good."""


class Renewals(Protocol):
    async def renew(self, owner: Owner, row: Connection, secret: Secret) -> Renewed:
        """Raises RenewalRefused and RenewalFailed."""

    async def revoke(self, owner: Owner, row: Connection, secret: Secret) -> None:
        """Revoke at the authorization server, as far as that is possible (RFC 7009)."""
