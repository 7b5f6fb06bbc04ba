"""Cards of agents (Agent2Agent): where they are, and who signed them (JWS over RFC 8785, section
8.4 of the specification of 1.0)."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import jwt
import msgspec

from config.settings import Imports
from registry.documents.fetch import FetchedDocument, FetchSettings, fetch
from registry.importers.a2a import parse_card, read_card
from registry.importers.drafts import ImportedDescription
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import FoundSource, Limits, Origins, check_public, reread
from schemas.a2a.versions import HEADER, Version
from schemas.canonical_json import canonical_json
from schemas.errors import ImportRejected
from schemas.source import A2aOptions

WELL_KNOWN = "/.well-known/agent-card.json"
ALGORITHMS = ("ES256", "ES384", "ES512", "EdDSA", "RS256", "PS256")  # of public keys alone
SIGNATURES = 10  # of a card, of which one has to be good
KEYS_BYTES = 2**20
_SETTINGS = FetchSettings(
    "imports.card_limit_bytes",
    "imports.card_timeout_s",
    ((HEADER, Version.V1_0.value),),  # without it, some show a card of 0.3 that nobody has signed
)
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError, jwt.PyJWTError)
_OLD = frozenset(  # members of cards of 0.3 alone
    {"url", "preferredTransport", "protocolVersion", "additionalInterfaces", "security"}
    | {"supportsAuthenticatedExtendedCard"}
)
_EMPTY: tuple[Any, ...] = ("", None, [], {})


async def fetch_card(
    location: str, limits: Imports, *, guarded: bool, validator: tuple[str, str] = ("", "")
) -> FetchedDocument:
    """The card of the agent at a URL, or at the URL of the card itself. `validator`: of what was
    fetched before. Raises ImportRejected."""
    return await fetch(
        card_url(location),
        limit_bytes=limits.card_limit_bytes,
        timeout_s=limits.card_timeout_s,
        private_networks=limits.private_networks,
        by_operator=not guarded,
        validator=validator,
        settings=_SETTINGS,
    )


async def find_agent(spec: ImportSpec, limits: Imports, _origins: Origins) -> FoundSource:
    check_public(spec)
    card = await fetch_card(spec.location, limits, guarded=spec.options.guarded)
    return reread(spec, card.data)


def read_agent(
    data: bytes, location: str, spec: ImportSpec, _limits: Limits
) -> ImportedDescription:
    options = cast("A2aOptions", spec.options)  # the importer's own kind
    imported = read_card(data, location, spec.name, options)
    return replace(imported, notes=(*imported.notes, check_signature(data, location, options)))


def card_url(location: str) -> str:
    parts = urlsplit(location)
    if parts.path.endswith(".json"):
        return location
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + WELL_KNOWN))


def check_signature(document: bytes, location: str, options: A2aOptions) -> str:
    """The signer of a card, in words. Raises ImportRejected where a key of the operator has to have
    signed it, and none has."""
    card = parse_card(document, location)
    listed = card.get("signatures")
    signatures = listed[:SIGNATURES] if isinstance(listed, list) else []
    if options.signed is None and options.keys is None:
        names = ", ".join(str(_header(each).get("kid"))[:80] for each in signatures)
        return f"its card is signed by {names!r}, not verified" if names else "its card is unsigned"
    name = options.signed or "the given keys"
    keys = _read_keys(options, name)
    for signature in signatures:
        key = keys.get(_header(signature).get("kid"))
        if key is not None and _is_good(card, signature, key):
            return f"its card is signed by {key.key_id}, of {name}"
    raise ImportRejected(f"{location}: its card is signed by no key of {name}")


def _read_keys(options: A2aOptions, name: str) -> dict[Any, jwt.PyJWK]:
    """Keys by id. Raises ImportRejected."""
    try:
        text = options.keys if options.signed is None else _read_text(options.signed)
        keys = jwt.PyJWKSet.from_json(text or "").keys
    except _UNREADABLE as error:
        raise ImportRejected(f"{name}: expected a JWK set: {error}") from error
    if any(isinstance(key.key, bytes) or hasattr(key.key, "private_bytes") for key in keys):
        raise ImportRejected(f"{name}: expected public keys, found a secret one")
    return {key.key_id: key for key in keys if key.key_id}


def _read_text(path: str) -> str:
    with Path(path).open("rb") as file:
        return file.read(KEYS_BYTES).decode()


def _header(signature: Any) -> dict[str, Any]:
    """The protected header; empty if it cannot be read."""
    try:
        text = signature["protected"]
        header = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _is_good(card: dict[str, Any], signature: dict[str, Any], key: jwt.PyJWK) -> bool:
    """Whether `key` signed the card as it was sent, or without members at their defaults, as the
    SDKs of the protocol sign it: those of 0.3, which nobody reads beside those of 1.0, do not
    count."""
    unsigned = {name: member for name, member in card.items() if name != "signatures"}
    forms = [unsigned, _without_defaults(unsigned)]
    if "supportedInterfaces" in card:
        forms.append({name: value for name, value in forms[1].items() if name not in _OLD})
    try:
        return any(_verifies(canonical_json(form), signature, key) for form in forms)
    except (ValueError, RecursionError):
        return False


def _verifies(payload: bytes, signature: dict[str, Any], key: jwt.PyJWK) -> bool:
    encoded = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    token = f"{signature['protected']}.{encoded}.{signature.get('signature')}"
    try:
        jwt.api_jws.PyJWS().decode(token, key, algorithms=list(ALGORITHMS))
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True


def _without_defaults(value: Any) -> Any:
    """The value without empty members and items."""
    if isinstance(value, dict):
        members = ((name, _without_defaults(member)) for name, member in value.items())
        return {name: member for name, member in members if member not in _EMPTY}
    if isinstance(value, list):
        return [item for item in map(_without_defaults, value) if item not in _EMPTY]
    return value
