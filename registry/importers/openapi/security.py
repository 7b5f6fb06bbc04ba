"""Security schemes (OpenAPI 3.1, sections 4.8.27 to 4.8.30) to the credentials of a call.

Where people obtain tokens (`flows`, `openIdConnectUrl`) is read as data. Whether these URLs may be
asked is decided where people connect: one that only a description names never receives a secret.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.operations import DocumentOperation
from schemas.binding import Credential
from schemas.json_schema.references import reference_to
from schemas.source import DescribedLogin
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
        schemes_read = [
            self._scheme(name)[0] for name in reversed(schemes)
        ]  # of duplicates the first wins
        self._keys = {
            _identity(scheme): scheme for scheme in schemes_read if scheme.kind == "apiKey"
        }

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
            requirement = raw
        else:
            notes.append("a member of `security` is not an object")
            requirement = {str(raw)[:_NAME_CHARS]: []}
        return tuple(self._credential(name, scopes, notes) for name, scopes in requirement.items())

    def _credential(self, name: str, scopes: object, notes: list[str]) -> Credential:
        scheme, problem = self._scheme(name)
        if problem:
            notes.append(problem)
        if (count := len(sequence(scopes))) > SCOPES_LIMIT:
            notes.append(f"of {count} scopes for {name!r}, {SCOPES_LIMIT} are read")
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

    def _with_keys(self, operation: DocumentOperation, alternatives: Alternatives) -> Alternatives:
        """`alternatives` with the API keys among the operation's parameters that `security` does
        not name: they are hidden from callers, so the gateway must send them."""
        required_identities = {
            _identity(identity) for alternative in alternatives for identity in alternative
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
            alternatives = tuple((*alternative, *required) for alternative in alternatives or ((),))
        return (optional, ()) if optional and not alternatives else alternatives

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


def _http(scheme: str, http_scheme: str) -> Credential:
    """Credential of an HTTP scheme: names of RFC 9110, section 11.1, in any case."""
    if http_scheme == "basic":
        return Credential(scheme, "basic")
    return Credential(scheme, "bearer" if http_scheme == "bearer" else "http")
