"""What an import changes: proposed tools against those that exist. Pure.

An operation is the same one if its source and its key are. It keeps its tool, and the tool keeps
its name as long as the operation asks for the same one: also a name that was qualified with the
source because another source had the plain one, even after that is free again.
"""

import hashlib
import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from registry.names import qualify, suffixed
from schemas.binding import Binding
from schemas.source import HybridOptions
from schemas.tool import Annotations, ToolDraft


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
    options: HybridOptions = field(default_factory=HybridOptions)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did, by name of tool."""

    added: tuple[str, ...]  # new, or back again
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    names: Mapping[str, str]  # key of the operation -> name of its tool


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


@dataclass(frozen=True, slots=True)
class Changes:
    rows: Sequence[Row]
    renamed: Sequence[str]  # tool ids whose old names others may take
    gone: Sequence[str]  # endpoint ids that the document has no longer
    saved: Saved


def changes(
    source: str,
    drafts: Sequence[ToolDraft],
    known: Mapping[str, Known],
    taken: set[str],
) -> Changes:
    """Compare `drafts` with what is `known` of their source, by key.

    `taken` holds the case-folded names of the active tools of other sources.
    """
    stored = {draft.key: storable(draft) for draft in drafts}
    names = assign(source, [draft for draft, _ in stored.values()], known, taken)
    rows, renamed = [], []
    by_fate: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": []}
    for key, (draft, digest) in stored.items():
        before = known.get(key)
        by_fate[_fate(before, names[key], digest)].append(names[key])
        if _fate(before, names[key], digest) != "unchanged":
            rows.append(_row(draft, digest, names[key], before))
            if before and before.name != names[key]:
                renamed.append(before.tool_id)
    gone = [one for key, one in known.items() if one.present and key not in stored]
    return Changes(
        rows,
        renamed,
        [one.endpoint_id for one in gone],
        Saved(
            **{fate: tuple(named) for fate, named in by_fate.items()},
            removed=tuple(one.name for one in gone),
            names=names,
        ),
    )


def assign(
    source: str, drafts: Sequence[ToolDraft], known: Mapping[str, Known], taken: set[str]
) -> dict[str, str]:
    """Names by key. Those that tools have already come first, so that no newcomer takes them."""
    taken, names = set(taken), {}
    for draft in sorted(drafts, key=lambda draft: (draft.key not in known, draft.key)):
        candidates = _candidates(source, draft)
        if before := known.get(draft.key):
            usual = list(itertools.islice(_candidates(source, draft), 3))
            candidates = itertools.chain([before.name] if before.name in usual else [], candidates)
        name = next(name for name in candidates if name.casefold() not in taken)
        taken.add(name.casefold())
        names[draft.key] = name
    return names


def storable(draft: ToolDraft) -> tuple[ToolDraft, str]:
    """`draft` as PostgreSQL can hold it, and the SHA-256 of all of it.

    NUL characters and lone surrogates, which JSON can express and PostgreSQL cannot, are replaced.
    """
    try:
        encoded = msgspec.json.encode(draft)
    except UnicodeEncodeError:
        encoded = None
    if encoded is None or b"\\u0000" in encoded:
        draft = msgspec.convert(_scrubbed(msgspec.to_builtins(draft)), ToolDraft)
        encoded = msgspec.json.encode(draft)
    return draft, hashlib.sha256(encoded).hexdigest()


def _candidates(source: str, draft: ToolDraft) -> Iterator[str]:
    yield draft.name
    qualified = qualify(source, draft.name)
    yield qualified
    for digits in range(8, 63):
        yield suffixed(qualified, draft.key, digits=digits)


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
