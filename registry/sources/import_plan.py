"""The plan of an import: proposed tools, resources and names against those that exist. Pure.

Operations are matched by id where both descriptions have a unique one, so that an operation may
move to another path; otherwise by key, so that its id may change. Operations of the served
description are matched before those removed earlier.

An operation that was there before (see `matched`) keeps its tool, and the tool
its name where it can (see `registry.names.tool_names`).
"""

import dataclasses
import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from registry.importers.drafts import ItemDraft
from registry.names.tool_names import Naming, TakenNames, is_reserved
from registry.sources.mcp_items import ItemsSaved
from schemas.binding import Binding
from schemas.invisible_characters import without_hidden_fields
from schemas.mcp.snapshot import ServerFacts
from schemas.source import DescribedLogin, HybridOptions, Options, Origin, SourceFacts, facts_of
from schemas.tool import READ_FIELDS, Annotations, ToolDraft

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownOperation:
    """An operation that was imported before, and its tool."""

    endpoint_id: str
    tool_id: str
    name: str
    digest: str  # of the imported definition
    present: bool  # in the document, when it was last imported
    active: bool  # False while present: deactivated by hand
    operation: str | None = None  # its id in the description


def match_operations(
    drafts: Sequence[ToolDraft], operations: Mapping[str, KnownOperation]
) -> dict[str, str]:
    """Known operations matched to drafts: key of the draft -> key of the operation."""
    operation_by_key = {draft.key: draft.operation for draft in drafts}
    matches: dict[str, str] = {}
    for present in (True, False):
        pool = {
            key: operation.operation
            for key, operation in operations.items()
            if operation.present == present
        }
        _match(operation_by_key, pool, matches)
    return matches


def _match(
    operation_by_key: Mapping[str, str | None],
    pool: Mapping[str, str | None],
    matches: dict[str, str],
) -> None:
    """Match against `pool` the drafts that have no match yet."""
    ids = _unique(pool.items())
    for operation, key in _unique(operation_by_key.items()).items():
        if operation in ids and key not in matches:
            matches[key] = ids[operation]
    removed = set(matches.values())
    for key in operation_by_key:
        if key not in matches and key in pool and key not in removed:
            matches[key] = key


