"""Tampering shows, and what it was."""

from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import psycopg
import pytest

from gateway.audit import retention
from gateway.audit.database_writer import heads
from gateway.audit.retention import maintain
from gateway.audit.verification import verify
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.gateway.audit.conftest import entry, writer

pytestmark = pytest.mark.anyio

KEY = "0123456789abcdef"


async def write(database, spool, numbers, **changes):
    """A chain of its own, as a process writes it; its id."""
    subject = writer(spool, database.pool, key=KEY)
    await subject.begin(database.pool)
    for number in numbers:
        subject.add(entry(number, **changes))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subject.run)
        await subject.settle()
        tasks.cancel_scope.cancel()
    await subject.close()
    return subject._chain.id


async def verify_chains(database, key=KEY):
    return await verify(database.pool, HOST, key.encode())


async def execute(database, statement):
    async with borrow(database.pool) as connection:
        await connection.execute(statement)


async def problems_after(database, statement):
    """What verify says when `statement` was executed, which is undone."""
    async with borrow(database.pool) as connection:
        for table in ("audit_t", "audit_chain_t"):
            await connection.execute(f"CREATE TABLE kept_{table} AS TABLE {table}")
        await connection.execute(statement)
    report = await verify_chains(database)
    async with borrow(database.pool) as connection:
        for table in ("audit_t", "audit_chain_t"):
            await connection.execute(f"DELETE FROM {table}")
            await connection.execute(f"INSERT INTO {table} TABLE kept_{table}")
            await connection.execute(f"DROP TABLE kept_{table}")
    return [(one.kind, one.chain_id, one.sequence) for one in report.problems]


async def test_tampering_is_found_and_named(database, spool):
    first = await write(database, spool, range(1, 6))
    second = await write(database, spool, range(6, 9))
    report = await verify_chains(database)
    assert (report.problems, report.records) == ([], 8)
    assert {head.chain_id: head.sequence for head in report.heads} == {first: 5, second: 3}
    one, two = f"chain_id = '{first}'", f"chain_id = '{second}'"
    columns = "host_id, recorded_ts, chain_id"
    cases = {
        f"UPDATE audit_t SET principal = 'eve' WHERE {one} AND sequence = 3": [
            ("changed", first, 3)
        ],
        f"UPDATE audit_t SET recorded_ts = recorded_ts + interval '1 us' WHERE {one}": [
            ("changed", first, number) for number in range(1, 6)
        ],
        f"UPDATE audit_t SET outcome = NULL WHERE {one} AND sequence = 5": [("changed", first, 5)],
        f"DELETE FROM audit_t WHERE {one} AND sequence = 3": [("missing", first, 3)],
        f"DELETE FROM audit_t WHERE {one} AND sequence = 1": [("missing", first, 1)],
        f"DELETE FROM audit_t WHERE {one} AND sequence > 3": [("missing", first, 4)],
        f"DELETE FROM audit_t WHERE {two}": [("missing", second, 1)],
        f"UPDATE audit_t SET sequence = 5 - sequence WHERE {one} AND sequence IN (2, 3)": [
            ("changed", first, number) for number in (2, 3, 4)
        ],
        f"INSERT INTO audit_t ({columns}, sequence, hash)"
        f" SELECT {columns}, 3, hash FROM audit_t WHERE {one} AND sequence = 1": [
            ("added", first, 3)
        ],
        f"INSERT INTO audit_t ({columns}, sequence, hash)"
        f" SELECT {columns}, 6, hash FROM audit_t WHERE {one} AND sequence = 1": [
            ("added", first, 6)
        ],
        f"DELETE FROM audit_chain_t WHERE {one}": [
            ("chain_missing", first, None),
            ("chain_unknown", first, None),
        ],
        f"DELETE FROM audit_chain_t WHERE {one}; DELETE FROM audit_t WHERE {one}": [
            ("chain_missing", first, None)
        ],
        f"DELETE FROM audit_t WHERE {one} AND sequence > 3;"
        f" UPDATE audit_chain_t SET last_sequence = 3 WHERE {one}": [
            ("chain_changed", first, None)
        ],
        f"UPDATE audit_chain_t SET removed_sequence = 2 WHERE {one}": [
            ("chain_changed", first, None)
        ],
        f"""UPDATE audit_chain_t SET header = replace(header::text, '"node":"', '"node":"x')::json
            WHERE {one}""": [("chain_changed", first, None)],
    }
    wrong = {}
    for statement, expected in cases.items():
        said = await problems_after(database, statement)
        if said != expected:
            wrong[statement] = said
    assert wrong == {}
    assert (await verify_chains(database)).problems == []


