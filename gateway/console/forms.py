"""Forms from JSON Schema: what is drawn, and what a posted form says. Pure.

A form has a field for each scalar, enumeration, list of scalars and object of few levels. All else
(recursion, depth, open objects) is a field that takes JSON, and a schema with too many fields is
one such field. Names of fields are JSON Pointers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from gateway.operations.member_texts import MemberTexts
from schemas.errors import Fault
from schemas.json_schema.pointers import ABSENT, escape
from schemas.json_schema.references import find, reference_of, siblings
from schemas.jsonrpc import decode_strict
from schemas.rule_patterns import InvalidPattern, Pattern

DEPTH = 3  # levels of objects
FIELDS = 60
CHOICES = 200
BOXES = 20  # texts of a list that are offered as boxes
REFERENCE_DEPTH = 20  # references in a row
WORK = 5000  # keywords, members and steps of references that are looked at for a form
LINES = "openapi: 3.1.0\ninfo: {}\n"
LINE = 255  # longest text that gets one line
ZONE = re.compile(r"([Zz]|[+-]\d\d:\d\d)$")
WHOLE = ""  # pointer of the value itself
VARIANT = "#variant"  # end of the name of the field that chooses among alternatives

Json = dict[str, Any]
Data = Mapping[str, Sequence[str]]
"""A posted form: texts by name."""

Kind = Literal[
    "text",
    "area",
    "number",
    "time",
    "choice",
    "boxes",
    "switch",
    "lines",
    "json",
    "group",
    "union",
    "fixed",
]


@dataclass(frozen=True, slots=True)
class FieldChoice:
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form, with what it shows."""

    pointer: str
    label: str
    kind: Kind
    required: bool = False
    help: str = ""
    value: str = ""
    checked: bool = False
    choices: tuple[FieldChoice, ...] = ()
    fields: tuple["FormField", ...] = ()
    longest: int | None = None  # characters
    default: str = ""
    error: str = ""
    title: str = ""  # "": people see the label, which is the member's name
    example: str = ""
    picks: str = ""  # kind of the things that are offered; "": none
    completes: str = ""  # URL of what completes it while it is typed; "": nothing does
    rarely: bool = False  # it is folded
    is_alternative: bool = False  # one of several fields, of which one is needed
    is_hidden: bool = False  # its value is sent along
    files: str = ""  # endings of files that may fill it; "": none

    @property
    def id(self) -> str:
        return "f" + "".join(c if c.isalnum() else f"-{ord(c):x}-" for c in self.pointer)

    @property
    def comes_first(self) -> bool:
        return self.required or self.is_alternative

    @property
    def is_filled(self) -> bool:
        """Whether a person has to see it: it has a value, or an error."""
        inside = any(inner_field.is_filled for inner_field in self.fields)
        has_value = self.value not in ("", "{}", "[]", self.default) and self.kind != "union"
        return bool(has_value or self.checked or self.error or inside)

    @property
    def texts(self) -> list[str]:
        """The texts that a browser posts for it."""
        if self.kind == "switch":
            return ["true"] * self.checked
        return self.value.split("\n") if self.kind == "boxes" else [self.value]

    @property
    def lines(self) -> list[str]:
        """The values of a list, and an empty one to fill."""
        return [*filter(None, self.value.split("\n")), ""]


@dataclass(frozen=True, slots=True)
class FormNode:
    """A part of a schema as the form takes it."""

    pointer: str
    label: str
    kind: Kind
    schema: Json
    required: bool
    nullable: bool = False
    items: str = ""  # type of the items of "lines"
    choices: tuple[Any, ...] = ()
    variants: tuple[str, ...] = ()
    variant: int = 0
    nodes: tuple["FormNode", ...] = ()


class NotDrawable(Exception):
    """A schema takes too much work to draw."""


class NotReadable(Exception):
    """A field has a text that is no value of its type."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Value of a posted form, and errors by the pointer of their field."""

    value: Any
    errors: Mapping[str, str] = field(default_factory=dict)


