"""Checks of what operators are told of. Each returns the concerns of now: one that is no longer
returned is over."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from anyio import to_thread

from gateway.operations.job_declarations import SCHEDULE
from gateway.wings.interface import Concern, Sentence, Subject
from registry.access.approvals import Approvals
from registry.access.secrets import Keys
from registry.connections.accounts import Connection, Connections
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
            Sentence("{tool} waits for an approval", {"tool": approval.tool}),
            Sentence(
                "{caller} called {tool} of {source}. Rule {rule}. It waits until {time} UTC.",
                {
                    "caller": approval.principal,
                    "tool": approval.tool,
                    "source": approval.source or "the gateway",
                    "rule": f"{approval.rule}{': ' if approval.reason else ''}{approval.reason}",
                    "time": f"{approval.expires.astimezone(UTC):%Y-%m-%d %H:%M}",
                },
            ),
            "approvals",
        )
        for approval in (await Approvals(pool, tenant).waiting())[:MOST]
    ]


async def failed_jobs(pool: Pool, tenant: str) -> list[Concern]:
    """Schedules whose last run failed, and jobs of people that failed lately."""
    store = JobStore(pool)
    scheduled = [
        _job_concern(
            row, row.operation, Sentence("The schedule {name} failed", {"name": _schedule(row)})
        )
        for row in await store.newest_ended(tenant, SCHEDULE)
        if row.state == "failed"
    ]
    single = [
        _job_concern(
            row,
            row.job_id,
            Sentence(
                "The job {operation} of {caller} failed",
                {"operation": row.operation, "caller": row.principal_id},
            ),
        )
        for row in await store.failed_lately(tenant, FAILURE_PERIOD_S, MOST)
        if row.principal_id != SCHEDULE
    ]
    return [*scheduled, *single]


def _schedule(row: JobRow) -> str:
    return row.operation.removeprefix("events_schedule_")


def _job_concern(row: JobRow, key: str, title: Sentence) -> Concern:
    subject: Subject = "schedules" if row.principal_id == SCHEDULE else "jobs"
    problem: Mapping[str, Any] = msgspec.json.decode(row.problem) if row.problem else {}
    reason = problem.get("detail") or problem.get("title")
    detail = Sentence(str(reason)) if reason else Sentence("no reason is known")
    return Concern(subject, key, title, detail, f"jobs/{row.job_id}")


async def ending_connections(pool: Pool, host_id: str, tenant: str, days: int) -> list[Concern]:
    rows = await Connections(pool, host_id, Keys()).ending(tenant, days, MOST)
    return [_connection_concern(row) for row in rows if row.state != "suspended"]


def _connection_concern(row: Connection) -> Concern:
    values = {"caller": row.principal, "source": row.source}
    if row.state == "expired":
        title = Sentence("The account of {caller} at {source} has ended", values)
    else:
        title = Sentence("The account of {caller} at {source} is about to end", values)
    detail = (
        Sentence(row.failure) if row.failure else Sentence("Its person has to connect it again.")
    )
    return Concern("connections", str(row.id), title, detail, f"connections/{row.id}")


def sources_down(states: Mapping[str, str]) -> list[Concern]:
    """`states`: what is wrong, by source, as this process sees it."""
    return [
        Concern(
            "sources",
            source,
            Sentence("The source {source} is down", {"source": source}),
            Sentence(reason),
            f"sources/{source}",
        )
        for source, reason in list(states.items())[:MOST]
    ]


async def ending_certificate(file: str, days: int) -> list[Concern]:
    """The certificate of the gateway's own listener."""
    from gateway.http_client.certificates import certificate_end  # not where there is no TLS

    try:
        end = await to_thread.run_sync(certificate_end, Path(file))
    except (OSError, ValueError) as error:
        title = Sentence("The TLS certificate cannot be read")
        return [Concern("certificates", "server.tls", title, Sentence(str(error)), "health")]
    if end > datetime.now(UTC) + timedelta(days=days):
        return []
    time = f"{end:%Y-%m-%d %H:%M}"
    detail = Sentence("server.tls.cert is good until {time} UTC.", {"time": time})
    title = Sentence("The TLS certificate ends")
    return [Concern("certificates", "server.tls", title, detail, "health")]
