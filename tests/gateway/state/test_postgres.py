"""What is of PostgreSQL alone."""

import psycopg
import pytest

from config.settings import DatabaseSettings
from gateway.interfaces import SessionChange, SessionRecord
from tests.contracts.backends import in_postgres
from tests.fixtures_database import Cluster

pytestmark = pytest.mark.anyio

SESSION = SessionRecord("a", "2025-11-25", "t", "p", None, {}, {})


@pytest.mark.parametrize("written", [b"", b"{", b"[]", b"\xff", b'{"id": "a"}', b"[" * 100_000])
async def test_an_unreadable_session_is_none_and_other_sessions_work(
    database_settings: DatabaseSettings,
    cluster: Cluster,
    written: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with in_postgres(database_settings, cluster).nodes() as nodes:
        await nodes.a.sessions.put(SESSION, 60)
        with psycopg.connect(database_settings.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO state_session_t (session_id, record, expires_ts)"
                " VALUES ('bad', %b, clock_timestamp() + '1 h')",
                [written],
            )
        assert await nodes.a.sessions.get("bad") is None
        assert await nodes.a.sessions.hold("bad", "n", 60) is None
        assert await nodes.a.sessions.change("bad", SessionChange(use=("x",)), 60) is None
        assert await nodes.b.sessions.all() == [SESSION]
    assert {one.message for one in caplog.records} == {"session_unreadable"}
