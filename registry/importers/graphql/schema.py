"""Model of a GraphQL schema, and its scalars; loaded from SDL or introspection.

Errors are local: a missing or contradictory part costs only what needs it; so this is not
graphql-core's schema, which is valid as a whole or not at all.

A custom scalar is defined by its service: names with a common meaning are known here; others have
their descriptions alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET

from registry.importers.drafts import plain_description

Kind = Literal["scalar", "object", "interface", "union", "enum", "input", "missing"]
Operation = Literal["query", "mutation"]

BUILT_IN = ("Int", "Float", "String", "Boolean", "ID")  # October 2021, section 3.5
COMPOSITE = frozenset({"object", "interface", "union"})


@dataclass(frozen=True, slots=True)
class Ref:
    """A type reference: exactly one of `name` and `of` is set."""

    name: str = ""
    of: "Ref | None" = None
    wrap: Literal["", "list", "required"] = ""

    @property
    def named_type(self) -> str:
        ref = self
        while ref.of is not None:
            ref = ref.of
        return ref.name

    @property
    def is_required(self) -> bool:
        return self.wrap == "required"

    @property
    def nullable(self) -> "Ref":
        return self.of if self.wrap == "required" and self.of is not None else self

    @property
    def lists(self) -> int:
        """Number of list wrappers around the named type."""
        ref, count = self, 0
        while ref.of is not None:
            count += ref.wrap == "list"
            ref = ref.of
        return count

    def __str__(self) -> str:
        if self.of is None:
            return self.name
        return f"[{self.of}]" if self.wrap == "list" else f"{self.of}!"


@dataclass(frozen=True, slots=True)
class InputValue:
    """An argument, or a field of an input object."""

    name: str
    type: Ref
    description: str = ""
    default: Any = UNSET  # as JSON
    deprecated: str | None = None  # the reason

    @property
    def is_demanded(self) -> bool:
        return self.type.is_required and self.default is UNSET


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Ref
    args: dict[str, InputValue] = field(default_factory=dict)
    description: str = ""
    deprecated: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of an enum."""

    name: str
    description: str = ""
    deprecated: str | None = None


@dataclass(slots=True)
class Type:
    name: str
    kind: Kind
    description: str = ""
    fields: dict[str, Field] = field(default_factory=dict)  # object, interface
    inputs: dict[str, InputValue] = field(default_factory=dict)  # input
    choices: dict[str, Choice] = field(default_factory=dict)  # enum
    members: list[str] = field(default_factory=list)  # interface, union: objects it may be
    one_of: bool = False  # input: exactly one of its fields is given
    specified_by: str | None = None  # scalar: its URL


@dataclass(slots=True)
class Schema:
    types: dict[str, Type] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)  # operation -> name of its type
    description: str = ""
    notes: list[str] = field(default_factory=list)

    def of(self, ref: Ref) -> Type:
        """The named type of `ref`; of kind "missing" if undefined in the description."""
        return self.types.get(ref.named_type) or Type(ref.named_type, "missing")

    def root(self, operation: str) -> Type | None:
        return self.types.get(self.roots.get(operation, ""))

    def finish(self) -> "Schema":
        """Add the built-in parts, and the note on undefined types."""
        for name in BUILT_IN:
            self.types.setdefault(name, Type(name, "scalar"))
        if not self.roots:  # section 3.3.1: the default names need no `schema`
            self.roots = {
                operation: operation.capitalize()
                for operation in ("query", "mutation", "subscription")
            }
        missing = sorted({ref.named_type for ref in self._references()} - self.types.keys())
        if missing:
            named = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
            self.notes.append(f"{len(missing)} types are not defined: {named}")
        return self

    def _references(self) -> Iterator[Ref]:
        for type_ in self.types.values():
            for value in type_.inputs.values():
                yield value.type
            for schema_field in type_.fields.values():
                yield schema_field.type
                yield from (argument.type for argument in schema_field.args.values())


UPLOADS = frozenset({"upload", "file", "fileupload"})  # in lower case; multipart requests only

_STRING = {"type": "string"}
_WHOLE = {"type": ["integer", "string"]}  # beyond 2^53 as text
_DECIMAL = {"type": ["number", "string"]}
_BUILT_IN: dict[str, dict[str, Any]] = {
    # 3.5.1; other values are errors
    "Int": {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    "Float": {"type": "number"},
    "String": _STRING,
    "Boolean": {"type": "boolean"},
    "ID": {"type": ["string", "integer"]},  # 3.5.5: both are taken
}
_SCALAR_SCHEMAS: dict[str, dict[str, Any]] = {
    **{
        name: {"type": "string", "format": format_}
        for format_, names in {
            "date-time": ("datetime", "isodatetime", "iso8601datetime", "datetimeiso", "instant",
                          "timestamptz", "awsdatetime"),
            "date": ("date", "localdate", "isodate", "iso8601date", "awsdate"),
            "time": ("time", "localtime", "timetz"),
            "duration": ("duration", "iso8601duration"),
            "uuid": ("uuid", "guid"),
            "uri": ("url", "uri", "awsurl", "httpurl"),
            "email": ("email", "emailaddress", "awsemail"),
        }.items()
        for name in names
    },
    **dict.fromkeys(("bigint", "long", "int64", "uint64", "biginteger", "unsignedint64"), _WHOLE),
    **dict.fromkeys(("decimal", "bigdecimal", "money", "numeric"), _DECIMAL),
    **dict.fromkeys(("base64", "byte", "bytes", "base64string", "html", "markdown"), _STRING),
    **dict.fromkeys(("phonenumber", "locale", "timezone"), _STRING),
    "jsonobject": {"type": "object"},
    "positiveint": {"type": "integer", "minimum": 1},
    "nonnegativeint": {"type": "integer", "minimum": 0},
}  # fmt: skip
_ANY = frozenset({"json", "any", "object", "map", "unknown", "mixed", "jsonb", "awsjson", "void"})


def is_upload(type_: Type) -> bool:
    return type_.kind == "scalar" and type_.name.lower() in UPLOADS


def scalar(type_: Type) -> tuple[dict[str, Any], str | None]:
    """The schema of an input value, and a note on what is unknown of it."""
    if type_.name in _BUILT_IN:
        return dict(_BUILT_IN[type_.name]), None
    name = type_.name.lower().replace("_", "")
    stated = _scalar_description(type_)
    if name in _SCALAR_SCHEMAS:
        return {**_SCALAR_SCHEMAS[name], **stated}, None
    if name in _ANY or stated:
        return stated, None
    return {}, f"scalar {type_.name} is not described: any value is let through"


def leaf_schema(type_: Type) -> dict[str, Any]:
    """The schema of an output value: custom scalars vary too much to be constrained."""
    built_in = _BUILT_IN.get(type_.name)
    return {} if built_in is None else {"type": built_in["type"]}


def _scalar_description(type_: Type) -> dict[str, Any]:
    lines = [type_.description] if type_.description else []
    if type_.specified_by:
        lines.append(f"As in {type_.specified_by}")
    return {"description": plain_description("\n".join(lines))} if lines else {}
