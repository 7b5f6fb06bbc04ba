"""Summaries of schema parts, and descriptions cut at sentence ends. Pure.

A summary accepts whatever the part accepts: it contains its type, the start of its description, and
its members.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.json_schema.keywords import COMPOSITIONS, UNIONS, Json
from schemas.json_schema.references import find, reference_of
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import encode

MARK = " …"  # marks a text that was cut

# Never cut: fenced code, inline code, links and addresses. All bounded, so that no description
# makes the search slow.
_WHOLE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]{0,400}`|!?\[[^\[\]\n]{0,200}\]\([^()\s]{0,400}\)|<?https?://\S{1,400}",
    re.DOTALL,
)
# A full stop, an empty line, or a line break before a list item.
_END = re.compile(
    r"[.!?][\"')\]*_`]{0,3}(?=\s|$)|[\u3002\uff01\uff1f]"
    r"|\n\s{0,40}\n|\n(?=\s{0,40}(?:[-*#]|\d{1,3}[.)]) )"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|a\.k\.a|etc|vs|cf|approx|incl|resp|no|nr|fig|sec|ca|mr|mrs|ms|dr|st|inc|ltd"
    r"|corp|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)|\b[A-Za-z]|(?:^|\n)\s{0,20}\d{1,3})\.$",
    re.IGNORECASE,
)
TEXTS_CACHED = 2048  # texts cached: many tools share descriptions
_BEFORE = 24  # characters before a full stop that are checked for an abbreviation
_LINK_LONGEST = 1000  # characters of an unbreakable span; a longer one may be cut


@lru_cache(maxsize=TEXTS_CACHED)
def shorten(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, cut at the end of a sentence if one is near, else of a
    word. An ellipsis marks the cut."""
    if len(text) <= limit:
        return text
    room = limit - len(MARK)
    if room < 1:
        return "…"[:limit]
    head = text[: limit + _LINK_LONGEST]
    spans = [match.span() for match in _WHOLE.finditer(head)]
    ends = (match.end() for match in _END.finditer(head, 0, room + 1))
    best = max((end for end in ends if _is_end(head, end, room, spans)), default=0)
    if best < limit // 3:
        best = max(best, _word_end(head, room, spans))
    return text[:best].rstrip() + MARK if best else text[: limit - 1] + "…"


@lru_cache(maxsize=TEXTS_CACHED)
def first_sentence(text: str, limit: int) -> str:
    """The first sentence of `text`, if it has at most `limit` characters, else its beginning."""
    text = text.strip()
    head = text[: limit + _LINK_LONGEST]
    spans = [match.span() for match in _WHOLE.finditer(head)]
    for match in _END.finditer(head, 0, limit + 1):
        if _is_end(head, match.end(), limit, spans):
            return text[: match.end()].strip()
    return shorten(text, limit)


def _is_end(text: str, end: int, room: int, spans: list[tuple[int, int]]) -> bool:
    if end > room or _inside(end, spans):
        return False
    return not _ABBREVIATION.search(text[max(0, end - _BEFORE) : end].rstrip("\"')]*_`"))


def _word_end(text: str, room: int, spans: list[tuple[int, int]]) -> int:
    """The last word end outside all unbreakable spans; 0: there is none."""
    end = room
    while end > 0:
        end = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
        if not _inside(end, spans):
            return max(end, 0)
    return 0


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    index = bisect.bisect_left(spans, (at, 0)) - 1
    return index >= 0 and spans[index][0] < at < spans[index][1]


STEPS = 300  # schemas visited for one summary
DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Size:
    """Size limits of a summary."""

    sentence: int  # characters kept of a description
    fields: int  # characters of property names or enumerated values


USUAL, SHORT = Size(120, 200), Size(60, 60)
BARE = Size(0, 0)  # types alone