class Form:
    def __init__(self, schema: Any, chosen: Mapping[str, int] | None = None) -> None:
        """The form of values of `schema`; `chosen` are alternatives by pointer."""
        self._root = schema if isinstance(schema, dict) else {}
        self._chosen = chosen or {}
        self._left = WORK
        node = self._draw()
        self.node = node or FormNode(WHOLE, "", "json", self._root, required=True)
        self.is_drawn = node is not None

    def fields(self, value: Any, errors: Mapping[str, str] | None = None) -> tuple[FormField, ...]:
        """The fields, filled with `value`."""
        field = _form_field(self.node, value, errors or {})
        return field.fields if self.node.kind == "group" else (field,)

    def holds(self, value: Any) -> bool:
        """Whether the fields can show the value without a loss, as they cannot an empty text."""
        data = {field.pointer: field.texts for field in walk(self.fields(value))}
        return self.read(data) == Reading(value)

    def missing(self, value: Any) -> list[str]:
        """Pointers of the fields that need a value and have none."""
        return list(_missing(self.node, value))

    def read(self, data: Data) -> Reading:
        errors: dict[str, str] = {}
        value = _read(self.node, data, errors)
        return Reading({} if value is _ABSENT else value, errors)

    def _draw(self) -> FormNode | None:
        """None for what cannot be drawn: a scalar, too many fields, or no valid schema."""
        try:
            node = self._node(self._root, WHOLE, "", required=True, depth=0, references=())
        except (NotDrawable, RecursionError, TypeError, AttributeError, ValueError):
            return None
        return node if node.kind in {"group", "union"} and _count(node) <= FIELDS else None

    def _spend(self, work: int) -> None:
        """Raises NotDrawable where references multiply the work, or a schema is too large."""
        self._left -= work
        if self._left < 0:
            raise NotDrawable

    def _node(
        self, schema: Any, pointer: str, label: str, *, required: bool, depth: int,
        references: tuple[int, ...],
    ) -> FormNode:  # fmt: skip
        json_node = FormNode(
            pointer, label, "json", schema if isinstance(schema, dict) else {}, required
        )
        resolved, references = self._resolve(schema, references)
        if resolved is None:
            return json_node
        resolved, nullable = _without_null(resolved)
        resolved, references = self._resolve(resolved, references)
        if resolved is None or not isinstance(resolved.get("type"), str | None):
            return json_node
        common: Json = {"schema": resolved, "required": required, "nullable": nullable}
        if "const" in resolved or "enum" in resolved:
            return _enumeration(pointer, label, common)
        alternatives = resolved.get("oneOf") or resolved.get("anyOf")
        if isinstance(alternatives, list) and alternatives:
            return self._union(
                pointer, label, alternatives, common, depth=depth, references=references
            )
        type_ = resolved.get("type")
        if type_ is None and isinstance(resolved.get("properties"), dict):
            type_ = "object"
        if type_ == "object":
            return (
                self._group(pointer, label, common, depth=depth, references=references) or json_node
            )
        if type_ == "array":
            return self._lines(pointer, label, common, references) or json_node
        if type_ == "boolean":
            if required and not nullable:
                return FormNode(pointer, label, "switch", **common)
            return FormNode(pointer, label, "choice", **common, choices=(True, False))
        if type_ in {"integer", "number"}:
            return FormNode(pointer, label, "number", **common)
        if type_ == "string":
            return FormNode(pointer, label, _kind_of_text(resolved), **common)
        return json_node

    def _group(
        self, pointer: str, label: str, common: Json, *, depth: int, references: tuple[int, ...]
    ) -> FormNode | None:
        schema = common["schema"]
        properties = schema.get("properties")
        if not isinstance(properties, dict) or depth > DEPTH:
            return None
        if not properties and pointer != WHOLE:
            return None
        if len(properties) > FIELDS:
            return None
        required_names = schema.get("required")
        listed = required_names if isinstance(required_names, list) else []
        required = {name for name in listed if isinstance(name, str)}
        nodes = tuple(
            self._node(
                member, f"{pointer}/{escape(name)}", name, required=name in required,
                depth=depth + 1, references=references,
            )
            for name, member in properties.items()
        )  # fmt: skip
        ordered = sorted(nodes, key=lambda node: not node.required)
        return FormNode(pointer, label, "group", **common, nodes=tuple(ordered))

    def _lines(
        self, pointer: str, label: str, common: Json, references: tuple[int, ...]
    ) -> FormNode | None:
        resolved, _ = self._resolve(common["schema"].get("items"), references)
        items = _without_null(resolved or {})[0]
        choices, type_ = items.get("enum"), items.get("type")
        if isinstance(choices, list) and _are_boxes(choices):
            return FormNode(pointer, label, "boxes", **common, choices=tuple(choices))
        if not isinstance(type_, str) or type_ not in {"string", "integer", "number"}:
            return None
        return FormNode(pointer, label, "lines", **common, items=type_)

    def _union(
        self, pointer: str, label: str, alternatives: list[Any], common: Json, *, depth: int,
        references: tuple[int, ...],
    ) -> FormNode:  # fmt: skip
        named = [self._alternative_name(alternative, references) for alternative in alternatives]
        at = min(max(self._chosen.get(pointer, 0), 0), len(alternatives) - 1)
        inner = self._node(
            alternatives[at],
            pointer,
            label,
            required=common["required"],
            depth=depth,
            references=references,
        )
        if len(named) == 1:
            return inner
        return FormNode(
            pointer, label, "union", **common, variants=tuple(named), variant=at, nodes=(inner,)
        )

    def _alternative_name(self, schema: Any, references: tuple[int, ...]) -> str:
        """The name of an alternative: its title, its tag or its type."""
        resolved, _ = self._resolve(schema, references)
        if resolved is None:
            return "JSON"
        for member in (resolved.get("properties") or {}).values():
            tags = (
                member.get("enum") or [member["const"]]
                if isinstance(member, dict)
                and ("const" in member or len(member.get("enum") or ()) == 1)
                else ()
            )
            if tags:
                return str(tags[0])
        return str(resolved.get("title") or resolved.get("type") or "JSON")[:60]

    def _resolve(
        self, schema: Any, references: tuple[int, ...]
    ) -> tuple[Json | None, tuple[int, ...]]:
        """The schema without references, with those of `allOf` merged; None: it cannot be drawn."""
        for _ in range(REFERENCE_DEPTH):
            if not isinstance(schema, dict):
                return None, references
            self._spend(1 + len(schema))
            if (reference := reference_of(schema)) is not None:
                self._spend(reference.count("/"))
                target = find(self._root, reference)
                if target is ABSENT or id(target) in references:
                    return None, references
                references = (*references, id(target))
                schema = {**target, **siblings(schema)} if isinstance(target, dict) else target
            elif isinstance(schema.get("allOf"), list):
                merged = self._merge(schema, references)
                if merged is None:
                    return None, references
                schema = merged
            else:
                return schema, references
        return None, references

    def _merge(self, schema: Json, references: tuple[int, ...]) -> Json | None:
        merged = {name: member for name, member in schema.items() if name != "allOf"}
        for part in schema["allOf"]:
            resolved, _ = self._resolve(part, references)
            if resolved is None:
                return None
            properties = {**resolved.get("properties", {}), **merged.get("properties", {})}
            required = [*resolved.get("required", []), *merged.get("required", [])]
            self._spend(len(properties) + len(required))
            merged = {**resolved, **merged}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = required
        return merged


