"""Jobs: list, progress and result, cancellation, and the removal of ended ones.

A job is seen and cancelled by those in its tenant who may call its operation.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from gateway.operations.job_requests import view_of
from gateway.operations.jobs import AsJob, JobState, JobView
from gateway.operations.operation import (
    Ground,
    ListPage,
    Operation,
    OperationInput,
    Paging,
    ProblemDetails,
    allows,
    cursor,
    not_found,
    place,
    unknown,
)
from registry.jobs.store import JobRow, JobStore, key_of

WRITE = "admin:jobs:write"
DAILY = "17 3 * * *"  # not at a full hour, when much else runs


class JobFilter(Paging, frozen=True):
    """Filters of jobs."""

    state: JobState | None = None


class Removed(Struct, frozen=True):
    """Number of removed jobs."""

    removed: int


class JobOperations:
    def __init__(
        self, ground: Ground, keep_days: int, operations: Callable[[], Sequence[Operation]]
    ) -> None:
        """`operations`: all of the API, whose scopes say who sees their jobs."""
        self._ground = ground
        self._keep_days = keep_days
        self._operations = operations

    @property
    def operations(self) -> Sequence[Operation]:
        one = "/jobs/{job}"
        return (
            Operation(
                "listJobs", "GET", "/jobs", "List jobs, the newest first.", "", self.list,
                ListPage[JobView], query=JobFilter,
            ),
            # before those of one job, whose pattern its path fits, too
            Operation(
                "removeEndedJobs", "POST", "/jobs/removal",
                "Remove jobs of all tenants that ended long ago (jobs.keep_days).", WRITE,
                self.remove_ended, Removed,
                job=AsJob(always=True, lock="removal", once=True, schedule=DAILY),
            ),
            Operation(
                "getJob", "GET", one, "Show a job: its progress, or its result.", "", self.get,
                JobView,
            ),
            Operation(
                "cancelJob", "DELETE", one,
                "Cancel a job. One that runs ends a moment later; one that has ended stays.", "",
                self.cancel, JobView,
            ),
        )  # fmt: skip

    async def list(self, asked: OperationInput) -> ListPage[JobView]:
        what: JobFilter = asked.query
        limit = self._ground.pages.limit(what)
        before = _place(what.after)
        visible = [one.id for one in self._operations() if one.job and _sees(asked, one)]
        found = await self._store.page(
            asked.tenant, visible, state=what.state, before=before, limit=limit + 1
        )
        views = tuple(view_of(row) for row in found[:limit])
        return ListPage(views, cursor(key_of(found[limit - 1])) if len(found) > limit else "")

    async def get(self, asked: OperationInput) -> JobView:
        return view_of(await self._found(asked))

    async def cancel(self, asked: OperationInput) -> JobView:
        await self._found(asked)
        await self._store.cancel(asked.tenant, asked.names["job"])
        return await self.get(asked)

    async def remove_ended(self, asked: OperationInput) -> Removed:
        if not self._ground.is_operator(asked):
            text = f"This takes the role {self._ground.operator_role}: it is about all tenants."
            raise ProblemDetails(403, "insufficient-role", text)
        return Removed(await self._store.remove_ended(self._keep_days))

    @property
    def _store(self) -> JobStore:
        return JobStore(self._ground.pool)

    async def _found(self, asked: OperationInput) -> JobRow:
        job = asked.names["job"]
        row = await self._store.get(asked.tenant, job)
        if row is not None:
            for one in self._operations():
                if one.id == row.operation and _sees(asked, one):
                    return row
        raise not_found("job", job)


def _sees(asked: OperationInput, operation: Operation) -> bool:
    return allows(asked.principal, operation.scope)


def _place(after: str | None) -> str:
    """The place in a cursor. Raises ProblemDetails."""
    found = place(after)
    if found:
        time, _, job = found.partition(" ")
        try:
            datetime.fromisoformat(time)
            UUID(job)
        except ValueError as error:
            raise unknown() from error
    return found
