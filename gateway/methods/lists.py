"""Paginated lists of tools, prompts, resources and templates.

They are built from the catalog, so no upstream is called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from anyio import to_thread
from msgspec import Raw
from msgspec.structs import replace

from config.settings import ToolsetDefinition
from config.value_types import CodeDisclosure, DisclosureMode
from gateway.context import Context, Principal, RunMark
from gateway.interfaces import CompleteResults
from gateway.methods.results_by_revision import STAMP
from gateway.methods.skills.acting_agents import Agents, fitting
from gateway.policy.visibility import PolicyView
from gateway.protocol import cursors
from registry.catalog.catalog import Catalog, Page, ResourceLocation
from registry.catalog.catalogs import Catalogs
from registry.catalog.tool_lists import ShortList, encode_tool
from registry.display.discovery_tools import DESCRIBES
from registry.display.profiles import SelectedProfile
from registry.display.stubs import StubLanguage
from registry.display.token_budgets import tokens
from registry.display.tool_shaper import ToolShaper
from registry.names.tool_names import (
    CODE_TOOLS,
    CODE_WING,
    CONNECTIONS_TOOL,
    DISCLOSURE_TOOLS,
    SKILL_TOOLS,
)
from registry.skills.snapshot import Agent
from schemas.errors import Unreachable
from schemas.jsonrpc import Request, encode
from schemas.mcp.messages import META_CLIENT, ListParams, ToolListParams, read
from schemas.mcp.revisions import V2026_07_28
from schemas.mcp.snapshot import ItemKind
from schemas.tool import Tool


class EncodedAnswers:
    """Cache of `write(catalog)`, encoded; entries live as long as their catalog."""

    def __init__(self, write: Callable[[Catalog], Any]) -> None:
        self._write = write
        self._kept: WeakKeyDictionary[Catalog, Raw] = WeakKeyDictionary()

    def of(self, catalog: Catalog) -> Raw:
        written = self._kept.get(catalog)
        if written is None:
            written = self._kept[catalog] = Raw(encode(self._write(catalog)))
        return written


Down = Callable[[str, Catalog], Sequence[str]]
"""The names of the sources in the catalog of a tenant whose lists may have changed unheard."""

Mean = Callable[[Context, Catalog, ToolListParams], Awaitable[Sequence[str]]]
"""The names in the catalog of the tools that do what `intent` means, the best first."""

_MEMBER: Mapping[str, str] = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "resourceTemplates",
}


@dataclass(frozen=True, slots=True)
class Modes:
    """Disclosure modes: whether lists have all tools, or only the discovery tools."""

    usual: DisclosureMode
    list_tokens: int  # of a list, above which "auto" means "search"; also the limit for skills
    code: CodeDisclosure = "off"


ALL_DIRECT = Modes("direct", 0)
IN_PROGRAM = RunMark(code=True)
NOBODY = Agents("")


async def as_described(_principal: Principal, tools: Sequence[Tool]) -> Sequence[Tool]:
    return tools


class Lists:
    def __init__(
        self,
        catalogs: Catalogs,
        *,
        page_size: int,
        ttl_ms: int,
        down: Down,
        fail_closed: bool,
        verify_scope: bool = True,
        modes: Modes = ALL_DIRECT,
        agents: Agents = NOBODY,
        policy_view: PolicyView | None = None,
        complete: CompleteResults = as_described,
    ) -> None:
        """`fail_closed` refuses lists while they may be incomplete; `verify_scope` hides hybrid
        actions whose scopes the caller's token lacks; `policy_view` None: no policy rules apply;
        `complete`: for signatures."""
        self.complete = complete
        self._policy_view = policy_view
        self._verify_scope = verify_scope
        self._modes = modes
        self._has_code = modes.code != "off"
        self._agents = agents
        self.catalogs = catalogs
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._down = down
        self._fail_closed = fail_closed
        self._preparing = asyncio.Lock()  # waiters mostly want the same list

    @property
    def shaper(self) -> ToolShaper:
        return self.catalogs.shaper

    def catalog(self, context: Context) -> Catalog:
        """The catalog that the caller sees at the requested endpoint."""
        tenant, toolset = context.identity.principal.tenant, context.toolset
        catalog = self.catalogs.of(tenant, toolset)
        if self._policy_view is None or self._policy_view.allows_all:
            return catalog
        full_catalog = catalog if toolset is None else self.catalogs.of(tenant)
        return self._policy_view.view(context, catalog, full_catalog)

    def toolset(self, context: Context) -> ToolsetDefinition | None:
        """The toolset of the requested endpoint; None: it is not of one."""
        name = context.toolset
        return None if name is None else self.catalogs.toolset(context.principal.tenant, name)

    def whole(self, context: Context) -> Catalog:
        """The caller's catalog without a toolset filter: calls by id belong to no toolset."""
        full_catalog = self.catalogs.of(context.principal.tenant)
        return (
            full_catalog
            if self._policy_view is None
            else self._policy_view.view(context, full_catalog, full_catalog)
        )

    def narrows(self, context: Context) -> bool:
        """Whether policy rules hide anything from the caller."""
        return self.whole(context) is not self.catalogs.of(context.principal.tenant)

    def locate(self, context: Context, catalog: Catalog, uri: str) -> ResourceLocation | None:
        """Where a resource is to be read; None: it does not exist or is hidden from the caller."""
        located = catalog.locate(uri)
        if (
            located is None
            or self._policy_view is None
            or self._policy_view.admits(context, located)
        ):
            return located
        return None

    def visible(self, context: Context) -> Catalog:
        """The caller's catalog without tools that they may not call or that cannot be called.
        Raises the Fault of an invalid token."""
        catalog, scopes = self.catalogs.visible(self.catalog(context)), self.scopes(context)
        if context.options.code == "off":
            catalog = catalog.without_wing(CODE_WING)
        return catalog if scopes is None else catalog.visible_to(scopes)

    def lists_programs_alone(self, context: Context, catalog: Catalog) -> bool:
        """Whether a list has the tools that run programs, and those for finding what they call."""
        return self._code_disclosure(context, catalog) == "only"

    def _code_disclosure(self, context: Context, catalog: Catalog) -> CodeDisclosure:
        toolset = self.toolset(context)
        usual = (toolset and toolset.code) or self._modes.code
        is_off = usual == "off" or not _code_tools(catalog)
        return "off" if is_off else context.options.code or usual

    def search_basis(
        self, arguments: Mapping[str, Any], context: Context
    ) -> tuple[Catalog, StubLanguage | None]:
        """The catalog from which a search or a description answers, and the language of its
        signatures; None: it answers with schemas. Signatures are of what programs may call."""
        catalog = self.visible(context)
        language: StubLanguage | None = arguments.get("as")
        if language is None and (self._has_code or context.toolset):
            disclosure = self._code_disclosure(context, catalog)
            if disclosure != "off":
                toolset = self.toolset(context)
                language = None if toolset is None else toolset.signatures
                language = language or ("python" if disclosure == "only" else None)
        if language is not None and _code_tools(catalog):
            catalog = self.visible(replace(context, run=IN_PROGRAM))
        return catalog, language

    def scopes(self, context: Context) -> frozenset[str] | None:
        """Scopes that limit the caller's hybrid actions; None: no limit."""
        looks = self._verify_scope and context.identity.verified
        return context.identity.scopes if looks else None

    def profile(self, context: Context, request: Request | None = None) -> SelectedProfile:
        """The client's display profile: from the request's address, else by the client name that
        its session or the request announces."""
        profiles = self.catalogs.shaper.profiles
        profile = context.options.profile and profiles.profile(context.options.profile)
        return profile or profiles.of(_client(context, request))

    async def tools(self, context: Context, request: Request, mean: Mean | None = None) -> Raw:
        """The result of tools/list: all tools, those matching `query` and `intent` (if none
        match, those that `mean` finds by semantic search), or only the discovery tools.
        Raises as `page` does."""
        params = read(request.params, ToolListParams)
        after = cursors.unseal(params.cursor, _MEMBER["tool"])
        catalog, profile = self.visible(context), self.profile(context, request)
        revision, limit = context.revision, self._page_size
        if params.texts:
            await self._prepare(catalog, profile)
            many = catalog.lists.tools(profile)
            page = await to_thread.run_sync(many.matching, params.texts, revision, after, limit)
            nothing = after is None and bytes(page.entries) == b"[]"
            if nothing and params.intent and mean is not None:
                names = await mean(context, catalog, params)
                page = await to_thread.run_sync(many.these, names, revision)
        elif (self._has_code or context.toolset) and self.lists_programs_alone(context, catalog):
            page = catalog.lists.short_for_programs(_code_tools(catalog), profile).page(
                revision, after, limit
            )
        elif await self.is_short(context, catalog, profile):
            page = (await self._few(context, catalog, profile)).page(revision, after, limit)
        else:
            await self._prepare(catalog, profile)
            page = catalog.lists.page(revision, after, limit, profile)
        return self._result(context, "tool", page)

    async def is_short(self, context: Context, catalog: Catalog, profile: SelectedProfile) -> bool:
        """Whether a list has only the discovery tools."""
        toolset = self.toolset(context) if context.toolset else None
        mode = context.options.mode or (toolset and toolset.mode) or self._modes.usual
        if mode == "auto":
            await self._prepare(catalog, profile)
            return self._is_long(catalog, profile)
        return mode == "search"

    def fitting(
        self, skills: Iterable[str], catalog: Catalog, profile: SelectedProfile
    ) -> tuple[list[str], list[Tool]]:
        """The `skills`, in the given order, whose tools fit into a short list; and these tools,
        sorted by name."""

        def cost(tool: Tool) -> int:
            shaped = self.shaper.shape(tool, profile, 0, DESCRIBES)
            listed = shaped.left_out is None
            return tokens(encode_tool(shaped.tool, V2026_07_28)) if listed else 0

        return fitting(skills, catalog, cost, self._modes.list_tokens)

    async def _few(self, context: Context, catalog: Catalog, profile: SelectedProfile) -> ShortList:
        """The built-in tools, those that run programs, and those of the skills that the session
        uses."""
        gateway_tools = (
            *DISCLOSURE_TOOLS,
            *(SKILL_TOOLS if self._agents.has_skills(context, catalog) else ()),
            CONNECTIONS_TOOL,  # where there are accounts
        )
        more: list[Tool] = []
        if context.session is not None and context.session.skills:
            names = sorted(context.session.skills)
            _, more = await to_thread.run_sync(self.fitting, names, catalog, profile)
        more += [tool for tool in _code_tools(catalog) if tool not in more]
        if not more:
            return catalog.lists.short(gateway_tools, profile=profile)
        return await to_thread.run_sync(catalog.lists.short, gateway_tools, more, profile)

    def _is_long(self, catalog: Catalog, profile: SelectedProfile) -> bool:
        return catalog.lists.tools(profile).tokens > self._modes.list_tokens

    async def _prepare(self, catalog: Catalog, profile: SelectedProfile) -> None:
        """Warm the cache of a tool list: the first encoding takes time linear in its tools."""
        if not catalog.lists.is_cached(profile):
            async with self._preparing:
                await to_thread.run_sync(catalog.lists.prepare, [profile])

    def ttl_ms(self, context: Context) -> int:
        """Time to live of a list in milliseconds: 0 while it may be stale already."""
        return 0 if self._down(context.principal.tenant, self.catalog(context)) else self._ttl_ms

    def page(
        self, context: Context, request: Request, kind: ItemKind, agent: Agent | None = None
    ) -> Raw:
        """The result of a list method, including the skills of `agent`. Raises Unreachable, which
        names the servers at fault."""
        after = cursors.unseal(read(request.params, ListParams).cursor, _MEMBER[kind])
        catalog = self.visible(context)  # without skills that grant no callable tool
        page = catalog.lists.item_page(
            kind, context.revision, after=after, limit=self._page_size, agent=agent
        )
        return self._result(context, kind, page)

    def _result(self, context: Context, kind: str, page: Page) -> Raw:
        revision = context.revision
        ttl_ms = self._checked_ttl(context, self.catalog(context))
        key = f"{revision.name} {ttl_ms}"
        result = page.results.get(key)
        if result is None:  # a megabyte for a thousand tools: encoded once for all callers
            hold = {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": "private"}
            stamp = {**hold, "_meta": STAMP} if revision.result_type else {}
            result = page.results[key] = Raw(encode({**_list_members(kind, page), **stamp}))
        return result

    def _checked_ttl(self, context: Context, catalog: Catalog) -> int:
        down = self._down(context.principal.tenant, catalog)
        if down and self._fail_closed:
            names = ", ".join(sorted(down))
            raise Unreachable(f"The list may be incomplete: {names} cannot be reached")
        return 0 if down else self._ttl_ms


def _code_tools(catalog: Catalog) -> list[Tool]:
    """The tools that run programs."""
    tools = map(catalog.get, CODE_TOOLS)
    return [tool for tool in tools if tool is not None and tool.binding.wing == CODE_WING]


def _client(context: Context, request: Request | None) -> Any:
    """The client's announced name; None: it sent none."""
    if context.session is not None:
        return context.session.client.get("name")
    params = request.params if request is not None else context.params
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    client = meta.get(META_CLIENT) if isinstance(meta, dict) else None
    return client.get("name") if isinstance(client, dict) else None


def _list_members(kind: str, page: Page) -> dict[str, Any]:
    listed: dict[str, Any] = {_MEMBER[kind]: page.entries}
    if page.last is None:
        return listed
    return {**listed, "nextCursor": cursors.seal(page.last, _MEMBER[kind])}
