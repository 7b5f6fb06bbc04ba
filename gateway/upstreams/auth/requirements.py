"""Security requirements of operations against what the settings hold: which are met, and with what.

Pure. `credentials` and `headers` are those of a source's settings.
"""

from collections.abc import Collection, Iterable, Mapping

from config.sources import SchemeSettings
from schemas.binding import Credential

Alternative = tuple[Credential, ...]
Entries = Mapping[str, SchemeSettings]

_SHOWN = 4  # alternatives named in one text
_GRANT = "client_id, client_secret and token_url"
_KEYS = {  # of an entry, by the kind of the scheme
    "apiKey": "value",
    "basic": "username and password",
    "bearer": f"token, or {_GRANT}",
    "oauth2": f"token, or {_GRANT}",
    "openIdConnect": f"token, or {_GRANT}",
    "http": "value, the whole Authorization header",
}


def chosen(
    security: tuple[Alternative, ...], credentials: Entries, headers: Collection[str]
) -> Alternative | None:
    """The alternative to satisfy, empty when a call may go without; None: nothing meets any."""
    for alternative in security:
        if alternative and all(entry_for(credentials, one) for one in alternative):
            return alternative
    for alternative in security:
        if alternative and all(met(credentials, headers, one) for one in alternative):
            return alternative
    return () if () in security else None


def borne(security: tuple[Alternative, ...], headers: Collection[str]) -> Alternative | None:
    """The alternative that a token of the caller's satisfies, with the configured headers."""
    for alternative in security:
        rest = [one for one in alternative if not bears(one)]
        if len(rest) < len(alternative) and all(met({}, headers, one) for one in rest):
            return alternative
    return None


def met(credentials: Entries, headers: Collection[str], credential: Credential) -> bool:
    """Whether there is an entry for `credential`, or one of the configured headers is it."""
    if entry_for(credentials, credential):
        return True
    if credential.kind == "mutualTLS" or credential.location == "query":
        return False
    name = "cookie" if credential.location == "cookie" else credential.name.lower()
    return any(name == header.lower() for header in headers)


def entry_for(credentials: Entries, credential: Credential) -> SchemeSettings | None:
    """What satisfies `credential`, of use for its kind; its name is matched exactly, else as the
    name of a variable of the environment can spell it."""
    entry = credentials.get(credential.scheme)
    if entry is None and credentials:
        folded = _folded(credential.scheme)
        named = (one for name, one in credentials.items() if _folded(name) == folded)
        entry = next(named, None)
    return entry if entry is not None and _fits(entry, credential) else None


def bears(credential: Credential) -> bool:
    """Whether it is met by a token after "Bearer". Descriptions written before there was a word
    for that say that it is an API key named Authorization."""
    if credential.kind == "apiKey":
        return (credential.location, credential.name.lower()) == ("header", "authorization")
    return credential.kind in ("bearer", "oauth2", "openIdConnect")


def refusal(source: str, security: tuple[Alternative, ...]) -> str:
    """Why a call was not made, and what to configure; no address and no secret."""
    stated = [alternative for alternative in security if alternative]
    wanted = ", or ".join(" and ".join(map(_named, one)) for one in stated[:_SHOWN])
    return (
        f"{source} was not called: it wants the credentials {wanted}, and none are configured. "
        f"{how(source, stated)}"
    )


def how(source: str, stated: list[Alternative]) -> str:
    """The settings that meet the first of `stated` that settings can meet."""
    setting = f"sources.{source}"
    alternative = settable(stated)
    if alternative:
        keys = (f"{setting}.credentials.{one.scheme} ({_keys(one)})" for one in alternative)
        return f"Set {' and '.join(dict.fromkeys(keys))}, or {setting}.headers."
    return (
        "It wants a client certificate, which is not sent from here: name a proxy that sends one "
        f"as {setting}.base_url, and set {setting}.require_credentials: false."
    )


def _keys(credential: Credential) -> str:
    """A bare token as the `value` of an Authorization header would lack its "Bearer"."""
    if credential.kind == "apiKey" and bears(credential):
        return "token; or value, the whole Authorization header"
    return _KEYS[credential.kind]


def settable(stated: Iterable[Alternative]) -> Alternative | None:
    """The first that settings can meet."""
    return next((each for each in stated if all(one.kind in _KEYS for one in each)), None)


def _named(credential: Credential) -> str:
    scopes = f" (scopes {' '.join(credential.scopes)})" if credential.scopes else ""
    return f"{credential.scheme}{scopes}"


def _folded(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name.lower())


def _fits(entry: SchemeSettings, credential: Credential) -> bool:
    if credential.kind == "mutualTLS":
        return False
    if entry.value:
        return True
    if credential.kind == "basic":
        return bool(entry.username or entry.password)
    return bears(credential) and bool(entry.token or entry.client_id)