def chosen_in(data: Data) -> dict[str, int]:
    """The alternatives that a posted form names, by pointer."""
    return {
        name.removesuffix(VARIANT): int(texts[-1])
        for name, texts in data.items()
        if name.endswith(VARIANT) and texts and texts[-1].isdecimal() and len(texts[-1]) < 4
    }


def chosen_for(schema: Any, value: Any) -> dict[str, int]:
    """The alternative of the root that has the tag of `value`."""
    root = schema if isinstance(schema, dict) else {}
    form = Form(root)
    if form.node.kind != "union" or not isinstance(value, dict):
        return {}
    texts = {member for member in value.values() if isinstance(member, str)}
    positions = (at for at, name in enumerate(form.node.variants) if name in texts)
    at = next(positions, None)
    return {} if at is None else {WHOLE: at}


def example(schema: Any) -> Any:
    """A value with the required members, for a field that takes JSON."""
    form = Form(schema)
    if form.is_drawn:
        return form.read({}).value
    root = schema if isinstance(schema, dict) else {}
    required, properties = root.get("required"), root.get("properties")
    if not isinstance(required, list) or not isinstance(properties, dict):
        return {}
    blanks = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}
    kinds = {name: properties.get(name) for name in required if isinstance(name, str)}
    return {
        name: blanks.get(str(schema.get("type")), {}) if isinstance(schema, dict) else {}
        for name, schema in kinds.items()
    }


def read_json(text: str) -> Reading:
    """A value written as JSON."""
    try:
        return Reading(decode_strict(text.encode()))
    except (Fault, ValueError) as error:
        reason = error.message if isinstance(error, Fault) else str(error)
        return Reading({}, {WHOLE: reason})


class _Absent:
    """No value."""


_ABSENT = _Absent()


