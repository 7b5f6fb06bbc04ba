"""Moves of a database to another server: whole, refused while it is used, and continued."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import psycopg
import pytest

from config.settings import DatabaseSettings as Settings
from registry.database import move as moves
from registry.database.embedded_server import DatabaseError
from registry.database.move import DatabaseMove, open_move, reopen
from registry.database.postgres import Database

pytestmark = pytest.mark.anyio
HOST = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def source(database_settings: Settings) -> Settings:
    """A migrated database with two rows of its own."""
    execute(database_settings, "CREATE TABLE own_t (n int PRIMARY KEY, v vector(2))")
    execute(database_settings, "INSERT INTO own_t VALUES (1, '[1,2]'), (2, '[3,4]')")
    execute(database_settings, "COMMENT ON TABLE own_t IS 'a table of a test'")
    return database_settings


def execute(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.url, autocommit=True) as connection:
        connection.execute(statement.encode())


def values(settings: Settings, query: str) -> list[object]:
    with psycopg.connect(settings.url) as connection:
        return [row[0] for row in connection.execute(query.encode())]


async def run_move(source: Settings, target: Settings) -> list[str]:
    """The tables that were copied."""
    tables: list[str] = []
    async with open_move(source, target.url) as move:
        await move.plan()
        await move.close_source(0, print)
        await move.copy(tables.append)
        assert await move.compare() == []
        await move.finish()
    return tables


@asynccontextmanager
async def interrupted_move(source: Settings, target: Settings) -> AsyncIterator[DatabaseMove]:
    """A move that is killed at the end of the block: the source stays closed."""
    with pytest.MonkeyPatch.context() as patch:

        async def leave(_move: DatabaseMove) -> None:
            """The process is gone before it opens the source again."""

        patch.setattr(DatabaseMove, "reopen_source", leave)
        with suppress(KeyboardInterrupt):
            async with open_move(source, target.url) as move:
                await move.plan()
                await move.close_source(0, print)
                yield move
                raise KeyboardInterrupt


async def open_again(settings: Settings) -> None:
    opened = Database.open(settings, wait=False, migrate=False, even_closed=True)
    async with opened as database, database.connect() as connection:
        assert await reopen(connection) is not None


async def test_everything_is_moved_and_the_source_is_closed(
    source: Settings, empty_settings: Settings
) -> None:
    """Issue 42, 7."""
    assert "own_t" in await run_move(source, empty_settings)
    assert values(empty_settings, "SELECT v::text FROM own_t ORDER BY n") == ["[1,2]", "[3,4]"]
    assert values(empty_settings, "SELECT obj_description('own_t'::regclass)") == [
        "a table of a test"
    ]
    async with Database.open(empty_settings, wait=False) as database:
        assert await database.alive()
    with pytest.raises(DatabaseError, match=r"was moved to .*: set database.url"):
        async with Database.open(source, wait=False):
            pass
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        execute(source, "INSERT INTO own_t VALUES (3)")
    with pytest.raises(DatabaseError, match="nothing to move: this database was moved to"):
        await run_move(source, empty_settings)


async def test_a_closed_source_is_opened_again(source: Settings, empty_settings: Settings) -> None:
    await run_move(source, empty_settings)
    await open_again(source)
    execute(source, "INSERT INTO own_t VALUES (3)")
    async with Database.open(source, wait=False):
        pass


async def test_a_source_in_use_is_refused_and_stays_open(
    source: Settings, empty_settings: Settings
) -> None:
    with psycopg.connect(source.url, application_name="busy gateway", autocommit=True) as user:
        with pytest.raises(DatabaseError, match=r"in use by busy gateway \(1\): stop its gateways"):
            await run_move(source, empty_settings)
        user.execute("INSERT INTO own_t VALUES (3)")
    execute(source, "INSERT INTO own_t VALUES (4)")


async def test_a_move_waits_for_a_gateway_that_drains(
    source: Settings, empty_settings: Settings
) -> None:
    user = psycopg.connect(source.url, application_name="draining", autocommit=True)
    waited: list[str] = []

    def drain(sessions: str) -> None:
        waited.append(sessions)
        user.execute("INSERT INTO own_t VALUES (3)")
        user.close()

    async with open_move(source, empty_settings.url) as move:
        await move.plan()
        with anyio.fail_after(30):
            await move.close_source(30, drain)
        await move.copy(print)
        await move.finish()
    assert waited == ["draining (1)"]
    assert values(empty_settings, "SELECT count(*) FROM own_t") == [3]


async def test_a_target_with_tables_is_refused(source: Settings, empty_settings: Settings) -> None:
    execute(empty_settings, "CREATE TABLE precious_t (n int)")
    with pytest.raises(DatabaseError, match=r"target is not empty .* such as precious_t"):
        await run_move(source, empty_settings)
    with pytest.raises(DatabaseError, match="source and target are the same database"):
        await run_move(source, source)


async def test_an_interrupted_move_continues_with_its_copy(
    source: Settings, empty_settings: Settings
) -> None:
    async with interrupted_move(source, empty_settings) as move:
        await move.copy(print)
    with pytest.raises(DatabaseError, match=r"is being moved to .*run `toolgate database move`"):
        async with Database.open(source, wait=False):
            pass
    assert await run_move(source, empty_settings) == []  # it was copied before


async def test_a_continued_move_that_fails_opens_the_source_again(
    source: Settings, empty_settings: Settings
) -> None:
    async with interrupted_move(source, empty_settings) as move:
        await move.copy(print)
    execute(empty_settings, "DELETE FROM own_t")
    with pytest.raises(AssertionError, match="own_t: 2 rows in the source, 0 in the target"):
        await run_move(source, empty_settings)
    assert "own_t" in await run_move(source, empty_settings)  # it is copied anew


async def test_a_copy_made_before_later_changes_is_replaced(
    source: Settings, empty_settings: Settings
) -> None:
    async with interrupted_move(source, empty_settings) as move:
        await move.copy(print)
    await open_again(source)
    execute(source, "UPDATE own_t SET v = '[9,9]' WHERE n = 1")
    assert "own_t" in await run_move(source, empty_settings)
    assert values(empty_settings, "SELECT v::text FROM own_t ORDER BY n") == ["[9,9]", "[3,4]"]


async def test_a_stale_copy_with_foreign_tables_stays(
    source: Settings, empty_settings: Settings
) -> None:
    async with interrupted_move(source, empty_settings) as move:
        await move.copy(print)
    await open_again(source)
    with (
        psycopg.connect(empty_settings.url, application_name="new gateway"),
        pytest.raises(DatabaseError, match=r"the target is in use by new gateway \(1\)"),
    ):
        await run_move(source, empty_settings)
    execute(empty_settings, "CREATE TABLE precious_t AS SELECT 1")
    with pytest.raises(DatabaseError, match="tables that the source lacks, such as precious_t"):
        await run_move(source, empty_settings)
    assert values(empty_settings, "SELECT * FROM precious_t") == [1]


async def test_a_move_killed_before_its_final_mark_continues(
    source: Settings, empty_settings: Settings
) -> None:
    async with interrupted_move(source, empty_settings) as move:
        await move.copy(print)
        execute(empty_settings, f"DROP TABLE {moves.MARK_TABLE}")
    assert await run_move(source, empty_settings) == []
    with pytest.raises(DatabaseError, match="was moved to"):
        async with Database.open(source, wait=False):
            pass


async def test_a_mark_in_the_source_is_not_copied(
    source: Settings, empty_settings: Settings
) -> None:
    execute(source, f"CREATE TABLE {moves.MARK_TABLE} (source_id text, move_id text)")
    assert "own_t" in await run_move(source, empty_settings)
    assert values(empty_settings, f"SELECT to_regclass('{moves.MARK_TABLE}')") == [None]


@pytest.fixture
def plain_owner(source: Settings) -> Iterator[Settings]:
    """The source by its owner, who is no superuser, as on managed servers."""
    name = source.url.partition("@")[2].partition("?")[0].rpartition("/")[2]
    owner = f"owner_of_{name}"
    execute(source, f"CREATE ROLE {owner} LOGIN; GRANT pg_read_all_data TO {owner}")
    execute(source, f"ALTER DATABASE {name} OWNER TO {owner}")
    execute(source, f"COMMENT ON DATABASE {name} IS 'for tests'")
    yield msgspec.structs.replace(source, url=source.url.replace("toolgate@", f"{owner}@"))
    execute(
        source, f"SET default_transaction_read_only = off; ALTER DATABASE {name} OWNER TO toolgate"
    )


async def test_ordinary_owners_move_their_database(
    plain_owner: Settings, empty_settings: Settings
) -> None:
    assert "own_t" in await run_move(plain_owner, empty_settings)
    with pytest.raises(DatabaseError, match="was moved to"):
        async with Database.open(plain_owner, wait=False, migrate=False):
            pass
    await open_again(plain_owner)
    comment = "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
    assert values(plain_owner, f"{comment} WHERE datname = current_database()") == ["for tests"]


async def test_a_failed_copy_leaves_the_source_open_and_the_target_empty(
    source: Settings, empty_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the target refuses stands for a full disk, or a lost connection."""
    execute(
        empty_settings,
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no room' ; END $$",
    )
    execute(
        empty_settings,
        "CREATE EVENT TRIGGER refuse ON ddl_command_end"
        " WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION refuse()",
    )
    with pytest.raises(
        DatabaseError, match=r"the copy failed, and the target is as it was.*no room"
    ):
        await run_move(source, empty_settings)
    execute(source, "INSERT INTO own_t VALUES (3)")
    execute(empty_settings, "DROP EVENT TRIGGER refuse")
    assert "own_t" in await run_move(source, empty_settings)
    assert values(empty_settings, "SELECT count(*) FROM own_t") == [3]


async def test_passwords_are_in_no_argument_of_the_programs(
    source: Settings, empty_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    files: list[Path] = []

    async def record(command: list[str], **options: object) -> object:
        commands.extend(command)
        file = Path(options["env"]["PGSERVICEFILE"])  # type: ignore[index]
        files.append(file)
        assert file.stat().st_mode & 0o777 == 0o600
        assert "password=s3cret" in file.read_text()
        raise OSError("not started")

    monkeypatch.setattr(moves.anyio, "open_process", record)
    target = empty_settings.url.replace("toolgate@", "toolgate:s3cret@")
    with pytest.raises(OSError, match="not started"):
        await run_move(source, msgspec.structs.replace(source, url=target))
    assert "--dbname=service=source" in commands
    assert not any("s3cret" in word for word in commands)
    assert [file.exists() for file in files] == [False]
