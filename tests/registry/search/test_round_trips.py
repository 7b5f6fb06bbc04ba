"""What a search costs the connection to the database, and in what state it leaves it."""

import tempfile

import anyio
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from config.settings import DatabaseSettings
from registry.database.postgres import Database, borrow
from registry.search import Filters, Search, SearchQuery
from registry.search.transaction import LOOKUPS, separate_reads
from registry.sources.tool_store import SourceDraft, ToolStore
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS
from tests.registry.search.test_words import draft

pytestmark = pytest.mark.anyio

ENDS = ("\tSync", "\tQuery")  # messages of a client that wait for an answer
STATEMENTS = 3  # facts of the words, proposals, and their scores
SHOWN = "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode')"


@pytest.fixture
async def tools_database(store: ToolStore, database: Database) -> Database:
    drafts = [draft("branches", "Lists all branches of the repository.")]
    await store.save(HOST, SourceDraft("forge", "openapi", "forge.json"), drafts)
    return database


async def search_names(database: Database) -> list[str]:
    search = Search(lambda: database.pool, lambda _: None, SETTINGS)
    query = SearchQuery("all branches", 5, "lexical", Filters(HOST), details=False)
    return [hit.name for hit in (await search.run(query)).hits]


async def test_each_statement_of_a_search_is_one_round_trip(
    tools_database: Database, database_settings: DatabaseSettings
) -> None:
    single = replace(database_settings, pool_max=1)  # so that the traced connection is used
    async with Database.open(single, wait=False, migrate=False) as database:
        await search_names(database)  # prepares the statements
        with tempfile.NamedTemporaryFile("r") as log:
            async with borrow(database.pool) as connection:
                pass
            connection.pgconn.trace(log.fileno())
            assert await search_names(database) == ["branches"]
            connection.pgconn.untrace()
            log.seek(0)
            sent = [line for line in log if "\tF\t" in line]
    trips = [line for line in sent if any(end in line for end in ENDS)]
    assert len(trips) == STATEMENTS, "".join(sent)


async def test_settings_of_a_search_apply_only_to_its_statement(tools_database: Database) -> None:
    async with separate_reads(tools_database.pool) as opened:
        assert await opened.rows(LOOKUPS, SHOWN.encode(), {}) == [("off", "force_generic_plan")]
    await search_names(tools_database)
    async with borrow(tools_database.pool) as connection:
        assert not connection.autocommit
        row = await (await connection.execute(SHOWN)).fetchone()
    assert row == ("on", "auto")


async def test_a_cancelled_search_leaves_no_statement_behind(tools_database: Database) -> None:
    with anyio.CancelScope() as scope:
        async with (
            separate_reads(tools_database.pool) as opened,
            anyio.create_task_group() as group,
        ):
            group.start_soon(opened.rows, LOOKUPS, b"SELECT pg_sleep(1000)", {})
            async with tools_database.connect() as other:
                await running(other, 1)
            scope.cancel()
    async with tools_database.connect() as other:
        await running(other, 0)
    assert await search_names(tools_database) == ["branches"]


async def running(connection: AsyncConnection, count: int) -> None:
    """Return when so many statements sleep."""
    asleep = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        " AND datname = current_database()"
    )
    with anyio.fail_after(60):
        while True:
            row = await (await connection.execute(asleep)).fetchone()
            if row == (count,):
                return
            await anyio.lowlevel.checkpoint()
