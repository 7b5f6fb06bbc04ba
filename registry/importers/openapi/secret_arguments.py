"""Arguments that a credential fills, and arguments that look like secrets."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, cast

from registry.importers.openapi.security import Alternatives, Identity
from schemas.binding import Credential, OpenAPIBinding
from schemas.source import CredentialName
from schemas.tool import ToolDraft
from schemas.untrusted_json import mapping, text

# of parameters that nothing else is called by, without case and separators
_SECRET_NAMES = frozenset(
    {"apikey", "xapikey", "apitoken", "xapitoken", "authtoken", "xauthtoken", "authkey"}
    | {"accesstoken", "xaccesstoken", "bearertoken", "appkey", "applicationkey", "clientsecret"}
    | {"subscriptionkey", "ocpapimsubscriptionkey", "sessiontoken", "xauth", "xauthorization"}
)
_VAGUE_NAMES = frozenset({"token", "key", "secret", "auth", "xtoken", "password"})
_SECRET_TEXT = re.compile(
    r"api[ -]?key|api[ -]?token|access[ -]?token|auth(entication|orization)?[ -]token|bearer|"
    r"authenticat|credential",
    re.IGNORECASE,
)
_SECRETS_NAMED = 10
# never filled by the only credential of a kind: they belong to a user, a client, a session
_PERSONAL_NAMES = frozenset({"clientsecret", "sessiontoken", "secret", "password"})
_FILLED_LOCATIONS = ("query", "header", "cookie")


class FillingCredentials:
    """The credentials of a source, for parameters that look like secrets and belong to no security
    scheme. The source's own address alone receives them, as those of its schemes."""

    def __init__(self, names: Sequence[CredentialName]) -> None:
        self._names = names

    def of(self, name: str, location: str, description: str) -> Credential | None:
        """The credential that fills a parameter: of its name, else the only one of its kind."""
        if not self._names or location not in _FILLED_LOCATIONS:
            return None
        if not _is_secret(name, description):
            return None
        scheme = self._same_name(name, location) or self._only(_letters(name))
        if scheme is None:
            return None
        place = cast("Literal['query', 'header', 'cookie']", location)
        return Credential(scheme, "apiKey", place, name, bare=True)

    def _same_name(self, name: str, location: str) -> str | None:
        """An exact name comes before one that is spelt alike, as at a call. Digits count: `key1`
        and `key2` are two credentials."""
        alike = [
            secret.name
            for secret in self._names
            if (
                secret.kind == "header"
                and (location, name.lower()) == ("header", secret.name.lower())
            )
            or (secret.kind != "header" and _fold(secret.name) == _fold(name))
        ]
        return name if name in alike else next(iter(alike), None)

    def _only(self, letters: str) -> str | None:
        if letters in _PERSONAL_NAMES:
            return None
        kind = "value" if "key" in letters else "token"
        names = [
            secret.name
            for secret in self._names
            # a stored value may be a whole header, as "Bearer x"
            if secret.kind == kind and not (secret.stored and kind == "value")
        ]
        return names[0] if len(names) == 1 else None


def add_filled(alternatives: Alternatives, credentials: tuple[Credential, ...]) -> Alternatives:
    """`alternatives` with the credentials that fill parameters, which every call has."""
    if not credentials:
        return alternatives
    return tuple(
        dict.fromkeys((*alternative, *credentials) for alternative in alternatives or ((),))
    )


def secret_notes(drafts: Sequence[ToolDraft]) -> Iterator[str]:
    """Sentences on the arguments that look like credentials, with the line that hides each, and on
    those that the source's credentials fill."""
    filled = Counter(
        credential
        for draft in drafts
        for credential in {
            member for alternative in draft.binding.security for member in alternative
        }
        if credential.bare
    )
    for credential, count in filled.most_common(_SECRETS_NAMED):
        yield (
            f"{credential.name!r} ({credential.location}) of {_tools(count)} is filled by the "
            f"credential {credential.scheme!r} of the source, and is no argument"
        )
    counts = Counter(
        identity
        for draft in drafts
        for identity in _secret_identities(draft, cast("OpenAPIBinding", draft.binding))
    )
    for (name, location), count in counts.most_common(_SECRETS_NAMED):
        asks = "asks" if count == 1 else "ask"
        fills = f"; so does a credential {name!r} of the source" if location != "body" else ""
        yield (
            f"{_tools(count)} {asks} for {name!r} ({location}), which looks like a credential; in "
            f"an overlay, `defaults: {{arguments: {{{name}: {{hide: true, value: ...}}}}}}` hides "
            f"it{fills}"
        )


def _tools(count: int) -> str:
    return "1 tool" if count == 1 else f"{count:,} tools"


def _secret_identities(draft: ToolDraft, binding: OpenAPIBinding) -> Iterator[Identity]:
    places = [
        (parameter.argument, parameter.name, str(parameter.location))
        for parameter in binding.parameters
    ]
    if binding.body is not None:
        places += [(argument, name, "body") for argument, name in binding.body.properties or ()]
    for argument, name, location in places:
        schema = mapping(mapping(draft.input_schema["properties"]).get(argument))
        if location != "path" and _is_secret(name, text(schema.get("description"))):
            yield name, location


def _is_secret(name: str, description: str) -> bool:
    plain = _letters(name)
    return plain in _SECRET_NAMES or (
        plain in _VAGUE_NAMES and _SECRET_TEXT.search(description) is not None
    )


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
