"""Rows that the statements behind long lists read: a page's worth, on the last page as on the
first. PostgreSQL's own counts are compared, so it is the plan in use that is tested, not one that
EXPLAIN might choose."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from config.settings import DatabaseSettings
from gateway.audit.queries import AuditQuery, search
from registry.database.postgres import Database, borrow
from registry.sources.tool_store import ToolStore
from registry.tools.tool_states import ToolStates
from tests.fixtures_database import HOST
from tests.registry.sources.test_tool_store import SHOP, draft

pytestmark = pytest.mark.anyio

SOURCES, TOOLS, RECORDS, PAGE = 300, 3000, 3000, 50
MOST = 4 * PAGE  # rows of one table for a page: those shown, and what the plan looks at beside them
CHAIN = "00000000-0000-0000-0000-0000000000aa"
# Numbers in one order of names and in another of their rows, as after years of imports.
COPIED = """
    INSERT INTO tool_t (host_id, name, description, input_schema, binding)
    SELECT host_id, 'tool_' || lpad((at * 7919 % {tools})::text, 6, '0'), description, input_schema,
        binding
    FROM tool_t, generate_series(1, {tools}) AS at WHERE name = 'first'
"""
SOURCED = """
    INSERT INTO api_t SELECT (jsonb_populate_record(api, jsonb_build_object(
        'api_id', gen_random_uuid(), 'name', 'source-' || lpad(at::text, 4, '0')))).*
    FROM api_t AS api, generate_series(1, %s) AS at
"""
RECORDED = """
    INSERT INTO audit_t (host_id, recorded_ts, chain_id, sequence, principal, method, subject,
        outcome, hash)
    SELECT %s, timestamptz '2026-11-01' + at * interval '1 second', %s, at, 'ada', 'tools/call',
        'tool', 'ok', '\\x00' FROM generate_series(1, %s) AS at
"""
READ = """
    SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int FROM pg_stat_user_tables
    WHERE relname ~ %s
"""


class Counted:
    """A database on one connection, which tells how many rows of a table something read."""

    def __init__(self, database: Database) -> None:
        self.pool = database.pool

    async def rows(self, table: str, page: Callable[[], Awaitable[object]]) -> int:
        before = await self._read(table)
        await page()
        return await self._read(table) - before

    async def _read(self, table: str) -> int:
        async with borrow(self.pool) as connection:  # the counts are written as it ends
            await connection.execute("SELECT pg_stat_force_next_flush()")
        async with borrow(self.pool) as connection:
            found = await connection.execute(READ, [f"^{table}"])
            row = await found.fetchone()
            assert row is not None
            return int(row[0])


@pytest.fixture
async def counted_database(database_settings: DatabaseSettings) -> AsyncIterator[Counted]:
    settings = changed(database_settings, pool_max=1)
    async with Database.open(settings, wait=True) as database:
        store = ToolStore(database.pool)
        await store.save(HOST, replace(SHOP, name="source-0000"), [draft("first")])
        async with borrow(database.pool) as connection:
            await connection.execute(SOURCED, [SOURCES - 1])
            await connection.execute(COPIED.format(tools=TOOLS))
            await connection.execute(RECORDED, [HOST, CHAIN, RECORDS])
            await connection.execute("ANALYZE")
        yield Counted(database)


async def test_a_page_of_a_long_list_reads_only_its_rows(counted_database: Counted) -> None:
    await a_page_of_tools_reads_the_rows_that_it_shows(counted_database)
    await a_page_of_sources_counts_the_tools_of_no_other(counted_database)
    await a_page_of_the_audit_log_reads_the_records_that_it_shows(counted_database)


async def a_page_of_tools_reads_the_rows_that_it_shows(counted: Counted) -> None:
    tools = ToolStates(counted.pool, HOST)
    for after in ("", f"tool_{TOOLS // 2:06}", f"tool_{TOOLS - 2 * PAGE:06}"):
        assert len(await tools.list_states(after, PAGE)) == PAGE
        read = await counted.rows("tool_t", lambda at=after: tools.list_states(at, PAGE))
        assert PAGE <= read <= MOST


async def a_page_of_sources_counts_the_tools_of_no_other(counted: Counted) -> None:
    store = ToolStore(counted.pool)
    names = [one.name for one in await store.sources(HOST)]
    for after in ("", names[-PAGE - 1]):
        start = names.index(after) + 1 if after else 0
        found = await store.sources(HOST, after=after, limit=PAGE)
        assert [one.name for one in found] == names[start : start + PAGE]
        read = await counted.rows(
            "tool_t", lambda at=after: store.sources(HOST, after=at, limit=PAGE)
        )
        assert read == (1 if not after else 0)  # the first source has the one tool


async def a_page_of_the_audit_log_reads_the_records_that_it_shows(counted: Counted) -> None:
    after, last = None, None
    while True:
        found = await search(counted.pool, HOST, AuditQuery(after=after, limit=500))
        if found.next is None:
            break
        after, last = found.next, after
    for place in (None, last):
        query = AuditQuery(after=place, limit=PAGE)
        assert len((await search(counted.pool, HOST, query)).records) == PAGE
        read = await counted.rows("audit_", lambda at=query: search(counted.pool, HOST, at))
        assert PAGE <= read <= MOST
