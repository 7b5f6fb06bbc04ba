"""Masking of values that a schema marks with `x-mask`: `true`, or the replacement text. Pure.

A text marked with `x-mask-query` loses the queries of its URLs alone.

Fails closed: every subschema that may describe a value counts, also one of several alternatives
and members that only a pattern names. References are resolved inside the schema (JSON Pointers,
anchors, `$id`); an unresolved one has no marks.

Undescribed parts may wrap the described value: an unknown member, the items of an array where the
schema has an object, and JSON in a text are masked like the value itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import DecodeError

from schemas.errors import ParseError
from schemas.json_schema.keywords import (
    COMPOSITIONS,
    CONDITIONS,
    ITEM_KEYWORDS,
    MEMBER_KEYWORDS,
    REFERENCE_KEYWORDS,
    Json,
)
from schemas.json_schema.references import SchemaDocument
from schemas.json_schema.walk import nodes, subschemas
from schemas.jsonrpc import DEPTH, decode_json, encode, nests_within
from schemas.untrusted_json import mapping, sequence
from schemas.urls import without_queries

KEYWORD = "x-mask"
QUERY = "x-mask-query"
MASK = "***"

_HERE = (*COMPOSITIONS, *CONDITIONS, "dependentSchemas", "dependencies")  # about the same value
_OTHERS = -1  # stands for all members that no schema names: they share one place
_OF_ITEMS = ("prefixItems", *ITEM_KEYWORDS)
_DESCRIBING = frozenset(  # keywords that describe what is inside a value
    ("properties", "patternProperties", "additionalProperties", "const", "enum", "not")
) | {*_HERE, *REFERENCE_KEYWORDS, *_OF_ITEMS}


def mask_secrets(text: str, secrets: Iterable[str], words: Iterable[str] = ()) -> str:
    """The text without `secrets`, the longest first, and without `words`, which are too short to be
    masked inside of others."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, text)
    return text


def masks_of(schema: bytes) -> "Masks | None":
    """The masks of a schema; None for a schema without marks."""
    if KEYWORD.encode() not in schema and rb"\u" not in schema:  # the keyword may contain escapes
        return None
    try:
        root = decode_json(schema)
    except (ParseError, DecodeError):
        return None
    return Masks.of(root) if isinstance(root, dict) else None


class Masks:
    """The marks of one schema."""

    def __init__(self, root: "_Place", marks: "_Marked") -> None:
        self._root = root
        self._names = frozenset(marks.names())
        self._words = frozenset(map(_plain, self._names))
        self._has_nameless = root.is_bare()

    @classmethod
    def of(cls, schema: Json) -> "Masks | None":
        marked = _Marked(schema)
        place = marked.place([schema])
        return None if place is None else cls(place, marked)

    def mask(self, value: Any, hidden: set[str] | None = None) -> Any:
        """`value` with its marked parts masked; the same object, if there are none. Masked values
        are added to `hidden`: texts, and numbers in their JSON form."""
        return _mask_value(self._root, value, set() if hidden is None else hidden, self._root)

    def applied_by_name(self, value: Any, hidden: set[str]) -> Any:
        """`applied` for a value that the schema does not describe, such as an error: members with
        the name of a marked one are masked too, at any depth."""
        return _mask_names(self._names, self.mask(value, hidden), hidden)

    def are_mentioned(self, text: str) -> bool:
        """Whether a text that is not JSON may disclose a marked value: it contains the name of one,
        in any spelling, or some marked values have no names."""
        plain = _plain(text)
        return plain != "" and (self._has_nameless or any(word in plain for word in self._words))


