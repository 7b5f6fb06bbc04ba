"""Leases on rows of a table: one worker at a time, and nothing from one that was taken for dead."""

from collections.abc import AsyncIterator

import anyio
import pytest
from psycopg import sql

from registry.database.leases import Leases, OldRows, held_rows
from registry.database.postgres import Database, Pool, borrow
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

TOYS = Leases("toy_t", "toy_id", "r.lease_ts IS NOT NULL")
CLAIM = TOYS.claim_due(
    "worker = %(worker)s",
    sql.SQL("(lease_ts IS NULL OR lease_ts < now())"),
    "place",
    sql.SQL("toy_id::text, fence"),
)
RENEW = TOYS.renew("r.toy_id::text")
RELEASE = TOYS.release("worker = NULL")
END = sql.SQL("DELETE FROM toy_t AS r WHERE {mine}").format(mine=TOYS.of_one)
TABLE = """
    CREATE TABLE toy_t (host_id uuid, toy_id uuid DEFAULT gen_random_uuid(), place integer,
        worker text, fence bigint DEFAULT 0, lease_ts timestamptz, PRIMARY KEY (host_id, toy_id))
"""

Claim = tuple[str, str, int]


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    async with borrow(database.pool) as connection:
        await connection.execute(TABLE)
        await connection.execute(
            "INSERT INTO toy_t (host_id, place) SELECT %s, generate_series(1, 5)", [HOST]
        )
    yield database.pool
    async with borrow(database.pool) as connection:
        await connection.execute("DROP TABLE toy_t")


async def claim(pool: Pool, worker: str, limit: int, lease_s: float = 60.0) -> list[Claim]:
    values = {"host": HOST, "worker": worker, "limit": limit, "lease": lease_s}
    async with borrow(pool) as connection:
        rows = await connection.execute(CLAIM, values)
        return [(HOST, id_, fence) for id_, fence in await rows.fetchall()]


async def change(pool: Pool, statement: bytes, claims: list[Claim]) -> int:
    async with borrow(pool) as connection:
        return (await connection.execute(statement, {**held_rows(claims), "lease": 60})).rowcount


async def end(pool: Pool, row: Claim) -> int:
    async with borrow(pool) as connection:
        values = dict(zip(("host", "id", "fence"), row, strict=True))
        return (await connection.execute(END, values)).rowcount


async def test_workers_at_once_claim_rows_of_their_own(pool: Pool) -> None:
    claims: dict[str, list[Claim]] = {}

    async def work(worker: str) -> None:
        claims[worker] = await claim(pool, worker, 2)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for worker in ("ada", "bob"):
                tasks.start_soon(work, worker)
    ids = [id_ for rows in claims.values() for _, id_, _ in rows]
    assert len(ids) == len(set(ids)) == 4
    assert len(await claim(pool, "eve", 2)) == 1


async def test_a_row_whose_lease_has_ended_is_taken_over_and_its_first_worker_fenced_off(
    pool: Pool,
) -> None:
    early = await claim(pool, "ada", 5, lease_s=-1)
    late = await claim(pool, "bob", 5)
    assert {id_ for _, id_, _ in early} == {id_ for _, id_, _ in late}
    assert [fence for *_, fence in late] == [2] * 5
    assert await change(pool, RENEW, early) == await change(pool, RELEASE, early) == 0
    assert await end(pool, early[0]) == 0
    assert await change(pool, RENEW, [early[0], *late[1:]]) == 4
    assert await end(pool, late[0]) == 1


async def test_a_released_row_is_free_at_once_and_no_longer_its_workers(pool: Pool) -> None:
    claims = await claim(pool, "ada", 5)
    assert await claim(pool, "bob", 5) == []
    assert await change(pool, RELEASE, claims[:2]) == 2
    assert await change(pool, RENEW, claims) == 3
    assert len(await claim(pool, "bob", 5)) == 2
    assert await change(pool, RENEW, []) == 0


async def test_a_claim_takes_no_more_than_its_limit_whatever_the_plan(pool: Pool) -> None:
    for setting in ("enable_hashagg", "enable_hashjoin", "enable_mergejoin", "enable_material"):
        async with borrow(pool) as connection:
            await connection.execute(f"SET LOCAL {setting} = off".encode())
            values = {"host": HOST, "worker": "ada", "limit": 1, "lease": 60}
            rows = await connection.execute(CLAIM, values)
            assert len(await rows.fetchall()) == 1


async def test_old_rows_are_deleted_some_at_a_time_and_the_rest_stays(pool: Pool) -> None:
    old = OldRows("toy_t", "toy_id", sql.SQL("place <= %(last)s"), "place")
    values = {"last": 3, "limit": 2}
    assert [await old.delete(pool, values) for _ in range(3)] == [2, 1, 0]
    assert len(await claim(pool, "ada", 5)) == 2
