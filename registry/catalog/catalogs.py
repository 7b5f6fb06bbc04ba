"""The current catalog of every tenant, replaced atomically when the registry announces a change."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import get_args

from anyio import CapacityLimiter, create_task_group, to_thread

from config.settings import Toolset, ToolsetDefinition
from registry.catalog.catalog import Catalog
from registry.catalog.catalog_events import CatalogEvents
from registry.catalog.resources import with_references
from registry.catalog.tool_lists import OwnTasks
from registry.catalog.toolsets import unknown
from registry.display.tool_shaper import ToolShaper
from registry.names.tool_names import CODE_WING
from registry.sources.tool_store import ToolStore
from schemas.mcp.messages import ListKind

log = logging.getLogger("toolgate.catalog")

ALL_KINDS: frozenset[ListKind] = frozenset(get_args(ListKind))
WARNED_LIMIT = 1000  # unknown toolsets
LOADED_AT_ONCE = 4  # tenants in parallel, when all are reloaded: each takes a pool connection
NO_TOOLSETS: Mapping[str, Toolset] = {}
NO_STORED: Mapping[str, ToolsetDefinition] = {}

_EMPTY = Catalog()
_TOOLS: frozenset[ListKind] = frozenset({"tools"})


class Catalogs:
    """Holder of the current catalog of every tenant."""

    shaper = ToolShaper()  # default
    version = 0  # grows when a catalog is replaced
    _unlisted: frozenset[str] = frozenset()  # wings

    def __init__(
        self,
        toolsets: Mapping[str, Toolset] = NO_TOOLSETS,
        shaper: ToolShaper | None = None,
        *,
        lists_skills: bool = True,
        own: str = "",
        shows_scripts: bool = True,
        own_tasks: OwnTasks | None = None,
        personal: frozenset[str] = frozenset(),
        has_code: bool = True,
        events: CatalogEvents | None = None,
    ) -> None:
        """Catalogs of all tenants. `lists_skills`: skills are prompts and resources, too. `own` is
        the gateway's tenant; "": all are its own. `shows_scripts`: tools that are scripts are
        visible to callers. `own_tasks`: how calls run as tasks of the gateway. `personal`:
        places of the sources at which callers have accounts of their own. `has_code`: programs may
        be run beside toolsets."""
        self._has_code = has_code
        self._personal = personal
        self._own_tasks = own_tasks
        self._toolsets = toolsets
        self._stored: Mapping[str, Mapping[str, ToolsetDefinition]] = {}  # by tenant
        self._stored_names: frozenset[str] = frozenset()  # of all tenants
        self._lists_skills = lists_skills
        self._own = own
        self._shows_scripts = shows_scripts
        self.shaper = shaper or self.shaper
        self._fixed: dict[str, Catalog] = {}  # toolsets shared by all tenants
        self._current: dict[str, Catalog] = {}
        self._warned: set[tuple[str, str]] = set()
        # Per tenant: a slow load must not replace the result of a later one.
        self._loading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._events = events or CatalogEvents()

    @property
    def toolsets(self) -> Mapping[str, Toolset]:
        """Toolsets of the settings."""
        return self._toolsets

    def toolset(self, tenant: str, name: str) -> ToolsetDefinition | None:
        """A toolset of the settings, or else a stored one of `tenant`."""
        return self._toolsets.get(name) or self._stored.get(tenant, NO_STORED).get(name)

    def toolsets_of(self, tenant: str) -> Mapping[str, ToolsetDefinition]:
        """The toolsets that callers of `tenant` reach: stored ones, and those of the settings."""
        return {**self._stored.get(tenant, NO_STORED), **self._toolsets}

    def is_stored(self, toolset: str) -> bool:
        """Whether some tenant has stored a toolset of this name, which is not in the settings."""
        return toolset in self._stored_names and toolset not in self._toolsets

    def store(self, toolsets: Mapping[str, Mapping[str, ToolsetDefinition]]) -> None:
        """Replace the stored toolsets of all tenants; unchanged ones keep their catalogs."""
        before, changed = self._stored, list[tuple[str, str]]()
        after: dict[str, dict[str, ToolsetDefinition]] = {}
        for tenant in {*before, *toolsets}:
            old, new = before.get(tenant, NO_STORED), toolsets.get(tenant, NO_STORED)
            changed += [(tenant, name) for name in {*old, *new} if old.get(name) != new.get(name)]
            after[tenant] = {
                name: old[name] if old.get(name) == toolset else toolset
                for name, toolset in new.items()
            }
        if not changed:
            return
        self._stored = after
        self._stored_names = frozenset(name for names in after.values() for name in names)
        self.version += 1
        for tenant, name in changed:
            if name not in after[tenant] and tenant in self._current:
                self._current[tenant].forget_toolset(name)
            if name not in self._toolsets:
                self._events.toolset_changed.publish(tenant, name)

    def of(self, tenant: str, toolset: str | None = None) -> Catalog:
        """The snapshot for a request of `tenant`; empty without tools or for an unknown toolset."""
        catalog = self._current.get(tenant) or _EMPTY
        definition = None if toolset is None else self.toolset(tenant, toolset)
        if not self._has_code and (definition is None or definition.code is None):
            catalog = catalog.without_wing(CODE_WING)
        if toolset is None:
            return catalog
        return (
            catalog.toolset(toolset, definition) if definition else self._fixed.get(toolset, _EMPTY)
        )

    def addressable(self, tenant: str, toolset: str | None) -> Catalog:
        """The catalog in which a caller at this endpoint may name tools: the tenant's whole one, or
        that of a toolset shared by all tenants."""
        return self._fixed.get(toolset or "") or self.of(tenant)

    def fix(self, toolset: str, catalog: Catalog) -> None:
        """Serve `catalog` as the toolset of this name, to every tenant."""
        self._fixed[toolset] = catalog
        self.version += 1

    def visible(self, catalog: Catalog) -> Catalog:
        """The part of a snapshot visible to callers; the rest can still be called."""
        for wing in self._unlisted:
            catalog = catalog.without_wing(wing)
        return catalog if self._shows_scripts else catalog.without_scripts

    def show_scripts(self, shows: bool) -> None:
        """Set whether tools that are scripts are visible."""
        if shows == self._shows_scripts:
            return
        self._shows_scripts = shows
        for tenant, catalog in self._current.items():
            if catalog.without_scripts is not catalog:
                self._events.lists_changed.publish(tenant, _TOOLS)

    def list_wing(self, wing: str, *, is_listed: bool) -> None:
        """Set whether the tools of a wing are visible: whether this process can serve them."""
        self._unlisted = self._unlisted - {wing} if is_listed else self._unlisted | {wing}

    async def reconfigure(
        self,
        toolsets: Mapping[str, Toolset],
        shaper: ToolShaper,
        personal: frozenset[str] = frozenset(),
    ) -> None:
        """Replace the toolsets, the shaping of lists, and where callers have accounts; the tools
        stay."""
        self.shaper, self._personal = shaper, personal  # also for loads that begin now
        async with AsyncExitStack() as loads:
            for tenant in {*self._current, *self._loading}:
                await loads.enter_async_context(self._loading[tenant])
            catalogs = {
                tenant: await to_thread.run_sync(_written_anew, catalog, shaper, personal)
                for tenant, catalog in self._current.items()
            }
            self._toolsets = toolsets
            self._current.update(catalogs)
            self.version += 1
        for tenant, catalog in catalogs.items():
            self._warn(tenant, catalog)
            self._events.lists_changed.publish(tenant, ALL_KINDS)

    async def reload(self, store: ToolStore, tenant: str) -> None:
        """Replace the snapshot of `tenant`; readers see the old one until the new one is
        complete."""
        async with self._loading[tenant]:
            tools = await store.tools(tenant)
            items = await store.items(tenant)
            sources = await store.sources(tenant)
            if tenant != (self._own or tenant):
                sources = [replace(source, foreign=tenant) for source in sources]
            tools, items = with_references(tools, items, sources)
            skills = await store.skills(tenant)
            before = self._current.get(tenant)
            after = Catalog(
                tools,
                sources,
                items=items,
                shaper=self.shaper,
                skills=skills if self._lists_skills else skills.without_listing(),
                checkers=before.checkers_for(tools) if before else None,
                own_tasks=self._own_tasks,
                personal=self._personal,
            )
            tool_lists = before.lists.tool_lists if before else ()
            profiles = [
                self.shaper.profiles.default,
                *(tool_list.profile for tool_list in tool_lists),
            ]
            await to_thread.run_sync(after.lists.prepare, profiles)
            self._current[tenant] = after
            self.version += 1
        self._events.catalog_loaded.publish(tenant)
        log.info("catalog_loaded", extra={"tenant": tenant, "tools": len(after.tools)})
        self._warn(tenant, after)
        kinds = after.changed_lists(before) if before is not None else frozenset()
        if kinds:
            self._events.lists_changed.publish(tenant, kinds)

    def _warn(self, tenant: str, catalog: Catalog) -> None:
        """Warn once about each toolset that descriptions name and that does not exist."""
        for name in unknown((tool.toolsets for tool in catalog.tools), self.toolsets_of(tenant)):
            if (tenant, name) not in self._warned and len(self._warned) < WARNED_LIMIT:
                self._warned.add((tenant, name))
                log.warning("toolset_unknown", extra={"tenant": tenant, "toolset": name})

    async def reload_all(self, store: ToolStore, tenant: str) -> None:
        """Reload `tenant` and all other tenants: which notifications the feed missed is unknown."""
        limiter = CapacityLimiter(LOADED_AT_ONCE)

        async def one(each: str) -> None:
            async with limiter:
                await self.reload(store, each)

        try:
            async with create_task_group() as tasks:
                for each in await self.tenants(store, tenant):
                    tasks.start_soon(one, each)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def tenants(self, store: ToolStore, first: str) -> list[str]:
        """All current and former tenants, `first` before the others."""
        return list(dict.fromkeys((first, *await store.tenants(), *self._current)))


def _written_anew(catalog: Catalog, shaper: ToolShaper, personal: frozenset[str]) -> Catalog:
    tools = catalog.tools
    anew = Catalog(
        tools,
        catalog.sources.values(),
        items=catalog.items,
        shaper=shaper,
        skills=catalog.skills,
        checkers=catalog.checkers_for(tools),
        own_tasks=catalog.own_tasks,
        personal=personal,
    )
    anew.lists.prepare([shaper.profiles.default])
    return anew
