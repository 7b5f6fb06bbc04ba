"""Tool lists of one catalog: encoded once for each profile and protocol revision.

A definition of another server is patched, never rebuilt: members unknown to the gateway survive.
"""

import bisect
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from registry.display.discovery_tools import ACCOUNTS, DESCRIBER, DESCRIBES, SOURCE, own_tools
from registry.display.profile_names import ProfileNames
from registry.display.profiles import SelectedProfile
from registry.display.token_budgets import LEVELS, tokens
from registry.display.tool_shaper import ShapedTool, ToolShaper, for_objects
from registry.skills.snapshot import Agent, SkillSnapshot, prompts_of, resources_of
from schemas.binding import Does, GatewayBinding
from schemas.mcp.messages import ListKind
from schemas.mcp.revisions import V2026_07_28, Revision
from schemas.mcp.snapshot import ItemKind, ServerFacts, SnapshotItem
from schemas.memo import Memo
from schemas.tool import Annotations, Tool

SERVICE = "toolgate/service"  # in `_meta` of a tool: the id of the hybrid action that it calls

_NAMED_BY: Mapping[ItemKind, str] = {
    "prompt": "name", "resource": "uri", "template": "uriTemplate",
}  # fmt: skip
_members = msgspec.json.Decoder(dict[str, Raw]).decode

_NO_HINTS = Annotations()

SHORT_LISTS_LIMIT = 64  # per catalog, by profile and by what sessions use
LISTS_LIMIT = 8  # per catalog, by profile; shaped tools are cached elsewhere
ITEM_LISTS_LIMIT = 64  # per catalog, by kind and by agent


TaskSupport = Literal["none", "relayed", "own"]
"""Where calls of a tool run as tasks of 2025-11-25: nowhere, at its server, in the gateway."""
TaskSupportOf = Callable[[Tool], TaskSupport]
_OPTIONAL = {"taskSupport": "optional"}
_CALLS = GatewayBinding("call_tool")


@dataclass(frozen=True, slots=True)
class OwnTasks:
    """Calls of any tool as tasks of the gateway."""

    capability: Mapping[str, Any]  # of MCP
    wing: str  # name of the wing that runs tasks; its own tools are never called as tasks


class _Listed(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool as a member of `tools/list`; members that a revision does not know stay UNSET."""

    name: str
    description: str | UnsetType
    input_schema: Raw
    title: str | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    execution: dict[str, str] | UnsetType = UNSET
    meta: dict[str, str] | UnsetType = field(default=UNSET, name="_meta")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Consecutive entries of a list, encoded for one revision."""

    entries: Raw  # a JSON array
    last: str | None  # cursor, when more follow: the last name
    results: dict[str, Raw] = default(default_factory=dict)  # whole results, cached by makers


class Listing:
    """A list of one kind, ordered by name and served in pages."""

    def __init__(self, names: Sequence[str], encode: Callable[[Revision], list[bytes]]) -> None:
        """A list whose entries `encode` returns, in the same order."""
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
            if after is None or self._has(after):  # cursors of ours are few, so worth caching
                self._pages[key] = page
        return page

    def some(
        self, places: Sequence[int], revision: Revision, after: str | None, limit: int
    ) -> Page:
        """Page of the entries at these ascending positions; not cached."""
        start = self._start(after)
        remaining = [place for place in places if place >= start]
        encoded = self._all(revision)
        listed = [encoded[place] for place in remaining[:limit]]
        last = self._names[remaining[limit - 1]] if len(remaining) > limit else None
        return Page(Raw(b"[" + b",".join(listed) + b"]"), last)

    def these(self, names: Sequence[str], revision: Revision) -> Page:
        """Entries with these names, in this order, unknown ones skipped; not cached."""
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


def encode_tool(tool: Tool, revision: Revision, tasks: TaskSupport = "none") -> bytes:
    """Encode `tool` as a member of `tools` in a `revision`."""
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
        execution=_OPTIONAL if tasks == "own" and revision.tasks else UNSET,
    )
    if tool.definition is None:
        return msgspec.json.encode(listed)
    return msgspec.json.encode(
        _merge_members(listed, tool.definition, revision, tasks == "relayed")
    )


