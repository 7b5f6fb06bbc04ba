"""References inside a JSON Schema: to its own definitions, and nowhere else. Pure."""

from typing import Any
from urllib.parse import unquote

KEYWORDS = ("$defs", "definitions")
NOTES = frozenset(("examples", "example", "title", "default"))
# What refers, or is referred to, in another way: it depends on more than the place where it leads.
ODD = frozenset(("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"))

Json = dict[str, Any]


class Odd(Exception):
    """The schema refers to itself in a way that is not followed here."""


def definitions(schema: Json) -> dict[str, Json]:
    """By the references to them."""
    found: dict[str, Json] = {}
    for keyword in KEYWORDS:
        members = schema.get(keyword)
        for name, one in members.items() if isinstance(members, dict) else ():
            found[f"#/{keyword}/{name}"] = one if isinstance(one, dict) else {}
    return found


def canonical(reference: Any) -> str:
    """`#/$defs/a~1b` as `#/$defs/a/b`: definitions have one level, so that stays clear."""
    if not isinstance(reference, str):
        raise Odd
    return unquote(reference).replace("~1", "/").replace("~0", "~")


def is_old(schema: Json) -> bool:
    """Whether it is of a draft in which nothing holds beside a `$ref`."""
    return any(draft in str(schema.get("$schema", "")) for draft in ("draft-04", "-06", "-07"))


def replaced(inner: Json, raw: Json, only_notes: bool) -> Json:
    """What the reference of `raw` leads to, with what stands beside it: notes win, the rest holds,
    too, unless there are `only_notes`."""
    notes = {key: value for key, value in raw.items() if key in {*NOTES, "description"}}
    rules = {key: value for key, value in raw.items() if key not in {*notes, "$ref"}}
    if only_notes:
        return {**inner, **notes}
    clash = {key: rules.pop(key) for key in list(rules) if key in inner}
    merged = {**inner, **rules, **notes}
    if clash:
        merged["allOf"] = [*(merged.get("allOf") or ()), clash]
    return merged
