"""Catalog: the tools, prompts and resources of a tenant, listed and called without the database.

An immutable snapshot: a request keeps the one that it began with. `registry.catalog.catalogs` holds
the current one of each tenant.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from config.settings import ToolsetDefinition
from registry.catalog.lookup import Lookup, by_service
from registry.catalog.resources import CatalogResources, ResourceLocation
from registry.catalog.tool_lists import CatalogLists, OwnTasks, Page
from registry.catalog.toolsets import members
from registry.display.discovery_tools import DESCRIBER
from registry.display.profile_names import ProfileNames
from registry.display.profiles import SelectedProfile
from registry.display.tool_shaper import ToolShaper
from registry.names.tool_names import is_reserved, qualify
from registry.skills.snapshot import NO_SKILLS, SkillSnapshot, prefixed_items
from schemas.binding import Does
from schemas.json_schema.checker import Checker
from schemas.mcp.messages import ListKind
from schemas.mcp.snapshot import ItemKind, SnapshotItem
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import Tool

__all__ = ["Catalog", "Page", "ResourceLocation"]


VIEWS_LIMIT = 64  # per catalog, by callers' permissions


class Catalog:
    """Snapshot of one tenant, ordered by name; `services` are the tools that call hybrid actions,
    one for each id, ordered by id. Complete when made; what it computes later are results of pure
    functions, cached."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        sources: Iterable[Source] = (),
        *,
        items: Iterable[SnapshotItem] = (),
        shaper: ToolShaper | None = None,
        skills: SkillSnapshot = NO_SKILLS,
        denied: frozenset[str] = frozenset(),
        searchable: bool = True,
        checkers: dict[str, Checker] | None = None,
        view_of: "Catalog | None" = None,
        own_tasks: OwnTasks | None = None,
        names: ProfileNames | None = None,
        personal: frozenset[str] = frozenset(),
    ) -> None:
        """A snapshot. `shaper` rewrites tools for lists; without it they are listed as they are.
        `denied` are ids of tools that are hidden from this view. `searchable`: the gateway's own
        tools for finding others are part of it. `checkers` are compiled schemas by the name of a
        tool, shared with another catalog. `view_of`: the catalog whose ids of hybrid actions and
        URIs of resources resolve as they do there, or not at all. `own_tasks`: how calls
        run as tasks of the gateway; None: they do not. `names` are those of the catalog that this
        is a part of; None: it is a whole one. `personal`: places of the sources at which callers
        have accounts of their own."""
        self.personal: Final = personal
        self.own_tasks: Final = own_tasks
        self.tools: Final = tuple(sorted(tools, key=lambda tool: tool.name))
        self.sources: Final = {source.name: source for source in sources}
        self.servers: Final = {
            name: source.server for name, source in self.sources.items() if source.server
        }
        self.skills: Final = skills
        self.items: Final = tuple(sorted(prefixed_items(items, skills), key=lambda item: item.name))
        self.denied: Final = denied
        self.shaper: Final = shaper or ToolShaper()
        self._searchable = searchable
        self._names = names or ProfileNames(
            (tool.name for tool in self.tools), self.shaper.profiles
        )
        self._lookup = Lookup(self.tools, self._names)
        self.lists: Final = self._make_lists()
        self.prompts: Final = self.lists.of_kind("prompt")
        self.resources: Final = self.lists.of_kind("resource")
        self.templates: Final = self.lists.of_kind("template")
        self._prompts = {prompt.name: prompt for prompt in self.prompts}
        self._by_service = self._find_services(view_of)
        self.routes: Final[CatalogResources] = (
            CatalogResources(self.items, self.sources) if view_of is None else view_of.routes
        )
        self._checkers = {} if checkers is None else checkers
        self._toolsets: dict[str, tuple[ToolsetDefinition, Catalog]] = {}
        self._without_wings: dict[str, Catalog] = {}
        self._visible: Memo[frozenset[str], Catalog] = Memo(VIEWS_LIMIT)

    def _make_lists(self) -> CatalogLists:
        places = {source.place for source in self.sources.values()} if self.personal else ()
        return CatalogLists(
            self.tools,
            self.items,
            servers=self.servers,
            skills=self.skills,
            shaper=self.shaper,
            names=self._names,
            searchable=self._searchable,
            own_tasks=self.own_tasks,
            has_accounts=not self.personal.isdisjoint(places),
        )

    def _find_services(self, view_of: "Catalog | None") -> dict[str, Tool]:
        """Tools by the hybrid action that they call."""
        return {
            id_: tool
            for id_, tool in by_service(self.tools).items()
            if self._is_free(id_, tool) and (view_of is None or view_of.service(id_) is tool)
        }

    @property
    def own(self) -> Mapping[Does, Tool]:
        """The gateway's own tools, by function: for finding the others, and for accounts."""
        return self.lists.own

    def get(self, name: str) -> Tool | None:
        """The tool of this name; else the one that formerly had it, or the gateway's own."""
        return self._lookup.get(name) or self._own_by_name.get(name)

    def by_id(self, tool_id: str) -> Tool | None:
        return self._lookup.by_id.get(tool_id)

    def find(self, name: str) -> Tool | None:
        """The tool of this name; else the one that some profile renamed to it; else the one that
        formerly had the name."""
        return self._lookup.find(name) or self._own_by_name.get(name)

    def find_called(self, name: str) -> Tool | None:
        """The tool of a call that is made later: `SOURCE.TOOL`, or a name as in `find`."""
        return self.find_of_source(name) if "." in name else self.find(name)

    def find_configured(self, name: str) -> Tool | None:
        """The tool that settings name: `SOURCE.TOOL`, or an operation of a wing by its name alone.
        A name alone says nothing of its owner: another server may list it."""
        if "." in name:
            return self.find_of_source(name)
        tool = self.find(name)
        return tool if tool is not None and tool.binding.wing else None

    def find_of_source(self, name: str) -> Tool | None:
        """The tool `SOURCE.TOOL`; `.TOOL` is one without a source. Names of tools have no dots."""
        source, _, plain = name.rpartition(".")
        tools = (self.find(candidate) for candidate in (plain, qualify(source, plain)))
        return next((tool for tool in tools if tool is not None and tool.source == source), None)

    def finds_always(self, tool: Tool) -> bool:
        """Whether one of the gateway's own tools has its name in every profile: no other tool was
        renamed to it."""
        return self._own_by_name.get(tool.name) is tool and self._lookup.is_free(tool.name)

    def display_name(self, tool: Tool, profile: SelectedProfile) -> str:
        """The tool's name in a profile."""
        return self._names.of(tool.name, profile)

    def identifier(self, tool: Tool) -> str | None:
        """The tool's identifier in programs, whatever it is shown as; None for one that is not in
        this catalog, as the gateway's own."""
        catalog_tool = self._lookup.by_id.get(tool.id)
        return None if catalog_tool is None else self._names.identifiers[catalog_tool.name]

    @cached_property
    def by_identifier(self) -> Mapping[str, Tool]:
        """The tools by their identifiers in programs. One stands for the same tool of the tenant
        in every view, or for none."""
        return {self._names.identifiers[tool.name]: tool for tool in self.tools}

    def service(self, id_: str) -> Tool | None:
        """The tool that calls the hybrid action `id_`; of several, one that runs inside the
        gateway."""
        return self._by_service.get(id_)

    @property
    def services(self) -> tuple[Tool, ...]:
        return tuple(self._by_service[id_] for id_ in sorted(self._by_service))

    def prompt(self, name: str) -> SnapshotItem | None:
        return self._prompts.get(name)

    def locate(self, uri: str) -> ResourceLocation | None:
        """The server and URI of a resource; see `Resources.locate`."""
        return self.routes.locate(uri)

    def expose(self, source: str, uri: str, lookups: Iterator[int] | None = None) -> str:
        """The URI under which clients see the resource `uri` of the source of this name; see
        `CatalogResources.expose`."""
        return self.routes.expose(source, uri, lookups)

    def refer(self, source: str, text: str) -> str:
        """A text in the metadata of a source; see `CatalogResources.refer`."""
        return self.routes.refer(source, text)

    def checker(self, tool: Tool) -> Checker:
        """The argument checker of `tool`: its input schema, compiled lazily."""
        # our own tool may share the name of a tool in another toolset
        key = tool.digest if tool.binding.facts.own else tool.name
        checker = self._checkers.get(key)
        if checker is None:
            described = tool.binding.facts.typed
            checker = Checker(bytes(tool.input_schema), described=described)
            self._checkers[key] = checker
        return checker

    def checkers_for(self, tools: Iterable[Tool]) -> dict[str, Checker]:
        """The compiled schemas of those `tools` that are in this catalog unchanged."""
        digests = {tool.name: tool.digest for tool in tools}
        by_name = self._lookup.by_name
        return {
            name: checker
            for name, checker in self._checkers.items()
            if name in by_name and digests.get(name) == by_name[name].digest
        }

    def narrow(
        self,
        tools: Iterable[Tool],
        *,
        sources: Iterable[Source] | None = None,
        items: Iterable[SnapshotItem] | None = None,
        denied: frozenset[str] | None = None,
        shaper: ToolShaper | None = None,
        is_view: bool = True,
    ) -> "Catalog":
        """The part of this catalog with `tools` alone, and with their skills; what is None stays.
        `is_view`: it is what some caller sees of this catalog, not an endpoint of its own."""
        tools = tuple(tools)
        return Catalog(
            tools,
            self.sources.values() if sources is None else sources,
            items=self.items if items is None else items,
            shaper=shaper or self.shaper,
            skills=self.skills.within({tool.id for tool in tools}),
            denied=self.denied if denied is None else denied,
            searchable=self._searchable,
            checkers=self._checkers,
            view_of=self if is_view else None,
            own_tasks=self.own_tasks,
            names=self._names,
            personal=self.personal,
        )

    def toolset(self, name: str, toolset: ToolsetDefinition) -> "Catalog":
        """The subset of this catalog in the toolset of this name, built on first use and when its
        definition has changed."""
        built = self._toolsets.get(name)
        if built is None or built[0] != toolset:
            built = self._toolsets[name] = toolset, self.select(name, toolset)
        return built[1]

    def select(self, name: str, toolset: ToolsetDefinition) -> "Catalog":
        """The subset of this catalog in a toolset, which may not be stored."""
        tools, sources, items = members(
            name, toolset, tools=self.tools, sources=self.sources, items=self.items
        )
        shaper = self.shaper.with_tokens(toolset.tool_tokens)
        return self.narrow(tools, sources=sources, items=items, shaper=shaper, is_view=False)

    def forget_toolset(self, name: str) -> None:
        """Drop the subset of a toolset that was deleted."""
        self._toolsets.pop(name, None)

    def visible_to(self, scopes: frozenset[str]) -> "Catalog":
        """This catalog without the hybrid actions that the scopes of a caller do not permit."""
        deciding = scopes & self._scopes  # few combinations, whatever else is in the tokens
        if deciding == self._scopes:
            return self
        part = self._visible.get(deciding)
        if part is None:
            part = self.narrow(tool for tool in self.tools if _is_open_to(tool, deciding))
            self._visible.put(deciding, part)
        return part

    def without(
        self,
        tools: Collection[str],
        items: Collection[tuple[ItemKind, str]],
        denied: frozenset[str],
    ) -> "Catalog":
        """The view of a caller who may not see some tools (by id) and items (by kind and name), nor
        a source that has no others. `denied` are all tools that the caller may not call, those of
        other toolsets included. Resources are located as before: lists contain only some."""
        remaining = [tool for tool in self.tools if tool.id not in tools]
        remaining_items = [item for item in self.items if (item.kind, item.name) not in items]
        lost = {tool.source for tool in self.tools} | {item.source for item in self.items}
        lost -= {tool.source for tool in remaining} | {item.source for item in remaining_items}
        sources = [source for source in self.sources.values() if source.name not in lost]
        return self.narrow(remaining, sources=sources, items=remaining_items, denied=denied)

    @cached_property
    def without_scripts(self) -> "Catalog":
        """This catalog with scripts switched off."""
        scripts = {tool.id for tool in self.tools if tool.binding.language is not None}
        return self.without(scripts, (), self.denied | scripts) if scripts else self

    def without_wing(self, wing: str) -> "Catalog":
        """This catalog without the tools of a wing, whose source stays."""
        narrowed = self._without_wings.get(wing)
        if narrowed is None:
            ids = {tool.id for tool in self.tools if tool.binding.wing == wing}
            remaining = (tool for tool in self.tools if tool.id not in ids)
            narrowed = self.narrow(remaining, denied=self.denied | ids) if ids else self
            self._without_wings[wing] = narrowed
        return narrowed

    def changed_lists(self, before: "Catalog") -> frozenset[ListKind]:
        """Kinds of lists that differ from those of `before`."""
        then = before.lists.digests
        return frozenset(
            kind for kind, digest in self.lists.digests.items() if digest != then[kind]
        )

    @cached_property
    def _scopes(self) -> frozenset[str]:
        """All scopes that decide whether a caller may call some tool."""
        return frozenset(scope for tool in self.tools for scope in tool.binding.scopes)

    @cached_property
    def _own_by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in (*self.own.values(), DESCRIBER)}

    def _is_free(self, id_: str, tool: Tool) -> bool:
        """Whether the id of a hybrid action is free, that is no other tool's name: `/rpc` takes
        both."""
        return not is_reserved(id_) and self._lookup.get(id_) in (None, tool)


def _is_open_to(tool: Tool, scopes: frozenset[str]) -> bool:
    required = tool.binding.scopes
    return not required or not scopes.isdisjoint(required)
