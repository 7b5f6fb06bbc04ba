"""The audit log of a gateway: what is recorded of actions, jobs and calls, and its metrics."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import anyio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import Settings
from gateway.admin.http_api import AdminAction
from gateway.audit.database_writer import AuditWriter, is_recorded
from gateway.audit.records import AuditEntry, storable_text
from gateway.audit.retention import maintain_regularly
from gateway.context import Identify
from gateway.interfaces import Guard, Middleware
from gateway.middleware.audit_trail import AuditTrail
from gateway.operations.job_declarations import JobAct
from gateway.policy.visibility import Denials
from registry.database.embedded_server import directory_of
from registry.database.postgres import Pool

log = logging.getLogger("toolgate.access")


def job_entry(act: JobAct, now: datetime) -> AuditEntry:
    """The record of a start or an end of a job, whose id stands for that of a request."""
    principal = act.principal
    outcomes = {"succeeded": "ok", "failed": str(act.status)}
    return AuditEntry(
        principal.tenant,
        now,
        storable_text(principal.id),
        principal.mark,
        "job",
        method=act.operation,
        subject=storable_text("/".join(act.names)),
        decision="deny" if act.status == 403 else "allow",
        outcome=outcomes.get(act.event, act.event),
        request_id=act.job_id,
    )


class AuditCollector(Collector):
    def __init__(
        self,
        settings: Settings,
        pool: Callable[[], Pool | None],
        refusals: Denials,
        copy: Callable[[AuditEntry], None] | None = None,
    ) -> None:
        """The audit log of a gateway; `pool` returns None until the database has answered. `copy`
        gets each entry."""
        audit = settings.audit
        self._settings = audit
        self._pool = pool
        self.enabled = is_recorded(settings)
        spool, host_id = spool_dir(settings), settings.tenant.host_id
        self._writer = AuditWriter(audit, spool, host_id, pool, copy=copy)
        self._trail = AuditTrail(audit, self._writer, refusals, refusals.tool)

    @property
    def middleware(self) -> Sequence[Middleware]:
        return [self._trail.middleware] if self.enabled else []

    @property
    def guards(self) -> Sequence[Guard]:
        return [self._trail] if self.enabled else []

    def identifying(self, identify: Identify) -> Identify:
        return self._trail.identifying(identify) if self.enabled else identify

    def remember(self, action: AdminAction) -> None:
        """Record an action of the admin API."""
        if not self.enabled:
            return
        self._writer.add(action.entry(self._writer.now(), self._writer.key))

    def remember_job(self, act: JobAct) -> None:
        """Record a start or an end of a job."""
        if self.enabled:
            self._writer.add(job_entry(act, self._writer.now()))

    def remember_entry(self, entry: Callable[[datetime], AuditEntry]) -> None:
        if self.enabled:
            self._writer.add(entry(self._writer.now()))

    def remember_refusal(self, entry: Callable[[datetime], AuditEntry]) -> None:
        if self.enabled:
            self._trail.add_repeated(entry(self._writer.now()))

    async def begin(self, pool: Pool) -> None:
        """Open the chain, before the first request. Raises psycopg.Error and PoolTimeout."""
        if self.enabled:
            await self._writer.begin(pool)

    async def run(self) -> None:
        """Write records until cancelled; requires the database."""
        pool = self._pool()
        if not self.enabled or pool is None:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                maintain_regularly, pool, self._writer.key, self._settings.retention_days
            )
            tasks.start_soon(self._writer.run)
            tasks.start_soon(self._sum_up)

    async def _sum_up(self) -> None:
        while True:
            await anyio.sleep(self._settings.refusals_s)
            self._trail.sum_up()

    async def settle(self) -> None:
        """Flush while the database is still open."""
        if self.enabled:
            self._trail.sum_up()
            await self._writer.settle()

    async def close(self) -> None:
        if self.enabled:
            await self._writer.close()

    def collect(self) -> Iterator[Metric]:
        if not self.enabled:
            return
        writer = self._writer
        records = CounterMetricFamily(
            "toolgate_audit_records", "Records of the audit log, by outcome.",
            labels=("outcome",),
        )  # fmt: skip
        for outcome in ("written", "spooled", "dropped"):
            records.add_metric([outcome], getattr(writer, outcome))
        yield records
        spooled = writer.spool.size if writer.spool is not None else 0
        gauges = [
            (
                "toolgate_audit_queued_records",
                "Records of the audit log in memory.",
                writer.waiting,
            ),
            ("toolgate_audit_lag_seconds", "How long the oldest of them has waited.", writer.lag_s),
            (
                "toolgate_audit_spool_bytes",
                "Files with records that the database does not have.",
                spooled,
            ),
        ]
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value)


def spool_dir(settings: Settings) -> Path:
    """Directory of records that wait for the database."""
    if settings.audit.spool_dir:
        return Path(settings.audit.spool_dir).expanduser()
    data_dir = directory_of(settings.database)
    return data_dir.with_name(f"{data_dir.name}-audit")
