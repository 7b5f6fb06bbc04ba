"""Import pipeline of an MCP server: decode the snapshot, name its entries, select, map each one,
report."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from registry.importers.imported import Imported, ItemDraft
from registry.importers.mcp.definitions import (
    Definition,
    Kind,
    SkipEntry,
    UnusableEntry,
    definitions,
)
from registry.importers.mcp.items import item_draft
from registry.importers.mcp.tools import key_of, tool_draft
from registry.names.tool_names import assign, legal, suffixed
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.mcp.snapshot import ItemKind, Snapshot, SnapshotEntry, decode_snapshot
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import ToolDraft

_REASONS_LIMIT = 5  # named in one outcome; a person reads no more

Found = Definition | UnusableEntry


def read_snapshot(
    data: bytes, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> Imported:
    """The selected tools and all items: globs over the names of tools here or at their server.
    `include` empty: all. `exclude` wins. Raises ImportRejected."""
    try:
        snapshot = decode_snapshot(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ImportRejected(f"what the server said cannot be read: {error}") from error
    found = list(definitions("tool", snapshot.tools))
    names = _names(found)
    drafts, outcomes = _tools(found, names, include, exclude)
    item_drafts, item_outcomes = _items(snapshot)
    info = snapshot.facts.info
    return Imported(
        title=_stated(info.get("title")) or _stated(info.get("name")),
        version=_stated(info.get("version")),
        servers=(),
        drafts=tuple(drafts),
        outcomes=(*outcomes, *item_outcomes),
        notes=(*snapshot.problems, *_idle(names, (*include, *exclude))),
        items=tuple(item_drafts),
        server=snapshot.facts,
    )


def _names(found: Sequence[Found]) -> dict[str, str]:
    """Legal names by key. Assigned before the selection, which must not rename the others."""
    known = [one for one in found if isinstance(one, Definition)]
    wanted = {one.key: (legal(one.key) or suffixed(str(one.kind), one.key), one.key)
              for one in known}  # fmt: skip
    return assign(wanted)


def _tools(
    found: Sequence[Found],
    names: dict[str, str],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> tuple[list[ToolDraft], list[Outcome]]:
    drafts: list[ToolDraft] = []
    outcomes: list[Outcome] = []
    for one in found:
        if isinstance(one, UnusableEntry):
            outcomes.append(_skipped("tool", one.label, one.reason))
            continue
        key, name = key_of(one.key), names[one.key]
        if refused := _refusal(one.key, name, include, exclude):
            outcomes.append(Outcome(key, one.label, None, "excluded", refused))
            continue
        try:
            draft, notes = tool_draft(one, name)
        except SkipEntry as skip:
            outcomes.append(Outcome(key, one.label, None, "skipped", str(skip)))
            continue
        drafts.append(draft)
        status: OutcomeStatus = "degraded" if notes else "imported"
        outcomes.append(Outcome(key, one.label, name, status, _reason(notes)))
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
        found = list(definitions(kind, entries))
        names = _names(found) if kind == "prompt" else {}
        for one in found:
            if isinstance(one, UnusableEntry):
                outcomes.append(_skipped(kind, one.label, one.reason))
                continue
            try:
                draft = item_draft(one, kind, names.get(one.key, one.key))
            except SkipEntry as skip:
                outcomes.append(_skipped(kind, one.label, str(skip)))
                continue
            drafts.append(draft)
            outcomes.append(Outcome(draft.id, one.label, draft.name, "imported"))
    return drafts, outcomes


def _skipped(kind: Kind, label: str, reason: str) -> Outcome:
    return Outcome(f"{label}@{kind}", label, None, "skipped", reason)


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


def _stated(value: Any) -> str | None:
    return value.replace("\0", "\ufffd").strip() or None if isinstance(value, str) else None
