"""Folding: shortens input schemas for lists; optional and deep parts become summaries. Pure.

All parts begin as summaries and are unfolded while there is room: required before optional, shallow
before deep, small before big. The cost grows with the size of the result, not of the schema.

A folded schema accepts whatever the whole one accepts. So a summary stands only in positions where
widening is sound: never below `not` or `if`; `oneOf`, of which exactly one branch may hold, becomes
`anyOf`.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from registry.display.schema_summaries import BARE, SHORT, USUAL, Size, Summaries, shorten
from registry.display.schemas_for_profiles import NOTES
from schemas.json_schema.keywords import (
    COMPOSITIONS,
    CONDITIONS,
    DEFINITION_KEYWORDS,
    LIST_KEYWORDS,
    VALUE_KEYWORDS,
    Json,
)
from schemas.json_schema.pointers import unescape
from schemas.json_schema.references import has_references, reference_of, siblings
from schemas.json_schema.walk import DROPPED, INSIDE, rewrite
from schemas.jsonrpc import encode

RESERVED_CHARACTERS = 64  # characters kept free
LONGEST = 160  # characters of one argument's summary


def outline(schema: Json, limit: int, more: str) -> Json:
    """The top-level arguments alone; of the optional ones as many as fit. `more` is the note on
    where to get the rest."""
    summaries = Summaries(schema, more)
    declared = schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, dict) else {}
    required = schema.get("required")
    must = required if isinstance(required, list) else []
    outline_schema: Json = {
        "type": "object",
        "properties": {},
        "required": must,
        "description": more,
    }
    if not must:
        del outline_schema["required"]
    room = limit - length(outline_schema) - RESERVED_CHARACTERS
    for name in sorted(properties, key=lambda name: name not in must):
        short = _outline(properties[name], summaries, room)
        room -= len(name) + length(short) + 4
        if room < 0:
            return outline_schema
        outline_schema["properties"][name] = short
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        outline_schema["additionalProperties"] = False
    return outline_schema


def _outline(raw: Any, summaries: Summaries, room: int) -> Json:
    if not isinstance(raw, dict):
        return {}
    short = summaries.of(raw)
    if length(short) > LONGEST or room < 10 * LONGEST:
        return {"type": short["type"]} if "type" in short else {}
    return short


def length(value: Any) -> int:
    """Length as JSON, in characters."""
    return len(encode(value).decode())


DROPPED_BELOW = 160  # remaining characters of a description, below which other notes are dropped


def trim(schema: Json, text: int) -> Json:
    """`schema` with descriptions of at most `text` characters."""
    notes = NOTES if text <= DROPPED_BELOW else ()

    def edit(keyword: str, value: Any) -> Any:
        if keyword == "description" and isinstance(value, str):
            return shorten(value, text)
        return DROPPED if keyword in notes else INSIDE

    trimmed: Json = rewrite(schema, edit)
    return trimmed


# Keywords that refer, or are referred to, in another way, depending on more than their position.
UNSUPPORTED_KEYWORDS = frozenset(
    ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef")
)


class UnsupportedReference(Exception):
    """The schema refers to itself in an unsupported way."""


def definitions(schema: Json) -> dict[str, Json]:
    """Definitions, by the references to them."""
    by_reference: dict[str, Json] = {}
    for keyword in DEFINITION_KEYWORDS:
        members = schema.get(keyword)
        for name, definition in members.items() if isinstance(members, dict) else ():
            by_reference[f"#/{keyword}/{name}"] = definition if isinstance(definition, dict) else {}
    return by_reference


def canonical(reference: Any) -> str:
    """Normalize `#/$defs/a~1b` to `#/$defs/a/b`: unambiguous, as definitions have one level."""
    if not isinstance(reference, str):
        raise UnsupportedReference
    return unescape(unquote(reference))


def is_old(schema: Json) -> bool:
    """Whether it is of a draft that ignores keywords beside a `$ref`."""
    return any(draft in str(schema.get("$schema", "")) for draft in ("draft-04", "-06", "-07"))


def merge_siblings(inner: Json, raw: Json, only_notes: bool) -> Json:
    """The target `inner` merged with the siblings of the reference in `raw`: notes override, other
    keywords apply as well unless `only_notes`."""
    notes = {key: value for key, value in raw.items() if key in {*NOTES, "description"}}
    rules = {key: value for key, value in siblings(raw).items() if key not in notes}
    if only_notes:
        return {**inner, **notes}
    clash = {key: rules.pop(key) for key in list(rules) if key in inner}
    merged = {**inner, **rules, **notes}
    if clash:
        merged["allOf"] = [*(merged.get("allOf") or ()), clash]
    return merged


SMALL = 160  # characters: parts up to this size stay whole
MARGIN = 16  # reserved for the definitions, characters
# Limits tried in turn until it fits: characters of a description inside the schema, size of
# summaries.
TERSE = ((None, USUAL), (160, SHORT), (0, BARE))
DEEPEST = 64  # nesting levels; deeper ones stay folded
PARTS_LIMIT = 20_000  # parts considered, fitting or not; the rest stays folded

_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_ONE = ("items", "additionalProperties")
_IN_PLACE = frozenset((*COMPOSITIONS, "dependentSchemas"))
# All other keywords stay whole: to widen a schema in them may narrow the one around it (`not`,
# `if`, `contains`). Those that contain references are omitted, which widens, too; but not values.
_COUNT_KEYWORDS = ("contains", "minContains", "maxContains")
# Depend on sibling keywords, and only ever narrow.
_DROPPED_KEYWORDS = frozenset(("unevaluatedProperties", "unevaluatedItems", "$comment"))


@dataclass(slots=True)
class _Part:
    """A part shown as a summary until there is room."""

    raw: Json
    summary: Json  # in the result
    depth: int
    optional: bool
    inside: frozenset[str] = frozenset()  # inlined definitions around it
    final: bool = False  # stays a summary even if there is room


@dataclass(slots=True)
class _Content:
    """A part as it would appear unfolded, its own parts folded."""

    schema: Json
    parts: list[_Part] = field(default_factory=list)
    references: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoldedSchema:
    schema: Json
    parts: int  # shown as summaries
    texts: bool = False  # whether descriptions are cut

    @property
    def is_shortened(self) -> bool:
        return self.parts > 0 or self.texts


@dataclass(frozen=True, slots=True)
class Fold:
    """Options of one folding."""

    limit: int  # characters
    more: str  # note in a summary: where to get the whole
    references: bool = True  # False: references are inlined
    depth: int = DEEPEST
    text: int | None = None  # longest description inside the schema, characters

    def __call__(self, schema: Json) -> FoldedSchema:
        try:
            for text, size in TERSE:
                texts = [limit for limit in (text, self.text) if limit is not None]
                folding = _Folding(schema, self, min(texts, default=None), size)
                if folding.fits():
                    return folding.run()
        except UnsupportedReference:
            pass
        folded = outline(schema, self.limit, self.more)
        return FoldedSchema(folded, len(folded["properties"]) or 1)


class _Folding:
    def __init__(self, schema: Json, fold: Fold, text: int | None, size: Size) -> None:
        self._fold = fold
        self._text = text
        self._definitions = definitions(schema)
        self._summaries = Summaries(schema, fold.more, size)
        self._short: dict[str, Json] = {}  # summaries of definitions, by reference
        # summaries of parts, which recur wherever a reference is inlined; by id, with the part
        # itself
        self._told: dict[int, tuple[Json, Json]] = {}
        self._looks = PARTS_LIMIT
        self._shown: dict[str, Json] = {}  # definitions in the result, by reference
        self._only_notes = is_old(schema)
        self._waiting: defaultdict[tuple[bool, int], list[_Part]] = defaultdict(list)
        self._folded, self._cut = 0, False
        root = {
            key: value for key, value in schema.items() if key not in (*DEFINITION_KEYWORDS, "$id")
        }
        if size == BARE:  # summaries omit it
            root["description"] = fold.more
        self._root = _Part(root, {}, 0, optional=False)
        self._left = fold.limit - MARGIN
        self._unfold(self._root, self._content(self._root))

    def fits(self) -> bool:
        return self._left >= 0

    def run(self) -> FoldedSchema:
        while self._waiting:
            self._unfold_level(self._waiting.pop(min(self._waiting)))
        schema = self._root.summary
        for reference, definition in self._shown.items():
            _, keyword, name = reference.split("/", 2)
            schema.setdefault(keyword, {})[name] = definition
        return FoldedSchema(schema, self._folded, self._cut)

    def _unfold_level(self, parts: list[_Part]) -> None:
        """Unfold as many parts as fit, small ones first."""
        contents = [
            (part, self._content(part)) for part in parts if not part.final and self._looks > 0
        ]
        self._folded += len(parts) - len(contents)
        for part, content in sorted(contents, key=lambda pair: self._growth(*pair)):
            if self._growth(part, content) <= self._left:
                self._unfold(part, content)
            else:
                self._folded += 1

    def _unfold(self, part: _Part, content: _Content) -> None:
        self._left -= self._growth(part, content)
        part.summary.clear()
        part.summary.update(content.schema)
        for inner in content.parts:
            self._wait(inner)
        for reference in content.references:
            if reference not in self._shown:
                self._wait(self._definition(reference, part))

    def _wait(self, part: _Part) -> None:
        self._waiting[part.optional, part.depth].append(part)

    def _definition(self, reference: str, part: _Part) -> _Part:
        raw = self._definitions[reference]
        short = self._shown[reference] = dict(self._short_of(reference))
        depth = part.depth + 1
        return _Part(raw, short, depth, part.optional, final=depth > self._fold.depth)

    def _growth(self, part: _Part, content: _Content) -> int:
        """Characters that unfolding the part adds to the result."""
        new = (reference for reference in content.references if reference not in self._shown)
        definitions = sum(len(reference) + length(self._short_of(reference)) for reference in new)
        return length(content.schema) - length(part.summary) + definitions

    def _short_of(self, reference: str) -> Json:
        if reference not in self._short:
            self._short[reference] = self._summaries.of(self._definitions[reference])
        return self._short[reference]

    def _content(self, part: _Part) -> _Content:
        raw, content = part.raw, _Content({})
        if not self._fold.references and reference_of(raw) is not None:
            part, raw = self._inline_reference(part)
        if not UNSUPPORTED_KEYWORDS.isdisjoint(raw):
            raise UnsupportedReference
        for keyword, value in raw.items():
            folded = self._keyword(keyword, value, part, content)
            if folded is not None:
                content.schema[keyword] = folded
        _repair(content.schema, raw)
        return content

    def _inline_reference(self, part: _Part) -> tuple[_Part, Json]:
        """The part with its reference inlined, chains of references included."""
        raw, inside = part.raw, part.inside
        while (written := reference_of(raw)) is not None:
            reference = canonical(written)
            if reference in inside or reference not in self._definitions:
                raise UnsupportedReference
            inside |= {reference}
            raw = merge_siblings(self._definitions[reference], raw, self._only_notes)
        return _Part(raw, part.summary, part.depth, part.optional, inside=inside), raw

    def _keyword(self, keyword: str, value: Any, part: _Part, content: _Content) -> Any:
        """The keyword's value in the unfolded part; None: omitted."""
        if keyword in _BY_NAME and isinstance(value, dict):
            return {
                name: self._inner(member, keyword, part, content, name=name)
                for name, member in value.items()
            }
        if keyword in _ONE and isinstance(value, dict):
            return self._inner(value, keyword, part, content)
        if keyword in LIST_KEYWORDS and isinstance(value, list):
            return [self._inner(member, keyword, part, content) for member in value]
        if keyword == "$ref":
            return self._reference(value, content)
        if keyword in _DROPPED_KEYWORDS or (keyword not in VALUE_KEYWORDS and _refers(value)):
            return None
        return self._note(keyword, value)

    def _note(self, keyword: str, value: Any) -> Any:
        if self._text is None or keyword not in {*NOTES, "description"}:
            return value
        if keyword == "description" and isinstance(value, str):
            if value is self._fold.more:
                return value
            self._cut = self._cut or len(value) > self._text
            return shorten(value, self._text) if self._text else None
        return value if self._text > DROPPED_BELOW else None

    def _reference(self, value: Any, content: _Content) -> Any:
        reference = canonical(value)
        if reference == "#":
            return value
        if reference not in self._definitions:
            raise UnsupportedReference
        content.references[reference] = None
        return value

    def _inner(
        self, raw: Any, keyword: str, part: _Part, content: _Content, *, name: str = ""
    ) -> Any:
        if not isinstance(raw, dict):
            return raw
        refers = _refers(raw)
        if not refers and length(raw) <= SMALL:
            return raw
        if self._fold.references and set(raw) <= {"$ref", "description"} and "$ref" in raw:
            folded = {key: self._keyword(key, value, part, content) for key, value in raw.items()}
            return {key: value for key, value in folded.items() if value is not None}
        self._looks -= 1
        inner = self._part(raw, keyword, part, name)
        content.parts.append(inner)
        return inner.summary

    def _part(self, raw: Json, keyword: str, part: _Part, name: str) -> _Part:
        depth = part.depth + (keyword not in _IN_PLACE)
        required = part.raw.get("required") if keyword == "properties" else None
        optional = part.optional or (
            keyword == "properties" and not (isinstance(required, list) and name in required)
        )
        final = depth > self._fold.depth or self._comes_back(raw, part)
        return _Part(
            raw, dict(self._summary(raw)), depth, optional, inside=part.inside, final=final
        )

    def _summary(self, raw: Json) -> Json:
        if id(raw) not in self._told:
            self._told[id(raw)] = (raw, self._summaries.of(raw))
        return self._told[id(raw)][1]

    def _comes_back(self, raw: Json, part: _Part) -> bool:
        """Whether inlining its reference would never end."""
        if self._fold.references:
            return False
        seen = set(part.inside)
        while (written := reference_of(raw)) is not None:
            reference = canonical(written)
            if reference in seen or reference == "#":
                return True
            if reference not in self._definitions:
                raise UnsupportedReference
            seen.add(reference)
            raw = self._definitions[reference]
        return False


def _repair(schema: Json, raw: Json) -> None:
    """Remove keywords whose meaning changes once others are omitted."""
    if isinstance(raw.get("oneOf"), list) and not _plainly(raw["oneOf"]):
        branches = schema.pop("oneOf")
        schema.setdefault("anyOf", branches)
    if any(keyword in raw and keyword not in schema for keyword in CONDITIONS):
        for keyword in CONDITIONS:
            schema.pop(keyword, None)
    if "contains" in raw and "contains" not in schema:
        for keyword in _COUNT_KEYWORDS:
            schema.pop(keyword, None)


def _plainly(branches: list[Any]) -> bool:
    """Whether all branches stay unchanged."""
    return all(not _refers(branch) and length(branch) <= SMALL for branch in branches)


def _refers(value: Any) -> bool:
    return has_references(encode(value))
