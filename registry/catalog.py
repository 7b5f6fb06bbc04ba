"""The catalog: what tools, prompts and resources a tenant has, ready to be listed and called
without the database.

A `Catalog` is a snapshot that never changes; `Catalogs` holds the current one of each tenant and
replaces it whole when the registry says that something changed. A request keeps the snapshot that
it began with.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

from config.settings import Toolset
from registry.listing import Listing, Page, encode_item, encode_tool, relays_tasks
from registry.resources import Located, Resources
from registry.services import by_service
from registry.store import ToolStore
from registry.toolsets import narrowed
from schemas.binding import ServiceBinding
from schemas.jsonschema import Checker
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import Item, ItemKind, ServerFacts
from schemas.source import Source
from schemas.tool import Tool

__all__ = ["Catalog", "Catalogs", "Kind", "Located", "Page"]

log = logging.getLogger("toolgate.catalog")

Kind = Literal["tools", "prompts", "resources"]  # what clients are told apart that it changed

VIEWS_LIMIT = 64  # of one catalog, by what callers may do
NO_TOOLSETS: Mapping[str, Toolset] = {}


class Catalog:
    """What one tenant has at one moment, in the order of the names; `services` are the tools that
    call hybrid actions, one for each id, in the order of the ids."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        sources: Iterable[Source] = (),
        before: "Catalog | None" = None,
        items: Iterable[Item] = (),
    ) -> None:
        """`before` is the snapshot that this one replaces: unchanged tools keep their checkers."""
        self.tools: tuple[Tool, ...] = tuple(sorted(tools, key=lambda tool: tool.name))
        self.sources: Mapping[str, Source] = {source.name: source for source in sources}
        self.servers: Mapping[str, ServerFacts] = {
            name: source.server for name, source in self.sources.items() if source.server
        }
        self._items = tuple(sorted(items, key=lambda item: item.name))
        self.prompts: tuple[Item, ...] = self._of_kind("prompt")
        self.resources: tuple[Item, ...] = self._of_kind("resource")
        self.templates: tuple[Item, ...] = self._of_kind("template")
        self._by_name = {tool.name: tool for tool in self.tools}
        self._prompts = {prompt.name: prompt for prompt in self.prompts}
        self._by_service = by_service(self.tools)
        self.services: tuple[Tool, ...] = tuple(
            self._by_service[id_] for id_ in sorted(self._by_service)
        )
        self._checkers = before.surviving_checkers(self._by_name) if before else {}
        self._tool_list = Listing(list(self._by_name), self._encode_tools)
        self._item_lists = {
            "prompt": _listing(self.prompts),
            "resource": _listing(self.resources),
            "template": _listing(self.templates),
        }
        self._toolsets: dict[str, Catalog] = {}
        self._visible: dict[frozenset[str], Catalog] = {}

    def get(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def service(self, id_: str) -> Tool | None:
        """The tool that calls the hybrid action `id_`; of several, one inside the gateway."""
        return self._by_service.get(id_)

    def prompt(self, name: str) -> Item | None:
        return self._prompts.get(name)

    def locate(self, uri: str) -> Located | None:
        """Where a resource is to be read; see `Resources.locate`."""
        return self._routes.locate(uri)

    def expose(self, source: str, uri: str) -> str:
        """What clients should call the resource `uri` of the source of this name."""
        return self._routes.expose(source, uri)

    def checker(self, tool: Tool) -> Checker:
        """The compiled input schema of `tool`, compiled when first asked for."""
        checker = self._checkers.get(tool.name)
        if checker is None:
            checker = self._checkers[tool.name] = Checker(bytes(tool.input_schema))
        return checker

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        """At most `limit` tools whose names follow `after`, encoded as `revision` shows them."""
        return self._tool_list.page(revision, after, limit)

    def item_page(self, kind: ItemKind, revision: Revision, after: str | None, limit: int) -> Page:
        """The same of prompts, resources or templates."""
        return self._item_lists[kind].page(revision, after, limit)

    def toolset(self, name: str, toolset: Toolset) -> "Catalog":
        """The part of this catalog that is the toolset of this name, made when first asked for."""
        if name not in self._toolsets:
            tools, sources, items = narrowed(toolset, self.tools, self.sources, self._items)
            part = Catalog(tools, sources, items=items)
            part._checkers = self._checkers
            self._toolsets[name] = part
        return self._toolsets[name]

    def visible_to(self, scopes: frozenset[str]) -> "Catalog":
        """This catalog without the hybrid actions that a caller with these scopes may not call."""
        telling = scopes & self._scopes  # few combinations, whatever else is in the tokens
        if telling == self._scopes:
            return self
        part = self._visible.get(telling)
        if part is None:
            tools = [tool for tool in self.tools if _is_open_to(tool, telling)]
            part = Catalog(tools, tuple(self.sources.values()), items=self._items)
            if len(self._visible) >= VIEWS_LIMIT:
                self._visible.clear()
            self._visible[telling] = part
        return part

    @cached_property
    def _scopes(self) -> frozenset[str]:
        """All scopes that tell whether somebody may call a tool."""
        return frozenset(scope for tool in self.tools for scope in _wanted(tool))

    def changed(self, before: "Catalog") -> frozenset[Kind]:
        """The lists in which a client that listed `before` would see something new."""
        return frozenset(kind for kind, one in self.digests.items() if one != before.digests[kind])

    @cached_property
    def digests(self) -> Mapping[Kind, bytes]:
        """Of each list, what is equal for equal lists."""
        return {
            "tools": _digest(self._shown(tool) for tool in self.tools),
            "prompts": _digest(map(_item_shown, self.prompts)),
            "resources": _digest(map(_item_shown, (*self.resources, *self.templates))),
        }

    @property
    def digest(self) -> bytes:
        """Of all lists together."""
        return _digest(self.digests.values())

    def surviving_checkers(self, tools: Mapping[str, Tool]) -> dict[str, Checker]:
        return {
            name: checker
            for name, checker in self._checkers.items()
            if name in tools and tools[name].digest == self._by_name[name].digest
        }

    @cached_property
    def _routes(self) -> Resources:
        return Resources(self._items, self.sources)

    def _of_kind(self, kind: ItemKind) -> tuple[Item, ...]:
        return tuple(item for item in self._items if item.kind == kind)

    def _encode_tools(self, revision: Revision) -> list[bytes]:
        return [encode_tool(tool, revision, self._relays_tasks(tool)) for tool in self.tools]

    def _relays_tasks(self, tool: Tool) -> bool:
        return tool.definition is not None and relays_tasks(self.servers.get(tool.source))

    def _shown(self, tool: Tool) -> bytes:
        service = tool.binding.service if isinstance(tool.binding, ServiceBinding) else ""
        return f"{tool.name} {tool.digest} {self._relays_tasks(tool)} {service}".encode()


def _wanted(tool: Tool) -> Sequence[str]:
    """The scopes of which a caller of the tool needs one; none: it is for everybody."""
    binding = tool.binding
    if not isinstance(binding, ServiceBinding) or binding.skip_auth or not binding.scope:
        return ()
    return binding.scope.split()


def _is_open_to(tool: Tool, scopes: frozenset[str]) -> bool:
    wanted = _wanted(tool)
    return not wanted or not scopes.isdisjoint(wanted)


def _listing(items: Sequence[Item]) -> Listing:
    return Listing(
        [item.name for item in items],
        lambda revision: [encode_item(item, revision) for item in items],
    )


def _item_shown(item: Item) -> bytes:
    return b"%s %s" % (item.name.encode(), item.definition)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"\n".join(parts)).digest()


