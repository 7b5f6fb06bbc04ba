"""The accounts that a call needs of its person."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from config.sources import Connect, SchemeSettings
from gateway.upstreams.auth.accounts import Security, fold_name
from gateway.upstreams.auth.credentials import entry_for, settable
from schemas.binding import Credential

Entries = Mapping[str, SchemeSettings]


@dataclass(frozen=True, slots=True)
class Requirement:
    """The schemes that a person satisfies for one call, and those of them that they have not
    connected."""

    needed: tuple[Credential, ...]
    missing: tuple[Credential, ...] = ()


def header_credential(connect: Connect) -> Credential:
    """The scheme of a source that declares none: a header, as its settings name it."""
    is_bearer = connect.prefix is None and _is_authorization(connect)
    return Credential(connect.header, "bearer" if is_bearer else "apiKey", name=connect.header)


def header_value(connect: Connect, entry: SchemeSettings) -> str:
    """The value of that header."""
    text = entry.value or entry.token or ""
    prefix = connect.prefix
    if prefix is None:
        prefix = "Bearer " if _is_authorization(connect) else ""
    return prefix + text


def requirement(
    security: Security, connect: Connect, *, own: Entries, mine: Entries
) -> Requirement | None:
    """The needs of a call with this `security`; None where it can go without a person's account.
    `own`: the operator's entries, which satisfy schemes that are not personal; `mine`: the
    person's."""
    personal = frozenset(map(fold_name, connect.schemes)) or None
    alternatives = [
        alternative
        for alternative in security
        if any(_is_personal(credential, personal) for credential in alternative)
    ]
    for alternative in alternatives:
        if all(
            entry_for(mine if _is_personal(credential, personal) else own, credential)
            for credential in alternative
        ):
            return Requirement(_personal(alternative, personal))
    if () in security:
        return None
    wanted = settable(alternatives)
    if wanted is None:
        return None
    needed = _personal(wanted, personal)
    return Requirement(needed, tuple(each for each in needed if not entry_for(mine, each)))


def _personal(
    alternative: tuple[Credential, ...], personal: Collection[str] | None
) -> tuple[Credential, ...]:
    return tuple(each for each in alternative if _is_personal(each, personal))


def _is_personal(credential: Credential, personal: Collection[str] | None) -> bool:
    return personal is None or fold_name(credential.scheme) in personal


def _is_authorization(connect: Connect) -> bool:
    return connect.header.lower() == "authorization"
