"""What operations stand on."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admin.operations import OperationInput
from gateway.admin.pages import Pages
from gateway.admin.problems import unavailable
from registry.database.postgres import Pool


@dataclass(frozen=True, slots=True)
class Ground:
    opened: Callable[[], Pool | None]  # None until the database has answered
    pages: Pages
    host_id: str  # the tenant of the gateway
    operator_role: str

    def is_own(self, asked: OperationInput) -> bool:
        """Whether the settings speak of the tenant."""
        return asked.tenant == self.host_id

    def is_operator(self, asked: OperationInput) -> bool:
        """Whether what the settings say may be told. Issuers of other tenants name roles as they
        like."""
        return self.is_own(asked) and self.operator_role in asked.principal.roles

    @property
    def pool(self) -> Pool:
        """Raises Problem."""
        pool = self.opened()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        return pool
