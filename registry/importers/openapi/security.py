"""Security schemes (OpenAPI 3.1, sections 4.8.27 to 4.8.30) to the credentials of a call.

Where people obtain tokens (`flows`, `openIdConnectUrl`) is read as data. Whether these URLs may be
asked is decided where people connect: one that only a description names never receives a secret.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.operations import DocumentOperation
from schemas.binding import Credential, OpenAPIBinding
from schemas.json_schema.references import reference_to
from schemas.source import CredentialName, DescribedLogin
from schemas.tool import ToolDraft
from schemas.untrusted_json import mapping, sequence, text

Alternatives = tuple[tuple[Credential, ...], ...]
Identity = tuple[str, str]  # of a parameter; header names in lower case

ALTERNATIVES_LIMIT = 32  # per operation; GitHub, Stripe and Kubernetes have 1 or 2
_NAME_CHARS = 80  # shown of a name
SCOPES_LIMIT = 100  # per credential; Google's largest list has 20
_LOGINS_LIMIT = 50
_URL_CHARS = 2000
_LOGIN_SCOPES_LIMIT = 1000
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2


def read_logins(document: OpenApiDocument) -> dict[str, DescribedLogin]:
    """Where people log in, by scheme; of URLs only those that are absolute, as they have to be."""
    logins: dict[str, DescribedLogin] = {}
    schemes = mapping(mapping(document.root.get("components")).get("securitySchemes"))
    for name, raw in [*schemes.items()][:_LOGINS_LIMIT]:
        try:
            login = _login(document.resolve(raw))
        except SkipOperation:
            continue  # reported where an operation needs it
        if login is not None:
            logins[name] = login
    return logins


def _login(scheme: dict[str, Any]) -> DescribedLogin | None:
    if scheme.get("type") == "openIdConnect":
        url = _absolute_url(scheme.get("openIdConnectUrl"))
        return DescribedLogin(document_url=url) if url else None
    flow = mapping(mapping(scheme.get("flows")).get("authorizationCode"))
    pages = _absolute_url(flow.get("authorizationUrl"))
    tokens = _absolute_url(flow.get("tokenUrl"))
    if scheme.get("type") != "oauth2" or not (pages and tokens):
        return None
    scopes = filter(None, map(text, [*mapping(flow.get("scopes"))][:_LOGIN_SCOPES_LIMIT]))
    return DescribedLogin(pages, tokens, scopes=tuple(scopes))


def _absolute_url(value: object) -> str:
    url = text(value)
    try:
        is_absolute = url.startswith(("https://", "http://")) and urlsplit(url).hostname
    except ValueError:
        return ""
    return url if is_absolute and len(url) <= _URL_CHARS else ""


class Security:
    """Reads security requirements; a scheme is read once per document."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._read: dict[str, tuple[Credential, str | None]] = {}
        schemes = mapping(mapping(document.root.get("components")).get("securitySchemes"))
        read = [self._scheme(name)[0] for name in reversed(schemes)]  # of duplicates the first wins
        self._keys = {_identity(scheme): scheme for scheme in read if scheme.kind == "apiKey"}

    @property
    def fills(self) -> frozenset[Identity]:
        """The parameters that carry API keys. They are never arguments, not even of operations that
        do not name the scheme: a caller who can send a key can send another person's."""
        return frozenset(self._keys)

    def of(self, operation: DocumentOperation, notes: list[str]) -> Alternatives:
        """Alternative sets of credentials, of which a call needs one; an empty set: credentials are
        optional. No alternatives: none are needed."""
        stated = operation.node.get("security", self._document.root.get("security"))
        if stated is not None and not isinstance(stated, list):
            notes.append("`security` is not a list; read as the only member of one")
            stated = [stated]
        raw = sequence(stated)
        if len(raw) > ALTERNATIVES_LIMIT:
            notes.append(f"of {len(raw)} alternatives in `security`, {ALTERNATIVES_LIMIT} are read")
        alternatives = [
            self._alternative(alternative, notes) for alternative in raw[:ALTERNATIVES_LIMIT]
        ]
        return self._with_keys(operation, tuple(dict.fromkeys(alternatives)))

    def _alternative(self, raw: object, notes: list[str]) -> tuple[Credential, ...]:
        """One alternative; an invalid one must not pass for an empty one, which needs no
        credentials."""
        if isinstance(raw, dict):
            wanted = raw
        else:
            notes.append("a member of `security` is not an object")
            wanted = {str(raw)[:_NAME_CHARS]: []}
        return tuple(self._credential(name, scopes, notes) for name, scopes in wanted.items())

    def _credential(self, name: str, scopes: object, notes: list[str]) -> Credential:
        scheme, problem = self._scheme(name)
        if problem:
            notes.append(problem)
        named = [text(scope) for scope in sequence(scopes)[:SCOPES_LIMIT]]
        return _with_scopes(scheme, tuple(dict.fromkeys(filter(None, named))))

    def _scheme(self, name: str) -> tuple[Credential, str | None]:
        if name not in self._read:
            self._read[name] = self._look(name)
        return self._read[name]

    def _look(self, name: str) -> tuple[Credential, str | None]:
        """The scheme without scopes, and the problem found. An unknown scheme can still be
        satisfied: by a whole Authorization header, as the operator configures it."""
        components = mapping(self._document.root.get("components"))
        schemes = mapping(components.get("securitySchemes"))
        # 3.2, section 4.30: a name that is no component is a URI of a scheme
        raw = schemes.get(name, reference_to(name) if "/" in name else None)
        called = name if name in schemes else name.rpartition("/")[2]
        if raw is None:
            return Credential(called, "http"), f"security scheme {name!r} is not defined"
        try:
            return _credential(called, self._document.resolve(raw))
        except SkipOperation as skip:
            return Credential(called, "http"), f"security scheme {name!r}: {skip}"

    def _with_keys(self, operation: DocumentOperation, stated: Alternatives) -> Alternatives:
        """`stated` with the API keys among the operation's parameters that `security` does not
        name: they are hidden from callers, so the gateway must send them."""
        required_identities = {
            _identity(identity) for alternative in stated for identity in alternative
        }
        parameters = self._parameters(operation)
        required = tuple(
            self._keys[identity]
            for identity in parameters
            if parameters[identity] and identity not in required_identities
        )
        optional = tuple(
            self._keys[identity]
            for identity in parameters
            if not parameters[identity] and identity not in required_identities
        )
        if required:
            stated = tuple((*alternative, *required) for alternative in stated or ((),))
        return (optional, ()) if optional and not stated else stated

    def _parameters(self, operation: DocumentOperation) -> dict[Identity, bool]:
        """The API keys among the parameters of the operation, and whether they are required."""
        parameters: dict[Identity, bool] = {}
        for holder in (operation.item, operation.node):
            for raw in sequence(holder.get("parameters")) if self._keys else ():
                try:
                    parameter = self._document.resolve(raw)
                except SkipOperation:
                    continue  # reported where parameters are read
                identity = identity_of(text(parameter.get("name")), text(parameter.get("in")))
                if identity in self._keys:
                    parameters[identity] = parameter.get("required") is True
        return parameters


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
            known.name
            for known in self._names
            if (
                known.kind == "header"
                and (location, name.lower()) == ("header", known.name.lower())
            )
            or (known.kind != "header" and _fold(known.name) == _fold(name))
        ]
        return name if name in alike else next(iter(alike), None)

    def _only(self, letters: str) -> str | None:
        if letters in _PERSONAL_NAMES:
            return None
        kind = "value" if "key" in letters else "token"
        names = [
            known.name
            for known in self._names
            # a stored value may be a whole header, as "Bearer x"
            if known.kind == kind and not (known.stored and kind == "value")
        ]
        return names[0] if len(names) == 1 else None


