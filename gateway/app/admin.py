"""Wiring of the admin API."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from config.settings import Scripts, Settings
from config.sources import SourceSettings
from gateway.admin.health import Health
from gateway.admin.resources.agents import AgentOperations
from gateway.admin.resources.audit import AuditOperations
from gateway.admin.resources.embeddings import EmbeddingOperations
from gateway.admin.resources.jobs import JobOperations
from gateway.admin.resources.keys import KeyOperations
from gateway.admin.resources.manual_tools import ManualToolOperations, ManualToolSettings
from gateway.admin.resources.policy import PolicyOperations
from gateway.admin.resources.search import Find, SearchOperations
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.sessions import SessionOperations
from gateway.admin.resources.skills import SkillOperations
from gateway.admin.resources.sources import SourceOperations
from gateway.admin.resources.status import Restart, StatusOperations
from gateway.admin.resources.tools import ToolOperations
from gateway.admin.service import AdminAction, AdminApi
from gateway.context import Identify
from gateway.hybrid.functions import Function
from gateway.methods.results import SERVER
from gateway.operations.openapi import describe
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    Pages,
    ProblemDetails,
)
from gateway.operations.serving import Defer, IdempotentRunner
from gateway.policy.engine import Engine
from gateway.state.idempotency import IdempotencyKeys
from gateway.state.sessions import Sessions
from gateway.wings.table import wing_kinds
from registry.access.secrets import Keys
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from registry.search.usage_log import UsageLog
from registry.sources.source_reader import Lister

OPEN = ProblemDetails(
    403,
    "auth-mode",
    "There is no admin API while everybody is let in: set auth.mode to jwt or keys.",
)


async def nothing(_changed: str) -> None:
    """Reload nothing: the process follows the database alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts:
    """Parts of a gateway that the admin API uses."""

    settings: Settings
    pool: Callable[[], Pool | None]
    sources: Callable[[], Mapping[str, SourceSettings]]  # current sources of the settings
    lister: Lister
    identify: Identify
    health: Health
    catalogs: Catalogs
    sessions: Sessions
    node: str
    streams: Callable[[], int]  # number of open streams in this process
    engine: Callable[[str], Engine]  # policy engine of a tenant
    record: Callable[[AdminAction], None]
    find: Find
    functions: Callable[[], Mapping[str, Function]]  # current functions of the settings
    scripts: Callable[[], Scripts]
    of_wings: Sequence[Operation] = ()
    jobs_of_wings: Callable[[], Collection[str]] = tuple  # operations that run as jobs
    reload: Callable[[str], Awaitable[None]] = nothing  # of access, by what has changed
    restart: Restart | None = None
    defer: Defer | None = None  # stores jobs; None: all operations answer at once


