"""What an import changes: proposed tools against those that exist. Pure.

An operation that was there before (see `registry.sources.matching`) keeps its tool, and the tool
its name where it can (see `registry.names.unique_names`).
"""

import dataclasses
import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from registry.names.reserved import is_reserved
from registry.names.unique_names import Naming
from registry.sources.items import ItemDraft, ItemsSaved
from registry.sources.matching import KnownOperation, matched, moves
from schemas.binding import Binding
from schemas.hidden import without_hidden_in
from schemas.mcp.snapshot import ServerFacts
from schemas.source import HybridOptions, Options, Origin
from schemas.tool import Annotations, ToolDraft

__all__ = [
    "Changes",
    "KnownOperation",
    "Row",
    "SavedTools",
    "SourceDraft",
    "assign",
    "changes",
    "seen",
    "storable",
]

T = TypeVar("T")

_READ = frozenset(  # fields of drafts that models and people read
    ("title", "description", "input_schema", "output_schema", "annotations", "tags", "definition")
)


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
    items: tuple[ItemDraft, ...] = ()  # what it has besides tools
    outcomes: Mapping[str, int] = field(default_factory=dict)  # as in `schemas.source.Version`
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class SavedTools:
    """What a save did, by name of tool."""

    added: tuple[str, ...]  # new, or back again
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    names: Mapping[str, str]  # key of the operation -> name of its tool
    refused: Mapping[str, str] = field(default_factory=dict)  # key -> name that another has
    held: Mapping[str, str] = field(default_factory=dict)  # name of tool -> what has to be approved
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


@dataclass(frozen=True, slots=True)
class Changes:
    rows: Sequence[Row]
    renamed: Sequence[str]  # tool ids whose old names others may take
    gone: Sequence[str]  # endpoint ids that the document has no longer
    moved: Mapping[str, str]  # keys by endpoint id, of those that get another
    aliases: Mapping[str, str]  # tool ids by names that still call them
    saved: SavedTools


def changes(
    naming: Naming,
    drafts: Sequence[ToolDraft],
    known: Mapping[str, KnownOperation],
    taken: set[str],
) -> Changes:
    """Compare `drafts` with what is `known` of their source, by key.

    `taken` holds the case-folded names of the active tools of other sources.
    """
    stored = {draft.key: storable(draft) for draft in drafts}
    matches = matched(drafts, known)
    was = {key: known[old] for key, old in matches.items()}
    names = assign(naming, [draft for draft, _ in stored.values()], was, taken)
    rows = []
    by_fate: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": []}
    for key, (draft, digest) in stored.items():
        if key not in names:
            continue
        before = was.get(key)
        fate = _fate(before, names[key], digest)
        by_fate[fate].append(names[key])
        if fate != "unchanged":
            rows.append(_row(draft, digest, names[key], before))
    kept = {matches[key] for key in names if key in matches}
    gone = [one for key, one in known.items() if one.present and key not in kept]
    return Changes(
        rows,
        [was[key].tool_id for key in names if key in was and was[key].name != names[key]],
        [one.endpoint_id for one in gone],
        moves({key: old for key, old in matches.items() if key in names}, known),
        {} if naming.fresh else dict(_aliases(names, was, taken)),
        SavedTools(
            tuple(by_fate["added"]),
            tuple(by_fate["updated"]),
            tuple(by_fate["unchanged"]),
            removed=tuple(one.name for one in gone),
            names=names,
            refused={key: draft.name for key, (draft, _) in stored.items() if key not in names},
        ),
    )


def _aliases(
    names: Mapping[str, str], was: Mapping[str, KnownOperation], taken: set[str]
) -> Iterator[tuple[str, str]]:
    """What renamed tools were called until now, as far as no other has that name."""
    keys = {name.casefold(): key for key, name in names.items()}
    for key, before in was.items():
        old = before.name.casefold()
        is_free = old not in taken and keys.get(old, key) == key and not is_reserved(old)
        if is_free and key in names and before.present and before.name != names[key]:
            yield before.name, before.tool_id


def assign(
    naming: Naming,
    drafts: Sequence[ToolDraft],
    known: Mapping[str, KnownOperation],
    taken: set[str],
) -> dict[str, str]:
    """Names by key; see `Naming.assign`. None is one of the gateway's own tools'."""
    return naming.assign(
        {draft.key: partial(_names, naming, draft.name, draft.key) for draft in drafts},
        {key: one.name for key, one in known.items()},
        taken,
    )


def _names(naming: Naming, plain: str, key: str) -> Iterator[str]:
    return filterfalse(is_reserved, naming.names(plain, key))


def storable(draft: T) -> tuple[T, str]:
    """`draft` as PostgreSQL can hold it, and the SHA-256 of all that it says.

    What has its default is left out of that: a field that a release adds changes no digest. NUL
    characters and lone surrogates, which JSON can express and PostgreSQL cannot, are replaced;
    characters that nobody sees are left out of all that models and people read.
    """
    try:
        encoded = msgspec.json.encode(_said(draft))
    except UnicodeEncodeError:
        encoded = None
    if encoded is None or b"\\u0000" in encoded:
        # by way of JSON: values that bindings carry verbatim are made of nothing else
        plain = scrubbed(msgspec.to_builtins(draft, enc_hook=_decoded))
        draft = msgspec.json.decode(msgspec.json.encode(plain), type=type(draft))
        encoded = msgspec.json.encode(_said(draft))
    if (clean := seen(draft)) is not draft:
        draft, encoded = clean, msgspec.json.encode(_said(clean))
    return draft, hashlib.sha256(encoded).hexdigest()


def seen(draft: T) -> T:
    """`draft` without characters that nobody sees (`schemas.hidden`), but for what names things at
    its source."""
    if not dataclasses.is_dataclass(draft) or isinstance(draft, type):
        return draft
    changed = {
        one.name: after
        for one in dataclasses.fields(draft)
        if one.name in _READ
        and (after := without_hidden_in(before := getattr(draft, one.name))) is not before
    }
    return dataclasses.replace(draft, **changed) if changed else draft


def _fate(before: KnownOperation | None, name: str, digest: str) -> str:
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


def _said(draft: Any) -> Any:
    """The fields of a dataclass that have not their defaults."""
    if not dataclasses.is_dataclass(draft):
        return draft
    values = ((one, getattr(draft, one.name)) for one in dataclasses.fields(draft))
    return {one.name: value for one, value in values if value not in (one.default, ())}


def _decoded(carried: Raw) -> Any:
    return msgspec.json.decode(carried)


def scrubbed(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        case dict():
            return {scrubbed(key): scrubbed(member) for key, member in value.items()}
        case list() | tuple():
            return [scrubbed(member) for member in value]
    return value