def _form_field(node: FormNode, value: Any, errors: Mapping[str, str]) -> FormField:
    schema = node.schema
    field: Json = {
        "required": node.required and not node.nullable,
        "help": _text(schema.get("description")),
        "error": errors.get(node.pointer, ""),
        "default": "" if "default" not in schema else _json(schema["default"]),
        "example": _example_text(schema),
    }
    if node.kind == "group":
        inner = value if isinstance(value, dict) else {}
        fields = tuple(
            _form_field(inner_node, inner.get(inner_node.label, _ABSENT), errors)
            for inner_node in node.nodes
        )
        return FormField(node.pointer, node.label, "group", fields=fields, **field)
    if node.kind == "union":
        choices = tuple(FieldChoice(str(at), name) for at, name in enumerate(node.variants))
        inside = _form_field(node.nodes[0], value, errors)
        fields = inside.fields if inside.kind == "group" else (inside,)
        return FormField(
            node.pointer, node.label, "union", value=str(node.variant), choices=choices,
            fields=fields, **field,
        )  # fmt: skip
    if node.kind == "choice":
        texts = tuple(
            FieldChoice(_json(choice), choice if isinstance(choice, str) else _json(choice))
            for choice in node.choices
        )
        current = "" if value is _ABSENT or value is None else _json(value)
        return FormField(node.pointer, node.label, "choice", value=current, choices=texts, **field)
    if node.kind == "boxes":
        offered = tuple(FieldChoice(choice, choice) for choice in node.choices)
        text = "\n".join(map(str, value)) if isinstance(value, list) else ""
        return FormField(node.pointer, node.label, "boxes", value=text, choices=offered, **field)
    if node.kind == "fixed":
        return FormField(node.pointer, node.label, "fixed", value=_json(node.choices[0]), **field)
    if node.kind == "switch":
        return FormField(node.pointer, node.label, "switch", checked=value is True, **field)
    longest = schema.get("maxLength")
    longest = longest if isinstance(longest, int) and longest < 1 << 20 else None
    text = _text_of(node, value)
    return FormField(node.pointer, node.label, node.kind, value=text, longest=longest, **field)


def _example_text(schema: Json) -> str:
    """An example of a text or a number that the schema has."""
    examples = schema.get("examples")
    example = examples[0] if isinstance(examples, list) and examples else None
    if isinstance(example, bool) or not isinstance(example, str | int | float):
        return ""
    return str(example)[:LINE]


def _text_of(node: FormNode, value: Any) -> str:
    if value is _ABSENT or value is None:
        return ""
    if node.kind == "json":
        return _json(value, indent=True)
    if node.kind == "time":
        return _time_in_utc(str(value))
    if node.kind == "lines" and isinstance(value, list):
        return "\n".join(item if isinstance(item, str) else _json(item) for item in value)
    return value if isinstance(value, str) else _json(value)


