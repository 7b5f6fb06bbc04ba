"""Security schemes that the operations of a source require, and whether credentials for them are
configured."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from config.sources import SourceSettings
from gateway.upstreams.auth.credentials import (
    ANY,
    Alternative,
    entry_for,
    is_satisfied,
    satisfiable,
    satisfied_by_token,
    settable,
    settings_hint,
    takes_bearer,
)
from gateway.upstreams.auth.personal_accounts import fold_name, fold_schemes, is_personal
from gateway.upstreams.http.source_pools import NO_ENTRIES, Entries
from registry.sources.tool_store import ToolStore
from schemas.binding import Binding, Credential
from schemas.errors import ToolgateError
from schemas.similar_names import did_you_mean

Security = tuple[Alternative, ...]  # of one operation

CANDIDATES = 50  # limit of distinct requirements that are compared
SCHEMES = 8  # limit of schemes that are named

_PLACES = {
    "basic": "user name and password",
    "bearer": "bearer token",
    "oauth2": "OAuth 2 token",
    "openIdConnect": "OpenID Connect token",
    "mutualTLS": "client certificate",
    "http": "Authorization header",
}


class UnusedSecret(ToolgateError):
    """No tool uses a secret of this name; the text suggests a similar name."""


async def check_used(
    store: ToolStore, host_id: str, *, configured: Collection[str], source: str, scheme: str
) -> None:
    """Check that a tool uses this secret. `configured`: the sources of the settings. Any `scheme`
    is accepted for a source whose tools name none: it is not imported yet, or needs a header.
    Raises UnusedSecret."""
    source_names = {*configured, *(source.name for source in await store.sources(host_id))}
    if source not in source_names:
        text = f"There is no source {source!r} in the settings or the registry."
        raise UnusedSecret(f"{text} {did_you_mean(source, sorted(source_names))}".rstrip())
    by_scheme = {
        credential.scheme: credential
        for tool in await store.tools(host_id)
        if tool.source == source
        for alternative in tool.binding.security
        for credential in alternative
    }
    if by_scheme and not any(entry_for({scheme: ANY}, entries) for entries in by_scheme.values()):
        more = f" and {len(by_scheme) - SCHEMES} more" if len(by_scheme) > SCHEMES else ""
        schemes = ", ".join([*by_scheme][:SCHEMES])
        text = f"No tool of {source} uses {scheme!r}, only {schemes}"
        raise UnusedSecret(f"{text}{more}. {did_you_mean(scheme, by_scheme)}".rstrip())


@dataclass
class SourceCredentials:
    """Credential status of the operations of one source."""

    schemes: dict[str, tuple[Credential, bool]] = field(default_factory=dict)  # and whether met
    guarded: int = 0  # operations that require credentials
    refused: list[Security] = field(default_factory=list)  # of refused calls
    unknown: tuple[str, ...] = ()  # names in connect.schemes that no operation requires

    @property
    def is_wrong(self) -> bool:
        """Whether there is advice on the settings."""
        return bool(self.refused or self.unknown)


def standing(
    bindings: Iterable[Binding], adjusted: SourceSettings | None, entries: Entries = NO_ENTRIES
) -> SourceCredentials:
    """Credential status; `adjusted` has the settings of the source of `bindings`, `entries` its
    entries in the registry."""
    settings = adjusted or SourceSettings()
    credentials, headers = {**entries, **settings.credentials}, settings.headers
    by_caller = settings.exchange is not None or settings.forward_token
    credentials_ = SourceCredentials()
    connect, personal = settings.connect, fold_schemes(settings.connect.schemes)

    def is_met(credential: Credential) -> bool:
        if connect.mode != "off" and is_personal(credential.scheme, personal):
            return True  # by accounts of callers
        return (by_caller and takes_bearer(credential)) or is_satisfied(
            credentials, headers, credential
        )

    def is_possible(security: Security) -> bool:
        if connect.mode != "off":
            return any(all(map(is_met, alternative)) for alternative in security)
        if by_caller:
            return () in security or satisfied_by_token(security, headers) is not None
        return satisfiable(security, credentials, headers) is not None

    for binding in bindings:
        if not binding.security:
            continue
        credentials_.guarded += 1
        for credential in (
            credential for alternative in binding.security for credential in alternative
        ):
            credentials_.schemes[credential.scheme] = credential, is_met(credential)
        if settings.require_credentials and not is_possible(binding.security):
            credentials_.refused.append(binding.security)
    declared = fold_schemes(credentials_.schemes)
    credentials_.unknown = tuple(
        scheme for scheme in connect.schemes if fold_name(scheme) not in declared
    )
    return credentials_


def hint(name: str, credentials: SourceCredentials) -> str:
    """Advice on what to configure where calls would be refused, or made without the accounts of
    people: the credentials that fix most calls come first; remaining schemes are named."""
    if credentials.unknown:
        return (
            f"sources.{name}.connect.schemes names {', '.join(credentials.unknown)}, which no "
            "operation requires; they require "
            f"{', '.join(sorted(credentials.schemes)[:SCHEMES]) or 'nothing'}"
        )
    count = len(credentials.refused)
    calls = "Calls of 1 tool are refused" if count == 1 else f"Calls of {count} tools are refused"
    refusals = Counter(credentials.refused)
    helped = {
        security: _satisfied_securities(security, refusals, credentials)
        for security in list(refusals)[:CANDIDATES]
    }
    best = max(
        helped, key=lambda security: sum(refusals[candidate] for candidate in helped[security])
    )
    text = f"{calls} without credentials. {settings_hint(name, [each for each in best if each])}"
    others = refusals.keys() - helped[best]
    if not others:
        return text
    schemes = sorted({scheme.scheme for security in others for each in security for scheme in each})
    more = f" and {len(schemes) - SCHEMES} more" if len(schemes) > SCHEMES else ""
    named = ", ".join(schemes[:SCHEMES]) + more
    count = sum(refusals[security] for security in helped[best])
    return f"{text} That is for {count}; others want {named}."


def _satisfied_securities(
    security: Security, securities: Iterable[Security], credentials: SourceCredentials
) -> frozenset[Security]:
    """Members of `securities` that credentials for `security` satisfy, too."""
    met = {credential.scheme for credential in settable(each for each in security if each) or ()}
    met |= {scheme for scheme, (_, is_met) in credentials.schemes.items() if is_met}
    met_too = (
        candidate
        for candidate in securities
        if any({c.scheme for c in each} <= met for each in candidate)
    )
    return frozenset({security, *met_too})


def place_of(credential: Credential) -> str:
    """Where a credential stands in a request, in words."""
    if credential.kind != "apiKey":
        return _PLACES[credential.kind]
    kind = {"query": "query parameter"}.get(credential.location, credential.location)
    return f"{kind} {credential.name}"
