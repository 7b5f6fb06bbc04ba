"""Tools: served, waiting to be accepted, disabled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct

from config.code import CodeSettings
from config.sources import SourceSettings
from config.value_types import END, CallWay
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import DESCRIPTION, METADATA
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    TaggedView,
)
from gateway.operations.paging import ListPage, Paging, place
from gateway.operations.problems import Mistake, conflict, invalid, not_found
from registry.database.fair_limiter import FairLimiter
from registry.display.discovery_tools import DESCRIBER
from registry.display.profiles import SelectedProfile
from registry.display.token_budgets import tokens
from registry.embedding.status import EntityEmbedding, embedding_of
from registry.importers.drafts import truncate
from registry.sources.pins import HeldTool, Pins
from registry.tools.editable_columns import Details, ManualEdit
from registry.tools.tool_edits import ToolEdits
from registry.tools.tool_request import Domain, Lifecycle, Namespace, Tier, Weight
from registry.tools.tool_states import Protocol, State, ToolDetail, ToolStates
from schemas.mcp.revisions import V2026_07_28
from schemas.similar_names import did_you_mean
from schemas.tool import Tool
from schemas.urls import without_queries

if TYPE_CHECKING:  # a command that lists tools does not shape them
    from registry.catalog.catalog import Catalog
    from registry.catalog.catalogs import Catalogs
    from registry.catalog.tool_lists import ToolList

READ, WRITE = "admin:registry:read", "admin:registry:write"

Description = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00]*[^\x00\s][^\x00]*" + END,
        max_length=65536,
        description="a text that is not blank, of at most 65536 characters",
    ),
]


class ToolRow(Struct, frozen=True):
    """Summary of a tool. `service`: the id of its hybrid action; `held_reason`: the parts of a held
    tool to review."""

    name: str
    source: str
    state: State
    held_reason: str | None
    service: str | None
    title: str | None
    description: str
    manual: bool
    overridden: bool
    tier: str | None
    lifecycle: str
    updated: datetime


class ToolView(TaggedView, frozen=True):
    """Details of a tool. `callers`: who may call it, clients and agents ("direct") or programs
    ("code"), as code.callers says; `target`: of its calls, in words; `binding`: how it is called,
    for operators, because some have keys or code; `waiting`: its own description that waits to be
    accepted; `accepted`: the last accepted one."""

    # workers, settings and the caller change them
    untagged = frozenset({"callers", "embedding", "target", "binding"})
    name: str
    source: str
    state: State
    title: str | None
    description: str
    manual: bool
    overridden: bool
    override_user: str | None
    override_time: datetime | None
    tier: str | None
    domain: str | None
    namespace: str | None
    weight: float
    personas: str | None
    cost: str | None
    keywords: tuple[str, ...]
    protocol: str
    lifecycle: str
    toolsets: tuple[str, ...]
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    input_schema: Any
    output_schema: Any
    annotations: Any
    held_reason: str | None
    accepted: Any
    waiting: Any
    updated: datetime
    version: int
    callers: tuple[CallWay, ...]
    target: str | None
    digest: str
    definition: Any  # members that another server told beside those above
    binding: Any
    embedding: EntityEmbedding


class DefinitionView(Struct, frozen=True):
    """A tool as clients of a profile list it. `tokens`: characters / 4 of its entry; None where the
    profile cannot express it, for the reason `left_out`."""

    profile: str
    name: str
    tokens: int | None
    shortened: bool
    left_out: str | None
    definition: Any


class ListedTool(Struct, frozen=True):
    """A served tool in the list of a profile. `name`: in that list; `tokens`: characters / 4 of its
    entry; None where the list leaves it out, for the reason `left_out`."""

    tool: str
    name: str
    source: str
    title: str | None
    description: str
    profile: str
    tokens: int | None
    shortened: bool
    left_out: str | None


class ListFilter(Paging, frozen=True):
    """The profile whose list is told, by default that of the settings; tools of one source."""

    profile: Line | None = None
    source: Line | None = None


class DescribeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    text: Description


class Metadata(Struct, frozen=True, forbid_unknown_fields=True):
    """Metadata for search and policy. Omitted members are unchanged; "" or [] removes a value."""

    domain: Domain = None
    namespace: Namespace = None
    tier: Tier = None
    weight: Weight = None
    lifecycle: Lifecycle = None
    personas: Annotated[Line | None, Meta(description="target personas")] = None
    keywords: Annotated[
        Annotated[tuple[Line, ...], Meta(max_length=100)] | None,
        Meta(description="keyword for the search"),
    ] = None
    cost: Annotated[
        Literal["", "low", "medium", "high"] | None, Meta(description="cost of a call")
    ] = None

    @property
    def details(self) -> Details:
        return Details(
            routing_domain=self.domain,
            semantic_namespace=self.namespace,
            sensitivity_tier=self.tier,
            semantic_weight=self.weight,
            lifecycle_status=self.lifecycle,
            target_personas=self.personas,
            keywords=self.keywords,
            cost_tier=self.cost,
        )


class ToolFilter(Paging, frozen=True):
    """Filters of tools by source, state, part of the name, tier, domain, namespace and protocol.
    `called`: the tool that calls of this name, former name or id of a hybrid action reach."""

    source: Line | None = None
    state: State | None = None
    name: Line | None = None
    tier: Line | None = None
    domain: Line | None = None
    namespace: Line | None = None
    protocol: Protocol | None = None
    called: Line | None = None


class ToolOperations:
    def __init__(
        self,
        dependencies: OperationDependencies,
        tiers: Sequence[str],
        load_catalogs: Callable[[], "Catalogs"],
        settings_sources: Callable[[], Mapping[str, SourceSettings]],
        *,
        code: CodeSettings,
    ) -> None:
        """`tiers`: the permitted ones; `settings_sources`: those of the settings."""
        self._code = code
        self._dependencies = dependencies
        self._tiers = tiers
        self._load_catalogs = load_catalogs
        self._settings_sources = settings_sources
        # a schema of megabytes takes seconds, once for each
        self._shaping = FairLimiter(1, reserve=True)

    @classmethod
    def of(cls, parts: RegistryParts) -> "ToolOperations":
        tiers = parts.settings.policy.tiers
        code = parts.settings.code
        return cls(parts.dependencies, tiers, parts.load_catalogs, parts.sources, code=code)

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/tools/{tool}"
        return (
            Operation(
                "listTools", "GET", "/tools", "List the tools.", READ, self.list,
                ListPage[ToolRow], query=ToolFilter,
            ),
            Operation("getTool", "GET", item, "Show a tool.", READ, self.get, ToolView),
            Operation(
                "showDefinitions", "GET", f"{item}/definitions",
                "Show a served tool as clients of each profile list it.", READ, self.definitions,
                ListPage[DefinitionView],
            ),
            Operation(
                "listCosts", "GET", "/costs", "List the served tools with the tokens of each.",
                READ, self.costs, ListPage[ListedTool], query=ListFilter, problems=(404,),
                details="Tokens are counted as characters / 4 of an entry in the list of a profile "
                "of clients.",
            ),
            Operation(
                "describeTool", "PUT", f"{item}/description", "Change the description of a tool.",
                WRITE, self.describe, ToolView, body=DescribeRequest, members=DESCRIPTION,
                match="optional",
                of="getTool",
            ),
            Operation(
                "resetDescription", "DELETE", f"{item}/description",
                "Restore the description of a tool from its source.", WRITE, self.reset,
                status=204, match="optional", of="getTool", problems=(422,),
            ),
            Operation(
                "changeMetadata", "PUT", f"{item}/metadata",
                "Change the metadata of a tool.", WRITE, self.change,
                ToolView, body=Metadata, members=METADATA, match="optional", of="getTool",
            ),
            Operation(
                "disableTool", "POST", f"{item}/disable", "Disable a tool.", WRITE,
                self.disable, ToolView, match="optional", of="getTool",
            ),
            Operation(
                "enableTool", "POST", f"{item}/enable", "Enable a tool.", WRITE,
                self.enable, ToolView, match="optional", of="getTool",
            ),
            Operation(
                "acceptTool", "POST", f"{item}/accept",
                "Accept the reviewed definition of a held tool.", WRITE,
                self.accept, ToolView, match="required", of="getTool",
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[ToolRow]:
        query: ToolFilter = request.query
        pages = self._dependencies.pages
        states = await self._tool_states(request).list_states(
            place(query.after),
            pages.limit(query) + 1,
            query.source,
            query.state,
            part=query.name,
            tier=query.tier,
            domain=query.domain,
            namespace=query.namespace,
            protocol=query.protocol,
            called=query.called,
        )
        rows = msgspec.convert(states, list[ToolRow], from_attributes=True)
        return pages.cut(query, rows, lambda row: row.name)

    async def get(self, request: OperationInput) -> ToolView:
        state = await self._tool_states(request).detail(request.names["tool"])
        if state is None:
            raise not_found("tool", request.names["tool"])
        embedding = await embedding_of(self._dependencies.pool, request.tenant, state.id)
        binding = state.binding if self._dependencies.is_operator(request) else None
        target = await self._target(request, state)
        names = (state.tool.name, *state.aliases)
        callers = self._code.callers_of(names, state.tool.tags, state.tool.domain)
        return _view(state, target=target, binding=binding, embedding=embedding, callers=callers)

    async def _target(self, request: OperationInput, detail: ToolDetail) -> str | None:
        """The target of calls, without the queries of URLs, as some are keys."""
        if detail.binding is None:
            return None
        from registry.sources.tool_store import ToolStore  # a list of tools reads no source

        name = detail.tool.source
        source = (
            await ToolStore(self._dependencies.pool).source(request.tenant, name) if name else None
        )
        stated = self._settings_sources().get(name) if self._dependencies.is_own(request) else None
        address = (stated.base_url if stated else None) or (source.base_url if source else None)
        return detail.binding.target(address and without_queries(address))

    async def definitions(self, request: OperationInput) -> ListPage[DefinitionView]:
        """None for a tool that is not served."""
        name, catalog = request.names["tool"], self._load_catalogs().of(request.tenant)
        tool = next((candidate for candidate in catalog.tools if candidate.name == name), None)
        if tool is None:
            await self.get(request)
            return ListPage(())
        async with self._shaping.turn(request.tenant, request.principal.id):
            definitions = await to_thread.run_sync(_definitions, tool, catalog)
        return ListPage(definitions)

    async def costs(self, request: OperationInput) -> ListPage[ListedTool]:
        query: ListFilter = request.query
        catalog = self._load_catalogs().of(request.tenant)
        profiles = catalog.shaper.profiles
        profile = profiles.default if query.profile is None else profiles.profile(query.profile)
        if profile is None:
            names = [profile.name for profile in profiles]
            hint = did_you_mean(query.profile or "", names) or f"There are {', '.join(names)}."
            missing = not_found("profile", query.profile or "")
            raise replace(missing, detail=f"{missing.detail} {hint}")
        async with self._shaping.turn(request.tenant, request.principal.id):
            entries = await to_thread.run_sync(catalog.lists.tools, profile)
        tools = [tool for tool in catalog.tools if query.source in {None, tool.source}]
        listed = [_listed_tool(tool, entries) for tool in tools]
        return self._dependencies.pages.page(query, listed, lambda row: row.tool)

    async def describe(self, request: OperationInput) -> ToolView:
        change = ManualEdit(description=truncate(request.body.text))
        name, user = request.names["tool"], request.principal.id[:126]
        await self._manual(request).edit(name, change, user, version_of(request))
        return await self.get(request)

    async def change(self, request: OperationInput) -> ToolView:
        metadata: Metadata = request.body
        self.check_tier(metadata.tier)
        name, user = request.names["tool"], request.principal.id[:126]
        change = ManualEdit(details=metadata.details)
        await self._manual(request).edit(name, change, user, version_of(request))
        return await self.get(request)

    def check_tier(self, tier: str | None, place: str = "") -> None:
        """Raises Problem for an unknown tier; "" is none. `place`: of its object in the body."""
        if tier and tier not in self._tiers:
            hint = did_you_mean(tier, self._tiers)
            text = f"expected one of {', '.join(self._tiers)}. {hint}".rstrip()
            raise invalid("There is no such tier.", Mistake(text, pointer=f"{place}/tier"))

    async def reset(self, request: OperationInput) -> None:
        await self._manual(request).reset_description(request.names["tool"], version_of(request))

    async def disable(self, request: OperationInput) -> ToolView:
        await self._manual(request).disable([request.names["tool"]])
        return await self.get(request)

    async def enable(self, request: OperationInput) -> ToolView:
        await self._manual(request).enable([request.names["tool"]])
        return await self.get(request)

    async def accept(self, request: OperationInput) -> ToolView:
        reviewed: ToolView = request.present
        if reviewed.waiting is None:
            raise conflict(f"{reviewed.name} does not wait to be accepted.")
        held_tool = HeldTool(reviewed.name, reviewed.source, reviewed.accepted, reviewed.waiting)
        if not await Pins(self._dependencies.pool).accept(request.tenant, [held_tool]):
            raise conflict(f"{reviewed.name} changed in the meantime: look at it again.")
        return await self.get(request)

    def _tool_states(self, request: OperationInput) -> ToolStates:
        return ToolStates(self._dependencies.pool, request.tenant)

    def _manual(self, request: OperationInput) -> ToolEdits:
        return ToolEdits(self._dependencies.pool, request.tenant)


def version_of(request: OperationInput) -> int | None:
    """The version in If-Match; None without it."""
    return None if request.present is None else request.present.version


def _definitions(tool: Tool, catalog: "Catalog") -> tuple[DefinitionView, ...]:
    return tuple(_definition(tool, catalog, profile) for profile in catalog.shaper.profiles)


def _definition(tool: Tool, catalog: "Catalog", profile: SelectedProfile) -> DefinitionView:
    from registry.catalog.tool_lists import encode_tool  # with the catalog, as above

    shaped = catalog.shaper.shape(tool, profile, 0, DESCRIBER.name)
    name = catalog.display_name(tool, profile)
    out = shaped.left_out is not None
    entry = b"" if out else encode_tool(replace(shaped.tool, name=name), V2026_07_28)
    return DefinitionView(
        profile=profile.name,
        name=name,
        tokens=None if out else tokens(entry),
        shortened=shaped.shortened,
        left_out=shaped.left_out,
        definition=None if out else msgspec.Raw(entry),
    )


def _listed_tool(tool: Tool, entries: "ToolList") -> ListedTool:
    return ListedTool(
        tool=tool.name,
        name=entries.names.get(tool.name, tool.name),
        source=tool.source,
        title=tool.title,
        description=tool.description,
        profile=entries.profile.name,
        tokens=entries.costs.get(tool.name),
        shortened=tool.name in entries.shortened,
        left_out=entries.left_out.get(tool.name),
    )


def _view(detail: ToolDetail, **more: Any) -> ToolView:
    parts = (detail.tool, detail)
    members = {name: getattr(part, name) for part in parts for name in part.__struct_fields__}
    members |= {
        "keywords": members["keywords"] or (),
        "held_reason": detail.tool.held_reason,
        **more,
    }
    return msgspec.convert(members, ToolView)
