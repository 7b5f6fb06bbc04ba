"""Audit records of commands: each is a chain of one record.

Commands write them directly, because no gateway has to be running.
"""

import getpass
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from config.settings import Settings
from gateway.audit.records import AuditEntry, Chain, printable
from gateway.audit.writer import heads, is_recorded, store
from registry.database.postgres import Pool

VIA = "cli"


@dataclass(frozen=True, slots=True)
class Act:
    """A change made by a command: `operation` has the name of the admin API's."""

    operation: str
    subject: str
    tenant: str | None = None  # None: the gateway's own


async def record(pool: Pool, settings: Settings, act: Act, outcome: str) -> None:
    """Write the audit record. Raises psycopg.Error and PoolTimeout."""
    entry = AuditEntry(
        act.tenant or settings.tenant.host_id,
        datetime.now(UTC),
        principal=printable(actor()),
        front=VIA,
        method=act.operation,
        subject=printable(act.subject),
        decision="allow",
        outcome=outcome,
    )
    await record_entry(pool, settings, entry)


async def record_entry(pool: Pool, settings: Settings, entry: AuditEntry) -> None:
    """Write an audit record, where such are written. Raises psycopg.Error and PoolTimeout."""
    if not is_recorded(settings):
        return
    host_id, key = settings.tenant.host_id, settings.audit.key.encode()
    seen = await heads(pool, host_id, settings.audit.retention_days)
    node, started = socket.gethostname(), entry.recorded_ts
    chain = Chain(host_id, node=node, started=started, key=key, seen=seen)
    await store(pool, key, chain.header, chain.link([entry]))


def actor() -> str:
    """The operating-system user; the form cannot be a token's principal."""
    return f"{getpass.getuser()} (command line)"
