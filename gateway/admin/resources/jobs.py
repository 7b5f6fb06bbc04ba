"""Jobs: list, progress and result, cancellation, and the removal of ended ones.

A job is seen and cancelled by those in its tenant who may call its operation; one of a wing by who
began it, with the operations of the wing, and here by operators.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from config.settings import JobsSettings
from gateway.operations.job_declarations import SCHEDULE, AsJob, JobView
from gateway.operations.job_views import JobFilter, JobViews
from gateway.operations.operation import Operation, OperationDependencies, OperationInput, allows
from gateway.operations.paging import ListPage
from registry.jobs.store import JobRow, JobStore

WRITE = "admin:jobs:write"


class Removed(Struct, frozen=True):
    """Number of removed jobs."""

    removed: int


class JobOperations:
    _schedule = ""  # of declarations that commands read without settings

    def __init__(
        self,
        dependencies: OperationDependencies,
        settings: JobsSettings,
        operations: Callable[[], Sequence[Operation]],
        of_wings: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`operations`: all of the API, whose scopes say who sees their jobs. Jobs of `of_wings`
        are seen by operators, without the results of others' jobs."""
        self._dependencies = dependencies
        self._keep_days = settings.keep_days
        self._schedule = settings.removal_schedule
        self._operations = operations
        self._of_wings = of_wings
        self._views = JobViews(
            lambda: dependencies.pool, dependencies.pages, self._visible, withholds=self._withholds
        )

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/jobs/{job}"
        return (
            Operation(
                "listJobs", "GET", "/jobs", "List jobs, newest first.", "", self.list,
                ListPage[JobView], query=JobFilter,
            ),
            # before those of one job, whose pattern its path fits, too
            Operation(
                "removeEndedJobs", "POST", "/jobs/removal",
                "Remove jobs of all tenants that ended more than jobs.keep_days days ago.", WRITE,
                self.remove_ended, Removed, destroys=True,
                job=AsJob(always=True, lock="removal", once=True, schedule=self._schedule),
            ),
            Operation(
                "getJob", "GET", item, "Show the progress or the result of a job.", "", self.get,
                JobView,
            ),
            Operation(
                "cancelJob", "DELETE", item,
                "Cancel a job. A running job ends a moment later; an ended job stays.", "",
                self.cancel, JobView,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[JobView]:
        return await self._views.list(request)

    async def get(self, request: OperationInput) -> JobView:
        return await self._views.get(request)

    async def cancel(self, request: OperationInput) -> JobView:
        return await self._views.cancel(request)

    async def remove_ended(self, request: OperationInput) -> Removed:
        self._dependencies.require_operator(request)
        return Removed(await JobStore(self._dependencies.pool).remove_ended(self._keep_days))

    def _visible(self, request: OperationInput) -> Sequence[str]:
        operations = (operation for operation in self._operations() if operation.job is not None)
        admin_ids = [
            operation.id for operation in operations if allows(request.principal, operation.scope)
        ]
        return (
            [*admin_ids, *self._of_wings()]
            if self._dependencies.is_operator(request)
            else admin_ids
        )

    def _withholds(self, request: OperationInput, row: JobRow) -> bool:
        """Whether the result is hidden: that of a job of a wing that another caller began."""
        makers = (request.principal.id, SCHEDULE)
        return row.principal_id not in makers and row.operation in self._of_wings()
