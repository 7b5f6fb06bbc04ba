"""Checks of what operators are told of. Each returns the concerns of now: one that is no longer
returned is over."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread

from gateway.operations.job_declarations import SCHEDULE
from gateway.wings.interface import Concern, Subject
from registry.access.approvals import Approvals
from registry.access.secrets import Keys
from registry.connections.accounts import Connections
from registry.database.postgres import Pool
from registry.jobs.store import JobRow, JobStore

MOST = 500  # concerns of one check
FAILURE_PERIOD_S = 86_400.0  # for which a failed job of a person is a concern


async def waiting_approvals(pool: Pool, tenant: str) -> list[Concern]:
    """Their arguments stay in the console."""
    return [
        Concern(
            "approvals",
            approval.id,
            f"{approval.tool} waits for an approval",
            f"{approval.principal} called {approval.tool} of {approval.source or 'the gateway'}."
            f" Rule {approval.rule}{': ' if approval.reason else ''}{approval.reason}."
            f" It waits until {approval.expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC.",
            "approvals",
        )
        for approval in (await Approvals(pool, tenant).waiting())[:MOST]
    ]


async def failed_jobs(pool: Pool, tenant: str) -> list[Concern]:
    """Schedules whose last run failed, and jobs of people that failed lately."""
    store = JobStore(pool)
    scheduled = [
        _job_concern(row, row.operation, f"The schedule {_schedule(row.operation)} failed")
        for row in await store.newest_ended(tenant, SCHEDULE)
        if row.state == "failed"
    ]
    single = [
        _job_concern(row, row.job_id, f"The job {row.operation} of {row.principal_id} failed")
        for row in await store.failed_lately(tenant, FAILURE_PERIOD_S, MOST)
        if row.principal_id != SCHEDULE
    ]
    return [*scheduled, *single]


def _schedule(operation: str) -> str:
    return operation.removeprefix("events_schedule_")


def _job_concern(row: JobRow, key: str, title: str) -> Concern:
    subject: Subject = "schedules" if row.principal_id == SCHEDULE else "jobs"
    problem: Mapping[str, Any] = msgspec.json.decode(row.problem) if row.problem else {}
    reason = str(problem.get("detail") or problem.get("title") or "no reason is known")
    return Concern(subject, key, title, reason, f"jobs/{row.job_id}")


async def ending_connections(pool: Pool, host_id: str, tenant: str, days: int) -> list[Concern]:
    return [
        Concern(
            "connections",
            str(row.id),
            f"The account of {row.principal} at {row.source} "
            + ("has ended" if row.state == "expired" else "is about to end"),
            row.failure or "Its person has to connect it again.",
            f"connections/{row.id}",
        )
        for row in await Connections(pool, host_id, Keys()).ending(tenant, days, MOST)
        if row.state != "suspended"
    ]


def sources_down(states: Mapping[str, str]) -> list[Concern]:
    """`states`: what is wrong, by source, as this process sees it."""
    return [
        Concern("sources", source, f"The source {source} is down", reason, f"sources/{source}")
        for source, reason in list(states.items())[:MOST]
    ]


async def ending_certificate(file: str, days: int) -> list[Concern]:
    """The certificate of the gateway's own listener."""
    from gateway.http_client.certificates import certificate_end  # not where there is no TLS

    try:
        end = await to_thread.run_sync(certificate_end, Path(file))
    except (OSError, ValueError) as error:
        title = "The TLS certificate cannot be read"
        return [Concern("certificates", "server.tls", title, str(error), "health")]
    if end > datetime.now(UTC) + timedelta(days=days):
        return []
    text = f"server.tls.cert is good until {end:%Y-%m-%d %H:%M} UTC."
    return [Concern("certificates", "server.tls", "The TLS certificate ends", text, "health")]
