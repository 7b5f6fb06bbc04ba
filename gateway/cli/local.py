"""Operations of the admin API in a command's own process, over the registry.

The caller is the operating-system user, with the scope `admin` and the operators' role. Changes are
recorded in the audit log as the same operations of the API, with the front `cli`.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from config.settings import Settings
from gateway.admin.registry_parts import RegistryParts
from gateway.cli.common.audited_commands import VIA, actor
from gateway.cli.common.database import Registry, open_registry
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import import_later, load
from gateway.cli.common.tool_arguments import json_or_text
from gateway.cli.running.client import (
    AS_JOB,
    NO_TEXTS,
    GatewayAnswer,
    OperationClient,
    OperationRefused,
)
from gateway.context import Context, Identity, Principal, new_request_id
from gateway.operations.job_declarations import Job
from gateway.operations.operation import ALL, IF_MATCH, IF_NONE_MATCH, Operation
from gateway.operations.operation_server import (
    IdempotentRunner,
    OperationResponse,
    OperationServer,
    problem_response,
)
from gateway.operations.problems import ProblemDetails
from gateway.operations.tool_calls import answer_call, body_in
from gateway.state.idempotency import IdempotencyKeys
from registry.database.postgres import AWAY, Pool, borrow
from schemas.jsonrpc import decode_json, encode
from schemas.mcp.revisions import V2025_11_25
from schemas.similar_names import did_you_mean

if TYPE_CHECKING:
    from registry.catalog.catalogs import Catalogs
    from registry.sources.import_specs import ImportSpec

ALL_RESOURCES = "gateway.app.operations:RESOURCES"
AT_GATEWAY = "Those about a gateway that runs need --url or --key-file."
WITH_CATALOG = frozenset(
    {
        *("explain", "listCosts", "matchTools", "showDefinitions", "tryRule"),
        *("listToolsets", "getToolset", "listToolsetTools", "previewToolset", "putToolset"),
    }
)  # others read the tables


class LocalOperations(OperationClient):
    def __init__(
        self,
        settings: Settings,
        registry: Registry | None,
        tenant: str,
        resources: Sequence[str] = (),
        job: Job | None = None,
    ) -> None:
        """`registry`: None for operations that need no database. `job` takes the progress.
        `resources`: "module:class" of those whose operations are called. They are imported in
        their order until an operation is among them; then all others are."""
        self._settings = settings
        self._registry = registry
        self._job = job
        roles = frozenset({settings.admin.operator_role})
        self.principal = Principal(actor(), tenant, frozenset({ALL}), roles=roles)
        self._catalogs: Catalogs | None = None
        self._engine: Any = None
        self._resources = list(resources)
        self._serve([])

    def _serve(self, resources: Iterable[Any]) -> None:
        parts = self._parts()
        operations = [row for resource in resources for row in resource.of(parts).operations]
        runner = IdempotentRunner(IdempotencyKeys(lambda: None, 1))  # commands send no keys
        self._server = OperationServer(operations, runner, self._settings.admin.path)

    def _operation(self, name: str) -> Operation | None:
        for count in range(1, len(self._resources) + 1):
            if name not in self._server.by_id:
                self._serve([load(resource) for resource in self._resources[:count]])
        if name not in self._server.by_id:
            self._serve(load(ALL_RESOURCES))
        return self._server.by_id.get(name)

    async def call(
        self, name: str, members: Mapping[str, Any], texts: Mapping[str, str] = NO_TEXTS
    ) -> GatewayAnswer:
        operation = self._operation(name)
        if operation is None:
            hint = did_you_mean(name, self._server.by_id)
            fail(f"{name} is no operation of the registry. {hint or AT_GATEWAY}", USAGE)
        response = await self._answer(operation, _arguments(operation, members, texts))
        if isinstance(response.cause, AWAY):  # a command names the reason, and the remedy
            raise response.cause
        value = decode_json(response.body) if response.body else None
        if response.status >= 400:
            raise OperationRefused(value, response.status)
        created, etag = response.status == 201, response.headers.get("ETag", "")
        return GatewayAnswer(value, is_job=False, etag=etag, created=created)

    async def time(self) -> datetime:
        if self._registry is None:
            return datetime.now(UTC)
        async with borrow(self._registry.database.pool) as connection:
            rows = await connection.execute("SELECT clock_timestamp()")
            time: datetime = (await rows.fetchall())[0][0]
            return time

    async def summaries(self) -> Sequence[tuple[str, str, str]]:
        self._serve(load(ALL_RESOURCES))
        rows = self._server.by_id.values()
        return [(row.id, row.scope or "-", row.summary) for row in rows]

    async def _answer(
        self, operation: Operation, arguments: Mapping[str, Any]
    ) -> OperationResponse:
        if operation.id in WITH_CATALOG:
            await self._load()
        context = Context(Identity(self.principal, verified=True), V2025_11_25, new_request_id())
        status = 500  # of an interruption
        try:
            response = await self._response(operation, arguments, context)
            status = response.status
            return response
        finally:
            if operation.effect != "read" and self._registry is not None:
                with CancelScope(shield=True):
                    await self._record(operation, arguments, status, context.request_id)

    async def _response(
        self, operation: Operation, arguments: Mapping[str, Any], context: Context
    ) -> OperationResponse:
        try:
            return await answer_call(self._server, operation, arguments, context, job=self._job)
        except ProblemDetails as problem:
            return problem_response(problem, context.request_id)

    async def _record(
        self, operation: Operation, arguments: Mapping[str, Any], status: int, request_id: str
    ) -> None:
        body = None if operation.body is None else body_in(operation, arguments)
        action = load("gateway.admin.http_api:AdminAction")(
            principal=self.principal,
            operation=operation.id,
            names={name: str(arguments.get(name, "")) for name in operation.names},
            status=status,
            request_id=request_id,
            client="",
            body=b"" if operation.secret or not body else encode(body),
        )
        key = self._settings.audit.key.encode()
        entry = action.entry(datetime.now(UTC), key, VIA)
        await self._open_registry.trail.add(entry)

    async def _load(self) -> None:
        """Read tools and rules, as a gateway does at its start."""
        registry, tenant = self._open_registry, self.principal.tenant
        pool = registry.database.pool
        catalogs = self._load_catalogs()
        catalogs.store(await load("registry.catalog.stored_toolsets:read_toolsets")(pool))
        await catalogs.reload(registry.store, tenant)
        stored = await load("registry.access.policies:stored_rules")(pool)
        make_engine = load("gateway.policy.engine:Engine")
        self._engine = make_engine(self._settings.policy, stored.get(tenant, {}))

    def _load_catalogs(self) -> "Catalogs":
        if self._catalogs is None:  # shaping of tools takes a tenth of a short command
            shaper = load("registry.display.tool_shaper:ToolShaper").of(self._settings)
            make_catalogs = load("registry.catalog.catalogs:Catalogs")
            self._catalogs = make_catalogs(self._settings.toolsets, shaper)
        return self._catalogs

    @property
    def _open_registry(self) -> Registry:
        if self._registry is None:
            raise AssertionError("an operation without a database asks for it")
        return self._registry

    def _parts(self) -> RegistryParts:
        settings, registry = self._settings, self._registry

        def pool() -> Pool | None:
            return None if registry is None else registry.database.pool

        return RegistryParts(
            settings=settings,
            pool=pool,
            at_machine=True,
            sources=lambda: settings.sources,
            lister=partial(_list_server, settings, registry),
            load_catalogs=self._load_catalogs,
            engine=lambda _tenant: self._engine,
            find=partial(
                import_later("gateway.app.local_search:find_tools"),
                settings,
                lambda: registry.database.pool if registry else None,
            ),
            functions=partial(
                import_later("gateway.hybrid.functions:load_functions"), settings.functions
            ),
            scripts=lambda: settings.scripts,
            disconnect=partial(import_later("gateway.app.connections:disconnect"), settings, pool),
        )


async def _list_server(settings: Settings, registry: Registry | None, spec: "ImportSpec") -> bytes:
    """The lists of a server, with the credentials of the registry. Raises ImportRejected."""
    stored = {}
    if registry is not None:
        stored = await load("gateway.app.access_for_commands:stored_in")(
            settings, registry.database.pool
        )
    async with load("gateway.cli.common.mcp_connections:open_lister")(settings, stored) as lister:
        document: bytes = await lister(spec)
        return document


def _arguments(
    operation: Operation, members: Mapping[str, Any], texts: Mapping[str, str]
) -> Mapping[str, Any]:
    """The arguments of a call, as a running gateway would read them."""
    query_names = operation.query.__struct_encode_fields__
    apart = {*operation.names, *query_names, IF_MATCH, IF_NONE_MATCH}
    arguments = {
        **members,
        **{name: text if name in apart else json_or_text(text) for name, text in texts.items()},
    }
    if missing := [name for name in operation.names if name not in arguments]:
        fail(f"{operation.id}: expected {', '.join(f'{name}=...' for name in missing)}", USAGE)
    unknown = arguments.keys() - {*apart, *([AS_JOB] if operation.job else [])}
    if unknown and operation.body is None:
        fail(f"{operation.id} takes no argument {', '.join(sorted(unknown))}", USAGE)
    return arguments


@asynccontextmanager
async def open_operations(
    settings: Settings,
    tenant: str | None = None,
    resources: Sequence[str] = (),
    *,
    job: Job | None = None,
    has_database: bool = True,
) -> AsyncIterator[LocalOperations]:
    """The operations for a tenant; None: the gateway's own. `resources`, `job`: as
    `LocalOperations`. Without `has_database` no database is opened."""
    tenant = tenant or settings.tenant.host_id
    if not has_database:
        yield LocalOperations(settings, None, tenant, resources, job)
        return
    async with open_registry(settings) as registry:
        yield LocalOperations(settings, registry, tenant, resources, job)