async def test_each_break_is_told_with_the_good_and_bad_records(database, spool):
    first = await write(database, spool, range(1, 11))
    second = await write(database, spool, range(11, 14))
    one = f"chain_id = '{first}'"
    await execute(
        database,
        f"UPDATE audit_t SET principal = 'eve' WHERE {one} AND sequence IN (2, 9);"
        f"DELETE FROM audit_t WHERE {one} AND sequence IN (5, 6);"
        f"UPDATE audit_t SET outcome = 'none' WHERE chain_id = '{second}' AND sequence = 3",
    )
    report = await verify_chains(database)
    assert [(one.kind, one.chain_id, one.sequence) for one in report.problems] == [
        ("changed", first, 2),
        ("missing", first, 5),
        ("changed", first, 9),
        ("changed", second, 3),
    ]
    assert (report.records, report.bad, report.missing) == (8, 3, 2)


async def test_the_end_of_a_chain_that_was_put_back_shows_in_later_chains(database, spool):
    """Even if whoever did it had kept the row of an earlier moment, seal and all."""
    subject = writer(spool, database.pool, key=KEY)
    await subject.begin(database.pool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subject.run)
        subject.add(entry(1))
        await subject.settle()
        await execute(database, "CREATE TABLE kept AS TABLE audit_chain_t")
        subject.add(entry(2))
        await subject.settle()
        tasks.cancel_scope.cancel()
    await subject.close()
    await write(database, spool, [3])
    assert (await verify_chains(database)).problems == []
    await execute(
        database,
        "DELETE FROM audit_chain_t c USING kept k WHERE c.chain_id = k.chain_id;"
        " INSERT INTO audit_chain_t TABLE kept; DELETE FROM audit_t WHERE sequence = 2;"
        " DROP TABLE kept",
    )
    [problem] = (await verify_chains(database)).problems
    assert (problem.kind, problem.sequence) == ("missing", 2)
    assert "a later chain saw 2 records of it" in problem.text


async def test_without_its_key_a_chain_cannot_be_verified(database, spool):
    chain_id = await write(database, spool, [1])
    [problem] = (await verify_chains(database, key="")).problems
    assert (problem.kind, problem.chain_id) == ("chain_changed", chain_id)
    assert "audit.key" in problem.text


async def test_records_removed_by_retention_are_not_missing(database, spool):
    """Whole weeks go, and of the default partition what is old enough."""
    async with borrow(database.pool) as connection:
        found = await connection.execute("SELECT date_trunc('week', current_timestamp, 'UTC')")
        [monday] = await found.fetchone()
    monday, key = monday.astimezone(UTC), KEY.encode()
    first = await write(database, spool, [1, 2], recorded_ts=monday)  # no week is made yet
    next_week = monday + timedelta(weeks=1)
    await maintain(database.pool, key, 1, monday)
    second = await write(database, spool, range(3, 6), recorded_ts=next_week)
    assert (await verify_chains(database)).records == 5
    assert await maintain(database.pool, key, 1, monday + timedelta(days=1)) == []
    assert (await verify_chains(database)).records == 5
    assert await maintain(database.pool, key, 1, monday + timedelta(days=14)) == []
    report = await verify_chains(database)
    assert (report.problems, report.records) == ([], 3)
    dropped = await maintain(database.pool, key, 1, monday + timedelta(days=15))
    assert dropped == [f"audit_{next_week:%Y%m%d}_t"]
    report = await verify_chains(database)
    assert (report.problems, report.records) == ([], 0)
    assert {head.chain_id: head.sequence for head in report.heads} == {first: 2, second: 3}
    third = await write(database, spool, [6])
    assert {head.chain_id for head in await heads(database.pool, HOST, 1000)} == {third}


