"""Toolsets: those of the settings, and those that tenants store in the database."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from anyio import to_thread
from msgspec import Meta, Struct, structs

from config.conflicts import toolset_path_problem
from config.mcp_clients import client_values, fill, read_clients
from config.settings import Settings, Toolset, ToolsetDefinition
from config.value_types import ToolsetName
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.keys import Reload
from gateway.admin.resources.member_texts import TOOLSET
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
    TaggedView,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, conflict, invalid, not_found, sentence
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.catalog.stored_toolsets import (
    StoredToolset,
    StoredToolsets,
    ToolsetChanged,
    TooManyToolsets,
    toolset_members,
)
from registry.catalog.toolsets import membership
from registry.database.fair_limiter import FairLimiter
from schemas.globs import ToolGlobs, wildcards_problem

CHOOSING = {"sources": "sources", "include": "tools", "exclude": "exclude"}  # as matchTools
READ, WRITE = "admin:registry:read", "admin:registry:write"
PREVIEW_TOOLS = 500  # tools that a preview names
ROLES, ROLE_LENGTH = 100, 200  # of a stored toolset
INSTRUCTIONS_LIMIT = 4000  # characters; clients get no more (gateway.methods.lifecycle)
DEFINITION_MEMBERS = ToolsetDefinition.__struct_fields__

ToolsetEntry: TypeAlias = tuple[str, ToolsetDefinition, StoredToolset | None]
"""Name, definition, and the row of a stored one."""


class ToolsetView(TaggedView, frozen=True):
    """A toolset, and its number of tools. Those of the settings have no version, and are changed
    there; their filters are visible to the gateway's own tenant."""

    untagged = frozenset({"tools"})
    name: str
    origin: Literal["settings", "stored"]
    tools: int
    description: str
    sources: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    roles: tuple[str, ...]
    instructions: str
    mode: str | None
    code: str | None
    signatures: str | None
    tool_tokens: int | None
    version: int | None = None
    created: datetime | None = None
    created_by: str | None = None
    updated: datetime | None = None
    updated_by: str | None = None


class ToolsetTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """A toolset that is not stored yet. `limit`: of the tools that are named."""

    toolset: Annotated[ToolsetDefinition, Meta(description="its definition, as in the settings")]
    name: Annotated[
        ToolsetName | None, Meta(description="with it, tools that descriptions put into it count")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=PREVIEW_TOOLS, description="tools that are named")] = 50


class SelectedTool(Struct, frozen=True):
    name: str
    source: str
    description: str


class ListTokens(Struct, frozen=True):
    """Tokens of the list that clients of a profile get: characters / 4 of its definitions."""

    profile: str
    tools: int
    tokens: int


class ToolsetPreview(Struct, frozen=True):
    """The tools of a toolset. `total`: of the catalog; `unmatched`: patterns and sources that
    select no tool."""

    tools: int
    total: int
    prompts: int
    resources: int
    items: tuple[SelectedTool, ...]
    tokens: tuple[ListTokens, ...]
    unmatched: tuple[str, ...]


class ClientQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`key`: callers need an API key; else they log in."""

    key: Annotated[bool, Meta(description="with an API key in place of a login")] = False


class ClientSetup(Struct, frozen=True):
    """The configuration of an MCP client. `place`: its file; `link`: opens the client, where it has
    one."""

    client: str
    title: str
    place: str
    text: str
    link: str


class ToolsetClients(Struct, frozen=True):
    """The endpoint of a toolset, and the configurations of clients for it."""

    url: str
    clients: tuple[ClientSetup, ...]


class ToolsetDocument(Struct, frozen=True):
    """Stored toolsets as YAML, in the form of the settings."""

    yaml: str


class ToolsetOperations:
    def __init__(
        self,
        dependencies: OperationDependencies,
        settings: Settings,
        catalogs: Catalogs,
        reload: Reload,
    ) -> None:
        """`reload` makes a change count in this process."""
        self._dependencies = dependencies
        self._settings = settings
        self._catalogs = catalogs
        self._reload = reload
        self._counting = FairLimiter(1, reserve=True)  # a catalog of thousands takes seconds

    @classmethod
    def of(cls, parts: RegistryParts) -> "ToolsetOperations":
        return cls(parts.dependencies, parts.settings, parts.catalogs, parts.reload)

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/toolsets/{toolset}"
        return (
            Operation(
                "listToolsets", "GET", "/toolsets", "List the toolsets.", READ, self.list,
                ListPage[ToolsetView], query=Paging,
            ),
            Operation(
                "getToolset", "GET", item, "Show a toolset.", READ, self.get, ToolsetView,
            ),
            Operation(
                "putToolset", "PUT", item, "Create or replace a stored toolset.", WRITE, self.put,
                ToolsetView, body=ToolsetDefinition, members=TOOLSET, selects=CHOOSING,
                match="required", creates=True, problems=(409,),
                details="Its members are those of an entry of `toolsets` in the settings. It is "
                "served by all gateways of the database at once, at /mcp/NAME.",
            ),
            Operation(
                "deleteToolset", "DELETE", item, "Delete a stored toolset.", WRITE, self.delete,
                status=204, match="required", problems=(409,),
            ),
            Operation(
                "listToolsetTools", "GET", f"{item}/tools",
                "List the tools of a toolset, with the tokens of its lists.", READ, self.tools,
                ToolsetPreview,
            ),
            Operation(
                "listToolsetClients", "GET", f"{item}/clients",
                "Show the endpoint of a toolset, and the configurations of clients for it.", READ,
                self.clients, ToolsetClients, query=ClientQuery,
            ),
            Operation(
                "previewToolset", "POST", "/toolset-previews",
                "Show the tools that a toolset would have, with the tokens of its lists.", READ,
                self.preview, ToolsetPreview, body=ToolsetTrial,
            ),
            Operation(
                "exportToolsets", "GET", "/toolset-exports",
                "Show the stored toolsets as YAML, in the form of the settings.", READ,
                self.export, ToolsetDocument,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[ToolsetView]:
        configured = self._settings.toolsets
        stored = {toolset.name: toolset for toolset in await self._store(request).all()}
        names = sorted({*configured, *stored})
        page = self._dependencies.pages.page(request.query, names, str)
        entries = [
            (name, configured[name], None)
            if name in configured
            else (name, stored[name].definition, stored[name])
            for name in page.items
        ]
        return ListPage(await self._views(request, entries), page.next)

    async def get(self, request: OperationInput) -> ToolsetView:
        (view,) = await self._views(request, [await self._resolve(request)])
        return view

    async def put(self, request: OperationInput) -> OperationOutput:
        name, present = self._own_name(request), request.present
        if problem := toolset_path_problem(self._settings, name):
            raise invalid(f"The name {name} cannot be used: {problem}.")
        _check_size(request.body)
        try:
            written = await self._store(request).put(
                name,
                request.body,
                0 if present is None else present.version,
                principal=request.principal.id,
                limit=self._settings.admin.stored_toolsets,
            )
        except TooManyToolsets as error:
            raise conflict(sentence(error)) from error
        except ToolsetChanged as error:
            raise ProblemDetails(412, "precondition-failed", sentence(error)) from error
        await self._reload("toolsets")
        (view,) = await self._views(request, [(name, written.definition, written)])
        if present is None:
            return OperationOutput(view, 201, f"/toolsets/{name}")
        return OperationOutput(view)

    async def delete(self, request: OperationInput) -> None:
        name = self._own_name(request)
        try:
            await self._store(request).delete(name, request.present.version)
        except ToolsetChanged as error:
            raise ProblemDetails(412, "precondition-failed", sentence(error)) from error
        await self._reload("toolsets")

    async def tools(self, request: OperationInput) -> ToolsetPreview:
        name, definition, stored = await self._resolve(request)
        preview = await self._preview(request, name, definition, PREVIEW_TOOLS)
        is_visible = stored is not None or self._dependencies.is_own(request)
        return preview if is_visible else structs.replace(preview, unmatched=())

    async def preview(self, request: OperationInput) -> ToolsetPreview:
        body: ToolsetTrial = request.body
        _check_size(body.toolset)
        return await self._preview(request, body.name or "", body.toolset, body.limit)

    async def clients(self, request: OperationInput) -> ToolsetClients:
        name, _, _ = await self._resolve(request)
        values, with_key = client_values(self._settings, name, name), request.query.key
        return ToolsetClients(
            values["url"],
            tuple(
                ClientSetup(
                    client=client,
                    title=row.title,
                    place=fill(row.file, values) or row.where,
                    text=row.text(values, with_key).rstrip(),
                    link=row.deep_link(values, with_key),
                )
                for client, row in read_clients().items()
            ),
        )

    async def export(self, request: OperationInput) -> ToolsetDocument:
        stored = await self._store(request).all()
        members = {toolset.name: toolset_members(toolset.definition) for toolset in stored}
        return ToolsetDocument(
            yaml.safe_dump({"toolsets": members}, sort_keys=False, allow_unicode=True)
        )

    async def _resolve(self, request: OperationInput) -> ToolsetEntry:
        """The toolset of the path. Raises ProblemDetails."""
        name = request.names["toolset"]
        if (configured := self._settings.toolsets.get(name)) is not None:
            return name, configured, None
        stored = await self._store(request).get(name)
        if stored is None:
            raise not_found("toolset", name)
        return name, stored.definition, stored

    async def _preview(
        self, request: OperationInput, name: str, definition: ToolsetDefinition, limit: int
    ) -> ToolsetPreview:
        catalog = self._catalogs.of(request.tenant)
        async with self._counting.turn(request.tenant, request.principal.id):
            return await to_thread.run_sync(_count, catalog, name, definition, limit)

    async def _views(
        self, request: OperationInput, entries: Sequence[ToolsetEntry]
    ) -> tuple[ToolsetView, ...]:
        catalog, is_own = self._catalogs.of(request.tenant), self._dependencies.is_own(request)
        async with self._counting.turn(request.tenant, request.principal.id):
            counts = await to_thread.run_sync(_counts, catalog, entries)
        return tuple(
            _view(*entry, tools=tools, is_own=is_own)
            for entry, tools in zip(entries, counts, strict=True)
        )

    def _own_name(self, request: OperationInput) -> str:
        """The name in the path, if it is not that of a toolset of the settings."""
        name = request.names["toolset"]
        if name in self._settings.toolsets:
            raise conflict(
                f"{name} is a toolset of the settings, which go before stored ones: change or "
                "remove it there, or choose another name."
            )
        return name

    def _store(self, request: OperationInput) -> StoredToolsets:
        return StoredToolsets(self._dependencies.pool, request.tenant)


def _check_size(definition: ToolsetDefinition) -> None:
    """Check what every process holds in memory, for all tenants. Raises ProblemDetails."""
    if problem := wildcards_problem((*definition.include, *definition.exclude)):
        raise invalid(f"include, exclude: {problem}.")
    if len(definition.instructions) > INSTRUCTIONS_LIMIT:
        raise invalid(f"instructions: expected at most {INSTRUCTIONS_LIMIT} characters.")
    if len(definition.roles) > ROLES or any(len(role) > ROLE_LENGTH for role in definition.roles):
        raise invalid(f"roles: expected at most {ROLES} of at most {ROLE_LENGTH} characters.")


def _view(
    name: str,
    definition: ToolsetDefinition,
    toolset: StoredToolset | None,
    *,
    tools: int,
    is_own: bool,
) -> ToolsetView:
    visible = definition if toolset or is_own else Toolset(mode=definition.mode)
    members: dict[str, Any] = {member: getattr(visible, member) for member in DEFINITION_MEMBERS}
    if toolset is None:
        return ToolsetView(name=name, origin="settings", tools=tools, **members)
    return ToolsetView(
        name=name,
        origin="stored",
        tools=tools,
        **members,
        version=toolset.version,
        created=toolset.created,
        created_by=toolset.created_by,
        updated=toolset.updated,
        updated_by=toolset.updated_by,
    )


def _counts(catalog: Catalog, entries: Sequence[ToolsetEntry]) -> list[int]:
    """The number of tools of each toolset, without building its lists."""
    return [
        sum(map(membership(name, definition), catalog.tools)) for name, definition, _ in entries
    ]


def _count(
    catalog: Catalog, name: str, definition: ToolsetDefinition, limit: int
) -> ToolsetPreview:
    selected = catalog.select(name, definition)
    lists = [selected.lists.tools(profile) for profile in selected.shaper.profiles]
    return ToolsetPreview(
        tools=len(selected.tools),
        total=len(catalog.tools),
        prompts=len(selected.prompts),
        resources=len(selected.resources) + len(selected.templates),
        items=tuple(
            SelectedTool(tool.name, tool.source, tool.description[:300])
            for tool in selected.tools[:limit]
        ),
        tokens=tuple(
            ListTokens(entries.profile.name, len(entries.costs), entries.tokens)
            for entries in lists
        ),
        unmatched=tuple(_idle_patterns(catalog, definition)),
    )


def _idle_patterns(catalog: Catalog, definition: ToolsetDefinition) -> Iterable[str]:
    """Patterns and sources of a toolset that select no tool of the catalog."""
    yield from (source for source in definition.sources if source not in catalog.sources)
    names: Mapping[str, Any] = {tool.name.casefold(): tool for tool in catalog.tools}
    for pattern in (*definition.include, *definition.exclude):
        if pattern.casefold() in names:  # one of the tools that were picked
            continue
        globs = ToolGlobs((pattern,))
        if not any(globs.match((tool.name,), tool.tags, tool.domain) for tool in catalog.tools):
            yield pattern