class _Place:
    """The subschemas that may describe one value and from which a mark can be reached."""

    __slots__ = ("_marked", "_members", "_named", "_schemas", "has_queries", "mask")

    def __init__(self, marks: "_Marked", schemas: list[Json]) -> None:
        self._marked = marks
        self._schemas = schemas
        self._named = {name for schema in schemas for name in mapping(schema.get("properties"))}
        self._members: dict[str | int, _Place | None] = {}
        masks = [schema[KEYWORD] for schema in schemas if KEYWORD in schema]
        set_masks = [mask for mask in masks if mask is True or isinstance(mask, str)]
        self.mask = (
            None if not set_masks else set_masks[0] if isinstance(set_masks[0], str) else MASK
        )
        self.has_queries = any(schema.get(QUERY) is True for schema in schemas)

    def member(self, name: str) -> "_Place | None":
        schemas = (s for schema in self._schemas for s in _of_member(schema, name))
        return self._member_place(name if name in self._named else _OTHERS, schemas)

    def item(self, index: int) -> "_Place | None":
        first = max((len(_prefix(schema)) for schema in self._schemas), default=0)
        index = min(index, first)  # all items behind the prefix share one place
        return self._member_place(
            index, (s for schema in self._schemas for s in _of_item(schema, index))
        )

    def wraps(self, name: str | None) -> bool:
        """Whether the schema does not describe this member (None: the items), so that the whole
        value may be wrapped in it."""
        if name is None:
            return not any(schema.get(keyword) for schema in self._schemas for keyword in _OF_ITEMS)
        described = [mapping(schema.get("properties"))[name] for schema in self._schemas if name in
                mapping(schema.get("properties"))]  # fmt: skip
        return all(
            not isinstance(schema, dict) or _DESCRIBING.isdisjoint(schema) for schema in described
        )

    def is_bare(self, node_ids: frozenset[int] = frozenset()) -> bool:
        """Whether a mark is on the value itself, or on items or members without fixed names."""
        if self.mask is not None:
            return True
        if id(self) in node_ids:
            return False
        inner = (self.item(0), self.member(""))
        return any(place.is_bare(node_ids | {id(self)}) for place in inner if place is not None)

    def _member_place(self, name: str | int, schemas: Iterator[Any]) -> "_Place | None":
        if name not in self._members:
            self._members[name] = self._marked.place(schemas)
        return self._members[name]


class _Marked:
    """A schema document: its resolved references, and the parts from which a mark is reachable."""

    def __init__(self, root: Json) -> None:
        self._document = SchemaDocument(root)
        self._parts = {id(node): node for node in nodes(root) if isinstance(node, dict)}
        self._leading = self._leads()
        self._places: dict[tuple[int, ...], _Place] = {}

    def place(self, schemas: Iterable[Any]) -> _Place | None:
        """The place that these schemas form; None without a mark at or below it."""
        places: dict[int, Json] = {}
        pending = [schema for schema in schemas if isinstance(schema, dict)]
        while pending:
            schema = pending.pop()
            if id(schema) in places or id(schema) not in self._leading:
                continue
            places[id(schema)] = schema
            pending += self._same_value(schema)
        if not places:
            return None
        key = tuple(sorted(places))
        if key not in self._places:
            self._places[key] = _Place(self, list(places.values()))
        return self._places[key]

    def names(self) -> Iterator[str]:
        """Names of all properties whose values are marked, whole or as items."""
        for part in self._parts.values():
            for name, schema in mapping(part.get("properties")).items():
                place = self.place([schema])
                if place is not None and place.is_bare():
                    yield name

    def _same_value(self, schema: Json) -> list[Json]:
        """The subschemas that apply to the same value."""
        inner = [*subschemas(schema, _HERE), *self._document.targets(schema)]
        return [subschema for subschema in inner if isinstance(subschema, dict)]

    def _leads(self) -> set[int]:
        """The ids of the parts from which a mark can be reached."""
        parents: dict[int, list[int]] = {}
        for part in self._parts.values():
            for inner in (*_children(part), *self._same_value(part)):
                parents.setdefault(id(inner), []).append(id(part))
        pending = [id(part) for part in self._parts.values() if _is_marked(part)]
        leading: set[int] = set()
        while pending:
            part_id = pending.pop()
            if part_id not in leading:
                leading.add(part_id)
                pending += parents.get(part_id, ())
        return leading


