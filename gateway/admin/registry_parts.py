"""Parts of a process that the operations on the registry are made of.

A resource makes itself of them (`of`), so that a command imports its own resources alone.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.settings import Scripts, Settings
from config.sources import SourceSettings
from gateway.operations.operation import OperationDependencies
from gateway.operations.paging import Pages
from registry.database.postgres import Pool

if TYPE_CHECKING:  # a command does not import the parts that its operation does not use
    from gateway.admin.resources.search import Find
    from gateway.hybrid.functions import Function
    from gateway.policy.engine import Engine
    from registry.catalog.catalogs import Catalogs
    from registry.sources.source_reader import Lister


Disconnect = Callable[[str, str], Awaitable[object | None]]
"""End a person's connection to a source, by tenant and id; None: there is none."""


async def nothing(_changed: str) -> None:
    """Reload nothing: the process follows the database alone."""


async def no_connection(_tenant: str, _id: str) -> None:
    """End no connection: people do not log in, and have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """Parts of the resources with operations that run as jobs."""

    settings: Settings
    pool: Callable[[], Pool | None]
    sources: Callable[[], Mapping[str, SourceSettings]]  # current sources of the settings
    lister: "Lister"
    find: "Find"
    disconnect: Disconnect = no_connection
    at_machine: bool = False  # a command: its caller may name files, processes and any address

    @property
    def dependencies(self) -> OperationDependencies:
        return operation_dependencies(self.settings, self.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryParts(JobParts):
    """Parts of all resources."""

    load_catalogs: Callable[[], "Catalogs"]  # the same ones in each call
    engine: Callable[[str], "Engine"]  # policy engine of a tenant
    functions: Callable[[], "Mapping[str, Function]"]  # current functions of the settings
    scripts: Callable[[], Scripts]
    reload: Callable[[str], Awaitable[None]] = nothing  # of access, by what has changed

    @property
    def catalogs(self) -> "Catalogs":
        return self.load_catalogs()


def operation_dependencies(
    settings: Settings, pool: Callable[[], Pool | None]
) -> OperationDependencies:
    pages = Pages(settings.admin.page_size, settings.admin.page_limit)
    return OperationDependencies(pool, pages, settings.tenant.host_id, settings.admin.operator_role)
