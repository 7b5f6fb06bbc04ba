"""Import pipeline of an MCP server: decode the snapshot, name its entries, select, map each one,
report.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from registry.importers.drafts import ImportedDescription, ItemDraft
from registry.names.tool_names import add_suffix, assign, legal, limit_for
from registry.names.uris import Template
from schemas.binding import McpBinding, MirroredArgument
from schemas.errors import ImportRejected, ParseError
from schemas.globs import glob
from schemas.json_schema.checker import Checker
from schemas.json_schema.validators import (
    SchemaTooCostly,
    ValidationError,
    check_by_metaschema,
    unknown_dialect,
)
from schemas.jsonrpc import decode_json, encode, json_type
from schemas.mcp.headers import mirrored_in
from schemas.mcp.snapshot import Eras, ItemKind, Snapshot, SnapshotEntry, decode_snapshot
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import Annotations, ToolDraft

KEY_LIMIT = 2048  # bytes of a name or URI: longer ones fit no index and no header
DEPTH_LIMIT = 128  # levels of a definition; recursive code needs some frames per level
_LABEL = 80  # characters of a name in a report

Kind = ItemKind | str  # or "tool"
_IDENTITY = {"tool": "name", "prompt": "name", "resource": "uri", "template": "uriTemplate"}


class SkipEntry(Exception):
    """The entry cannot be offered; `str()` is the reason."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One entry with a valid identifier."""

    kind: Kind
    key: str  # its name, URI or URI template
    members: dict[str, Any]
    eras: Eras

    @property
    def label(self) -> str:
        return self.key if self.kind == "tool" else f"{self.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class UnusableEntry:
    label: str
    reason: str


def definitions(
    kind: Kind, entries: Sequence[SnapshotEntry]
) -> Iterator[Definition | UnusableEntry]:
    """The entries in their order. Of duplicates the first counts."""
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        try:
            members = _object(bytes(entry.definition))
            key = _identity(members, _IDENTITY[kind])
        except SkipEntry as skip:
            yield UnusableEntry(f"{kind} {number} of the list", str(skip))
            continue
        definition = Definition(kind, key, members, entry.eras)
        if key in seen:
            yield UnusableEntry(definition.label, "is listed twice; the first one counts")
        else:
            seen.add(key)
            yield definition


def _object(text: bytes) -> dict[str, Any]:
    try:
        document = decode_json(text)
    except ParseError as error:
        raise SkipEntry(error.message.replace("The body", "The definition")) from error
    if not isinstance(document, dict):
        raise SkipEntry(f"is {json_type(document)}, expected an object")
    if _is_deep(document):
        raise SkipEntry(f"is nested more than {DEPTH_LIMIT} levels deep")
    return document


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _identity(members: dict[str, Any], member: str) -> str:
    key = members.get(member)
    if not isinstance(key, str):
        actual = json_type(key) if member in members else "missing"
        raise SkipEntry(f"its {member} is {actual}, expected text")
    if not key.strip():
        raise SkipEntry(f"its {member} is empty")
    if len(key.encode()) > KEY_LIMIT:
        raise SkipEntry(f"its {member}, {key[:_LABEL]}…, has more than {KEY_LIMIT} bytes")
    if "\0" in key:
        raise SkipEntry(f"its {member} holds a NUL character")
    return key


def item_draft(definition: Definition, kind: ItemKind, name: str) -> ItemDraft:
    """The item; `name` is its preferred name. Raises SkipEntry."""
    members = definition.members
    if kind == "prompt":
        _check_arguments(members.get("arguments"))
    else:
        _check_name(members)
    if kind == "resource":
        _check_uri(definition.key)
    if kind == "template":
        _check_template(definition.key)
    return ItemDraft(kind, definition.key, name, members, eras=definition.eras)


def _check_arguments(arguments: Any) -> None:
    if arguments is None:
        return
    if not isinstance(arguments, list):
        raise SkipEntry(f"its arguments are {json_type(arguments)}, expected an array")
    for argument in arguments:
        if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
            raise SkipEntry("one of its arguments has no name")


def _check_name(members: dict[str, Any]) -> None:
    if not isinstance(members.get("name"), str):
        raise SkipEntry("has no name")


def _check_uri(uri: str) -> None:
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        scheme = ""
    if not scheme:
        raise SkipEntry("its uri is no absolute URI, as in file:///notes.txt")


def _check_template(template: str) -> None:
    try:
        Template.read(template)
    except ValueError as error:
        raise SkipEntry(f"its uriTemplate {error}") from error


_OWN_COLUMNS = frozenset(
    ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
)
_MEMBER_TYPES: dict[str, type] = {"icons": list, "execution": dict, "_meta": dict}
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
    hints, annotations = _annotations(members, notes)
    more = {
        member: value
        for member, value in members.items()
        if member not in _OWN_COLUMNS and _fits(member, value, notes)
    }
    if annotations.keys() - _HINTS.keys():
        more["annotations"] = annotations
    draft = ToolDraft(
        key=key_of(definition.key),
        name=name,
        description=_text(members, "description", notes) or "",
        input_schema=schema,
        binding=McpBinding(definition.key, definition.eras, _mirrored_arguments(schema)),
        title=_text(members, "title", notes),
        output_schema=_output_schema(members, notes),
        annotations=hints,
        definition=more or None,
    )
    return draft, notes


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
            "are not checked before its server gets them"
        )
    try:
        Checker(encode(schema))
    except ValueError as error:
        reason = str(error).partition("\n")[0][:160]
        notes.append(f"arguments are not checked before its server gets them: {reason}")


