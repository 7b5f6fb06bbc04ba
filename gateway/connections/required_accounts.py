"""The accounts that a call needs of its person."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from config.settings import Settings
from config.sources import Connect, SchemeSettings
from gateway.upstreams.auth.credentials import entry_for, settable
from gateway.upstreams.auth.personal_accounts import Security, fold_schemes, is_personal
from schemas.binding import Credential
from schemas.source import Source
from schemas.tool import Tool

Entries = Mapping[str, SchemeSettings]


@dataclass(frozen=True, slots=True)
class Requirement:
    """The schemes that a person satisfies for one call, and those of them that they have not
    connected."""

    needed: tuple[Credential, ...]
    missing: tuple[Credential, ...] = ()


def connect_of(settings: Settings, place: str) -> Connect:
    """The settings of people's accounts at a source, by its place."""
    adjusted = settings.sources.get(place)
    return Connect() if adjusted is None else adjusted.connect


def header_credential(connect: Connect) -> Credential:
    """The scheme of a source that declares none: a header, as its settings name it."""
    is_bearer = connect.prefix is None and _is_authorization(connect)
    return Credential(connect.header, "bearer" if is_bearer else "apiKey", name=connect.header)


def connect_header_value(connect: Connect, entry: SchemeSettings) -> str:
    """The value of that header."""
    text = entry.value or entry.token or ""
    prefix = connect.prefix
    if prefix is None:
        prefix = "Bearer " if _is_authorization(connect) else ""
    return prefix + text


def requirement(
    security: Security, connect: Connect, *, source_entries: Entries, person_entries: Entries
) -> Requirement | None:
    """The needs of a call with this `security`; None where it can go without a person's account.
    `source_entries`: the operator's entries, which satisfy schemes that are not personal;
    `person_entries`: the person's."""
    personal = fold_schemes(connect.schemes)
    alternatives = [
        alternative
        for alternative in security
        if any(is_personal(credential.scheme, personal) for credential in alternative)
    ]
    for alternative in alternatives:
        if all(
            entry_for(
                person_entries if is_personal(credential.scheme, personal) else source_entries,
                credential,
            )
            for credential in alternative
        ):
            return Requirement(_personal(alternative, personal))
    if () in security:
        return None
    preferred = settable(alternatives)
    if preferred is None:
        return None
    needed = _personal(preferred, personal)
    return Requirement(
        needed, tuple(each for each in needed if not entry_for(person_entries, each))
    )


def most_needed(
    source: Source, tools: Iterable[Tool], connect: Connect, source_entries: Entries
) -> tuple[Credential, ...]:
    """The schemes that most tools of a source want of a person."""
    if not source.facts.schemes:
        return (header_credential(connect),)
    counted: Counter[tuple[Credential, ...]] = Counter()
    for tool in tools:
        tool_requirement = requirement(
            tool.binding.security, connect, source_entries=source_entries, person_entries={}
        )
        if tool_requirement is not None:
            counted[tool_requirement.needed] += 1
    return counted.most_common(1)[0][0] if counted else ()


def _personal(
    alternative: tuple[Credential, ...], personal: frozenset[str]
) -> tuple[Credential, ...]:
    return tuple(each for each in alternative if is_personal(each.scheme, personal))


def _is_authorization(connect: Connect) -> bool:
    return connect.header.lower() == "authorization"