def add_filled(stated: Alternatives, filled: tuple[Credential, ...]) -> Alternatives:
    """`stated` with the credentials that fill parameters, which every call has."""
    if not filled:
        return stated
    return tuple(dict.fromkeys((*alternative, *filled) for alternative in stated or ((),)))


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
    sent = [
        (parameter.argument, parameter.name, str(parameter.location))
        for parameter in binding.parameters
    ]
    if binding.body is not None:
        sent += [(argument, name, "body") for argument, name in binding.body.properties or ()]
    for argument, name, location in sent:
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


def identity_of(name: str, location: str) -> Identity:
    return (name.lower() if location == "header" else name), location


def _identity(credential: Credential) -> Identity:
    return identity_of(credential.name, credential.location)


def _with_scopes(scheme: Credential, scopes: tuple[str, ...]) -> Credential:
    if not scopes:
        return scheme
    return Credential(scheme.scheme, scheme.kind, scheme.location, scheme.name, scopes=scopes)


def _credential(scheme: str, raw: dict[str, Any]) -> tuple[Credential, str | None]:
    match raw.get("type"):
        case "apiKey":
            return _key(scheme, raw)
        case "http":
            return _http(scheme, text(raw.get("scheme")).lower()), None
        case "oauth2":
            return Credential(scheme, "oauth2"), None
        case "openIdConnect":
            return Credential(scheme, "openIdConnect"), None
        case "mutualTLS":
            return Credential(scheme, "mutualTLS"), None
        case other:
            problem = f"security scheme {scheme!r} has the type {str(other)[:40]!r}"
            return Credential(scheme, "http"), problem


def _key(scheme: str, raw: dict[str, Any]) -> tuple[Credential, str | None]:
    name = text(raw.get("name"))
    match raw.get("in"):
        case "query" if name:
            return Credential(scheme, "apiKey", "query", name), None
        case ("header" | "cookie") as location if _TOKEN.fullmatch(name):
            return Credential(scheme, "apiKey", location, name), None
        case _:
            problem = f"security scheme {scheme!r} does not name the parameter of its key"
            return Credential(scheme, "http"), problem


def _http(scheme: str, named: str) -> Credential:
    """Credential of an HTTP scheme: names of RFC 9110, section 11.1, in any case."""
    if named == "basic":
        return Credential(scheme, "basic")
    return Credential(scheme, "bearer" if named == "bearer" else "http")
