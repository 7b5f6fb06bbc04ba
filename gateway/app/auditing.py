"""Wiring of the audit log: recorder and writer."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import anyio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import Settings
from gateway.abc import Guard, Middleware
from gateway.admin.service import AdminAction
from gateway.audit.records import AuditEntry, digest_of, printable
from gateway.audit.retention import look_after
from gateway.audit.writer import AuditWriter, is_recorded
from gateway.context import Identify
from gateway.middleware.audit import AuditTrail
from gateway.policy.refusals import Refusals
from registry.database.embedded import directory_of
from registry.database.postgres import Pool


class Auditing(Collector):
    def __init__(
        self, settings: Settings, pool: Callable[[], Pool | None], refusals: Refusals
    ) -> None:
        """`pool` returns None until the database has answered."""
        audit = settings.audit
        self._settings = audit
        self._pool = pool
        self.enabled = is_recorded(settings)
        self._writer = AuditWriter(audit, spool_dir(settings), settings.tenant.host_id, pool)
        self._trail = AuditTrail(audit, self._writer, refusals, refusals.tool)

    @property
    def middleware(self) -> Sequence[Middleware]:
        return [self._trail.middleware] if self.enabled else []

    @property
    def guards(self) -> Sequence[Guard]:
        return [self._trail.guard] if self.enabled else []

    def identifying(self, identify: Identify) -> Identify:
        return self._trail.identifying(identify) if self.enabled else identify

    def remember(self, action: AdminAction) -> None:
        """Record an action of the admin API."""
        if not self.enabled:
            return
        writer, principal = self._writer, action.principal
        writer.add(
            AuditEntry(
                principal.tenant,
                writer.now(),
                printable(principal.id),
                principal.mark,
                "admin",
                method=action.operation,
                subject=printable("/".join(action.names.values())),
                decision="deny" if action.status in (401, 403) else "allow",
                outcome="ok" if action.status < 400 else str(action.status),
                request_bytes=len(action.body),
                digest=digest_of(writer.key, action.body) if action.body else "",
                request_id=action.request_id,
                client=action.client,
            )
        )

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
            tasks.start_soon(look_after, pool, self._writer.key, self._settings.retention_days)
            tasks.start_soon(self._writer.run)
            tasks.start_soon(self._sum_up)

    async def _sum_up(self) -> None:
        while True:
            await anyio.sleep(self._settings.refusals_s)
            self._trail.sum_up()

    async def settle(self) -> None:
        """Flush, while the database is still open."""
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
            "toolgate_audit_records", "Records of the audit log, by what became of them.",
            labels=("outcome",),
        )  # fmt: skip
        for outcome in ("written", "spooled", "dropped"):
            records.add_metric([outcome], getattr(writer, outcome))
        yield records
        spooled = writer.spool.size if writer.spool is not None else 0
        gauges = [
            ("waiting", "Records of the audit log in memory.", writer.waiting),
            ("lag_seconds", "How long the oldest of them has waited.", writer.lag_s),
            ("spool_bytes", "Files with records that the database does not have.", spooled),
        ]
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"toolgate_audit_{name}", text, value)


def spool_dir(settings: Settings) -> Path:
    """Directory of records that wait for the database."""
    if settings.audit.spool_dir:
        return Path(settings.audit.spool_dir).expanduser()
    beside = directory_of(settings.database.data_dir)
    return beside.with_name(f"{beside.name}-audit")
