"""Wiring of the admin API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from gateway.admin.resources.keys import KeyOperations
from gateway.admin.resources.manual_tools import Makings, ManualToolOperations
from gateway.admin.resources.policy import PolicyOperations
from gateway.admin.resources.search import Find, SearchOperations
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.sessions import SessionOperations
from gateway.admin.resources.skills import SkillOperations
from gateway.admin.resources.sources import SourceOperations
from gateway.admin.resources.status import StatusOperations
from gateway.admin.resources.tools import ToolOperations
from gateway.admin.service import AdminAction, AdminApi
from gateway.context import Identify
from gateway.functions import Function
from gateway.methods.results import SERVER
from gateway.operations.openapi import describe
from gateway.operations.operation import Ground, Operation, OperationInput, Pages, ProblemDetails
from gateway.operations.serving import Repeats
from gateway.policy.engine import Engine
from gateway.state.idempotency import IdempotencyKeys
from gateway.state.sessions import Sessions
from gateway.wings.table import wing_kinds
from registry.access.secrets import Keys
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from registry.sources.source_reader import Lister

OPEN = ProblemDetails(
    403,
    "auth-mode",
    "There is no admin API while everybody is let in: set auth.mode to jwt or keys.",
)


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
        repeats=Repeats(IdempotencyKeys(parts.pool, settings.idempotency_ttl_s)),
        record=parts.record,
        refusal=OPEN if parts.settings.auth.mode == "none" else None,
    )


def operations_of(parts: AdminParts) -> tuple[Operation, ...]:
    """All operations, and the one that describes them."""

    @cache  # slow and constant
    def described() -> dict[str, Any]:
        return describe(all_, parts.settings.admin.path, SERVER.version)

    async def description(_asked: OperationInput) -> Any:
        return described()

    text, kind, why = "Describe this API.", dict[str, Any], "it is about HTTP; lists describe tools"
    describes = Operation(
        "describe", "GET", "/openapi.json", text, "", description, kind, no_tool=why
    )
    all_ = (*_operations(parts), describes)
    return all_


def _operations(parts: AdminParts) -> tuple[Operation, ...]:
    settings, sessions = parts.settings, parts.sessions
    host_id = settings.tenant.host_id
    pages = Pages(settings.admin.page_size, settings.admin.page_limit)
    ground = Ground(parts.pool, pages, host_id, settings.admin.operator_role)

    def numbers() -> tuple[str, str, int, int]:
        return SERVER.version, parts.node, len(sessions), parts.streams()

    secrets = SecretOperations(ground, Keys.of(settings.secrets), host_id, parts.sources)
    tools = ToolOperations(ground, settings.policy.tiers)
    networks = settings.imports.private_networks
    makings = Makings(parts.sources, parts.functions, parts.scripts, networks)
    resources = (
        StatusOperations(
            ground,
            parts.health,
            catalogs=parts.catalogs,
            toolsets=settings.toolsets,
            numbers=numbers,
        ),
        SourceOperations(
            ground, settings.imports, wanted=parts.sources, lister=parts.lister, secrets=secrets
        ),
        secrets,
        tools,
        ManualToolOperations(ground, tools, secrets, makings),
        SearchOperations(parts.find),
        EmbeddingOperations(ground, wing_kinds(settings)),
        SkillOperations(ground, settings.skills),
        AgentOperations(ground),
        KeyOperations(ground),
        PolicyOperations(
            ground,
            settings.policy,
            toolsets=settings.toolsets,
            engine=parts.engine,
            catalogs=parts.catalogs,
            levels=settings.limits.json_depth,
        ),
        SessionOperations(ground, sessions),
        AuditOperations(ground, settings.audit.key.encode()),
    )
    return tuple(one for each in resources for one in each.operations)
