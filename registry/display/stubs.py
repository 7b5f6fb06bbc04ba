"""Stubs: tools as signatures of Python or TypeScript, for models that write programs. Pure.

    def get_pet(*, id: int, status: Literal["sold"] = ...) -> {"name": str, "tag?": str}: \"\"\"A pet.\"\"\"
    function get_pet(args: {id: number, status?: "sold"}): Promise<{name: string, tag?: string}> // A pet.

A stub is one line that a parser of its language takes. `= ...` and `?` mark what may be absent,
`**_` and an index signature what has no room. Texts of schemas stand only in string literals, in
docstring or comment, and in names, all of them escaped or checked: they cannot leave their place.
Types are hints: a property of alternatives has the types of those that have it. Arguments are
checked against the whole schema.
"""  # noqa: E501

import keyword
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from registry.display.schema_summaries import first_sentence
from registry.display.token_budgets import CHARACTERS
from registry.display.tool_shaper import FittedTools, ListedTool, length
from registry.names.identifiers import identifier_of
from schemas.errors import ParseError
from schemas.json_schema.keywords import UNIONS, Json
from schemas.json_schema.references import find, reference_of
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import decode_json
from schemas.tool import Tool

StubLanguage = Literal["python", "typescript"]

PURPOSE = 100  # characters of a tool's purpose
STEPS = 2000  # schemas and members visited at one level of detail
VALUES = 200  # of an enumeration that are looked at; no detail shows as many
LEVELS = 24  # schemas inside each other, objects or not; also references and `allOf` in a chain
LITERAL = 64  # characters of a value that is shown
NAME_LENGTH = 64  # longest name of an argument or member, characters

_JAVASCRIPT_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


@dataclass(frozen=True, slots=True)
class _Union:
    """A type as its alternatives; without any, unknown."""

    literals: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Field:
    """An argument, or a member of an object."""

    name: str
    type: _Union
    required: bool
    default: str | None = None  # as a literal


@dataclass(frozen=True, slots=True)
class _Fields:
    entries: Sequence[_Field]
    open: bool  # there are more, or may be any


@dataclass(frozen=True, slots=True)
class _Property:
    schema: Any
    seen: frozenset[str]  # references around it
    required: bool


class _Python:
    comment = "#"
    kinds: Mapping[str, str] = {
        "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
        "object": "dict", "array": "list",
    }  # fmt: skip
    constants: Mapping[bool | None, str] = {True: "True", False: "False", None: "None"}
    wide_escape = "\\U{:08x}"

    def type(self, union: _Union) -> str:
        literals = [f"Literal[{', '.join(union.literals)}]"] if union.literals else []
        return " | ".join((*literals, *union.types)) or "Any"

    def array(self, items: _Union) -> str:
        return f"list[{self.type(items)}]"

    def mapping(self, values: _Union) -> str:
        return f"dict[str, {self.type(values)}]"

    def members(self, fields: _Fields) -> str:
        members = [
            f"{quote(field.name + ('' if field.required else '?'), self)}: {self.type(field.type)}"
            for field in fields.entries
        ]
        return f"{{{', '.join((*members, *(['**_'] if fields.open else ())))}}}"

    def function(self, name: str, fields: _Fields, result: _Union, purpose: str) -> str:
        plain = [field for field in fields.entries if _is_python_name(field.name)]
        others = [field for field in fields.entries if not _is_python_name(field.name)]
        parameters = ["*"] if plain else []
        for field in plain:
            default = "" if field.required else f" = {field.default or '...'}"
            parameters.append(f"{field.name}: {self.type(field.type)}{default}")
        if others:
            parameters.append(f"**_: {self.members(_Fields(others, fields.open))}")
        elif fields.open:
            parameters.append("**_")
        text = purpose.replace("\\", "\\\\").replace('"', "'")  # it ends no docstring
        body = f'"""{text}"""' if text else "..."
        return f"def {name}({', '.join(parameters)}) -> {self.type(result)}: {body}"

    def alias(self, name: str, union: _Union) -> str:
        return f"{name} = {self.type(union)}"


