"""Wiring of the operations on the registry, which take no running gateway.

Read by the admin API, and by commands that call operations in their own process.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from config.settings import Scripts, Settings
from config.sources import SourceSettings
from gateway.admin.resources.agents import AgentOperations
from gateway.admin.resources.audit import AuditOperations
from gateway.admin.resources.embeddings import EmbeddingOperations
from gateway.admin.resources.keys import KeyOperations
from gateway.admin.resources.manual_tools import ManualToolOperations, ManualToolSettings
from gateway.admin.resources.policy import PolicyOperations
from gateway.admin.resources.search import Find, SearchOperations
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.skills import SkillOperations
from gateway.admin.resources.sources import SourceOperations
from gateway.admin.resources.tools import ToolOperations
from gateway.admin.scopes import scopes_of_settings
from gateway.hybrid.functions import Function
from gateway.operations.operation import Operation, OperationDependencies
from gateway.operations.pages import Pages
from gateway.policy.engine import Engine
from gateway.wings.table import wing_kinds
from registry.access.secrets import Keys
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from registry.search.usage_log import UsageLog
from registry.sources.source_reader import Lister


async def nothing(_changed: str) -> None:
    """Reload nothing: the process follows the database alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryParts:
    """Parts that the operations on the registry use."""

    settings: Settings
    pool: Callable[[], Pool | None]
    sources: Callable[[], Mapping[str, SourceSettings]]  # current sources of the settings
    lister: Lister
    catalogs: Catalogs
    engine: Callable[[str], Engine]  # policy engine of a tenant
    find: Find
    functions: Callable[[], Mapping[str, Function]]  # current functions of the settings
    scripts: Callable[[], Scripts]
    reload: Callable[[str], Awaitable[None]] = nothing  # of access, by what has changed


def registry_operations(parts: RegistryParts) -> tuple[Operation, ...]:
    settings = parts.settings
    ground = dependencies(settings, parts.pool)
    secrets = _secret_operations(settings, ground, parts.sources)
    tools = ToolOperations(ground, settings.policy.tiers, parts.catalogs)
    networks = settings.imports.private_networks
    makings = ManualToolSettings(parts.sources, parts.functions, parts.scripts, networks)
    sources, embeddings, audit = resources_with_jobs(settings, ground, parts.sources, parts.lister)
    resources = (
        sources,
        secrets,
        tools,
        ManualToolOperations(ground, tools, secrets, makings),
        search_operations(settings, ground, parts.find),
        embeddings,
        SkillOperations(ground, settings.skills),
        AgentOperations(ground),
        KeyOperations(ground, parts.reload, scopes_of_settings(settings)),
        PolicyOperations(
            ground,
            settings.policy,
            toolsets=settings.toolsets,
            engine=parts.engine,
            catalogs=parts.catalogs,
            levels=settings.limits.json_depth,
        ),
        audit,
    )
    return tuple(operation for each in resources for operation in each.operations)


def dependencies(settings: Settings, pool: Callable[[], Pool | None]) -> OperationDependencies:
    pages = Pages(settings.admin.page_size, settings.admin.page_limit)
    return OperationDependencies(pool, pages, settings.tenant.host_id, settings.admin.operator_role)


def resources_with_jobs(
    settings: Settings,
    ground: OperationDependencies,
    wanted: Callable[[], Mapping[str, SourceSettings]],
    lister: Lister,
) -> tuple[SourceOperations, EmbeddingOperations, AuditOperations]:
    """The resources with operations that run as jobs."""
    secrets = _secret_operations(settings, ground, wanted)
    return (
        SourceOperations(ground, settings.imports, wanted=wanted, lister=lister, secrets=secrets),
        EmbeddingOperations(ground, wing_kinds(settings)),
        AuditOperations(ground, settings.audit.key.encode()),
    )


def search_operations(
    settings: Settings, ground: OperationDependencies, find: Find
) -> SearchOperations:
    search = settings.search
    usage = UsageLog(ground.opened, search.usage_log_days, search.query_characters)
    return SearchOperations(ground, find, usage)


def _secret_operations(
    settings: Settings,
    ground: OperationDependencies,
    wanted: Callable[[], Mapping[str, SourceSettings]],
) -> SecretOperations:
    keys, strategies = Keys.of(settings.secrets), settings.models.strategies
    return SecretOperations(
        ground, keys, host_id=ground.host_id, wanted=wanted, strategies=strategies
    )
