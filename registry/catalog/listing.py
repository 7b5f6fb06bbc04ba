"""Lists as each revision shows them, encoded once for all who ask.

A definition of another server is patched, never rebuilt: members that nobody here knows survive.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from registry.display.output_schemas import for_objects
from schemas.binding import ServiceBinding
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import ItemKind, ServerFacts, SnapshotItem
from schemas.tool import Annotations, Tool

SERVICE = "toolgate/service"  # in `_meta` of a tool: the id of the hybrid action that it calls

_NAMED_BY: Mapping[ItemKind, str] = {
    "prompt": "name", "resource": "uri", "template": "uriTemplate",
}  # fmt: skip
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Listed(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool as `tools/list` shows it; what a revision does not know stays UNSET."""

    name: str
    description: str | UnsetType
    input_schema: Raw
    title: str | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, str] | UnsetType = field(default=UNSET, name="_meta")


_NO_HINTS = Annotations()


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Some entries of a list in a row, as one revision shows them."""

    entries: Raw  # a JSON array
    last: str | None  # name of the last one, when more follow
    results: dict[str, Raw] = default(default_factory=dict)  # whole results, kept by their makers


class Listing:
    """Things of one kind in the order of their names, page by page."""

    def __init__(self, names: Sequence[str], encode: Callable[[Revision], list[bytes]]) -> None:
        """`encode` gives them all, in the same order."""
        self._names = names
        self._encode = encode
        self._encoded: dict[str, list[bytes]] = {}
        self._pages: dict[tuple[str, str | None, int], Page] = {}

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        """At most `limit` entries whose names follow `after`."""
        key = (revision.name, after, limit)
        page = self._pages.get(key)
        if page is None:
            page = self._cut(revision, after, limit)
            if after is None or self._has(after):  # a cursor of ours: few, so worth keeping
                self._pages[key] = page
        return page

    def some(
        self, places: Sequence[int], revision: Revision, after: str | None, limit: int
    ) -> Page:
        """The same of the entries at these places, which rise; nothing of it is kept."""
        start = self._start(after)
        left = [place for place in places if place >= start]
        encoded = self._all(revision)
        listed = [encoded[place] for place in left[:limit]]
        last = self._names[left[limit - 1]] if len(left) > limit else None
        return Page(Raw(b"[" + b",".join(listed) + b"]"), last)

    def these(self, names: Sequence[str], revision: Revision) -> Page:
        """The entries of these names, as far as there are some, in this order; nothing of it is
        kept."""
        encoded = self._all(revision)
        listed = [encoded[self._start(name) - 1] for name in names if self._has(name)]
        return Page(Raw(b"[" + b",".join(listed) + b"]"), None)

    def _has(self, name: str) -> bool:
        at = bisect.bisect_left(self._names, name)
        return self._names[at : at + 1] == [name]

    def _cut(self, revision: Revision, after: str | None, limit: int) -> Page:
        start = self._start(after)
        encoded = self._all(revision)[start : start + limit]
        more = start + limit < len(self._names)
        last = self._names[start + limit - 1] if more else None
        return Page(Raw(b"[" + b",".join(encoded) + b"]"), last)

    def _start(self, after: str | None) -> int:
        return 0 if after is None else bisect.bisect_right(self._names, after)

    def _all(self, revision: Revision) -> list[bytes]:
        if revision.name not in self._encoded:
            self._encoded[revision.name] = self._encode(revision)
        return self._encoded[revision.name]


def encode_tool(tool: Tool, revision: Revision, relays_tasks: bool = False) -> bytes:
    """`tool` as one member of the `tools` of a list in `revision`."""
    listed = _Listed(
        name=tool.name,
        description=tool.description or UNSET,
        input_schema=tool.input_schema,
        title=tool.title if revision.titles and tool.title else UNSET,
        output_schema=_output_schema(tool, revision),
        annotations=tool.annotations
        if revision.annotations and tool.annotations != _NO_HINTS
        else UNSET,
        meta=_meta(tool) if revision.titles else UNSET,
    )
    if tool.definition is None:
        return msgspec.json.encode(listed)
    return msgspec.json.encode(_merged(listed, tool.definition, revision, relays_tasks))


def encode_item(item: SnapshotItem, revision: Revision) -> bytes:
    """`item` as one member of its list in `revision`."""
    members: dict[str, Any] = dict(_members(item.definition))
    members[_NAMED_BY[item.kind]] = item.name
    if not revision.titles:
        members.pop("title", None)
    if not revision.icons:
        members.pop("icons", None)
    return msgspec.json.encode(members)


def relays_tasks(facts: ServerFacts | None) -> bool:
    """Whether the server runs calls of its tools as tasks of 2025-11-25."""
    found: Any = facts.handshake_capabilities if facts else None
    for step in ("tasks", "requests", "tools", "call"):
        found = found.get(step) if isinstance(found, dict) else None
    return found is not None


def _output_schema(tool: Tool, revision: Revision) -> Raw | UnsetType:
    if not revision.titles or tool.output_schema is None:
        return UNSET
    return (
        tool.output_schema if revision.any_structure else for_objects(tool.output_schema) or UNSET
    )


def _meta(tool: Tool) -> dict[str, str] | UnsetType:
    return {SERVICE: tool.binding.service} if isinstance(tool.binding, ServiceBinding) else UNSET


def _merged(
    listed: _Listed, definition: Raw, revision: Revision, relays_tasks: bool
) -> dict[str, Any]:
    """`listed` with the further members that the tool has at its own server."""
    theirs: dict[str, Any] = dict(_members(definition))
    for member, known in (
        ("icons", revision.icons),
        ("execution", revision.tasks and relays_tasks),
        ("annotations", revision.annotations),
        ("_meta", revision.titles),
    ):
        if not known:
            theirs.pop(member, None)
    ours = _members(msgspec.json.encode(listed))
    if "_meta" in theirs and "_meta" in ours:
        theirs["_meta"] = _members(theirs["_meta"]) | _members(ours["_meta"])
    return {**ours, **theirs}