def _is_marked(part: Json) -> bool:
    return any(part.get(keyword) not in (None, False) for keyword in (KEYWORD, QUERY))


def _mask_value(place: _Place, value: Any, hidden: set[str], root: _Place) -> Any:
    if place.mask is not None:
        if value is None:
            return None
        hidden.update(texts_in(value))
        return place.mask
    if place.has_queries and isinstance(value, str):
        without_query = without_queries(value)
        return value if without_query == value else without_query

    def change(name: str | None, below: _Place | None, inner: Any) -> Any:
        if below is None and place.wraps(name):
            below = root
        return inner if below is None else _mask_value(below, inner, hidden, root)

    if isinstance(value, dict):
        return _members(value, lambda name, inner: change(name, place.member(name), inner))
    if isinstance(value, list):
        return _items(value, lambda index, inner: change(None, place.item(index), inner))
    if isinstance(value, str):
        return _in_text(value, lambda inner: _mask_value(root, inner, hidden, root))
    return value


def _mask_names(names: frozenset[str], value: Any, hidden: set[str]) -> Any:
    def change(name: str, inner: Any) -> Any:
        if name in names and inner is not None:
            hidden.update(text for text in texts_in(inner) if text != MASK)
            return MASK
        return _mask_names(names, inner, hidden)

    if isinstance(value, dict):
        return _members(value, change)
    if isinstance(value, list):
        return _items(value, lambda _, inner: _mask_names(names, inner, hidden))
    return _in_text(value, lambda inner: _mask_names(names, inner, hidden))


def _members(value: Json, change: Callable[[str, Any], Any]) -> Json:
    changed = {
        name: after for name, inner in value.items() if (after := change(name, inner)) is not inner
    }
    return {**value, **changed} if changed else value


def _items(value: list[Any], change: Callable[[int, Any], Any]) -> list[Any]:
    after = [change(index, inner) for index, inner in enumerate(value)]
    same = all(new is old for new, old in zip(after, value, strict=True))
    return value if same else after


def _in_text(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value`, with JSON inside a text decoded, changed and encoded again."""
    decoded = json_in(value) if isinstance(value, str) else None
    after = decoded if decoded is None else change(decoded)
    return value if after is decoded else encode(after).decode()


def json_in(text: str) -> Any:
    """The array, object or string that `text` decodes to as JSON; else None."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    try:
        encoded = text.encode()
        return decode_json(encoded) if nests_within(encoded, DEPTH) else None
    except (ParseError, UnicodeEncodeError):
        return None


def _plain(text: str) -> str:
    """Normalised spelling: `card_number`, `cardNumber` and "Card number" are equal."""
    return "".join(filter(str.isalnum, text.casefold()))


def texts_in(value: Any) -> Iterator[str]:
    """All texts and numbers inside, in their textual form."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _of_member(schema: Json, name: str) -> Iterator[Any]:
    properties = mapping(schema.get("properties"))
    if name in properties:
        yield properties[name]
    yield from mapping(schema.get("patternProperties")).values()
    if name not in properties:
        yield from (schema.get(keyword) for keyword in MEMBER_KEYWORDS)


def _of_item(schema: Json, index: int) -> Iterator[Any]:
    prefix = _prefix(schema)
    if index < len(prefix):
        yield prefix[index]
    else:
        yield from (schema.get(keyword) for keyword in ITEM_KEYWORDS)
    if prefix:
        yield schema.get("contains")


def _prefix(schema: Json) -> list[Any]:
    """`prefixItems`: schemas of the first items; before 2020-12 an array in `items`."""
    return sequence(schema.get("prefixItems")) or sequence(schema.get("items"))


def _children(schema: Any) -> Iterator[Json]:
    """Objects one level inside, below any keyword: schemas among them."""
    for inner in schema.values():
        if isinstance(inner, dict):
            yield inner
            yield from (subschema for subschema in inner.values() if isinstance(subschema, dict))
        elif isinstance(inner, list):
            yield from (subschema for subschema in inner if isinstance(subschema, dict))
