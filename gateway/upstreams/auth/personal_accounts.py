"""A person's own account at a source, where its settings have `connect`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from config.sources import SchemeSettings
from gateway.context import Context, Principal
from registry.connections.accounts import Owner
from schemas.binding import Credential
from schemas.source import Source

Security = tuple[tuple[Credential, ...], ...]


@dataclass(frozen=True, slots=True)
class SourceAccount:
    """Everything that a person has connected at a source. `key` tells accounts apart, also those of
    one person: sessions and caches at the source belong to one of them."""

    owner: Owner
    key: str
    needed: tuple[Credential, ...]  # by the call, of its person
    entries: Mapping[str, SchemeSettings] = field(repr=False)  # by scheme, the person's own
    personal: frozenset[str] = frozenset()  # folded names of schemes of people; none: all
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # of a source without any
    rows: str = ""  # ids of the connections, separated by commas
    lender: str = ""  # who shares it; "": the caller's own
    # what an upstream has made of it for one of its tools, as it likes
    prepared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def select(self, security: Security) -> Security:
        """The alternatives in which something is the person's: no other may stand in for them."""
        return tuple(
            alternative
            for alternative in security
            if not alternative
            or any(is_personal(each.scheme, self.personal) for each in alternative)
        )

    def with_entries(self, entries: Mapping[str, SchemeSettings]) -> dict[str, SchemeSettings]:
        """The entries of the person, and those of the operator for all other schemes."""
        shared = {
            name: entry for name, entry in entries.items() if not is_personal(name, self.personal)
        }
        return {**shared, **self.entries}


def is_personal(scheme: str, personal: frozenset[str]) -> bool:
    """Whether a scheme is for people to satisfy; `personal`: as `SourceAccount.personal`."""
    return not personal or fold_name(scheme) in personal


def fold_schemes(schemes: Iterable[str]) -> frozenset[str]:
    """Names of schemes as `SourceAccount.personal` has them."""
    return frozenset(map(fold_name, schemes))


def fold_name(name: str) -> str:
    """A name of a scheme as an environment variable spells it."""
    return "".join(char if char.isalnum() else "_" for char in name.lower())


class LoginTokens(Protocol):
    """Tokens of the providers at which people log in at the gateway."""

    def has_issued(self, principal: Principal) -> bool:
        """Whether a caller's credential is the gateway's own, which no other party knows."""

    async def access_token(self, principal: Principal, token_url: str, scope: str) -> str:
        """A person's token of the provider that `token_url` is of; `scope`: "" for that of their
        login. Raises TokenFailed, and Unavailable."""

    def link(self, source: str, claims: str, client_id: str = "") -> str:
        """The URL at which a person logs in again, so that a source can be called for them, or ""
        where people do not log in as `client_id`. `claims`: as TokenFailed has them."""


class Connector(Protocol):
    """People's accounts at the sources that ask for them."""

    @property
    def login_tokens(self) -> LoginTokens: ...

    def of_mode(self, mode: str) -> "Connector":
        """The connector of sources with this `connect.mode`."""

    async def account(
        self, source: Source, security: Security, context: Context
    ) -> SourceAccount | None:
        """The account of a caller; None where the call needs none. `security`: of the tool, empty
        for a source that declares no schemes. Raises ConnectionRequired, Forbidden for a caller
        who cannot have one, and Unavailable."""

    async def renew(
        self, account: SourceAccount, *, status: int, challenge: str
    ) -> SourceAccount | None:
        """The account with new credentials after the service refused it with a `status` and its
        WWW-Authenticate; None where the refusal is about the request. Raises ConnectionRequired
        where its person has to act, and Unavailable."""