def encode_item(item: SnapshotItem, revision: Revision) -> bytes:
    """Encode `item` as a member of its list in a `revision`."""
    members: dict[str, Any] = dict(_members(item.definition))
    members[_NAMED_BY[item.kind]] = item.name
    if not revision.titles:
        members.pop("title", None)
    if not revision.icons:
        members.pop("icons", None)
    return msgspec.json.encode(members)


def relays_tasks(facts: ServerFacts | None) -> bool:
    """Whether the server runs tool calls as tasks of 2025-11-25."""
    support: Any = facts.handshake_capabilities if facts else None
    for step in ("tasks", "requests", "tools", "call"):
        support = support.get(step) if isinstance(support, dict) else None
    return support is not None


def _output_schema(tool: Tool, revision: Revision) -> Raw | UnsetType:
    if not revision.titles or tool.output_schema is None:
        return UNSET
    return (
        tool.output_schema if revision.any_structure else for_objects(tool.output_schema) or UNSET
    )


def _meta(tool: Tool) -> dict[str, str] | UnsetType:
    action = tool.binding.action
    return {SERVICE: action.service} if action is not None else UNSET


def _merge_members(
    listed: _Listed, definition: Raw, revision: Revision, relays_tasks: bool
) -> dict[str, Any]:
    """`listed` with the other members that the tool has at its own server."""
    server_members: dict[str, Any] = dict(_members(definition))
    for member, is_defined in (
        ("icons", revision.icons),
        ("execution", revision.tasks and relays_tasks),
        ("annotations", revision.annotations),
        ("_meta", revision.titles),
    ):
        if not is_defined:
            server_members.pop(member, None)
    gateway_members = _members(msgspec.json.encode(listed))
    if "_meta" in server_members and "_meta" in gateway_members:
        server_members["_meta"] = _members(server_members["_meta"]) | _members(
            gateway_members["_meta"]
        )
    return {**gateway_members, **server_members}