SIMPLE = 300  # bytes of a schema that is kept, apart from its notes
BARELY = 60  # the same, where there is hardly any room
_NOTES = frozenset(("title", "default", "examples", "description", "deprecated"))
_RULES = frozenset(
    ("type", "enum", "const", "format", "pattern", "minimum", "maximum", "minLength", "maxLength",
     "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "contentEncoding", "contentMediaType")
) | _NOTES  # fmt: skip
ANY_TYPE = frozenset(("array", "boolean", "null", "number", "object", "string"))
_OF_VALUES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Summaries:
    def __init__(self, root: Json, more: str, size: Size = USUAL) -> None:
        """Summaries of the parts of a schema, `root`. `more` is the note on where to get the whole
        part."""
        self._root = root
        self._size = size
        self._more = more
        self._left = 0

    def of(self, schema: Json) -> Json:
        if (simple := _simple(schema, self._size.sentence)) is not None:
            return simple
        short: Json = {}
        types = self.kinds(schema)
        if types and types != ANY_TYPE:
            short["type"] = next(iter(types)) if len(types) == 1 else sorted(types)
        if self._size != BARE:
            described = self._description_of(schema)
            begins = first_sentence(described, self._size.sentence) if described else ""
            short["description"] = " ".join(filter(None, (begins, self._parts(schema), self._more)))
        return short

    def kinds(self, schema: Json) -> frozenset[str]:
        """The types of the values, as JSON Schema names them; all, where that is open."""
        self._left = STEPS
        return self._kinds(schema, 0)

    def fields(self, schema: Json) -> dict[str, bool]:
        """The properties of objects, and whether each is required."""
        self._left = STEPS
        return self._fields(schema, 0)

    def _enough(self, schema: Any, depth: int) -> bool:
        self._left -= 1
        return not isinstance(schema, dict) or self._left < 0 or depth > DEEPEST

    def _kinds(self, schema: Any, depth: int) -> frozenset[str]:
        if self._enough(schema, depth):
            return ANY_TYPE
        kinds = _stated_types(schema)
        if (reference := reference_of(schema)) is not None:
            kinds = _both(kinds, self._kinds(find(self._root, reference), depth + 1))
        for keyword in UNIONS:
            if each := [self._kinds(branch, depth + 1) for branch in subschemas(schema, [keyword])]:
                kinds = _both(kinds, frozenset[str]().union(*each))
        for branch in subschemas(schema, ["allOf"]):
            kinds = _both(kinds, self._kinds(branch, depth + 1))
        return kinds

    def _fields(self, schema: Any, depth: int) -> dict[str, bool]:
        if self._enough(schema, depth):
            return {}
        fields: dict[str, bool] = {}
        for inner in self._composed_schemas(schema):
            for name, required in self._fields(inner, depth + 1).items():
                fields[name] = fields.get(name, False) or required
        required, properties = schema.get("required"), schema.get("properties")
        for name in properties if isinstance(properties, dict) else ():
            must = isinstance(required, list) and name in required
            fields[name] = fields.get(name, False) or must
        return fields

    def _description_of(self, schema: Json) -> str:
        for part in (schema, *self._composed_schemas(schema)):
            text = part.get("description") or part.get("title") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                return text
        return ""

    def _composed_schemas(self, schema: Json) -> Iterator[Any]:
        """The schemas that apply to the same value."""
        if (reference := reference_of(schema)) is not None:
            yield find(self._root, reference)
        yield from subschemas(schema, COMPOSITIONS)

    def _parts(self, schema: Json, items: bool = True) -> str:
        names = self.fields(schema)
        if names:
            order = sorted(names, key=lambda name: not names[name])  # required first
            return f"Fields: {self._join_names(order)}."
        values = schema.get("enum")
        if isinstance(values, list) and values:
            choices = self._join_names([encode(value).decode() for value in values])
            return f"One of {len(values)}: {choices}."
        inner = schema.get("items")
        if items and isinstance(inner, dict) and (text := self._parts(inner, items=False)):
            return f"Items: {text[0].lower()}{text[1:]}"
        return ""

    def _join_names(self, names: list[str]) -> str:
        names_that_fit: list[str] = []
        room = self._size.fields
        for name in names:
            room -= len(name) + 2
            if room < 0:
                return ", ".join([*names_that_fit, "…"])
            names_that_fit.append(name)
        return ", ".join(names_that_fit)


def _simple(schema: Json, sentence: int) -> Json | None:
    """A small schema with its description shortened; None if it is not that simple."""
    if not _RULES.issuperset(schema):
        return None
    short = {key: value for key, value in schema.items() if key not in _NOTES}
    text = schema.get("description")
    if isinstance(text, str) and text and sentence:
        short["description"] = first_sentence(text, sentence)
    return short if len(encode(short)) <= (SIMPLE if sentence else BARELY) else None


def _stated_types(schema: Json) -> frozenset[str]:
    types, stated = ANY_TYPE, schema.get("type")
    if isinstance(stated, str | list):
        types = frozenset([stated] if isinstance(stated, str) else map(str, stated))
    if isinstance(schema.get("enum"), list):
        types = _both(types, _of_values(schema["enum"]))
    if "const" in schema:
        types = _both(types, _of_values([schema["const"]]))
    return types


def _both(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    """Intersection of two sets of types; every integer is a number."""
    shared = left & right
    if ("integer" in left and "number" in right) or ("integer" in right and "number" in left):
        shared |= {"integer"}
    return shared or left


def _of_values(values: list[Any]) -> frozenset[str]:
    return frozenset(_OF_VALUES[type(value)] for value in values) or ANY_TYPE
