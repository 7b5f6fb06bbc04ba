"""The input schema of an operation: its parameters and body as one flat object of arguments."""

import re
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from registry.importers.openapi.document import SkipOperation
from registry.importers.openapi.parameters import WireParameter
from registry.importers.openapi.request_bodies import RequestPayload
from registry.importers.openapi.schema_budgets import SizeBudget
from registry.importers.openapi.schema_components import Schemas
from registry.importers.openapi.schema_conversion import ConvertedSchema, SchemaParts
from registry.importers.openapi.x_toolgate import ArgumentMarks, ExtensionSettings
from registry.names.tool_names import legal
from schemas.binding import Body, Location, Parameter, Part
from schemas.jsonrpc import encode
from schemas.untrusted_json import text

# Anthropic's API refuses a tool whose top-level properties are not ^[a-zA-Z0-9_.-]{1,64}$
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")


class Arguments:
    """Unique argument names of one tool."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim_exact(self, name: str) -> bool:
        """Reserve `name` unchanged; False where it is illegal or taken."""
        free = name not in self._taken and legal_argument(name) == name
        if free:
            self._taken.add(name)
        return free

    def claim(self, *candidates: str) -> str:
        """Reserve the first free name of `candidates`, else the last one with a number."""
        names = [legal_argument(name) for name in candidates]
        numbered = (legal_argument(f"{names[-1]}_{n}") for n in count(2))
        return self._first_free(chain(names, numbered))

    def _first_free(self, names: Iterable[str]) -> str:
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name


def legal_argument(name: str) -> str:
    """A legal argument name: `filter[status]` gives `filter_status`."""
    return legal(name, _ILLEGAL) or legal(f"value of {name}", _ILLEGAL)


# precedence for unqualified names
_LOCATIONS: tuple[Location, ...] = ("path", "query", "querystring", "header", "cookie")
_NO_MARKS = ArgumentMarks()
EXAMPLES_LIMIT = 5


class Inputs:
    """Collects parameters and a body; builds the binding's parts and the input schema."""

    def __init__(self, schemas: Schemas, marks: ExtensionSettings) -> None:
        self.parts = SchemaParts()
        self.examples: list[dict[str, Any]] = []  # of the body, as arguments
        self.required_members: list[str] = []  # of the body, as arguments
        self._schemas = schemas
        self._marks = marks
        self._unused = dict.fromkeys(marks.arguments)
        self._names = Arguments()
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._dependent: dict[str, list[str]] = {}

    def parameters(self, wires: list[WireParameter]) -> tuple[Parameter, ...]:
        """Add parameters. Raises `SkipOperation` when a required one is hidden without a value."""
        marks = [self._marks_of(wire.name, wire.marks) for wire in wires]
        offered = [i for i, mark in enumerate(marks) if not mark.hide]
        names = self._name_parameters({i: wires[i] for i in offered}, marks)
        parameters = []
        for i, wire in enumerate(wires):
            if i in names:
                schema = _redescribe(self._describe_parameter(wire, names[i]), marks[i])
                self._add_property(names[i], schema, required=wire.required)
                parameters.append(_parameter(wire, names[i]))
            elif hidden := self._fixed_parameter(wire, marks[i]):
                parameters.append(hidden)
        return tuple(parameters)

    def body(self, body: RequestPayload) -> Body:
        headers = self._part_headers(body)
        parts = tuple(
            replace(part, headers=headers.pop(part.name, ())) for part in body.encoded.parts
        )
        parts += tuple(Part(name, headers=of_part) for name, of_part in headers.items())
        converted_body = self._whole(body) if body.properties is None else self._hoist(body)
        xml = {"xml": body.xml, "xml_types": body.xml_types}
        return replace(converted_body, parts=parts, file=body.file, **xml)

    def schema(self, budget: SizeBudget) -> dict[str, Any]:
        """The input schema. Raises `SkipOperation` if it does not compile, or exceeds `budget`."""
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        if self._dependent:
            schema["dependentRequired"] = self._dependent
        schema["additionalProperties"] = False
        if self._marks.examples:
            schema["examples"] = list(self._marks.examples[:EXAMPLES_LIMIT])
        budget.take(len(encode(schema)))
        self._schemas.check_compiles(schema, self.parts.uses)
        if definitions := self._schemas.definitions(self.parts, budget):
            schema["$defs"] = definitions
        for name in self._unused:
            self.parts.notes.append(f"the argument {name!r}, which is marked, is not there")
        return schema

    def _marks_of(self, name: str, own_marks: ArgumentMarks | None) -> ArgumentMarks:
        """The marks of an argument: the operation's, else its own."""
        self._unused.pop(name, None)
        return self._marks.arguments.get(name) or own_marks or _NO_MARKS

    def _describe_parameter(self, wire: WireParameter, argument: str) -> dict[str, Any]:
        schema = self.parts.take(wire.schema, f"parameter {wire.name}")
        return _with_wire_name(schema, argument, wire.name)

    def _add_property(self, name: str, schema: dict[str, Any], required: bool = False) -> None:
        self._properties[name] = schema
        if required:
            self._required.append(name)

    def _name_parameters(
        self, wires: Mapping[int, WireParameter], marks: list[ArgumentMarks]
    ) -> dict[int, str]:
        """Names of parameters: the owner's; else the wire name, where it is legal and unique across
        locations."""
        order = sorted(wires, key=lambda i: _LOCATIONS.index(wires[i].location))
        names = {i: self._names.claim(marked_name) for i in order if (marked_name := marks[i].name)}
        for i in order:
            if i not in names and self._names.claim_exact(wires[i].name):
                names[i] = wires[i].name
        for i in order:
            if i not in names:
                argument = legal_argument(wires[i].name)
                names[i] = self._names.claim(argument, f"{argument}_{wires[i].location}")
        return names

    def _fixed_parameter(self, wire: WireParameter, marks: ArgumentMarks) -> Parameter | None:
        value = self._value(marks, wire.schema.schema)
        if value is UNSET:
            if wire.required:
                raise SkipOperation(
                    f"parameter {wire.name} is needed, but hidden, and has no value"
                )
            return None
        return replace(_parameter(wire, ""), fixed=Raw(encode(value)))

    def _value(self, marks: ArgumentMarks, schema: dict[str, Any]) -> Any:
        """Value sent for a hidden argument."""
        if marks.value is not UNSET:
            return marks.value
        target = self._schemas.target(schema)
        return (target.schema if target else schema).get("default", UNSET)

    def _part_headers(self, body: RequestPayload) -> dict[str, tuple[Parameter, ...]]:
        headers: dict[str, tuple[Parameter, ...]] = {}
        for part, wires in body.encoded.headers.items():
            named = []
            for wire in wires:
                argument = legal_argument(f"{part}_{wire.name}")
                name = self._names.claim(argument)
                self._add_property(name, self._describe_parameter(wire, name))
                named.append(_parameter(wire, name))
            headers[part] = tuple(named)
        return headers

    def _hoist(self, body: RequestPayload) -> Body:
        self.parts.take(body.converted, "body")
        properties = body.properties or {}
        marks = {name: self._marks_of(name, body.marks.get(name)) for name in properties}
        fixed = self._fixed_body_members(body, marks)
        order = [name for name in properties if not marks[name].hide]
        names = self._name_properties(order, marks)
        for name in order:
            schema = _with_wire_name(properties[name], names[name], name)
            self._add_property(names[name], _redescribe(schema, marks[name]))
        required_properties = [names[name] for name in body.required_properties if name in names]
        self._require(required_properties, list(names.values()), body.required)
        hoisted = tuple((names[name], name) for name in order)
        self.required_members = required_properties
        additional = self._additional() if body.open else None
        self._add_examples(body, names, additional)
        return Body(
            body.media_type,
            required=body.required,
            properties=hoisted,
            additional=additional,
            fixed=fixed,
        )

    def _additional(self) -> str:
        """Name of the argument for members of the body that the description does not name."""
        name = self._names.claim("additional_properties")
        described = {"type": "object", "description": "Further members of the body, by name."}
        self._add_property(name, described)
        return name

    def _add_examples(
        self, body: RequestPayload, names: Mapping[str, str], additional: str | None
    ) -> None:
        files = {part.name for part in body.encoded.parts if part.file}
        for example in body.examples:
            if not isinstance(example, dict):
                continue
            arguments = {names[k]: v for k, v in example.items() if k in names and k not in files}
            extra = {k: v for k, v in example.items() if k not in (body.properties or {})}
            self.examples.append(
                arguments | ({additional: extra} if additional and extra else extra)
            )

    def _fixed_body_members(
        self, body: RequestPayload, marks: Mapping[str, ArgumentMarks]
    ) -> dict[str, Any]:
        fixed = {}
        for name, mark in marks.items():
            if not mark.hide:
                continue
            value = self._value(mark, (body.properties or {})[name])
            if value is not UNSET:
                fixed[name] = value
            elif name in body.required_properties and body.required:
                raise SkipOperation(f"body: {name} is needed, but hidden, and has no value")
        return fixed

    def _name_properties(
        self, order: list[str], marks: Mapping[str, ArgumentMarks]
    ) -> dict[str, str]:
        names = {
            name: self._names.claim(marked_name)
            for name in order
            if (marked_name := marks[name].name)
        }
        for name in order:
            if name not in names and self._names.claim_exact(name):
                names[name] = name
        for name in order:
            if name not in names:
                names[name] = self._names.claim(name, f"body_{legal_argument(name)}")
        return names

    def _require(
        self, required_properties: list[str], arguments: Iterable[str], required: bool
    ) -> None:
        """Required properties; in an optional body, required only once any property is given."""
        if required:
            self._required += required_properties
            return
        for argument in arguments:
            if others := [name for name in required_properties if name != argument]:
                self._dependent[argument] = others

    def _whole(self, body: RequestPayload) -> Body:
        marks = self._marks_of("body", body.whole_marks)
        fixed = self._fixed_members(body)
        schema = self.parts.take(body.converted, "body")
        if body.description:
            schema = {**schema, "description": _body_description(body, schema)}
        if marks.hide:
            raise SkipOperation("its body is hidden: hide its properties instead")
        name = self._names.claim(marks.name or "body")
        self._add_property(name, _redescribe(schema, marks), required=body.required)
        if not (body.file or body.encoded.parts):
            is_string = schema.get("type") == "string"
            self.examples += [
                {name: e} for e in body.examples if is_string or not isinstance(e, str)
            ]
        return Body(body.media_type, required=body.required, argument=name, fixed=fixed)

    def _fixed_members(self, body: RequestPayload) -> dict[str, Any]:
        """Constant members of a body that is one argument; its schema still shows them."""
        marked = {**body.marks, **self._marks.arguments}
        return {
            name: mark.value
            for name, mark in marked.items()
            if mark.hide and mark.value is not UNSET and name in self._members(body.converted)
        }

    def _members(self, schema: ConvertedSchema) -> dict[str, Any]:
        target = self._schemas.target(schema.schema) or schema
        properties: dict[str, Any] = target.schema.get("properties", {})
        return properties


def _body_description(body: RequestPayload, schema: dict[str, Any]) -> str:
    """The body's description, and for a file how to give it."""
    return f"{body.description}\n\n{schema['description']}" if body.file else body.description


def _redescribe(schema: dict[str, Any], marks: ArgumentMarks) -> dict[str, Any]:
    return {**schema, "description": marks.description} if marks.description else schema


def _with_wire_name(schema: dict[str, Any], argument: str, name: str) -> dict[str, Any]:
    """`schema` with the name that texts of the service use, where the argument has another."""
    described = text(schema.get("description"))
    if name == argument or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", described):
        return schema
    named = f"Named {name} by the service."
    return {**schema, "description": f"{described}\n\n{named}" if described else named}


def _parameter(wire: WireParameter, argument: str) -> Parameter:
    return Parameter(
        argument=argument,
        name=wire.name,
        location=wire.location,
        style=wire.style,
        explode=wire.explode,
        allow_reserved=wire.allow_reserved,
        media_type=wire.media_type,
        allow_empty=wire.allow_empty,
    )
