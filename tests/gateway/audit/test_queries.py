"""Records of one tenant, in order."""

import json
from datetime import timedelta

import anyio
import pytest

from gateway.audit.queries import AuditQuery, LegacyClient, legacy_clients, search
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.gateway.audit.conftest import NOON, entry, writer

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"


async def write(database, spool, *entries):
    subject = writer(spool, database.pool)
    for one in entries:
        subject.add(one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subject.run)
        await subject.settle()
        tasks.cancel_scope.cancel()
    await subject.close()


async def subjects(database, host=HOST, **query):
    page = await search(database.pool, host, AuditQuery(**query))
    return [one.entry.subject for one in page.records]


async def test_records_are_found_by_their_fields(database, spool):
    await write(
        database,
        spool,
        entry(1),
        entry(2, principal="bob", decision="deny", outcome="-32602"),
        entry(3, host_id=OTHER),
        entry(4, decision="allow"),
    )
    assert await subjects(database) == ["tool_4", "tool_2", "tool_1"]
    assert await subjects(database, host=OTHER) == ["tool_3"]
    assert await subjects(database, principal="ada") == ["tool_4", "tool_1"]
    assert await subjects(database, subject="tool_2") == ["tool_2"]
    assert await subjects(database, decision="deny", outcome="-32602") == ["tool_2"]
    assert await subjects(database, outcome="ok", decision="allow") == ["tool_4"]
    soon = NOON + timedelta(microseconds=2)
    assert await subjects(database, since=soon) == ["tool_4", "tool_2"]
    assert await subjects(database, until=soon) == ["tool_1"]


async def test_pages_follow_each_other_even_where_times_are_equal(database, spool):
    await write(database, spool, *(entry(n, recorded_ts=NOON) for n in range(5)))
    await write(database, spool, *(entry(n, recorded_ts=NOON) for n in range(5, 9)))
    found, after = [], None
    while True:
        page = await search(database.pool, HOST, AuditQuery(after=after, limit=2))
        assert len(page.records) <= 2
        found += [one.entry.subject for one in page.records]
        after = page.next
        if after is None:
            break
    assert sorted(found) == [f"tool_{n}" for n in range(9)]


@pytest.mark.parametrize(
    "after",
    ["", "x", "1.2", "1.2.3", "1.-2." + HOST, f"1.{2**63}.{HOST}", f"{10**30}.1.{HOST}"],
)
async def test_a_place_that_is_none_is_refused(database, after):
    with pytest.raises(ValueError, match=r"."):
        await search(database.pool, HOST, AuditQuery(after=after))


async def test_the_oldest_records_come_first_where_asked_for(database, spool):
    await write(database, spool, *(entry(n) for n in range(5)))
    records, after = [], None
    while True:
        query = AuditQuery(after=after, limit=2, oldest_first=True)
        page = await search(database.pool, HOST, query)
        records += page.records
        after = page.next
        if after is None:
            break
    lines = [json.loads(record.line()) for record in records]
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4, 5]
    async with borrow(database.pool) as connection:
        rows = await connection.execute("SELECT encode(hash, 'hex') FROM audit_t ORDER BY sequence")
        assert [line["hash"] for line in lines] == [text for (text,) in await rows.fetchall()]


async def test_callers_with_legacy_payloads_are_summed_up(database, spool):
    read, write_ = "lightapi.net/rule/getRule/0.1.0", "lightapi.net/rule/createRule/0.1.0"
    await write(
        database,
        spool,
        entry(1, front="hybrid", client="10.0.0.1", method=read),
        entry(2, front="hybrid", client="10.0.0.1", method=write_),
        entry(3, front="hybrid", client="10.0.0.1", method=read),
        entry(4, front="hybrid", principal="", client="10.0.0.2", method=read),
        entry(5, front="portal", client="10.0.0.3", method=read),
        entry(6, front="hybrid", host_id=OTHER, client="10.0.0.4", method=read),
        entry(0, front="hybrid", client="10.0.0.5", method=read),
    )
    since = NOON + timedelta(microseconds=1)
    most = LegacyClient(
        "ada", "10.0.0.1", 3, since, NOON + timedelta(microseconds=3), (write_, read)
    )
    found = await legacy_clients(database.pool, HOST, since, 10)
    assert found[0] == most
    assert [(one.principal, one.client, one.requests) for one in found[1:]] == [("", "10.0.0.2", 1)]
    assert await legacy_clients(database.pool, HOST, since, 1) == [most]
