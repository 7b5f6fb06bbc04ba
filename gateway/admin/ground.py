"""What operations stand on."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admin.pages import Pages
from gateway.admin.problems import unavailable
from registry.postgres import Pool


@dataclass(frozen=True, slots=True)
class Ground:
    opened: Callable[[], Pool | None]  # None until the database has answered
    pages: Pages

    @property
    def pool(self) -> Pool:
        """Raises Problem."""
        pool = self.opened()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        return pool
