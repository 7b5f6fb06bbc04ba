"""Fixtures and makers of what the audit log is made of."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.access import Audit
from config.load import load
from gateway.audit.database_writer import AuditWriter
from gateway.audit.records import AuditEntry
from tests.fixtures_database import HOST

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)  # a Wednesday


def audit(**changes: object) -> Audit:
    """The default settings, which write soon."""
    return replace(load(None, {}).audit, **{"flush_s": 0.02, **changes})


def entry(number: int = 0, **changes: object) -> AuditEntry:
    made = AuditEntry(
        HOST,
        NOON + timedelta(microseconds=number),
        principal="ada",
        method="tools/call",
        subject=f"tool_{number}",
        outcome="ok",
        latency_us=number,
        request_id=f"r-{number}",
    )
    return replace(made, **changes)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.audit.database_writer.RETRY_S", 0.05)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def writer(spool: Path, pool: object = None, **changes: object) -> AuditWriter:
    """`pool`: of an open database; None: there is none."""
    return AuditWriter(audit(**changes), spool, HOST, lambda: pool)  # type: ignore[arg-type,return-value]
