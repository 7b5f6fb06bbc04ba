"""Operations on the registry, which take no running gateway.

Read by the admin API, and by commands that call operations in their own process.
"""

from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.agents import AgentOperations
from gateway.admin.resources.audit import AuditOperations
from gateway.admin.resources.backups import BackupOperations
from gateway.admin.resources.catalog import CatalogOperations
from gateway.admin.resources.connections import ConnectionOperations
from gateway.admin.resources.costs import CostOperations
from gateway.admin.resources.embeddings import EmbeddingOperations
from gateway.admin.resources.evaluations import EvaluationOperations
from gateway.admin.resources.keys import KeyOperations
from gateway.admin.resources.login_users import LoginUserOperations
from gateway.admin.resources.logins import LoginOperations
from gateway.admin.resources.manual_tools import ManualToolOperations
from gateway.admin.resources.policy import PolicyOperations
from gateway.admin.resources.search import SearchOperations
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.skills import SkillOperations
from gateway.admin.resources.sources import SourceOperations
from gateway.admin.resources.tools import ToolOperations
from gateway.admin.resources.toolsets import ToolsetOperations
from gateway.operations.operation import Operation

RESOURCES = (
    *(SourceOperations, SecretOperations, ToolOperations, ManualToolOperations, SearchOperations),
    *(EmbeddingOperations, SkillOperations, AgentOperations, KeyOperations, PolicyOperations),
    *(AuditOperations, EvaluationOperations, LoginOperations, LoginUserOperations),
    *(ConnectionOperations, CatalogOperations, ToolsetOperations, BackupOperations),
    CostOperations,
)
WITH_JOBS = (
    *(SourceOperations, EmbeddingOperations, AuditOperations, EvaluationOperations),
    BackupOperations,
)
"""Resources with operations that run as jobs."""


def registry_operations(parts: RegistryParts) -> tuple[Operation, ...]:
    return tuple(operation for each in RESOURCES for operation in each.of(parts).operations)
