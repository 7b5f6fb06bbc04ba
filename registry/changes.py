"""What an import changes: proposed tools against those that exist. Pure.

An operation is the same one if its source and its key are. It keeps its tool, and the tool its
name where it can (see `registry.naming`).
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from registry.items import ItemDraft, ItemsSaved
from registry.naming import Naming
from schemas.binding import Binding
from schemas.mcp.snapshot import ServerFacts
from schemas.source import HybridOptions, Options
from schemas.tool import Annotations, ToolDraft

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did, by name of tool."""

    added: tuple[str, ...]  # new, or back again
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    names: Mapping[str, str]  # key of the operation -> name of its tool
    refused: Mapping[str, str] = field(default_factory=dict)  # key -> name that another has
    held: Mapping[str, str] = field(default_factory=dict)  # name of tool -> what has to be approved
    items: ItemsSaved = field(default_factory=ItemsSaved)


@dataclass(frozen=True, slots=True)
class Known:
    """An operation that was imported before, and its tool."""

    endpoint_id: str
    tool_id: str
    name: str
    digest: str  # of what was imported
    present: bool  # in the document, when it was last imported
    active: bool  # False while present: taken out of service by hand


class Row(Struct, frozen=True):
    """An operation and its tool as they are to be written."""

    endpoint_id: str
    tool_id: str
    endpoint: str
    endpoint_name: str
    digest: str
    active: bool
    name: str
    title: str | None
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: Annotations
    tags: tuple[str, ...]
    binding: Binding
    definition: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Changes:
    rows: Sequence[Row]
    renamed: Sequence[str]  # tool ids whose old names others may take
    gone: Sequence[str]  # endpoint ids that the document has no longer
    saved: Saved


def changes(
    naming: Naming,
    drafts: Sequence[ToolDraft],
    known: Mapping[str, Known],
    taken: set[str],
) -> Changes:
    """Compare `drafts` with what is `known` of their source, by key.

    `taken` holds the case-folded names of the active tools of other sources.
    """
    stored = {draft.key: storable(draft) for draft in drafts}
    names = assign(naming, [draft for draft, _ in stored.values()], known, taken)
    rows, renamed = [], []
    by_fate: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": []}
    for key, (draft, digest) in stored.items():
        if key not in names:
            continue
        before = known.get(key)
        by_fate[_fate(before, names[key], digest)].append(names[key])
        if _fate(before, names[key], digest) != "unchanged":
            rows.append(_row(draft, digest, names[key], before))
            if before and before.name != names[key]:
                renamed.append(before.tool_id)
    gone = [one for key, one in known.items() if one.present and key not in names]
    return Changes(
        rows,
        renamed,
        [one.endpoint_id for one in gone],
        Saved(
            tuple(by_fate["added"]),
            tuple(by_fate["updated"]),
            tuple(by_fate["unchanged"]),
            removed=tuple(one.name for one in gone),
            names=names,
            refused={key: draft.name for key, (draft, _) in stored.items() if key not in names},
        ),
    )


def assign(
    naming: Naming, drafts: Sequence[ToolDraft], known: Mapping[str, Known], taken: set[str]
) -> dict[str, str]:
    """Names by key; see `Naming.assign`."""
    return naming.assign(
        {draft.key: partial(naming.names, draft.name, draft.key) for draft in drafts},
        {key: one.name for key, one in known.items()},
        taken,
    )


def storable(draft: T) -> tuple[T, str]:
    """`draft` as PostgreSQL can hold it, and the SHA-256 of all of it.

    NUL characters and lone surrogates, which JSON can express and PostgreSQL cannot, are replaced.
    """
    try:
        encoded = msgspec.json.encode(draft)
    except UnicodeEncodeError:
        encoded = None
    if encoded is None or b"\\u0000" in encoded:
        draft = msgspec.convert(_scrubbed(msgspec.to_builtins(draft)), type(draft))
        encoded = msgspec.json.encode(draft)
    return draft, hashlib.sha256(encoded).hexdigest()


def _fate(before: Known | None, name: str, digest: str) -> str:
    if before is None or not before.present:
        return "added"
    return "unchanged" if (before.name, before.digest) == (name, digest) else "updated"


def _row(draft: ToolDraft, digest: str, name: str, before: Known | None) -> Row:
    return Row(
        endpoint_id=before.endpoint_id if before else str(uuid.uuid4()),
        tool_id=before.tool_id if before else str(uuid.uuid4()),
        endpoint=draft.key,
        endpoint_name=draft.name,
        digest=digest,
        active=before.active if before and before.present else True,
        name=name,
        title=draft.title,
        description=draft.description,
        input_schema=draft.input_schema,
        output_schema=draft.output_schema,
        annotations=draft.annotations,
        tags=draft.tags,
        binding=draft.binding,
        definition=draft.definition,
    )


def _scrubbed(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        case dict():
            return {_scrubbed(key): _scrubbed(member) for key, member in value.items()}
        case list() | tuple():
            return [_scrubbed(member) for member in value]
    return value