class _TypeScript:
    comment = "//"
    kinds: Mapping[str, str] = {
        "string": "string", "integer": "number", "number": "number", "boolean": "boolean",
        "null": "null", "object": "object", "array": "unknown[]",
    }  # fmt: skip
    constants: Mapping[bool | None, str] = {True: "true", False: "false", None: "null"}
    wide_escape = "\\u{{{:x}}}"

    def type(self, union: _Union) -> str:
        return " | ".join((*union.literals, *union.types)) or "unknown"

    def array(self, items: _Union) -> str:
        text = self.type(items)
        return f"({text})[]" if len(items.literals) + len(items.types) > 1 else f"{text}[]"

    def mapping(self, values: _Union) -> str:
        return f"Record<string, {self.type(values)}>"

    def members(self, fields: _Fields) -> str:
        members = [
            f"{_javascript_key(field.name, self)}{'' if field.required else '?'}: "
            f"{self.type(field.type)}"
            for field in fields.entries
        ]
        return f"{{{', '.join((*members, *(['[_: string]: unknown'] if fields.open else ())))}}}"

    def function(self, name: str, fields: _Fields, result: _Union, purpose: str) -> str:
        mark = "" if any(field.required for field in fields.entries) else "?"
        arguments = f"args{mark}: {self.members(fields)}" if fields.entries or fields.open else ""
        note = f" // {purpose}" if purpose else ""
        return f"function {name}({arguments}): Promise<{self.type(result)}>{note}"

    def alias(self, name: str, union: _Union) -> str:
        return f"type {name} = {self.type(union)}"


_Language = _Python | _TypeScript
_LANGUAGES: Mapping[StubLanguage, _Language] = {"python": _Python(), "typescript": _TypeScript()}


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much a stub tells of its arguments or of its result."""

    depth: int  # objects inside each other
    fields: int  # of an object
    values: int  # characters of an enumeration; a longer one is its type
    examples: int = 0  # characters of values beside the type of a longer one


# Of arguments and result; tried in turn until the stub fits.
_DETAILS = (
    (_Detail(3, 40, 160, 60), _Detail(3, 40, 40)),
    (_Detail(3, 30, 120, 40), _Detail(2, 30, 40)),
    (_Detail(2, 20, 80, 20), _Detail(2, 20, 20)),
    (_Detail(2, 20, 80, 20), _Detail(1, 20, 20)),
    (_Detail(1, 12, 60), _Detail(1, 12, 0)),
    (_Detail(1, 8, 40), _Detail(0, 0, 0)),
    (_Detail(0, 0, 0), _Detail(0, 0, 0)),
)


def write_stub(tool: Tool, identifier: str, language: StubLanguage, limit: int) -> str:
    """The stub of a tool under its name in programs; at most `limit` characters, if these suffice
    for name and purpose."""
    written = _LANGUAGES[language]
    schema = _read_schema(tool.input_schema)
    output = None if tool.output_schema is None else _read_schema(tool.output_schema)
    purpose = one_line(first_sentence(tool.description or tool.title or "", PURPOSE))
    for arguments, result in _DETAILS:
        inside = _Types(schema, written, arguments, limit)
        outside = _Types(output, written, result, limit)
        fields, type_ = inside.arguments(), outside.whole()
        stub = written.function(identifier, fields, type_, purpose)
        if inside.is_whole and outside.is_whole and len(stub) <= limit:
            return stub
    while fields.entries and len(stub) > limit:
        fields = _Fields(fields.entries[: len(fields.entries) * 3 // 4], open=True)
        stub = written.function(identifier, fields, type_, purpose)
    return stub


def write_alias(name: str, schema: Any, language: StubLanguage, limit: int) -> str:
    """The definition of a type: a part of a tool's arguments, named after its path."""
    written, identifier = _LANGUAGES[language], identifier_of(name)
    for detail, _ in _DETAILS:
        types = _Types(schema, written, detail, limit)
        alias = written.alias(identifier, types.whole())
        if types.is_whole and len(alias) <= limit:
            break
    return alias


def write_comment(text: str, language: StubLanguage) -> str:
    """`text` as a comment of one line."""
    return f"{_LANGUAGES[language].comment} {one_line(text)}"


