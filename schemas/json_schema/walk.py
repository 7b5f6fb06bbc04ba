"""Walks through schemas: their subschemas, everything inside them, and copies with changes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from schemas.json_schema.keywords import LIST_KEYWORDS, MAP_KEYWORDS, VALUE_KEYWORDS, Json

INSIDE: Final = object()  # the answer of an Edit: the keyword stays, and is edited inside
DROPPED: Final = object()  # the answer of an Edit: the keyword goes

Edit = Callable[[str, Any], Any]
"""The new value of a keyword, INSIDE or DROPPED."""


def subschemas(schema: Json, keywords: Iterable[str]) -> Iterator[Any]:
    """The subschemas of the keywords, in their order. A keyword with a value of the wrong kind has
    none; a list below `items` (up to 2019-09) has one for each member."""
    for keyword in keywords:
        value = schema.get(keyword)
        if keyword in MAP_KEYWORDS:
            yield from value.values() if isinstance(value, dict) else ()
        elif isinstance(value, list):
            yield from value
        elif keyword in schema and keyword not in LIST_KEYWORDS:
            yield value


def nodes(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """Every object and array of a JSON value, itself included. Without recursion: foreign schemas
    may be deep."""
    pending = [value] if isinstance(value, dict | list) else []
    while pending:
        node = pending.pop()
        yield node
        inner = node.values() if isinstance(node, dict) else node
        pending.extend(member for member in inner if isinstance(member, dict | list))


def map_subschemas(keyword: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """The value of a keyword with its subschemas changed. `change` gets whatever may be a schema,
    also below keywords that are not known, and must return anything else as it is."""
    if keyword in VALUE_KEYWORDS:
        return value
    if keyword in MAP_KEYWORDS and isinstance(value, dict):
        return {name: change(member) for name, member in value.items()}
    return change(value)


def rewrite(schema: Any, edit: Edit) -> Any:
    """A copy of a schema with all keywords edited, also those of its subschemas."""
    if isinstance(schema, list):
        return [rewrite(member, edit) for member in schema]
    if not isinstance(schema, dict):
        return schema
    edited: Json = {}
    for keyword, value in schema.items():
        new = edit(keyword, value)
        if new is INSIDE:
            new = map_subschemas(keyword, value, lambda member: rewrite(member, edit))
        if new is not DROPPED:
            edited[keyword] = new
    return edited


def rewrite_references(schema: Any, change: Callable[[str], str]) -> Any:
    """A copy of a schema with its references changed."""

    def edit(keyword: str, value: Any) -> Any:
        return change(value) if keyword == "$ref" and isinstance(value, str) else INSIDE

    return rewrite(schema, edit)
