"""Jobs of a wing: the operations that show and cancel them, each caller its own."""

from collections.abc import Callable, Sequence

from gateway.operations.job_declarations import JobView
from gateway.operations.job_views import JobFilter, JobViews
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.paging import ListPage, Pages
from registry.database.postgres import Pool


def job_operations(
    name: str,
    operations: Sequence[Operation],
    pool: Callable[[], Pool],
    pages: Pages,
    *,
    no_tool: str = "",
) -> tuple[Operation, ...]:
    """The operations of a wing, and those on their jobs, if some run as jobs. `pool` raises
    ProblemDetails. `no_tool`: see `Wing.no_job_tools`."""
    ids = frozenset(operation.id for operation in operations if operation.job is not None)
    if not ids:
        return tuple(operations)

    def visible(_request: OperationInput) -> frozenset[str]:
        return ids

    job_path, views = "/jobs/{job}", JobViews(pool, pages, visible, own=True)
    return (
        *operations,
        Operation(
            f"{name}_list_jobs", "GET", "/jobs", "List the jobs of the caller, the newest first.",
            "", views.list, ListPage[JobView], query=JobFilter, no_tool=no_tool,
        ),
        Operation(
            f"{name}_get_job", "GET", job_path, "Show a job: its progress, or its result.", "",
            views.get, JobView, no_tool=no_tool,
        ),
        Operation(
            f"{name}_cancel_job", "DELETE", job_path,
            "Cancel a job. One that runs ends a moment later; one that has ended stays.", "",
            views.cancel, JobView, no_tool=no_tool,
        ),
    )  # fmt: skip