def fit_stubs(
    tools: Mapping[str, ListedTool], characters_left: int, *, language: StubLanguage, most: int
) -> FittedTools:
    """Stubs of as many tools, by their identifiers, as fit into `characters_left` of JSON; each of
    at most `most` tokens."""
    entries: list[Json] = []
    for place, (identifier, listed) in enumerate(tools.items()):
        tool, share = listed.tool, characters_left // (len(tools) - place)
        members = {"name": tool.name, **listed.members}
        room = min(share - length(members), most * CHARACTERS)
        for limit in (room, room * 3 // 4, 0):  # as JSON it is longer
            entry = {**members, "stub": write_stub(tool, identifier, language, limit)}
            if length(entry) <= share:
                break
        characters_left -= length(entry)
        if characters_left < 0:
            break
        entries.append(entry)
    return FittedTools(entries, 0, len(tools) - len(entries))


def _read_schema(raw: Any) -> Any:
    try:
        return decode_json(bytes(raw))
    except ParseError:
        return None


class _Types:
    """Types of the parts of one schema."""

    def __init__(self, root: Any, language: _Language, detail: _Detail, room: int) -> None:
        """`room`: characters, beyond which there is no need to go on."""
        self._root = root
        self._language = language
        self._detail = detail
        self._left = STEPS
        self._room = room

    @property
    def is_whole(self) -> bool:
        """Whether everything was visited that the detail asks for."""
        return self._left >= 0 and self._room >= 0

    def whole(self) -> _Union:
        """The type of the root."""
        return self._of(self._root, self._detail.depth, frozenset(), 0)

    def arguments(self) -> _Fields:
        """The properties of the root, required ones first."""
        parts = list(self._parts(self._root, frozenset(), 0))
        properties = self._properties(parts)
        is_open = any(part.get("additionalProperties") not in (None, False) for part, _ in parts)
        fields = [
            self._argument(name, argument)
            for name, argument in properties.items()
            if len(name) <= NAME_LENGTH
        ]
        fields.sort(key=lambda field: not field.required)
        return _Fields(fields, is_open or len(fields) < len(properties) or self._left < 0)

    def _argument(self, name: str, argument: _Property) -> _Field:
        schema = argument.schema
        type_ = self._of(schema, self._detail.depth, argument.seen, 1)
        default = schema.get("default") if isinstance(schema, dict) else None
        text = None if default is None else self._literal(default)
        return _Field(name, type_, argument.required, text)

    def _of(self, schema: Any, depth: int, references: frozenset[str], level: int) -> _Union:
        """The type of a schema, with objects inside each other to `depth`. `references` are the
        references around it, `level` the number of schemas."""
        parts = list(self._parts(schema, references, level))
        for part, _ in parts:
            if "const" in part or isinstance(part.get("enum"), list):
                return self._values([part["const"]] if "const" in part else part["enum"])
        kinds = _kinds(part for part, _ in parts)
        if not any(isinstance(part.get("properties"), dict) for part, _ in parts):
            for part, around in parts:
                branches = list(subschemas(part, UNIONS))
                union = _unite([self._of(branch, depth, around, level + 1) for branch in branches])
                if union.literals or union.types:
                    return union
        return _Union(types=tuple(self._kind(kind, parts, depth, level) for kind in kinds))

    def _parts(
        self, schema: Any, references: frozenset[str], level: int
    ) -> Iterator[tuple[Json, frozenset[str]]]:
        """The schemas that hold together: the schema, what it refers to, its `allOf`; each with
        the references that led to it. Of one that is around it already, the type alone."""
        self._left -= 1
        if not isinstance(schema, dict) or not self.is_whole or level > LEVELS:
            return
        yield schema, references
        if (reference := reference_of(schema)) is not None:
            target = find(self._root, reference)
            if reference not in references:
                yield from self._parts(target, references | {reference}, level + 1)
            elif isinstance(target, dict):
                yield {"type": target.get("type")}, references
        for branch in subschemas(schema, ("allOf",)):
            yield from self._parts(branch, references, level + 1)

    def _properties(self, parts: Sequence[tuple[Json, frozenset[str]]]) -> dict[str, _Property]:
        """The properties by name; those of alternatives are optional, with the types of all."""
        required: set[str] = set()
        for part, _ in parts:
            names = part.get("required")
            required.update(filter(_is_text, names if isinstance(names, list) else ()))
        properties: dict[str, _Property] = {}
        for part, seen in parts:
            for name, schema in self._members(part):
                properties.setdefault(name, _Property(schema, seen, name in required))
        alternatives: defaultdict[str, list[_Property]] = defaultdict(list)
        for part, seen in parts:
            for branch in subschemas(part, UNIONS):
                for inner, around in self._parts(branch, seen, 1):
                    for name, schema in self._members(inner):
                        alternatives[name].append(_Property(schema, around, name in required))
        for name, each in alternatives.items():
            schema = {"anyOf": [member.schema for member in each]}
            around = frozenset[str]().union(*(member.seen for member in each))
            properties.setdefault(name, _Property(schema, around, name in required))
        return properties

    def _members(self, schema: Json) -> Iterable[tuple[str, Any]]:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return ()
        budget, self._left = self._left, self._left - len(properties)
        return islice(properties.items(), max(budget, 0))

    def _kind(
        self, kind: str, parts: Sequence[tuple[Json, frozenset[str]]], depth: int, level: int
    ) -> str:
        if kind == "object" and depth > 0:
            return self._object(parts, depth, level)
        if kind == "array":
            for part, seen in parts:
                if isinstance(items := part.get("items"), dict):
                    each = [items, *subschemas(part, ("prefixItems",))]
                    inner = [self._of(member, depth, seen, level + 1) for member in each]
                    return self._language.array(_unite(inner))
        self._room -= len(self._language.kinds[kind])
        return self._language.kinds[kind]

    def _object(self, parts: Sequence[tuple[Json, frozenset[str]]], depth: int, level: int) -> str:
        properties = self._properties(parts)
        names = [name for name in properties if len(name) <= NAME_LENGTH]
        # required ones first where not all have room
        names.sort(
            key=lambda name: len(names) > self._detail.fields and not properties[name].required
        )
        fields = []
        for name in names[: self._detail.fields]:
            member = properties[name]
            type_ = self._of(member.schema, depth - 1, member.seen, level + 1)
            fields.append(_Field(name, type_, member.required))
            self._room -= len(name)
        if fields:
            return self._language.members(_Fields(fields, len(fields) < len(properties)))
        for part, seen in parts:
            values = part.get("additionalProperties")
            if isinstance(values, dict) and values and "patternProperties" not in part:
                return self._language.mapping(self._of(values, depth - 1, seen, level + 1))
        return self._language.kinds["object"]

    def _values(self, values: Sequence[Any]) -> _Union:
        """All of the values, where they have room; else the first ones, and the types of all."""
        values = values[:VALUES]
        self._left -= len(values) // 8
        for room in (self._detail.values, self._detail.examples):
            literals: list[str] = []
            types: dict[str, None] = {}
            for value in values:
                text = self._literal(value) if room > 0 and value is not None else None
                room -= len(text or "") + 2
                if text is None or room < 0:
                    types[self._language.kinds[_kind_of(value)]] = None
                else:
                    literals.append(text)
            if types.keys() <= {self._language.kinds["null"]}:
                break
        return _Union(tuple(dict.fromkeys(literals)), tuple(types))

    def _literal(self, value: Any) -> str | None:
        """A value as a literal; None for one that is long, or has none."""
        if isinstance(value, str):
            return quote(value, self._language) if len(value) <= LITERAL else None
        if value is None or isinstance(value, bool):
            return self._language.constants[value]
        if isinstance(value, int | float) and abs(value) < 1 << 53 and math.isfinite(value):
            return repr(value)
        return None


def _unite(unions: Sequence[_Union]) -> _Union:
    """Their alternatives; unknown if one of them is."""
    if any(not union.literals and not union.types for union in unions):
        return _Union()
    literals = dict.fromkeys(text for union in unions for text in union.literals)
    types = dict.fromkeys(text for union in unions for text in union.types)
    return _Union(tuple(literals), tuple(types))


def _kinds(parts: Iterable[Json]) -> list[str]:
    """Types that the first schema which tells any allows; empty: unknown."""
    implied: list[str] = []
    for part in parts:
        stated = part.get("type")
        names = [stated] if isinstance(stated, str) else stated
        if isinstance(names, list):
            return [
                name for name in dict.fromkeys(filter(_is_text, names)) if name in _Python.kinds
            ]
        if isinstance(part.get("properties"), dict):
            implied = ["object"]
        elif isinstance(part.get("items"), dict):
            implied = ["array"]
    return implied


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def one_line(text: str) -> str:
    """`text` without line breaks and other characters that are not shown."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def quote(text: str, language: _Language) -> str:
    """A string literal of either language, whatever is in `text`."""
    escaped = "".join(
        char if char.isprintable() else _escape(char, language)
        for char in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'


def _escape(char: str, language: _Language) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else language.wide_escape.format(code)


def _is_python_name(name: str) -> bool:
    # Parsers of Python normalize others, so that an argument would get another name.
    is_plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return is_plain and name not in ("_", "__debug__")


def _javascript_key(name: str, language: _Language) -> str:
    return name if _JAVASCRIPT_NAME.fullmatch(name) else quote(name, language)
