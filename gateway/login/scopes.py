"""Scopes and resources of grants: what a person has, and what a client may ask for."""

from collections.abc import Callable, Collection, Iterable, Sequence

from config.login import EVERYBODY
from config.settings import Settings


class Scopes:
    def __init__(self, settings: Settings) -> None:
        self._oauth = settings.oauth
        self._by_role = settings.login.scopes

    @property
    def possible(self) -> list[str]:
        """The scopes that somebody may have, for metadata."""
        named = (scope for scopes in self._by_role.values() for scope in scopes)
        return [*dict.fromkeys((*self._oauth.required_scopes, *named))]

    def of(self, roles: Iterable[str]) -> frozenset[str]:
        """The scopes of a person with these roles."""
        named = (scope for role in (EVERYBODY, *roles) for scope in self._by_role.get(role, ()))
        return frozenset((*self._oauth.required_scopes, *named))

    def grant(self, scopes: Sequence[str], has: Collection[str]) -> tuple[str, ...]:
        """The scopes that a client gets of those that a person has. Unknown scopes are ignored; a
        client that asks for none gets what the gateway lists (RFC 6749, 3.3: a default)."""
        candidates = scopes or self._oauth.scopes_supported or tuple(self.possible)
        return tuple(
            sorted({*(scope for scope in candidates if scope in has), *self._oauth.required_scopes})
        )


class Resources:
    """The endpoints that tokens are made for (RFC 8707)."""

    def __init__(self, public_url: str, endpoints: Callable[[], Collection[str]]) -> None:
        self._public = public_url
        self._endpoints = endpoints

    def read(self, resources: Sequence[str]) -> str | None:
        """The resource of a request: an endpoint, or the whole gateway where it names none; None
        for a foreign one, or several. With and without a final "/" it is the same."""
        named = {resource.rstrip("/") for resource in resources if resource}
        if not named:
            return self._public
        (resource, *others) = named
        allowed = {self._public, *(f"{self._public}{path}" for path in self._endpoints())}
        return None if others or resource not in allowed else resource
