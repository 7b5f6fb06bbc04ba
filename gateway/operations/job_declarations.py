"""Operations that run as jobs: how they are declared, and the job as its client sees it.

Knows no queue and no database: see `gateway.operations.job_runner`.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Raw, Struct

from gateway.context import Principal

RESPOND_ASYNC = "respond-async"  # RFC 7240, 4.1
SCHEDULE = "schedule"  # the principal of scheduled jobs

JobState = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
END_STATES: tuple[JobState, ...] = ("succeeded", "failed", "cancelled")


class AsJob(Struct, frozen=True):
    """How an operation runs as a job."""

    always: bool = False  # False: only for clients that prefer `respond-async`
    # Jobs with the same value run one at a time, within their tenant. A format of the path
    # parameters and `body`, as in "source:{source}".
    lock: str = ""
    once: bool = False  # an equal job that waits already is taken instead of a second one
    attempts: int = 3  # runs that may fail, or whose process dies, before the job has failed
    schedule: str = ""  # cron, for operations without parameters
    timezone: str = ""  # of the schedule; "": UTC


class Job(Protocol):
    """The job that an operation runs as, for its handler."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show how far the job is. Cheap: stored at most twice a second."""


class NoJob:
    """The handle of an operation that answers at once."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        pass


NO_JOB: Job = NoJob()

JobEvent = Literal["started", "succeeded", "failed", "cancelled"]


class JobAct(Struct, frozen=True):
    """A start or an end of a job, for the audit log."""

    principal: Principal
    operation: str
    names: tuple[str, ...]  # values of the path parameters
    job_id: str
    event: JobEvent
    status: int = 0  # of the answer; 0: there is none
    scheduled: bool = False  # asked for by the gateway's own schedule, by no caller


OnJobAct = Callable[[JobAct], None]


def prefers_async(headers: Mapping[str, str]) -> bool:
    """Whether Prefer names `respond-async` (RFC 7240)."""
    preferences = headers.get("prefer", "").lower().split(",")
    return any(preference.split(";")[0].strip() == RESPOND_ASYNC for preference in preferences)


class JobView(Struct, frozen=True, omit_defaults=True):
    """A job. `result` is the body that the operation would have answered with; `problem` its
    problem details, if it failed."""

    job: str
    operation: str
    state: JobState
    principal: str
    created: str
    started: str | None = None
    ended: str | None = None
    attempt: int = 0
    done: int = 0
    total: Annotated[int | None, Meta(description="unknown, if absent")] = None
    note: str = ""
    cancelling: bool = False
    result: Raw | None = None
    problem: Raw | None = None
    location: str = ""
