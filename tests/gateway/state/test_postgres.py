"""What is of PostgreSQL alone."""

import anyio
import psycopg
import pytest

from config.settings import DatabaseSettings
from gateway.interfaces import SessionChange, SessionRecord
from tests.contracts.backends import DEADLINE_S, in_postgres
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


async def test_a_limit_recovers_within_its_window_when_the_clock_of_the_store_goes_back(
    database_settings: DatabaseSettings, cluster: Cluster
) -> None:
    window_s = 0.5
    async with in_postgres(database_settings, cluster).nodes() as nodes:
        assert (await nodes.a.counter.hit("k", 1, window_s)).is_allowed
        with psycopg.connect(database_settings.url, autocommit=True) as connection:
            connection.execute(
                "UPDATE state_counter_t SET uses = (SELECT jsonb_object_agg(slot::bigint + 3600, n)"
                " FROM jsonb_each(uses) AS had (slot, n))"
            )
        assert not (await nodes.b.counter.hit("k", 1, window_s)).is_allowed
        with anyio.fail_after(DEADLINE_S):
            while not (verdict := await nodes.a.counter.hit("k", 1, window_s)).is_allowed:
                assert verdict.retry_after_s <= window_s * 61 / 60
                await anyio.sleep(verdict.retry_after_s)
