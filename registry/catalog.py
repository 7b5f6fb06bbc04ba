"""The catalog: what tools a tenant has, ready to be listed and called without the database.

A `Catalog` is a snapshot that never changes; `Catalogs` holds the current one of each tenant and
replaces it whole when the registry says that something changed. A request keeps the snapshot that
it began with.
"""

import asyncio
import bisect
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from registry.store import ToolStore
from schemas.binding import PythonBinding, ServiceBinding
from schemas.jsonschema import Checker
from schemas.mcp.revisions import V2026_07_28, Revision
from schemas.source import Source
from schemas.tool import Annotations, Tool

log = logging.getLogger("toolgate.catalog")

TWICE_SHOWN = 20  # ids in one warning
SERVICE = "toolgate/service"  # in `_meta` of a tool: the id of the hybrid action that it calls


class _Listed(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool as `tools/list` shows it; what a revision does not know stays UNSET."""

    name: str
    description: str
    input_schema: Raw
    title: str | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, str] | UnsetType = field(default=UNSET, name="_meta")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Some tools in a row, as one shape of revisions shows them."""

    tools: Raw  # a JSON array
    last: str | None  # name of the last tool, when more follow
    results: dict[str, Raw] = default(default_factory=dict)  # whole results, kept by their makers


class Catalog:
    """The tools of one tenant at one moment, in the order of their names; `services` are those
    that call hybrid actions, one for each id, in the order of the ids."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        sources: Sequence[Source] = (),
        before: "Catalog | None" = None,
    ) -> None:
        """`before` is the snapshot that this one replaces: unchanged tools keep their checkers."""
        self.tools: tuple[Tool, ...] = tuple(sorted(tools, key=lambda tool: tool.name))
        self.sources: Mapping[str, Source] = {source.name: source for source in sources}
        self._by_name = {tool.name: tool for tool in self.tools}
        self._names = [tool.name for tool in self.tools]
        self._by_service = by_service(self.tools)
        self.services: tuple[Tool, ...] = tuple(
            self._by_service[id_] for id_ in sorted(self._by_service)
        )
        self._checkers = before.surviving_checkers(self._by_name) if before else {}
        self._encoded: dict[tuple[bool, bool], list[bytes]] = {}
        self._pages: dict[tuple[bool, bool, str | None, int], Page] = {}
        self.digest = hashlib.sha256(b"".join(self._encode_all(V2026_07_28))).digest()

    def get(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def service(self, id_: str) -> Tool | None:
        """The tool that calls the hybrid action `id_`; of several, one inside the gateway."""
        return self._by_service.get(id_)

    def checker(self, tool: Tool) -> Checker:
        """The compiled input schema of `tool`, compiled when first asked for."""
        checker = self._checkers.get(tool.name)
        if checker is None:
            checker = self._checkers[tool.name] = Checker(bytes(tool.input_schema))
        return checker

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        """At most `limit` tools whose names follow `after`, encoded as `revision` shows them."""
        key = (revision.annotations, revision.titles, after, limit)
        page = self._pages.get(key)
        if page is None:
            page = self._cut(revision, after, limit)
            if after is None or after in self._by_name:  # a cursor of ours: few, so worth keeping
                self._pages[key] = page
        return page

    def lists_like(self, other: "Catalog") -> bool:
        """Whether a client that listed one would see nothing new in the other."""
        return self.digest == other.digest

    def surviving_checkers(self, tools: Mapping[str, Tool]) -> dict[str, Checker]:
        return {
            name: checker
            for name, checker in self._checkers.items()
            if name in tools and tools[name].digest == self._by_name[name].digest
        }

    def _cut(self, revision: Revision, after: str | None, limit: int) -> Page:
        start = 0 if after is None else bisect.bisect_right(self._names, after)
        encoded = self._encode_all(revision)[start : start + limit]
        more = start + limit < len(self._names)
        last = self._names[start + limit - 1] if more else None
        return Page(Raw(b"[" + b",".join(encoded) + b"]"), last)

    def _encode_all(self, revision: Revision) -> list[bytes]:
        shape = (revision.annotations, revision.titles)
        if shape not in self._encoded:
            self._encoded[shape] = [encode(tool, revision) for tool in self.tools]
        return self._encoded[shape]


def encode(tool: Tool, revision: Revision) -> bytes:
    """`tool` as one member of the `tools` of a list in `revision`."""
    return msgspec.json.encode(
        _Listed(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            title=tool.title if revision.titles and tool.title else UNSET,
            output_schema=tool.output_schema if revision.titles and tool.output_schema else UNSET,
            annotations=tool.annotations if revision.annotations else UNSET,
            meta=_meta(tool) if revision.titles else UNSET,
        )
    )


def _meta(tool: Tool) -> dict[str, str] | UnsetType:
    return {SERVICE: tool.binding.service} if isinstance(tool.binding, ServiceBinding) else UNSET


def by_service(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools that call hybrid actions, by the ids of those; `tools` are in the order of their
    names. Of several for one id, one serves it, and the log says which."""
    claims: dict[str, list[Tool]] = {}
    for tool in tools:
        if isinstance(tool.binding, ServiceBinding):
            claims.setdefault(tool.binding.service, []).append(tool)
    found = {id_: min(claiming, key=_is_elsewhere) for id_, claiming in claims.items()}
    twice = [_told(found[id_], claiming) for id_, claiming in claims.items() if len(claiming) > 1]
    if twice:
        log.warning("service_twice", extra={"services": twice[:TWICE_SHOWN]})
    return found


def _told(serving: Tool, claiming: Sequence[Tool]) -> str:
    """Which source serves an id, and which others have it too."""
    others = ", ".join(tool.source for tool in claiming if tool is not serving)
    binding = cast("ServiceBinding", serving.binding)
    return f"{binding.service} served by {serving.source}, not by {others}"


def _is_elsewhere(tool: Tool) -> bool:
    """Whether what `tool` calls is behind the gateway: what runs inside goes first."""
    return not isinstance(tool.binding, PythonBinding)


class Catalogs:
    """The current catalog of every tenant."""

    def __init__(self) -> None:
        self._current: dict[str, Catalog] = {}
        self._loading = asyncio.Lock()  # a slow load must not replace what a later one found
        self._watchers: list[Callable[[str], None]] = []

    def of(self, tenant: str) -> Catalog:
        """The snapshot to serve a request of `tenant` from; empty when it has no tools."""
        return self._current.get(tenant) or _EMPTY

    def on_change(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(tenant)` after the tools of a tenant have changed."""
        self._watchers.append(watcher)

    async def reload(self, store: ToolStore, tenant: str) -> None:
        """Replace the snapshot of `tenant`; readers see the old one until the new one is whole."""
        async with self._loading:
            tools = await store.tools(tenant)
            sources = await store.sources(tenant)
            before = self._current.get(tenant)
            after = Catalog(tools, sources, before)
            self._current[tenant] = after
        log.info("catalog_loaded", extra={"tenant": tenant, "tools": len(after.tools)})
        if before is not None and not after.lists_like(before):
            for watcher in self._watchers:
                watcher(tenant)

    async def reload_all(self, store: ToolStore, tenant: str) -> None:
        """Reload `tenant` and every other that is held: what the feed missed is unknown."""
        for held in {tenant, *self._current}:
            await self.reload(store, held)


_EMPTY = Catalog()
