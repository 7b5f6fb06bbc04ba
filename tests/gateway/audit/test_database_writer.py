"""From memory to the database, by way of the disk where it is away: nothing lost, nothing twice."""

import json
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import anyio
import pytest
from msgspec.structs import replace
from psycopg.rows import dict_row

from gateway.audit.database_writer import store
from gateway.audit.records import Chain, entry_of
from gateway.audit.verification import verify
from registry.database.postgres import borrow
from schemas.errors import Unavailable
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.audit.conftest import NOON, entry, writer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(subject):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subject.run)
        yield
        await subject.settle()
        tasks.cancel_scope.cancel()
    await subject.close()


async def stored_subjects(database):
    async with borrow(database.pool) as connection:
        rows = await connection.execute("SELECT subject FROM audit_t ORDER BY chain_id, sequence")
        return [subject async for (subject,) in rows]


async def eventually(holds):
    with anyio.fail_after(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)


class Pool:
    """A way to the database that can be cut."""

    def __init__(self, database):
        self.pool = database.pool
        self.there = True

    def __call__(self):
        return self.pool if self.there else None


def through(pool, spool, **changes):
    made = writer(spool, **changes)
    made._pool = pool
    return made


async def test_records_go_into_the_database_in_order(database, spool):
    subject = writer(spool, database.pool, batch=10, flush_s=1)  # spools what stands for twice that
    async with running(subject):
        for number in range(25):
            subject.add(entry(number))

        async def there():
            return await stored_subjects(database) == [f"tool_{n}" for n in range(25)]

        await eventually(there)
    assert (subject.written, subject.spooled, subject.dropped) == (25, 0, 0)
    assert not spool.exists()


async def test_buffered_records_are_written_on_close(database, spool):
    subject = writer(spool, database.pool, flush_s=3600.0)
    async with running(subject):
        subject.add(entry(1))
    assert await stored_subjects(database) == ["tool_1"]


async def test_while_the_database_is_away_records_wait_on_disk(database, spool):
    pool = Pool(database)
    subject = through(pool, spool, batch=10)
    async with running(subject):
        subject.add(entry(0))
        await eventually(lambda: _has(subject, written=1))
        pool.there = False
        for number in range(1, 30):
            subject.add(entry(number))
        await eventually(lambda: _has(subject, waiting=0))
        assert subject.spooled >= 29  # the first one too, where its write took long
        assert await stored_subjects(database) == ["tool_0"]
        pool.there = True
        subject.add(entry(30))
        await eventually(lambda: _has(subject, written=31))
    assert await stored_subjects(database) == [f"tool_{n}" for n in range(31)]
    assert not spool.exists()


async def _has(subject, **expected):
    return {name: getattr(subject, name) for name in expected} == expected


async def test_a_spool_left_by_one_process_is_written_by_the_next(database, spool):
    pool = Pool(database)
    pool.there = False
    first = through(pool, spool)
    async with running(first):
        for number in range(3):
            first.add(entry(number))
    assert await stored_subjects(database) == []
    pool.there = True
    second = through(pool, spool)
    async with running(second):
        await eventually(lambda: _has(second, written=3))
    assert await stored_subjects(database) == ["tool_0", "tool_1", "tool_2"]
    assert not spool.exists()


async def test_records_already_stored_are_not_stored_twice(database, spool):
    """A process was killed after the database had a batch, and before its file was gone."""
    pool = Pool(database)
    pool.there = False
    first = through(pool, spool)
    async with running(first):
        first.add(entry(1))
        first.add(entry(2))
    [file] = spool.glob("*.jsonl")
    again = file.read_bytes()
    pool.there = True
    for _ in range(2):
        spool.mkdir(exist_ok=True)
        file.write_bytes(again)
        later = through(pool, spool)
        async with running(later):
            await eventually(lambda: _is_gone(file))
    assert await stored_subjects(database) == ["tool_1", "tool_2"]


async def _is_gone(file):
    return not file.exists()


async def test_without_room_calls_are_refused(spool):
    subject = writer(spool, queue=2, spool_bytes=1)
    async with running(subject):
        for number in range(2):
            subject.admit()
            subject.add(entry(number))
        with pytest.raises(Unavailable, match="cannot be recorded"):
            subject.admit()
        subject.add(entry(3))  # it was admitted before
        assert (subject.waiting, subject.dropped) == (3, 0)


async def test_without_room_records_are_dropped_and_counted_where_that_is_wanted(spool):
    subject = writer(spool, queue=2, spool_bytes=1, when_full="drop")
    async with running(subject):
        for number in range(5):
            subject.admit()
            subject.add(entry(number))
        assert (subject.waiting, subject.dropped) == (2, 3)


async def test_a_full_disk_holds_records_back_until_the_database_is_there(database, spool):
    pool = Pool(database)
    pool.there = False
    subject = through(pool, spool, spool_bytes=1000)
    async with running(subject):
        for number in range(3):
            subject.add(entry(number))
        await eventually(lambda: _has(subject, spooled=3))
        for number in range(3, 20):
            subject.add(entry(number))
        pool.there = True
        await eventually(lambda: _has(subject, written=20))
    assert await stored_subjects(database) == [f"tool_{n}" for n in range(20)]


