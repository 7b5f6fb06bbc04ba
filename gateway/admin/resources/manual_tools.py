"""Manual tools: created, edited and removed as on the command line.

Users of this API are not operators by default: calls of their tools reach public addresses only,
unless imports.private_networks allows more. The role admin.operator_role is required for more
reach: sources of the settings, whose credentials would go with any request, sources that an
operator imported, and code that runs in the gateway (functions, scripts).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from anyio import to_thread
from msgspec import Meta, Struct, convert

from config.settings import Scripts
from config.sources import SourceSettings
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.member_texts import NEW_TOOL
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.tools import (
    Description,
    Metadata,
    ToolOperations,
    ToolView,
    version_of,
)
from gateway.hybrid.functions import Function
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
)
from gateway.operations.problems import conflict
from registry.database.fair_limiter import FairLimiter
from registry.importers.drafts import truncate
from registry.sources.tool_store import ToolStore
from registry.tools.editable_columns import Address, ManualEdit, NewTool
from registry.tools.manual_bindings import make_tool, tool_kind
from registry.tools.tool_edits import ToolEdits
from registry.tools.tool_request import KnownFunction, KnownSources, ToolRequest
from schemas.urls import without_queries

WRITE = "admin:registry:write"
RUNS_HERE = frozenset({"function", "code"})  # kinds of tools without a source


class ToolEdit(Metadata, frozen=True):
    """Omitted members are unchanged. Imported tools take `description` and metadata alone; "" or []
    removes a value, except the description, by which models choose a tool."""

    description: Annotated[Description | None, Meta(description="description for models")] = None
    title: Annotated[Line | None, Meta(description="name for people")] = None
    input_schema: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the arguments")
    ] = None
    examples: Annotated[
        Annotated[tuple[dict[str, Any], ...], Meta(max_length=100)] | None,
        Meta(description="arguments of an example call"),
    ] = None
    tags: Annotated[
        Annotated[tuple[Line, ...], Meta(max_length=100)] | None,
        Meta(description="tag, which replaces the present tags"),
    ] = None


class ToolBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools to create: all of them, or none. `dry_run`: only report them."""

    tools: Annotated[tuple[ToolRequest, ...], Meta(min_length=1, max_length=1000)]
    dry_run: bool = False


class CreatedTool(Struct, frozen=True):
    """A manual tool. `source`: that of its calls; `base_url`: of a source that it makes."""

    name: str
    title: str | None
    description: str
    input_schema: Any
    source: str | None
    base_url: str | None


class CreatedTools(Struct, frozen=True):
    tools: tuple[CreatedTool, ...]


@dataclass(frozen=True, slots=True)
class ManualToolSettings:
    """Current settings that manual tools depend on. `at_machine`: see `JobParts`."""

    sources: Callable[[], Mapping[str, SourceSettings]]
    functions: Callable[[], Mapping[str, Function]]
    scripts: Callable[[], Scripts]
    private_networks: bool
    at_machine: bool