async def test_a_clock_ahead_of_the_database_removes_no_records(database, spool, monkeypatch):
    monkeypatch.setattr(retention, "FIRST_S", 0)
    monkeypatch.setattr(retention, "EVERY_S", 0.01)
    second_run, runs = anyio.Event(), iter(range(100))

    def read_clock():
        if next(runs):
            second_run.set()
        return datetime.now(UTC) + timedelta(days=30)

    await write(database, spool, range(1, 4), recorded_ts=datetime.now(UTC))
    async with anyio.create_task_group() as tasks:
        maintain_ahead = partial(retention.maintain_regularly, now=read_clock)
        tasks.start_soon(maintain_ahead, database.pool, KEY.encode(), 20)
        with anyio.fail_after(30):
            await second_run.wait()
        tasks.cancel_scope.cancel()
    assert (await verify_chains(database)).records == 3


@pytest.mark.parametrize(
    ("sequence", "hash_"),
    [("sequence", "hash"), ("sequence", r"'\x00'"), ("sequence + 1", "hash")],
    ids=["time", "hash", "sequence"],
)
async def test_retention_seals_nothing_that_was_put_in(database, spool, sequence, hash_):
    """Else a record that is made to look old would hide all in front of it."""
    now = datetime.now(UTC)
    chain_id = await write(database, spool, range(1, 6), recorded_ts=now)
    same = "host_id, chain_id, principal, method, subject, outcome, latency_us, request_id"
    await execute(
        database,
        f"INSERT INTO audit_t ({same}, recorded_ts, sequence, hash) SELECT {same},"
        f" recorded_ts - interval '300 days', {sequence}, {hash_} FROM audit_t WHERE sequence = 4",
    )
    await maintain(database.pool, KEY.encode(), 90, now)
    await execute(database, "DELETE FROM audit_t WHERE sequence < 5")
    report = await verify_chains(database)
    assert [(one.kind, one.chain_id, one.sequence) for one in report.problems] == [
        ("missing", chain_id, 1)
    ]
    assert (report.records, report.missing) == (1, 4)


@pytest.mark.parametrize("by", ["writing", "retention"])
async def test_a_chain_that_was_changed_is_not_sealed_anew(database, spool, by):
    """Neither by the gateway that goes on writing it, nor when old records are removed."""
    now = datetime.now(UTC)
    subject = writer(spool, database.pool, key=KEY)
    await subject.begin(database.pool)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subject.run)
        subject.add(entry(1, recorded_ts=now - timedelta(days=300)))
        subject.add(entry(2, recorded_ts=now))
        subject.add(entry(3, recorded_ts=now))
        await subject.settle()
        if by == "writing":
            await execute(
                database,
                "UPDATE audit_chain_t SET removed_sequence = 2, removed_hash = hash FROM audit_t"
                " WHERE sequence = 2; DELETE FROM audit_t WHERE sequence < 3",
            )
            subject.add(entry(4, recorded_ts=now))
            await subject.settle()
        else:
            await execute(
                database,
                "UPDATE audit_chain_t SET last_sequence = 2, last_hash = hash FROM audit_t"
                " WHERE sequence = 2; DELETE FROM audit_t WHERE sequence > 2",
            )
            await maintain(database.pool, KEY.encode(), 90, now)
        tasks.cancel_scope.cancel()
    await subject.close()
    [problem] = (await verify_chains(database)).problems
    assert (problem.kind, problem.chain_id) == ("chain_changed", subject._chain.id)


async def test_records_of_a_week_that_is_made_ahead_lie_in_its_partition(database, spool):
    now = datetime.now(UTC)
    await maintain(database.pool, b"", 90, now)
    await write(database, spool, [1], recorded_ts=now + timedelta(weeks=1))
    async with borrow(database.pool) as connection:
        found = await connection.execute("SELECT tableoid::regclass::text FROM audit_t")
        monday = (now - timedelta(days=now.weekday())) + timedelta(weeks=1)
        assert await found.fetchall() == [(f"audit_{monday:%Y%m%d}_t",)]


async def test_the_work_of_a_verification_grows_with_the_chains(database, spool, monkeypatch):
    """Commands are chains of their own, and each names those before it: their heads are compared
    once, not once for each chain that names them (mending b)."""
    counts = []
    execute = psycopg.AsyncCursor.execute

    async def count_statement(self, *args, **kwargs):
        counts[-1] += 1
        return await execute(self, *args, **kwargs)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", count_statement)
    counts.append(0)
    for number in range(20):
        if number == 10:
            counts.append(0)
            assert (await verify_chains(database)).problems == []
            counts.append(0)
        await write(database, spool, [number])
    counts.append(0)
    report = await verify_chains(database)
    assert (report.problems, len(report.heads)) == ([], 20)
    _, few, _, many = counts
    assert many <= 2 * few
