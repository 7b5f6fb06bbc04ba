"""The catalog: the tools, prompts and resources of a tenant, listed and called without the
database.

An immutable snapshot: a request keeps the one that it began with. `registry.catalog.catalogs` holds
the current one of each tenant.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from config.settings import Toolset
from registry.catalog.lists import Listing, Page, ShortList, ToolList, encode_item, relays_tasks
from registry.catalog.lookup import Lookup, by_service
from registry.catalog.resources import CatalogResources, Located
from registry.catalog.toolsets import narrowed
from registry.display.disclosure import DESCRIBER, own_tools
from registry.display.profiles import Chosen
from registry.display.shapes import Shaping
from registry.names.tool_names import is_reserved
from registry.skills.snapshot import (
    NO_SKILLS,
    Agent,
    SkillSnapshot,
    prefixed_items,
    prompts_of,
    resources_of,
)
from schemas.binding import Does
from schemas.jsonschema import Checker
from schemas.mcp.messages import ListKind
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import ItemKind, ServerFacts, SnapshotItem
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import Tool

__all__ = ["Catalog", "Located", "Page"]


VIEWS_LIMIT = 64  # per catalog, by callers' permissions
SHORT_LISTS_LIMIT = 64  # per catalog, by profile and by what sessions use
LISTS_LIMIT = 8  # per catalog, by profile; shaped tools are cached elsewhere


class Catalog:
    """Snapshot of one tenant, ordered by name; `services` are the tools that call hybrid actions,
    one for each id, ordered by id."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        sources: Iterable[Source] = (),
        before: "Catalog | None" = None,
        items: Iterable[SnapshotItem] = (),
        shaping: Shaping | None = None,
        skills: SkillSnapshot = NO_SKILLS,
    ) -> None:
        """`before` is the snapshot that this one replaces: unchanged tools keep their checkers.
        `shaping` rewrites tools for lists; without it they are listed as they are."""
        self._shaping = shaping or Shaping()
        self.skills = skills
        self.tools: tuple[Tool, ...] = tuple(sorted(tools, key=lambda tool: tool.name))
        self.sources: Mapping[str, Source] = {source.name: source for source in sources}
        self.servers: Mapping[str, ServerFacts] = {
            name: source.server for name, source in self.sources.items() if source.server
        }
        items = prefixed_items(items, skills)
        self.items: tuple[SnapshotItem, ...] = tuple(sorted(items, key=lambda item: item.name))
        self.denied: frozenset[str] = frozenset()  # ids of tools hidden from this view
        self.prompts: tuple[SnapshotItem, ...] = self._of_kind("prompt")
        self.resources: tuple[SnapshotItem, ...] = self._of_kind("resource")
        self.templates: tuple[SnapshotItem, ...] = self._of_kind("template")
        self._lookup = Lookup(self.tools, self._shaping.profiles)
        self._prompts = {prompt.name: prompt for prompt in self.prompts}
        self._by_service = {
            id_: tool for id_, tool in by_service(self.tools).items() if self._is_free(id_, tool)
        }
        self._checkers = before.surviving_checkers(self._lookup.by_name) if before else {}
        self._tool_lists: Memo[str, ToolList] = Memo(LISTS_LIMIT)
        self._short_lists: Memo[tuple[str, ...], ShortList] = Memo(SHORT_LISTS_LIMIT)
        self._item_lists: dict[tuple[ItemKind, str | None], Listing] = {}
        self._toolsets: dict[str, Catalog] = {}
        self._visible: Memo[frozenset[str], Catalog] = Memo(VIEWS_LIMIT)

    def get(self, name: str) -> Tool | None:
        """The tool of this name; else the one that formerly had it, or the gateway's own."""
        return self._lookup.get(name) or self._own_by_name.get(name)

    def by_id(self, tool_id: str) -> Tool | None:
        return self._lookup.by_id.get(tool_id)

    def find(self, name: str, chosen: Chosen | None = None) -> Tool | None:
        """The tool of this name; else the one that a profile renamed so, preferably `chosen`; else
        the one that formerly had it."""
        return self._lookup.find(name, chosen) or self._own_by_name.get(name)

    def called(self, tool: Tool, chosen: Chosen) -> str:
        """The tool's name in a profile."""
        return self._lookup.called(tool, chosen)

    def service(self, id_: str) -> Tool | None:
        """The tool that calls the hybrid action `id_`; of several, one that runs inside the
        gateway."""
        return self._by_service.get(id_)

    @property
    def services(self) -> tuple[Tool, ...]:
        return tuple(self._by_service[id_] for id_ in sorted(self._by_service))

    def prompt(self, name: str) -> SnapshotItem | None:
        return self._prompts.get(name)

    def locate(self, uri: str) -> Located | None:
        """The server and URI of a resource; see `Resources.locate`."""
        return self._routes.locate(uri)

    def expose(self, source: str, uri: str) -> str:
        """The URI under which clients see the resource `uri` of the source of this name."""
        return self._routes.expose(source, uri)

    def checker(self, tool: Tool) -> Checker:
        """The argument checker of `tool`: its input schema, compiled lazily."""
        # our own tool may share the name of a tool in another toolset
        key = tool.digest if tool.binding.facts.own else tool.name
        checker = self._checkers.get(key)
        if checker is None:
            checker = self._checkers[key] = Checker(bytes(tool.input_schema))
        return checker

    def page(
        self, revision: Revision, after: str | None, limit: int, chosen: Chosen | None = None
    ) -> Page:
        """At most `limit` tools whose names follow `after`, encoded as `revision` shows them."""
        return self.tool_list(chosen).page(revision, after, limit)

    def tool_list(self, chosen: Chosen | None = None) -> ToolList:
        """The tools as a profile shows them; None: the profile of the settings."""
        chosen = chosen or self._shaping.profiles.default
        made = self._tool_lists.get(chosen.name)
        if made is None:
            made = ToolList(self.tools, self._shaping, chosen, self._relays_tasks)
            self._tool_lists.put(chosen.name, made)
        return made

    @cached_property
    def own(self) -> Mapping[Does, Tool]:
        """The gateway's own tools for finding the others, by function."""
        sources = {tool.source for tool in self.tools if tool.source}
        most = self._shaping.search_limit
        return own_tools(sources, skills=bool(self.skills), limit_maximum=most)

    def short_list(
        self, does: Sequence[Does], more: Sequence[Tool] = (), chosen: Chosen | None = None
    ) -> ShortList:
        """The gateway's own tools for `does`, and `more`, which are of this catalog."""
        chosen = chosen or self._shaping.profiles.default
        key = (chosen.name, *does, *(tool.id for tool in more))
        made = self._short_lists.get(key)
        if made is None:
            own = [self.own[one] for one in does if one in self.own]
            called = {tool.name: self.called(tool, chosen) for tool in more}
            made = ShortList([*own, *more], called, self._shaping, chosen, self._relays_tasks)
            self._short_lists.put(key, made)
        return made

    @property
    def tool_lists(self) -> list[ToolList]:
        """The lists made so far."""
        return self._tool_lists.values()

    def is_made(self, chosen: Chosen) -> bool:
        """Whether `tool_list` is cached."""
        return self._tool_lists.get(chosen.name) is not None or not self.tools

    def prepare(self, profiles: Iterable[Chosen]) -> None:
        """Build lists ahead; in a thread, as it takes time proportional to the tools."""
        for chosen in profiles:
            self.tool_list(chosen)

    def item_page(
        self,
        kind: ItemKind,
        revision: Revision,
        after: str | None,
        limit: int,
        agent: Agent | None = None,
    ) -> Page:
        """One page of prompts, resources or templates, the skills of `agent` included."""
        key = (kind, agent.name if agent else None)
        if key not in self._item_lists:
            own = {item.name: item for item in self.own_items(kind, agent)}
            theirs = [item for item in self._of_kind(kind) if item.name not in own]
            both = sorted([*theirs, *own.values()], key=lambda item: item.name)
            self._item_lists[key] = _listing(both)
        return self._item_lists[key].page(revision, after, limit)

    def own_items(self, kind: ItemKind, agent: Agent | None = None) -> list[SnapshotItem]:
        """The skills of `agent` as prompts or as resources."""
        skills = self.skills.of(agent).values() if self.skills.listed else ()
        if kind == "prompt":
            return prompts_of(skills)
        return resources_of(skills) if kind == "resource" else []

    def toolset(self, name: str, toolset: Toolset) -> "Catalog":
        """The subset of this catalog in the toolset of this name, built on first use."""
        if name not in self._toolsets:
            tools, sources, items = narrowed(name, toolset, self.tools, self.sources, self.items)
            skills = self.skills.within({tool.id for tool in tools})
            shaping = self._shaping.limited(toolset.tool_tokens)
            part = Catalog(tools, sources, items=items, shaping=shaping, skills=skills)
            part._checkers = self._checkers
            self._toolsets[name] = part
        return self._toolsets[name]

    def visible_to(self, scopes: frozenset[str]) -> "Catalog":
        """This catalog without the hybrid actions that the scopes of a caller do not permit."""
        telling = scopes & self._scopes  # few combinations, whatever else is in the tokens
        if telling == self._scopes:
            return self
        part = self._visible.get(telling)
        if part is None:
            tools = [tool for tool in self.tools if _is_open_to(tool, telling)]
            part = Catalog(
                tools,
                tuple(self.sources.values()),
                items=self.items,
                shaping=self._shaping,
                skills=self.skills.within({tool.id for tool in tools}),
            )
            part.denied = self.denied
            part._serve_as(self)
            self._visible.put(telling, part)
        return part

    def without(
        self,
        tools: Collection[str],
        items: Collection[tuple[ItemKind, str]],
        denied: frozenset[str],
    ) -> "Catalog":
        """This catalog for a caller who may not see some tools (by id) and items (by kind and
        name), nor a source that has no others. `denied` are all tools that the caller may not call,
        those of other toolsets included. Resources are located as before: lists contain only
        some."""
        left = [tool for tool in self.tools if tool.id not in tools]
        here = [item for item in self.items if (item.kind, item.name) not in items]
        lost = {tool.source for tool in self.tools} | {item.source for item in self.items}
        lost -= {tool.source for tool in left} | {item.source for item in here}
        part = Catalog(
            left,
            [source for source in self.sources.values() if source.name not in lost],
            items=here,
            shaping=self._shaping,
            skills=self.skills.within({tool.id for tool in left}),
        )
        part._checkers = self._checkers
        part._routes = self._routes
        part.denied = denied
        part._serve_as(self)
        return part

    @cached_property
    def without_scripts(self) -> "Catalog":
        """This catalog with scripts switched off."""
        scripts = {tool.id for tool in self.tools if tool.binding.language is not None}
        return self.without(scripts, (), self.denied | scripts) if scripts else self

    @cached_property
    def _scopes(self) -> frozenset[str]:
        """All scopes that decide whether a caller may call some tool."""
        return frozenset(scope for tool in self.tools for scope in _wanted(tool))

    def changed(self, before: "Catalog") -> frozenset[ListKind]:
        """The kinds of lists that differ from those of `before`."""
        return frozenset(kind for kind, one in self.digests.items() if one != before.digests[kind])

    @cached_property
    def digests(self) -> Mapping[ListKind, bytes]:
        """A digest of each list, equal for equal lists."""
        return {
            "tools": _digest([*map(self._shown, self.tools), *map(str.encode, sorted(self.own))]),
            "prompts": _digest([*map(_item_shown, self.prompts), self.skills.digest]),
            "resources": _digest(
                [*map(_item_shown, (*self.resources, *self.templates)), self.skills.digest]
            ),
        }

    @property
    def digest(self) -> bytes:
        """A digest of all lists together."""
        return _digest(self.digests.values())

    def surviving_checkers(self, tools: Mapping[str, Tool]) -> dict[str, Checker]:
        return {
            name: checker
            for name, checker in self._checkers.items()
            if name in tools and tools[name].digest == self._lookup.by_name[name].digest
        }

    @cached_property
    def _own_by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in (*self.own.values(), DESCRIBER)}

    @cached_property
    def _routes(self) -> CatalogResources:
        return CatalogResources(self.items, self.sources)

    def _serve_as(self, whole: "Catalog") -> None:
        """Keep only ids that the same tool serves in `whole`; the others stay unserved here."""
        self._by_service = {
            id_: tool for id_, tool in self._by_service.items() if whole.service(id_) is tool
        }

    def _is_free(self, id_: str, tool: Tool) -> bool:
        """Whether the id of a hybrid action is free, that is no other tool's name: `/rpc` takes
        both."""
        return not is_reserved(id_) and self._lookup.get(id_) in (None, tool)

    def _of_kind(self, kind: ItemKind) -> tuple[SnapshotItem, ...]:
        return tuple(item for item in self.items if item.kind == kind)

    def _relays_tasks(self, tool: Tool) -> bool:
        return tool.definition is not None and relays_tasks(self.servers.get(tool.source))

    def _shown(self, tool: Tool) -> bytes:
        action = tool.binding.action
        service = action.service if action is not None else ""
        # policy rules may read them
        facts = f"{service} {tool.tier or ''} {tool.domain or ''} {' '.join(tool.tags)}"
        return f"{tool.name} {tool.digest} {self._relays_tasks(tool)} {facts}".encode()


def _wanted(tool: Tool) -> Sequence[str]:
    """The scopes of which a caller of the tool needs one; empty: public."""
    action = tool.binding.action
    if action is None or action.skip_auth or not action.scope:
        return ()
    return action.scope.split()


def _is_open_to(tool: Tool, scopes: frozenset[str]) -> bool:
    wanted = _wanted(tool)
    return not wanted or not scopes.isdisjoint(wanted)


def _listing(items: Sequence[SnapshotItem]) -> Listing:
    return Listing(
        [item.name for item in items],
        lambda revision: [encode_item(item, revision) for item in items],
    )


def _item_shown(item: SnapshotItem) -> bytes:
    return b"%s %s" % (item.name.encode(), item.definition)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"\n".join(parts)).digest()