class ManualToolOperations:
    def __init__(
        self,
        dependencies: OperationDependencies,
        tools: ToolOperations,
        secrets: SecretOperations,
        settings: ManualToolSettings,
    ) -> None:
        self._dependencies = dependencies
        self._tools = tools
        self._secrets = secrets
        self._settings = settings
        # a schema of a megabyte takes many seconds
        self._making = FairLimiter(1, reserve=True)

    @classmethod
    def of(cls, parts: RegistryParts) -> "ManualToolOperations":
        networks = parts.settings.imports.private_networks
        settings = ManualToolSettings(
            parts.sources, parts.functions, parts.scripts, networks, parts.at_machine
        )
        tools, secrets = ToolOperations.of(parts), SecretOperations.of(parts)
        return cls(parts.dependencies, tools, secrets, settings)

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/tools/{tool}"
        return (
            Operation(
                "createTool", "POST", "/tools", "Create a manual tool.", WRITE, self.create,
                ToolView, 201, body=ToolRequest, members=NEW_TOOL,
            ),
            Operation(
                "createTools", "POST", "/imports/tools",
                "Create manual tools: all of them, or none.", WRITE, self.create_all, CreatedTools,
                body=ToolBatch,
            ),
            Operation(
                "editTool", "PUT", item, "Change the description and metadata of a tool.", WRITE,
                self.edit, ToolView, body=ToolEdit, members=NEW_TOOL,
                match="optional", of="getTool",
            ),
            Operation(
                "deleteTool", "DELETE", item, "Remove a manual tool.", WRITE,
                self.delete, status=204, match="optional", problems=(422,),
            ),
        )  # fmt: skip

    async def create(self, request: OperationInput) -> OperationOutput:
        body: ToolRequest = request.body
        await self._add(request, {"": body})
        view = await self._tools.get(replace(request, names={"tool": body.name}))
        return OperationOutput(view, location=f"/tools/{body.name}")

    async def create_all(self, operation_input: OperationInput) -> CreatedTools:
        body: ToolBatch = operation_input.body
        requests = {f"/tools/{at}": request for at, request in enumerate(body.tools)}
        new_tools = await self._add(operation_input, requests, dry_run=body.dry_run)
        return CreatedTools(tuple(map(_created_tool, new_tools)))

    async def _add(
        self,
        operation_input: OperationInput,
        requests: Mapping[str, ToolRequest],
        *,
        dry_run: bool = False,
    ) -> list[NewTool]:
        """Add the tools, by their places in the request. Raises ProblemDetails."""
        for place, request in requests.items():
            self._check_request(operation_input, request, place)
        sources = await self._known_sources(operation_input)
        new_tools = [
            await self._make(operation_input, request, sources) for request in requests.values()
        ]
        await self._manual(operation_input).add(new_tools, dry_run=dry_run)
        return new_tools

    def _check_request(
        self, operation_input: OperationInput, request: ToolRequest, place: str
    ) -> None:
        self._tools.check_tier(request.tier, place)
        if tool_kind(request) in RUNS_HERE:
            self._check_operator(operation_input, "What runs in the gateway")
        is_off = not self._settings.scripts().enabled and not self._settings.at_machine
        if request.code is not None and is_off:
            raise conflict("Scripts are switched off (scripts.enabled).")

    async def _make(
        self, operation_input: OperationInput, request: ToolRequest, sources: KnownSources
    ) -> NewTool:
        async with self._making.turn(operation_input.tenant, operation_input.principal.id):
            new = await to_thread.run_sync(make_tool, request, sources)
        if new.address is None or self._settings.at_machine:
            return new
        return replace(
            new, address=await self._restrict_address(operation_input, new.address, sources)
        )

    async def edit(self, request: OperationInput) -> ToolView:
        edit_request: ToolEdit = request.body
        name, user = request.names["tool"], request.principal.id[:126]
        self._tools.check_tier(edit_request.tier)
        if edit_request.input_schema is not None:
            await self._check_schema_of(request, name)
        change = convert(edit_request, ManualEdit, from_attributes=True)
        if edit_request.description is not None:
            change = replace(change, description=truncate(edit_request.description))
        await self._manual(request).edit(name, change, user, version_of(request))
        return await self._tools.get(request)

    async def delete(self, request: OperationInput) -> None:
        await self._manual(request).remove(request.names["tool"], version_of(request))

    async def _known_sources(self, request: OperationInput) -> KnownSources:
        store, functions = ToolStore(self._dependencies.pool), self._settings.functions()
        return KnownSources(
            {source.name: source for source in await store.sources(request.tenant)},
            tuple(await store.tools(request.tenant)),
            {
                name: KnownFunction(function.schema, function.description, function.takes)
                for name, function in functions.items()
            },
            self._settings.scripts().source_bytes,
        )

    async def _restrict_address(
        self, request: OperationInput, address: Address, sources: KnownSources
    ) -> Address:
        """The address, restricted as the source requires. Raises Problem for a source that the
        caller may not use."""
        new = address.name not in sources.sources
        if self._is_of_settings(request, address.name):
            self._check_operator(request, f"A tool of {address.name}, which the settings name,")
        elif new and await self._secrets.has_secrets(request.tenant, address.name):
            raise conflict(f"There are secrets for {address.name}, which it would get.")
        elif not new and sources.sources[address.name].base_url_trusted:
            self._check_trusted(request, address.name)
        is_settings_url = address.base_url is None and self._dependencies.is_operator(request)
        return replace(address, guarded=not is_settings_url and not self._settings.private_networks)

    async def _check_schema_of(self, request: OperationInput, name: str) -> None:
        """Requires the operator role to edit the input schema of an operator's tool."""
        tool = await self._manual(request).catalog_row(name)
        source = await ToolStore(self._dependencies.pool).source(request.tenant, tool.source)
        if not tool.source:
            self._check_operator(request, "The input schema of what runs in the gateway")
        elif self._is_of_settings(request, tool.source):
            self._check_operator(request, f"The input schema of a tool of {tool.source}")
        elif source is not None and source.base_url_trusted:
            self._check_trusted(request, tool.source)

    def _is_of_settings(self, request: OperationInput, source: str) -> bool:
        return self._dependencies.is_own(request) and source in self._settings.sources()

    def _check_trusted(self, request: OperationInput, source: str) -> None:
        """With private networks allowed, sources imported by admins are trusted, too."""
        if not self._settings.private_networks:
            self._check_operator(request, f"A tool of {source}, which an operator imported,")

    def _check_operator(self, request: OperationInput, subject: str) -> None:
        """Requires the operator role. Raises Problem."""
        self._dependencies.require_operator(request, f"{subject} takes the role {{role}}.")

    def _manual(self, request: OperationInput) -> ToolEdits:
        return ToolEdits(self._dependencies.pool, request.tenant)


def _created_tool(new: NewTool) -> CreatedTool:
    draft, address = new.draft, new.address
    return CreatedTool(
        name=draft.name,
        title=draft.title,
        description=draft.description,
        input_schema=draft.input_schema,
        source=address.name if address else None,
        base_url=without_queries(address.base_url) if address and address.base_url else None,
    )
