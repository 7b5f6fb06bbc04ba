"""Definitions of tools to drafts: input and output schemas, hints, headers, other members."""

from typing import Any

from registry.importers.mcp.definitions import Definition, SkipEntry
from schemas.binding import McpBinding, Mirrored
from schemas.jsonrpc import encode, json_type
from schemas.jsonschema import Checker
from schemas.mcp.headers import mirrored_in
from schemas.tool import Annotations, ToolDraft
from schemas.validators import (
    SchemaTooCostly,
    ValidationError,
    check_by_metaschema,
    unknown_dialect,
)

_OWN_COLUMNS = frozenset(
    ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
)
_EXPECTED: dict[str, type] = {"icons": list, "execution": dict, "_meta": dict}
_HINTS: dict[str, tuple[str, type]] = {
    "title": ("title", str),
    "readOnlyHint": ("read_only_hint", bool),
    "destructiveHint": ("destructive_hint", bool),
    "idempotentHint": ("idempotent_hint", bool),
    "openWorldHint": ("open_world_hint", bool),
}


def tool_draft(definition: Definition, name: str) -> tuple[ToolDraft, list[str]]:
    """The tool, and notes on the parts omitted. Raises SkipEntry."""
    members = definition.members
    notes: list[str] = []
    schema = _input_schema(members)
    _note_unchecked(schema, notes)
    hints, given = _annotations(members, notes)
    more = {
        member: value
        for member, value in members.items()
        if member not in _OWN_COLUMNS and _fits(member, value, notes)
    }
    if given.keys() - _HINTS.keys():
        more["annotations"] = given
    made = ToolDraft(
        key=key_of(definition.key),
        name=name,
        description=_text(members, "description", notes) or "",
        input_schema=schema,
        binding=McpBinding(definition.key, definition.eras, _mirrored(schema)),
        title=_text(members, "title", notes),
        output_schema=_output_schema(members, notes),
        annotations=hints,
        definition=more or None,
    )
    return made, notes


def key_of(name: str) -> str:
    return f"{name}@call"


def _input_schema(members: dict[str, Any]) -> dict[str, Any]:
    if "inputSchema" not in members:
        raise SkipEntry("has no inputSchema")
    schema = members["inputSchema"]
    if not isinstance(schema, dict):
        raise SkipEntry(f"its inputSchema is {json_type(schema)}, expected an object")
    if schema.get("type") != "object":
        raise SkipEntry('its inputSchema has not "type": "object" at its root')
    if reason := _illegal(schema):
        raise SkipEntry(f"its inputSchema is no JSON Schema: {reason}")
    return schema


def _output_schema(members: dict[str, Any], notes: list[str]) -> dict[str, Any] | None:
    schema = members.get("outputSchema")
    if schema is None:
        return None
    if not isinstance(schema, dict):
        notes.append(f"its outputSchema is {json_type(schema)}, expected an object: left out")
        return None
    if reason := _illegal(schema):
        notes.append(f"its outputSchema is no JSON Schema: left out ({reason})")
        return None
    return schema


def _illegal(schema: dict[str, Any]) -> str | None:
    """Why `schema` is invalid in its dialect; a schema of an unknown dialect passes, for clients
    that know it."""
    if unknown_dialect(schema) is not None:
        return None
    try:
        check_by_metaschema(schema)
    except ValidationError as error:
        where = "/".join(map(str, error.instance_path))
        return f"{error.message[:120]} at {where}" if where else error.message[:120]
    except SchemaTooCostly:  # left to others to check
        return None
    except ValueError as error:  # nested too deeply
        return str(error)[:120]
    return None


def _note_unchecked(schema: dict[str, Any], notes: list[str]) -> None:
    """Note how arguments are checked, where that differs from the server's schema."""
    if (dialect := unknown_dialect(schema)) is not None:
        notes.append(
            f"its inputSchema names the dialect {dialect[:80]!r}, which is not known: arguments "
            "are checked as JSON Schema 2020-12 has it"
        )
    try:
        Checker(encode(schema))
    except ValueError as error:
        reason = str(error).partition("\n")[0][:160]
        notes.append(f"arguments are not checked before its server gets them: {reason}")


def _mirrored(schema: dict[str, Any]) -> tuple[Mirrored, ...]:
    try:
        return mirrored_in(schema)
    except ValueError as error:  # 2026-07-28, transports: clients must drop such a tool
        raise SkipEntry(str(error)) from error


def _annotations(members: dict[str, Any], notes: list[str]) -> tuple[Annotations, dict[str, Any]]:
    """The known hints, and all valid ones that were given."""
    given = members.get("annotations")
    if given is None:
        return Annotations(), {}
    if not isinstance(given, dict):
        notes.append(f"its annotations are {json_type(given)}, expected an object: left out")
        return Annotations(), {}
    sound: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for member, value in given.items():
        field, kind = _HINTS.get(member, ("", object))
        if not isinstance(value, kind):
            notes.append(f"its annotations.{member} is {json_type(value)}: left out")
            continue
        sound[member] = value
        if field:
            hints[field] = value
    return Annotations(**hints), sound


def _text(members: dict[str, Any], member: str, notes: list[str]) -> str | None:
    value = members.get(member)
    if value is None or isinstance(value, str):
        return value
    notes.append(f"its {member} is {json_type(value)}, expected text: left out")
    return None


def _fits(member: str, value: Any, notes: list[str]) -> bool:
    expected = _EXPECTED.get(member)
    if expected is None or isinstance(value, expected):
        return True
    notes.append(f"its {member} is {json_type(value)}: left out")
    return False