def _time_in_utc(text: str) -> str:
    """A time of RFC 3339 as fields for a time take it; another text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() if time.tzinfo else text


def _read(node: FormNode, data: Data, errors: dict[str, str]) -> Any:
    if node.kind == "group":
        members = {member.label: _read(member, data, errors) for member in node.nodes}
        value = {name: member for name, member in members.items() if member is not _ABSENT}
        inside = f"{node.pointer}/"
        has_values = any(any(data[name]) for name in data if name.startswith(inside))
        return value if node.required or has_values else _ABSENT
    if node.kind == "union":
        return _read(node.nodes[0], data, errors)
    if node.kind == "fixed":
        return node.choices[0]
    if node.kind == "switch":
        return bool(data.get(node.pointer))
    texts = data.get(node.pointer) or [""]
    if node.kind == "boxes":
        return [choice for choice in node.choices if choice in texts] or _nothing(node)
    text = ("\n".join(texts) if node.kind == "lines" else texts[-1]).replace("\r\n", "\n")
    if not text or (not text.strip() and node.kind not in {"text", "area"}):
        return _nothing(node)
    try:
        return _value(node, text)
    except NotReadable as error:
        errors[node.pointer] = str(error)
        return text


def _are_boxes(choices: list[Any]) -> bool:
    is_short = 0 < len(choices) <= BOXES
    return is_short and all(isinstance(choice, str) for choice in choices)


def _missing(node: FormNode, value: Any) -> Iterator[str]:
    if node.kind == "union":
        yield from _missing(node.nodes[0], value)
    elif node.kind == "group" and isinstance(value, dict):
        for inner_node in node.nodes:
            if inner_node.label in value:
                yield from _missing(inner_node, value[inner_node.label])
            elif inner_node.required and not inner_node.nullable:
                yield inner_node.pointer


def _nothing(node: FormNode) -> Any:
    """The value of an empty field."""
    if not node.required:
        return _ABSENT
    if node.nullable:
        return None
    return [] if node.kind in {"lines", "boxes"} else _ABSENT


def _value(node: FormNode, text: str) -> Any:
    """Raises NotReadable."""
    if node.kind in {"text", "area"}:
        return text
    if node.kind == "time":
        text = f"{text}:00" if len(text) == len("2026-01-01T00:00") else text
        return text if ZONE.search(text) else f"{text}Z"
    if node.kind == "lines":
        lines = [line for line in text.split("\n") if line]
        return lines if node.items == "string" else [_number(line, node.items) for line in lines]
    if node.kind == "number":
        return _number(text, str(node.schema.get("type")))
    reading = read_json(text)
    if reading.errors:
        raise NotReadable(reading.errors[WHOLE])
    if node.kind == "choice" and reading.value not in node.choices:
        raise NotReadable("expected one of the choices")
    return reading.value


def _number(text: str, type_: str) -> Any:
    reading = read_json(text.strip())
    number = reading.value
    if reading.errors or isinstance(number, bool) or not isinstance(number, int | float):
        raise NotReadable(f"expected a number, found {text[:40]}")
    if type_ == "integer" and number != int(number):
        raise NotReadable(f"expected a whole number, found {text[:40]}")
    return number


def _enumeration(pointer: str, label: str, common: Json) -> FormNode:
    schema = common["schema"]
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list) or len(values) > CHOICES:
        return FormNode(pointer, label, "text", **common)
    values = [value for value in values if value is not None]
    if len(values) == 1 and common["required"]:
        return FormNode(pointer, label, "fixed", **common, choices=tuple(values))
    return FormNode(pointer, label, "choice", **common, choices=tuple(values))


def _without_null(schema: Json) -> tuple[Json, bool]:
    """The schema without the alternative null, and whether it had that."""
    type_ = schema.get("type")
    if isinstance(type_, list):
        others = [type_name for type_name in type_ if type_name != "null"]
        if len(others) == 1:
            return {**schema, "type": others[0]}, "null" in type_
        return {name: member for name, member in schema.items() if name != "type"}, "null" in type_
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list):
            others = [member for member in parts if not _is_null(member)]
            beside = {name: member for name, member in schema.items() if name != keyword}
            if len(others) == 1 and isinstance(others[0], dict):
                return {**others[0], **beside}, len(others) < len(parts)
            if len(others) < len(parts):
                return {**beside, keyword: others}, True
    return schema, schema.get("nullable") is True


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _kind_of_text(schema: Json) -> Kind:
    """One line for what is short or cannot have more than one; browsers drop line breaks there."""
    longest = schema.get("maxLength")
    if isinstance(longest, int):
        return "text" if longest <= LINE else "area"
    if schema.get("format") == "date-time":
        return "time"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and _takes_lines(pattern):
        return "area"
    return "text" if pattern or schema.get("format") else "area"


def _takes_lines(pattern: str) -> bool:
    try:
        return Pattern(pattern).is_in(LINES)
    except InvalidPattern:  # of another dialect
        return False


def _count(node: FormNode) -> int:
    return 1 + sum(map(_count, node.nodes))


def add_texts(
    fields: Sequence[FormField], texts: MemberTexts, path: str = ""
) -> tuple[FormField, ...]:
    """The fields with the words for people, in the order that these have; folded ones last. A
    member without words has its name as its title."""
    places, last = {name: at for at, name in enumerate(texts)}, len(texts)
    fields_with_texts = [_add_text(inner_field, texts, path) for inner_field in fields]
    fields_with_texts.sort(
        key=lambda field: (
            not field.comes_first,
            field.rarely,
            places.get(path + field.label, last),
        )
    )
    return tuple(fields_with_texts)


def _add_text(field: FormField, texts: MemberTexts, path: str) -> FormField:
    text = texts.get(path + field.label)
    inside = path if field.kind == "union" and not field.label else f"{path}{field.label}/"
    fields = add_texts(field.fields, texts, inside)
    field = replace(field, error=_sentence(field.error))
    if text is None:
        return replace(field, title=words(field.label), help=_sentence(field.help), fields=fields)
    return replace(
        field,
        title=text.title,
        help=text.help,
        example=text.example,
        picks=text.choices,
        rarely=text.rarely,
        is_alternative=text.alternative,
        files=text.files,
        fields=fields,
    )


def words(name: str) -> str:
    """The name of a member as a title: "Delay in seconds" of `delayS`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("_", " ").strip()
    text = re.sub(r" [sS]$", " in seconds", text)
    return text[:1].upper() + (text[1:] if text.isupper() else text[1:].lower())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text and text[-1] not in ".!?" else text


def walk(fields: Sequence[FormField]) -> Iterator[FormField]:
    for inner_field in fields:
        yield inner_field
        yield from walk(inner_field.fields)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any, *, indent: bool = False) -> str:
    text = msgspec.json.encode(value)
    return (msgspec.json.format(text, indent=2) if indent else text).decode()