def _mirrored_arguments(schema: dict[str, Any]) -> tuple[MirroredArgument, ...]:
    try:
        return mirrored_in(schema)
    except ValueError as error:  # 2026-07-28, transports: clients must drop such a tool
        raise SkipEntry(str(error)) from error


def _annotations(members: dict[str, Any], notes: list[str]) -> tuple[Annotations, dict[str, Any]]:
    """The known hints, and all valid ones that were given."""
    annotations = members.get("annotations")
    if annotations is None:
        return Annotations(), {}
    if not isinstance(annotations, dict):
        notes.append(f"its annotations are {json_type(annotations)}, expected an object: left out")
        return Annotations(), {}
    sound: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for member, value in annotations.items():
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
    expected = _MEMBER_TYPES.get(member)
    if expected is None or isinstance(value, expected):
        return True
    notes.append(f"its {member} is {json_type(value)}: left out")
    return False


_REASONS_LIMIT = 5  # named in one outcome; a person reads no more

DefinitionOrError = Definition | UnusableEntry


def read_snapshot(
    data: bytes, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> ImportedDescription:
    """The selected tools and all items: globs over the names of tools here or at their server.
    `include` empty: all. `exclude` wins. Raises ImportRejected."""
    try:
        snapshot = decode_snapshot(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ImportRejected(f"the server's lists cannot be read: {error}") from error
    tool_definitions = list(definitions("tool", snapshot.tools))
    names = _names(tool_definitions)
    drafts, outcomes = _tools(tool_definitions, names, include, exclude)
    item_drafts, item_outcomes = _items(snapshot)
    info = snapshot.facts.info
    return ImportedDescription(
        title=_clean_text(info.get("title")) or _clean_text(info.get("name")),
        version=_clean_text(info.get("version")),
        servers=(),
        drafts=tuple(drafts),
        outcomes=(*outcomes, *item_outcomes),
        notes=(*snapshot.problems, *_idle(names, (*include, *exclude))),
        items=tuple(item_drafts),
        server=snapshot.facts,
    )


def _names(entries: Sequence[DefinitionOrError]) -> dict[str, str]:
    """Legal names by key. Assigned before the selection, which must not rename the others."""
    readable = [definition for definition in entries if isinstance(definition, Definition)]
    keys = ((definition.key, str(definition.kind)) for definition in readable)
    candidates = {
        key: (legal(key, limit=limit_for(key)) or add_suffix(kind, key), key) for key, kind in keys
    }
    return assign(candidates)


def _tools(
    entries: Sequence[DefinitionOrError],
    names: dict[str, str],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> tuple[list[ToolDraft], list[Outcome]]:
    drafts: list[ToolDraft] = []
    outcomes: list[Outcome] = []
    for definition in entries:
        if isinstance(definition, UnusableEntry):
            outcomes.append(_skipped_outcome("tool", definition.label, definition.reason))
            continue
        key, name = key_of(definition.key), names[definition.key]
        if refused := _refusal(definition.key, name, include, exclude):
            outcomes.append(Outcome(key, definition.label, None, "excluded", reason=refused))
            continue
        try:
            draft, notes = tool_draft(definition, name)
        except SkipEntry as skip:
            outcomes.append(Outcome(key, definition.label, None, "skipped", reason=str(skip)))
            continue
        drafts.append(draft)
        status: OutcomeStatus = "degraded" if notes else "imported"
        outcomes.append(Outcome(key, definition.label, name, status, reason=_reason(notes)))
    return drafts, outcomes


def _items(snapshot: Snapshot) -> tuple[list[ItemDraft], list[Outcome]]:
    lists: dict[ItemKind, tuple[SnapshotEntry, ...]] = {
        "prompt": snapshot.prompts,
        "resource": snapshot.resources,
        "template": snapshot.templates,
    }
    drafts: list[ItemDraft] = []
    outcomes: list[Outcome] = []
    for kind, entries in lists.items():
        item_definitions = list(definitions(kind, entries))
        names = _names(item_definitions) if kind == "prompt" else {}
        for definition in item_definitions:
            if isinstance(definition, UnusableEntry):
                outcomes.append(_skipped_outcome(kind, definition.label, definition.reason))
                continue
            try:
                draft = item_draft(definition, kind, names.get(definition.key, definition.key))
            except SkipEntry as skip:
                outcomes.append(_skipped_outcome(kind, definition.label, str(skip)))
                continue
            drafts.append(draft)
            outcomes.append(Outcome(draft.id, definition.label, draft.name, "imported"))
    return drafts, outcomes


def _skipped_outcome(kind: Kind, label: str, reason: str) -> Outcome:
    return Outcome(f"{label}@{kind}", label, None, "skipped", reason=reason)


def _refusal(
    original: str, name: str, include: tuple[str, ...], exclude: tuple[str, ...]
) -> str | None:
    """Why a tool is not selected; None when it is."""
    for pattern in exclude:
        if _matches(original, name, pattern):
            return f"excluded by {pattern!r}"
    if include and not any(_matches(original, name, pattern) for pattern in include):
        return "not included"
    return None


def _matches(original: str, name: str, pattern: str) -> bool:
    return glob(pattern).match_any((original, name))


def _idle(names: dict[str, str], patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        if not any(_matches(original, name, pattern) for original, name in names.items()):
            yield f"the pattern {pattern!r} matches no tool"


def _reason(notes: list[str]) -> str | None:
    more = len(notes) - _REASONS_LIMIT
    named = "; ".join(notes[:_REASONS_LIMIT])
    return f"{named}; and {more} more" if more > 0 else named or None


def _clean_text(value: Any) -> str | None:
    return value.replace("\0", "\ufffd").strip() or None if isinstance(value, str) else None