class PathPrefix(BaseRoute):
    """Route for `path` and everything below; Starlette's Mount does not match line breaks."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self._path = path
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        below = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._path}/")
        return (Match.FULL if below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def admin_api(parts: AdminParts) -> AdminApi:
    settings = parts.settings.admin
    return AdminApi(
        settings,
        parts.identify,
        operations=operations_of(parts),
        repeats=IdempotentRunner(IdempotencyKeys(parts.pool, settings.idempotency_ttl_s)),
        record=parts.record,
        refusal=OPEN if parts.settings.auth.mode == "none" else None,
        defer=parts.defer,
    )


def operations_of(parts: AdminParts) -> tuple[Operation, ...]:
    """All operations, and the one that describes them."""

    @cache  # slow and constant
    def describe_api() -> dict[str, Any]:
        return describe(all_, parts.settings.admin.path, SERVER.version)

    async def description(_asked: OperationInput) -> Any:
        return describe_api()

    text, kind, why = "Describe this API.", dict[str, Any], "it is about HTTP; lists describe tools"
    describes = Operation(
        "describe", "GET", "/openapi.json", text, "", description, kind, no_tool=why
    )
    all_ = (*_with_jobs(parts, _operations(parts)), describes)
    return all_


def _with_jobs(parts: AdminParts, operations: Sequence[Operation]) -> Sequence[Operation]:
    """The operations, and those on their jobs; or all of them without jobs."""
    if parts.defer is None:
        return [replace(operation, job=None) for operation in operations]
    ground = _ground(parts.settings, parts.pool)
    return with_jobs(parts.settings, ground, operations, parts.jobs_of_wings)


def with_jobs(
    settings: Settings,
    ground: OperationDependencies,
    operations: Sequence[Operation],
    of_wings: Callable[[], Collection[str]] = tuple,
) -> Sequence[Operation]:
    """The operations, and those on their jobs and on those of wings."""

    def known_operations() -> Sequence[Operation]:
        return all_

    jobs = JobOperations(ground, settings.jobs.keep_days, known_operations, of_wings)
    all_ = (*operations, *jobs.operations)
    return all_


def job_operations(settings: Settings, pool: Callable[[], Pool | None]) -> Sequence[Operation]:
    """The operations on jobs alone."""
    return with_jobs(settings, _ground(settings, pool), ())


def operations_as_jobs(
    settings: Settings, pool: Callable[[], Pool | None], lister: Lister, find: Find
) -> Sequence[Operation]:
    """The operations that run as jobs, for processes that serve none."""
    ground = _ground(settings, pool)
    resources = (
        *_long_running(settings, ground, lambda: settings.sources, lister),
        _searches(settings, ground, find),
    )
    operations = [operation for each in resources for operation in each.operations]
    return with_jobs(settings, ground, operations)


def _ground(settings: Settings, pool: Callable[[], Pool | None]) -> OperationDependencies:
    pages = Pages(settings.admin.page_size, settings.admin.page_limit)
    return OperationDependencies(pool, pages, settings.tenant.host_id, settings.admin.operator_role)


def _long_running(
    settings: Settings,
    ground: OperationDependencies,
    wanted: Callable[[], Mapping[str, SourceSettings]],
    lister: Lister,
) -> tuple[SourceOperations, EmbeddingOperations, AuditOperations]:
    """The resources with operations that run as jobs."""
    secrets = SecretOperations(ground, Keys.of(settings.secrets), ground.host_id, wanted)
    return (
        SourceOperations(ground, settings.imports, wanted=wanted, lister=lister, secrets=secrets),
        EmbeddingOperations(ground, wing_kinds(settings)),
        AuditOperations(ground, settings.audit.key.encode()),
    )


def _searches(settings: Settings, ground: OperationDependencies, find: Find) -> SearchOperations:
    search = settings.search
    usage = UsageLog(ground.opened, search.usage_log_days, search.query_characters)
    return SearchOperations(ground, find, usage)


def _operations(parts: AdminParts) -> tuple[Operation, ...]:
    settings, sessions = parts.settings, parts.sessions
    host_id = settings.tenant.host_id
    ground = _ground(settings, parts.pool)

    def numbers() -> tuple[str, str, int, int]:
        return SERVER.version, parts.node, len(sessions), parts.streams()

    secrets = SecretOperations(ground, Keys.of(settings.secrets), host_id, parts.sources)
    tools = ToolOperations(ground, settings.policy.tiers, parts.catalogs)
    networks = settings.imports.private_networks
    makings = ManualToolSettings(parts.sources, parts.functions, parts.scripts, networks)
    sources, embeddings, audit = _long_running(settings, ground, parts.sources, parts.lister)
    resources = (
        StatusOperations(
            ground,
            parts.health,
            catalogs=parts.catalogs,
            toolsets=settings.toolsets,
            numbers=numbers,
            restart=parts.restart,
        ),
        sources,
        secrets,
        tools,
        ManualToolOperations(ground, tools, secrets, makings),
        _searches(settings, ground, parts.find),
        embeddings,
        SkillOperations(ground, settings.skills),
        AgentOperations(ground),
        KeyOperations(ground, parts.reload),
        PolicyOperations(
            ground,
            settings.policy,
            toolsets=settings.toolsets,
            engine=parts.engine,
            catalogs=parts.catalogs,
            levels=settings.limits.json_depth,
        ),
        SessionOperations(ground, sessions),
        audit,
    )
    own = (operation for each in resources for operation in each.operations)
    return (*own, *parts.of_wings)
