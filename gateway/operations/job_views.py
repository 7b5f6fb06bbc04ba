"""Jobs as operations show them: lists, one job, and its cancellation."""

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from gateway.operations.job_declarations import JobState, JobView
from gateway.operations.job_requests import view_of
from gateway.operations.operation import Line, OperationInput
from gateway.operations.paging import ListPage, Pages, Paging, cursor, place, unknown
from gateway.operations.problems import not_found
from registry.database.postgres import Pool
from registry.jobs.store import JobRow, JobStore, key_of

Visible = Callable[[OperationInput], Collection[str]]
"""The ids of the operations whose jobs a caller sees."""


class JobFilter(Paging, frozen=True):
    """Filters of jobs."""

    state: Annotated[JobState | None, Meta(description="only jobs in this state")] = None
    operation: Annotated[Line | None, Meta(description="only jobs of this operation")] = None


@dataclass(eq=False)
class JobViews:
    pool: Callable[[], Pool]  # raises ProblemDetails
    pages: Pages
    visible: Visible
    _: KW_ONLY
    own: bool = False  # callers see the jobs that they began alone
    withholds: Callable[[OperationInput, JobRow], bool] | None = None
    """Whether a job is shown without its result."""

    async def list(self, request: OperationInput) -> ListPage[JobView]:
        filters: JobFilter = request.query
        limit = self.pages.limit(filters)
        visible = (
            operation_id
            for operation_id in self.visible(request)
            if filters.operation in {None, operation_id}
        )
        rows = await self._store.page(
            request.tenant,
            tuple(visible),
            state=filters.state,
            principal=request.principal.id if self.own else None,
            before=_place(filters.after),
            limit=limit + 1,
        )
        views = tuple(view_of(row) for row in rows[:limit])
        return ListPage(views, cursor(key_of(rows[limit - 1])) if len(rows) > limit else "")

    async def get(self, request: OperationInput) -> JobView:
        row = await self._find_job(request)
        withheld = self.withholds is not None and self.withholds(request, row)
        return view_of(replace(row, result=None) if withheld else row)

    async def cancel(self, request: OperationInput) -> JobView:
        await self._find_job(request)
        await self._store.cancel(request.tenant, request.names["job"])
        return await self.get(request)

    @property
    def _store(self) -> JobStore:
        return JobStore(self.pool())

    async def _find_job(self, request: OperationInput) -> JobRow:
        job = request.names["job"]
        row = await self._store.get(request.tenant, job)
        if row is None or row.operation not in self.visible(request):
            raise not_found("job", job)
        if self.own and row.principal_id != request.principal.id:
            raise not_found("job", job)
        return row


def _place(after: str | None) -> str:
    """The place in a cursor. Raises ProblemDetails."""
    position = place(after)
    if position:
        time, _, job = position.partition(" ")
        try:
            datetime.fromisoformat(time)
            UUID(job)
        except ValueError as error:
            raise unknown() from error
    return position