def _unique(operations: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Keys by id, of the ids that only one operation has."""
    pairs = [(operation, key) for key, operation in operations if operation]
    counts = Counter(operation for operation, _ in pairs)
    return {operation: key for operation, key in pairs if counts[operation] == 1}


def moves(matches: Mapping[str, str], operations: Mapping[str, KnownOperation]) -> dict[str, str]:
    """New keys by endpoint id, for the operations whose key changes. A removed operation gives up
    its path to one that moved there."""
    moved = {operations[old].endpoint_id: key for key, old in matches.items() if key != old}
    staying = set(matches.values())
    for key in set(moved.values()):
        if key in operations and key not in staying:
            moved[operations[key].endpoint_id] = f"{operations[key].endpoint_id}:{key}"
    return moved


__all__ = [
    "Changes",
    "KnownOperation",
    "Row",
    "SavedTools",
    "SourceDraft",
    "assign",
    "changes",
    "storable",
]


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """A source as an import describes it. Fields as in `schemas.source.Source`.

    Without `digest` the SHA-256 of the document stands for it.
    """

    name: str
    kind: str
    location: str
    base_url: str | None = None
    base_url_trusted: bool = False
    title: str | None = None
    version: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    digest: str | None = None
    options: Options = field(default_factory=HybridOptions)
    server: ServerFacts | None = None
    logins: Mapping[str, DescribedLogin] = field(default_factory=dict)
    items: tuple[ItemDraft, ...] = ()  # items other than tools
    outcomes: Mapping[str, int] = field(default_factory=dict)  # as in `schemas.source.Version`
    origin: Origin | None = None

    @property
    def facts(self) -> SourceFacts:
        """The draft's fields of its kind."""
        return facts_of(self.kind)


@dataclass(frozen=True, slots=True)
class SavedTools:
    """Result of a save, by name of tool."""

    added: tuple[str, ...]  # new, or restored
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    names: Mapping[str, str]  # key of the operation -> name of its tool
    refused: Mapping[str, str] = field(default_factory=dict)  # key -> name taken by another tool
    held: Mapping[str, str] = field(default_factory=dict)  # name of tool -> what to accept
    items: ItemsSaved = field(default_factory=ItemsSaved)


class Row(Struct, frozen=True):
    """An operation and its tool as they are to be written."""

    endpoint_id: str
    tool_id: str
    endpoint: str
    endpoint_name: str
    operation: str | None
    digest: str
    active: bool
    name: str
    title: str | None
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: Annotations
    tags: tuple[str, ...]
    toolsets: tuple[str, ...]
    binding: Binding
    definition: dict[str, Any] | None


class Changes(Struct, frozen=True):
    rows: Sequence[Row]
    renamed: Sequence[str]  # tool ids that give up their names
    removed: Sequence[str]  # endpoint ids no longer in the document
    moved: Mapping[str, str]  # new keys by endpoint id
    aliases: Mapping[str, str]  # tool ids by alias
    saved: SavedTools


def changes(
    naming: Naming,
    drafts: Sequence[ToolDraft],
    operations: Mapping[str, KnownOperation],
    taken_names: TakenNames,
) -> Changes:
    """Compare `drafts` with the known `operations` of their source, by key. `taken_names`: by the
    active tools of other sources."""
    stored = {draft.key: storable(draft) for draft in drafts}
    matches = match_operations(drafts, operations)
    previous = {key: operations[old] for key, old in matches.items()}
    names = assign(naming, [draft for draft, _ in stored.values()], previous, taken_names)
    rows = []
    by_status: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": []}
    for key, (draft, digest) in stored.items():
        if key not in names:
            continue
        before = previous.get(key)
        status = _status(before, names[key], digest)
        by_status[status].append(names[key])
        if status != "unchanged":
            rows.append(_row(draft, digest, names[key], before))
    kept_operations = {matches[key] for key in names if key in matches}
    removed = [
        operation
        for key, operation in operations.items()
        if operation.present and key not in kept_operations
    ]
    return Changes(
        rows,
        [
            previous[key].tool_id
            for key in names
            if key in previous and previous[key].name != names[key]
        ],
        [operation.endpoint_id for operation in removed],
        moves({key: old for key, old in matches.items() if key in names}, operations),
        aliases={} if naming.rule_changed else dict(_aliases(names, previous, taken_names)),
        saved=SavedTools(
            tuple(by_status["added"]),
            tuple(by_status["updated"]),
            tuple(by_status["unchanged"]),
            removed=tuple(operation.name for operation in removed),
            names=names,
            refused={key: draft.name for key, (draft, _) in stored.items() if key not in names},
        ),
    )


def _aliases(
    names: Mapping[str, str], previous: Mapping[str, KnownOperation], taken_names: TakenNames
) -> Iterator[tuple[str, str]]:
    """The previous names of renamed tools, unless another tool has that name."""
    used_names = set(names.values())
    for key, before in previous.items():
        old = before.name
        is_free = old not in used_names and old not in taken_names and not is_reserved(old)
        if is_free and key in names and before.present:
            yield before.name, before.tool_id


def assign(
    naming: Naming,
    drafts: Sequence[ToolDraft],
    operations: Mapping[str, KnownOperation],
    taken_names: TakenNames,
) -> dict[str, str]:
    """Assign names by key; see `Naming.assign`. The names of the gateway's own tools are
    reserved. A name that a tool of the source has now stays, even if a tool of another source would
    be shown by it without that: no list has shown it so."""
    present = {operation.name for operation in operations.values() if operation.present}
    return naming.assign(
        {draft.key: partial(naming.tool_names, draft.name, draft.key) for draft in drafts},
        {key: operation.name for key, operation in operations.items()},
        lambda name: name in taken_names or (name not in present and taken_names.shows(name)),
    )


def storable(draft: T) -> tuple[T, str]:
    """`draft` as PostgreSQL can store it, and the SHA-256 of its content.

    The digest omits defaults: a field that a release adds changes no digest. NUL characters and
    lone surrogates, which JSON can express and PostgreSQL cannot, are replaced; invisible
    characters are removed from all text that models and people read.
    """
    try:
        encoded = msgspec.json.encode(_non_default_fields(draft))
    except UnicodeEncodeError:
        encoded = None
    if encoded is None or b"\\u0000" in encoded:
        # via JSON: values that bindings carry verbatim consist of JSON types only
        draft = _decoded_as(scrub(msgspec.to_builtins(draft, enc_hook=msgspec.json.decode)), draft)
        encoded = msgspec.json.encode(_non_default_fields(draft))
    if (clean := without_hidden_fields(draft, READ_FIELDS)) is not draft:
        draft, encoded = clean, msgspec.json.encode(_non_default_fields(clean))
    return draft, hashlib.sha256(encoded).hexdigest()


def _decoded_as(plain: Any, draft: T) -> T:
    """Decode `plain` as the type of `draft`."""
    decoded = msgspec.json.decode(msgspec.json.encode(plain), type=type(draft))
    if not (isinstance(draft, ToolDraft) and isinstance(decoded, ToolDraft)):
        return decoded
    encoded_binding = msgspec.json.encode(
        plain["binding"]
    )  # the type of a draft knows no fields of it
    binding = msgspec.json.decode(encoded_binding, type=type(draft.binding))
    return dataclasses.replace(decoded, binding=binding)


def _status(before: KnownOperation | None, name: str, digest: str) -> str:
    if before is None or not before.present:
        return "added"
    return "unchanged" if (before.name, before.digest) == (name, digest) else "updated"


def _row(draft: ToolDraft, digest: str, name: str, before: KnownOperation | None) -> Row:
    return Row(
        endpoint_id=before.endpoint_id if before else str(uuid.uuid4()),
        tool_id=before.tool_id if before else str(uuid.uuid4()),
        endpoint=draft.key,
        endpoint_name=draft.name,
        operation=draft.operation,
        digest=digest,
        active=before.active if before and before.present else True,
        name=name,
        title=draft.title,
        description=draft.description,
        input_schema=draft.input_schema,
        output_schema=draft.output_schema,
        annotations=draft.annotations,
        tags=draft.tags,
        toolsets=draft.toolsets,
        binding=draft.binding,
        definition=draft.definition,
    )


def _non_default_fields(draft: Any) -> Any:
    """The fields of a dataclass that differ from their defaults."""
    if not dataclasses.is_dataclass(draft):
        return draft
    values = ((field, getattr(draft, field.name)) for field in dataclasses.fields(draft))
    return {field.name: value for field, value in values if value not in (field.default, ())}


def scrub(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        case dict():
            return {scrub(key): scrub(member) for key, member in value.items()}
        case list() | tuple():
            return [scrub(member) for member in value]
    return value