class ToolList:
    """The tools of one profile, encoded lazily; `ToolShaper` caches what takes long."""

    def __init__(
        self,
        tools: Sequence[Tool],
        shaper: ToolShaper,
        *,
        profile: SelectedProfile,
        names: ProfileNames,
        task_support: TaskSupportOf,
        own: Sequence[Tool] = (),
    ) -> None:
        """`tools` are ordered by name; `own`: tools of the gateway that are listed with them."""
        self._own = own
        self.profile = profile
        self._tools = tools
        self._shaper = shaper
        self._task_support = task_support
        self.names = names.replacements(profile)
        self.level, shaped, self.costs = self._fitting()
        self.tokens = sum(self.costs.values())
        self.left_out = {
            entry.tool.name: entry.left_out for entry in shaped if entry.left_out is not None
        }
        listed = [entry for entry in shaped if entry.left_out is None]
        self.shortened = frozenset(entry.tool.name for entry in listed if entry.shortened)
        self._listed = self._with_own([entry.tool for entry in listed])
        # positions follow the names in the catalog, which cursors contain
        self._listing = Listing([tool.name for tool in self._listed], self._encode_all)
        self._report()

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        return self._listing.page(revision, after, limit)

    def matching(
        self, texts: Sequence[str], revision: Revision, after: str | None, limit: int
    ) -> Page:
        """Page of the tools that contain all of `texts` in their name, title, description or source
        name, ignoring case."""
        folded_texts = [text.casefold() for text in texts]
        listed = enumerate(self._texts)
        places = [
            n
            for n, listed_text in listed
            if listed_text and all(text in listed_text for text in folded_texts)
        ]
        return self._listing.some(places, revision, after, limit)

    def these(self, names: Sequence[str], revision: Revision) -> Page:
        """The listed tools of these names, in this order."""
        return self._listing.these(names, revision)

    @cached_property
    def _texts(self) -> list[str]:
        """Searchable text of each listed tool; empty for those of no source."""
        texts_by_name = {
            tool.name: searchable_text(tool, self.names.get(tool.name, "")) for tool in self._tools
        }
        return [texts_by_name.get(tool.name, "") for tool in self._listed]

    def _fitting(self) -> tuple[int, list[ShapedTool], dict[str, int]]:
        """The first level at which the list is within its budget, all tools at that level, and the
        tokens of each listed tool, by its name in the catalog."""
        budgets = self._shaper.budgets
        most = budgets.catalog_tokens if budgets else 0
        for level in range(LEVELS if most else 1):
            shaped = [
                self._shaper.shape(tool, self.profile, level, DESCRIBER.name)
                for tool in self._tools
            ]
            costs = {
                entry.tool.name: tokens(self._entry(entry.tool, V2026_07_28))
                for entry in shaped
                if entry.left_out is None
            }
            if sum(costs.values()) <= most:
                break
        return level, shaped, costs

    def _with_own(self, tools: list[Tool]) -> list[Tool]:
        """`tools` with the gateway's own tools: describe_tool, where the settings want it."""
        budgets, gateway_tools = self._shaper.budgets, [*self._own]
        describes = "never" if budgets is None else budgets.describe
        if describes == "always" or (describes == "auto" and self.shortened):
            gateway_tools.append(DESCRIBER)
        if not gateway_tools:
            return tools
        shaped = (
            self._shaper.shape(tool, self.profile, 0, DESCRIBER.name).tool for tool in gateway_tools
        )
        return sorted([*tools, *shaped], key=lambda tool: tool.name)

    def _encode_all(self, revision: Revision) -> list[bytes]:
        return [self._entry(tool, revision) for tool in self._listed]

    def _entry(self, tool: Tool, revision: Revision) -> bytes:
        name = self.names.get(tool.name)
        listed = tool if name is None else replace(tool, name=name)
        return encode_tool(listed, revision, self._task_support(tool))

    def _report(self) -> None:
        """Log what deviates from the settings."""
        budgets, facts = self._shaper.budgets, {"profile": self.profile.name}
        if self.level and budgets:
            within = self.tokens <= budgets.catalog_tokens
            event = "catalog_shortened" if within else "catalog_over_budget"
            limits = {"tokens": self.tokens, "limit": budgets.catalog_tokens, "level": self.level}
            self._shaper.warn(event, facts | limits)
        if self.left_out:
            name, reason = next(iter(self.left_out.items()))
            more = {"tool": name, "reason": reason, "tools": len(self.left_out)}
            self._shaper.warn("tools_left_out", facts | more)


def searchable_text(tool: Tool, alias: str = "") -> str:
    """Searchable text of a tool, in lower case; `alias` is another name of it."""
    parts = (tool.name, alias, tool.title or "", tool.description, tool.source)
    return "\n".join(parts).casefold()


class ShortList:
    """A short list: a few tools, the gateway's own among them, as listed for clients of one
    profile."""

    def __init__(
        self,
        tools: Sequence[Tool],
        called: Mapping[str, str],
        shaper: ToolShaper,
        *,
        profile: SelectedProfile,
        task_support: TaskSupportOf,
    ) -> None:
        """`called` are the profile's names of tools that are not the gateway's own."""
        describer = next((tool.name for tool in tools if tool.name == DESCRIBES), DESCRIBER.name)
        each = (shaper.shape(tool, profile, 0, describer) for tool in tools)
        listed = [entry.tool for entry in each if entry.left_out is None]
        self._listed = sorted(listed, key=lambda tool: tool.name)
        self._called = called
        self._task_support = task_support
        self._listing = Listing([tool.name for tool in self._listed], self._encode_all)

    def page(self, revision: Revision, after: str | None, limit: int) -> Page:
        return self._listing.page(revision, after, limit)

    def _encode_all(self, revision: Revision) -> list[bytes]:
        return [
            encode_tool(
                replace(tool, name=self._called.get(tool.name, tool.name)),
                revision,
                self._task_support(tool),
            )
            for tool in self._listed
        ]


