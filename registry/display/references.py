"""References inside a JSON Schema: to its own definitions, never elsewhere. Pure."""

from typing import Any
from urllib.parse import unquote

DEFINITION_KEYWORDS = ("$defs", "definitions")
NOTES = frozenset(("examples", "example", "title", "default"))
# Keywords that refer, or are referred to, in another way, depending on more than their position.
ODD = frozenset(("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"))

Json = dict[str, Any]


class Odd(Exception):
    """The schema refers to itself in an unsupported way."""


def definitions(schema: Json) -> dict[str, Json]:
    """Definitions, by the references to them."""
    found: dict[str, Json] = {}
    for keyword in DEFINITION_KEYWORDS:
        members = schema.get(keyword)
        for name, one in members.items() if isinstance(members, dict) else ():
            found[f"#/{keyword}/{name}"] = one if isinstance(one, dict) else {}
    return found


def canonical(reference: Any) -> str:
    """Normalize `#/$defs/a~1b` to `#/$defs/a/b`: unambiguous, as definitions have one level."""
    if not isinstance(reference, str):
        raise Odd
    return unquote(reference).replace("~1", "/").replace("~0", "~")


def is_old(schema: Json) -> bool:
    """Whether it is of a draft that ignores keywords beside a `$ref`."""
    return any(draft in str(schema.get("$schema", "")) for draft in ("draft-04", "-06", "-07"))


def replaced(inner: Json, raw: Json, only_notes: bool) -> Json:
    """The target `inner` merged with the siblings of the reference in `raw`: notes override, other
    keywords apply as well unless `only_notes`."""
    notes = {key: value for key, value in raw.items() if key in {*NOTES, "description"}}
    rules = {key: value for key, value in raw.items() if key not in {*notes, "$ref"}}
    if only_notes:
        return {**inner, **notes}
    clash = {key: rules.pop(key) for key in list(rules) if key in inner}
    merged = {**inner, **rules, **notes}
    if clash:
        merged["allOf"] = [*(merged.get("allOf") or ()), clash]
    return merged