Watcher = Callable[[str, frozenset[Kind]], None]


class Catalogs:
    """The current catalog of every tenant."""

    def __init__(self, toolsets: Mapping[str, Toolset] = NO_TOOLSETS) -> None:
        self._toolsets = toolsets
        self._current: dict[str, Catalog] = {}
        self._loading = asyncio.Lock()  # a slow load must not replace what a later one found
        self._watchers: list[Watcher] = []
        self._loaders: list[Callable[[str], None]] = []

    def of(self, tenant: str, toolset: str | None = None) -> Catalog:
        """The snapshot to serve a request of `tenant` from; empty when it has no tools, or when
        there is no such toolset."""
        catalog = self._current.get(tenant) or _EMPTY
        if toolset is None:
            return catalog
        wanted = self._toolsets.get(toolset)
        return catalog.toolset(toolset, wanted) if wanted else _EMPTY

    def on_load(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher(tenant)` after each load: sources may have come or gone, too."""
        self._loaders.append(watcher)

    def on_change(self, watcher: Watcher) -> None:
        """Call `watcher(tenant, lists)` after lists of a tenant have changed."""
        self._watchers.append(watcher)

    async def reload(self, store: ToolStore, tenant: str) -> None:
        """Replace the snapshot of `tenant`; readers see the old one until the new one is whole."""
        async with self._loading:
            tools = await store.tools(tenant)
            items = await store.items(tenant)
            sources = await store.sources(tenant)
            before = self._current.get(tenant)
            after = Catalog(tools, sources, before, items)
            self._current[tenant] = after
        for loader in self._loaders:
            loader(tenant)
        log.info("catalog_loaded", extra={"tenant": tenant, "tools": len(after.tools)})
        kinds = after.changed(before) if before is not None else frozenset()
        if kinds:
            for watcher in self._watchers:
                watcher(tenant, kinds)

    async def reload_all(self, store: ToolStore, tenant: str) -> None:
        """Reload `tenant` and every other that is held: what the feed missed is unknown."""
        for held in {tenant, *self._current}:
            await self.reload(store, held)


_EMPTY = Catalog()