class CatalogLists:
    """The tools, prompts and resources of one catalog as clients of a profile list them."""

    def __init__(
        self,
        tools: Sequence[Tool],
        items: Sequence[SnapshotItem],
        *,
        servers: Mapping[str, ServerFacts],
        skills: SkillSnapshot,
        shaper: ToolShaper,
        names: ProfileNames,
        searchable: bool,
        own_tasks: OwnTasks | None = None,
        has_accounts: bool = False,
    ) -> None:
        """`tools` and `items` are ordered by name. `searchable`: the gateway's own tools for
        finding others are listed, too. `own_tasks`: how calls run as tasks of the
        gateway; None: they do not. `has_accounts`: callers have accounts of their own at a
        source."""
        self._own_tasks = own_tasks
        self._has_accounts = has_accounts
        self._tools = tools
        self._items = items
        self._servers = servers
        self._skills = skills
        self._shaper = shaper
        self._names = names
        self._searchable = searchable
        self._tool_lists: Memo[str, ToolList] = Memo(LISTS_LIMIT)
        self._short_lists: Memo[tuple[str, ...], ShortList] = Memo(SHORT_LISTS_LIMIT)
        self._item_lists: Memo[tuple[ItemKind, str | None], Listing] = Memo(ITEM_LISTS_LIMIT)

    @cached_property
    def own(self) -> Mapping[Does, Tool]:
        """The gateway's own tools, by function: for finding the others, and for accounts of
        callers."""
        if not self._searchable:
            return {}
        accounts: Mapping[Does, Tool] = {"connections": ACCOUNTS} if self._has_accounts else {}
        return {**self._finding(programs=False), **accounts}

    @cached_property
    def _own_for_programs(self) -> Mapping[Does, Tool]:
        return self._finding(programs=True)

    def _finding(self, *, programs: bool) -> Mapping[Does, Tool]:
        return own_tools(
            {tool.source for tool in self._tools if tool.source},
            skills=bool(self._skills) and not programs,
            limit_maximum=self._shaper.search_limit,
            stubs=self._shaper.stubs,
            programs=programs,
        )

    def page(
        self,
        revision: Revision,
        after: str | None,
        limit: int,
        profile: SelectedProfile | None = None,
    ) -> Page:
        """At most `limit` tools whose names follow `after`, encoded as `revision` shows them."""
        return self.tools(profile).page(revision, after, limit)

    def tools(self, profile: SelectedProfile | None = None) -> ToolList:
        """The tools as a profile shows them; None: the profile of the settings."""
        profile = profile or self._shaper.profiles.default
        tool_list = self._tool_lists.get(profile.name)
        if tool_list is None:
            tool_list = ToolList(
                self._tools,
                self._shaper,
                profile=profile,
                names=self._names,
                task_support=self._task_support,
                own=(ACCOUNTS,) if self._has_accounts and self._searchable else (),
            )
            self._tool_lists.put(profile.name, tool_list)
        return tool_list

    def short(
        self,
        does: Sequence[Does],
        more: Sequence[Tool] = (),
        profile: SelectedProfile | None = None,
    ) -> ShortList:
        """The list of the gateway's own tools for `does`, and of `more`, which are in this
        catalog."""
        profile = profile or self._shaper.profiles.default
        key = (profile.name, *does, *(tool.id for tool in more))
        short_list = self._short_lists.get(key)
        if short_list is None:
            gateway_tools = [self.own[task] for task in does if task in self.own]
            short_list = self._short_lists.put(
                key, self._short_list([*gateway_tools, *more], profile)
            )
        return short_list

    def short_for_programs(self, programs: Sequence[Tool], profile: SelectedProfile) -> ShortList:
        """The list of `programs`, the tools that run them, and of the gateway's own for finding
        what they call."""
        key = (profile.name, "", *(tool.id for tool in programs))
        short_list = self._short_lists.get(key)
        if short_list is None:
            short_list = self._short_lists.put(
                key, self._short_list([*self._own_for_programs.values(), *programs], profile)
            )
        return short_list

    def _short_list(self, tools: Sequence[Tool], profile: SelectedProfile) -> ShortList:
        names = {
            tool.name: self._names.of(tool.name, profile) for tool in tools if tool.source != SOURCE
        }
        return ShortList(
            tools, names, self._shaper, profile=profile, task_support=self._task_support
        )

    @property
    def tool_lists(self) -> list[ToolList]:
        """The lists of tools that are cached."""
        return self._tool_lists.values()

    def is_cached(self, profile: SelectedProfile) -> bool:
        """Whether the list of a profile is cached."""
        return self._tool_lists.get(profile.name) is not None or not self._tools

    def prepare(self, profiles: Iterable[SelectedProfile]) -> None:
        """Build lists ahead; in a thread, as it takes time proportional to the tools."""
        for profile in profiles:
            self.tools(profile)

    def item_page(
        self,
        kind: ItemKind,
        revision: Revision,
        *,
        after: str | None,
        limit: int,
        agent: Agent | None = None,
    ) -> Page:
        """One page of prompts, resources or templates, the skills of `agent` included."""
        return self._of_agent(kind, agent).page(revision, after, limit)

    def own_items(self, kind: ItemKind, agent: Agent | None = None) -> list[SnapshotItem]:
        """The skills of `agent` as prompts or as resources."""
        skills = self._skills.of(agent).values() if self._skills.listed else ()
        if kind == "prompt":
            return prompts_of(skills)
        return resources_of(skills) if kind == "resource" else []

    def of_kind(self, kind: ItemKind) -> tuple[SnapshotItem, ...]:
        """The prompts, resources or templates of servers."""
        return tuple(item for item in self._items if item.kind == kind)

    @cached_property
    def digests(self) -> Mapping[ListKind, bytes]:
        """A digest of each list, equal for equal lists."""
        skills, of = self._skills.digest, self.of_kind
        resources = map(_item_facts, (*of("resource"), *of("template")))
        return {
            "tools": _digest([*map(self._facts, self._tools), *map(str.encode, sorted(self.own))]),
            "prompts": _digest([*map(_item_facts, of("prompt")), skills]),
            "resources": _digest([*resources, skills]),
        }

    def _of_agent(self, kind: ItemKind, agent: Agent | None) -> Listing:
        key = (kind, agent.name if agent else None)
        listing = self._item_lists.get(key)
        if listing is None:
            own_items = {item.name: item for item in self.own_items(kind, agent)}
            of_servers = [item for item in self.of_kind(kind) if item.name not in own_items]
            items = sorted([*of_servers, *own_items.values()], key=lambda item: item.name)
            listing = self._item_lists.put(key, _listing(items))
        return listing

    def _task_support(self, tool: Tool) -> TaskSupport:
        if tool.definition is not None and relays_tasks(self._servers.get(tool.source)):
            return "relayed"
        if self._own_tasks is None or tool.binding.wing == self._own_tasks.wing:
            return "none"
        return "none" if tool.binding.facts.own and tool.binding != _CALLS else "own"

    def _facts(self, tool: Tool) -> bytes:
        action = tool.binding.action
        service = action.service if action is not None else ""
        # policy rules may read them
        facts = f"{service} {tool.tier or ''} {tool.domain or ''} {' '.join(tool.tags)}"
        return f"{tool.name} {tool.digest} {self._task_support(tool)} {facts}".encode()


def _listing(items: Sequence[SnapshotItem]) -> Listing:
    return Listing(
        [item.name for item in items],
        lambda revision: [encode_item(item, revision) for item in items],
    )


def _item_facts(item: SnapshotItem) -> bytes:
    return b"%s %s" % (item.name.encode(), item.definition)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"\n".join(parts)).digest()