async def test_small_steps_back_of_the_clock_are_sat_out(spool):
    subject = writer(spool)
    ahead = subject._last = subject.now() + timedelta(seconds=50)
    assert subject.now() == ahead


@pytest.mark.parametrize("is_away", [False, True])
async def test_another_chain_begins_where_the_clock_was_set_back(database, spool, is_away):
    pool = Pool(database)
    pool.there = not is_away
    subject = through(pool, spool)
    async with running(subject):
        ahead = subject._last = subject.now() + timedelta(days=1)
        for number in range(3):
            subject.add(entry(number, recorded_ts=ahead))
        present = subject.now()
        assert present < ahead
        for number in range(3, 6):
            subject.add(entry(number, recorded_ts=present))
        done = {"spooled": 6} if is_away else {"written": 6}
        await eventually(lambda: _has(subject, **done))
    pool.there = True
    async with running(through(pool, spool)) as _:
        pass
    async with borrow(database.pool) as connection:
        rows = await connection.execute(
            "SELECT array_agg(subject ORDER BY sequence), min(recorded_ts), max(recorded_ts)"
            " FROM audit_t GROUP BY chain_id ORDER BY 2 DESC"
        )
        chains = await rows.fetchall()
    names = [f"tool_{number}" for number in range(6)]
    assert chains == [(names[:3], ahead, ahead), (names[3:], present, present)]
    report = await verify(database.pool, HOST, subject.key)
    assert (report.records, report.problems) == (6, [])


async def test_another_chain_begins_while_the_database_is_locked(database, spool):
    """Its records are on disk as soon as others would be."""
    subject = through(Pool(database), spool)
    async with borrow(database.pool) as holder:
        await holder.execute("LOCK TABLE audit_chain_t")
        async with running(subject):
            ahead = subject._last = subject.now() + timedelta(days=1)
            subject.add(entry(0, recorded_ts=ahead))
            subject.add(entry(1, recorded_ts=subject.now()))
            with anyio.fail_after(10):
                while subject.spooled < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            await holder.rollback()
            await eventually(lambda: _has(subject, waiting=0))
            await eventually(lambda: _is_stored(database, 2))
    report = await verify(database.pool, HOST, subject.key)
    assert (len(report.heads), report.records, report.problems) == (2, 2, [])


async def _is_stored(database, count):
    return len(await stored_subjects(database)) == count


async def test_odd_names_are_kept(database, spool):
    subject = writer(spool, database.pool)
    odd = 'a"\\\N{SNOWMAN}\n\x7f'
    async with running(subject):
        subject.add(entry(1, subject=odd, arguments=json.dumps({"a": "\0\N{BOMB}"})))
    assert await stored_subjects(database) == [odd]


# Each with characters that JSON or CSV escapes, or that PostgreSQL reads as the end of the data.
TEXTS = [
    {},
    {"subject": "\\N", "arguments": "a\tb\nc\rd\\"},
    {"subject": "\\.", "arguments": '{"a":"\\\\n]\\n["}', "rule": "]", "owner": "["},
    {"subject": "\n\\.\n", "arguments": "]\n[", "hooks": '",\x01\x7f\u2028'},
    {"subject": 'a"\N{SNOWMAN}', "latency_us": 0, "request_bytes": 7, "source": ""},
]


async def test_records_with_escaped_characters_are_stored_unchanged(database):
    chain = Chain(HOST, node="n", started=NOON, key=b"")
    entries = [entry(number, **changes) for number, changes in enumerate(TEXTS)]
    lines = chain.link([*entries, *entries])
    files = [replace(line, entry=None) for line in lines]  # as they are read from a file
    half = len(entries)
    assert await store(database.pool, b"", chain.header, [*lines[:half], *files[half:]]) == 2 * half
    async with borrow(database.pool) as connection, connection.cursor(row_factory=dict_row) as rows:
        await rows.execute("SELECT * FROM audit_t ORDER BY sequence")
        stored = [entry_of(row) async for row in rows]
    assert stored == [*entries, *entries]


async def test_a_record_whose_commit_was_in_doubt_is_stored_once(database):
    """A writer that lost its connection tries again while the database still works on the first
    attempt, which made the chain."""
    chain = Chain(HOST, node="here", started=NOON, key=b"")
    lines = chain.link([entry(1), entry(2)])
    stored = []

    async def attempt():
        stored.append(await store(database.pool, b"", chain.header, lines))

    async def waiting(count):
        """Whether so many attempts wait for a lock."""
        async with database.pool.connection() as connection:
            statement = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            (rows,) = await (await connection.execute(statement)).fetchone()
        return rows == count

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group, database.pool.connection() as holder:
            await holder.execute("LOCK TABLE audit_t IN ACCESS EXCLUSIVE MODE")
            for count in (1, 2):
                group.start_soon(attempt)
                await eventually(partial(waiting, count))
            await holder.rollback()
    assert sorted(stored) == [0, 2]
    assert await stored_subjects(database) == ["tool_1", "tool_2"]
