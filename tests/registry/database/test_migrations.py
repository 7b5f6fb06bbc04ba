"""Migrations, on databases that are empty, migrated, tampered with, or ahead of us."""

import dataclasses
import logging
import shutil
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from psycopg import AsyncConnection, DataError, IntegrityError

from config.settings import DatabaseSettings as Settings
from registry.database.embedded_server import DatabaseError
from registry.database.migrate import (
    REGISTRY,
    Component,
    Migration,
    MigrationsApplied,
    migrate,
    migrations,
    pending,
    status,
)
from registry.database.postgres import Database
from tests.fixtures_database import settings_for

pytestmark = pytest.mark.anyio

LABELS = [migration.label for migration in migrations()]
TOYS = Path(__file__).parent / "toy_migrations"
WORDS = Component("words", TOYS / "words")  # its table refers to one of the registry
SOUNDS = Component("sounds", TOYS / "sounds")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def applied_rows(*known: Migration) -> MigrationsApplied:
    return {one.key: (one.name, one.checksum, MOMENT) for one in known}


async def test_an_empty_database_gets_all_migrations_once(empty_settings: Settings) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        assert [one.applied for one in await status(connection)] == [None] * len(LABELS)
        assert await migrate(connection) == LABELS
        assert await migrate(connection) == []
        assert all(one.applied for one in await status(connection))


async def test_nodes_that_start_together_migrate_once(empty_settings: Settings) -> None:
    done: list[str] = []

    async def node() -> None:
        async with database.connect() as connection:
            done.extend(await migrate(connection))

    async with Database.open(empty_settings, migrate=False) as database:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(node)
    assert done == LABELS


async def test_opening_migrates(empty_settings: Settings) -> None:
    async with Database.open(empty_settings) as database, database.pool.connection() as connection:
        found = await connection.execute("SELECT count(*) FROM tool_t")
        assert await found.fetchone() == (0,)


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ({}, True),
        ({"key": "k" * 128}, True),
        ({"key": ""}, False),
        ({"key": "k" * 129}, False),
        ({"hash": b"x" * 31}, False),
        ({"state": "lost"}, False),
        ({"service": "s" * 512, "principal": "☃" * 256, "key": "é" * 128}, True),
    ],
)
async def test_a_kept_answer_has_a_key_and_a_hash(
    database_settings: Settings, values: dict[str, object], right: bool
) -> None:
    given = {"principal": "p", "service": "h/s/a/1", "key": "k", "hash": b"x" * 32, "state": "done"}
    insert = (
        "INSERT INTO command_idempotency_t (host_id, principal_id, service_id, idempotency_key,"
        " request_hash, state, expires_ts) VALUES (gen_random_uuid(), %(principal)s, %(service)s,"
        " %(key)s, %(hash)s, %(state)s, current_timestamp)"
    )
    async with (
        Database.open(database_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        if right:
            await connection.execute(insert, given | values)
            return
        with pytest.raises((IntegrityError, DataError)):
            await connection.execute(insert, given | values)


async def test_a_user_without_rights_can_use_a_migrated_database(
    database_settings: Settings,
) -> None:
    async with (
        Database.open(database_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        await connection.execute("CREATE ROLE reader_of_schema")
        await connection.execute("GRANT SELECT ON schema_version_t TO reader_of_schema")
        await connection.execute("SET ROLE reader_of_schema")
        assert await migrate(connection) == []
        await connection.execute("RESET ROLE")
        await connection.execute("DROP OWNED BY reader_of_schema; DROP ROLE reader_of_schema")


async def test_a_user_without_create_rights_is_told_the_grant(empty_settings: Settings) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        await connection.execute("CREATE ROLE nobody_much")
        await connection.execute("SET ROLE nobody_much")
        with pytest.raises(DatabaseError, match="CREATE EXTENSION vector"):
            await migrate(connection)
        await connection.execute("RESET ROLE")
        await connection.execute("DROP ROLE nobody_much")


def test_a_migration_that_was_changed_afterwards_is_refused() -> None:
    first, *_ = migrations()
    with pytest.raises(DatabaseError, match=f"{first.label} was changed"):
        pending(migrations(), applied_rows(dataclasses.replace(first, checksum="0" * 64)))


def test_a_database_that_is_ahead_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer = Migration("registry", 9999, "9999_later", b"", "0" * 64)
    with caplog.at_level(logging.WARNING, "toolgate.database"):
        assert pending(migrations(), applied_rows(*migrations(), newer)) == []
    [told] = caplog.records
    assert (told.message, vars(told)["migrations"]) == ("database_newer", ["registry/9999_later"])


def test_versions_count_from_1_without_gaps() -> None:
    known = migrations()
    assert [one.version for one in known] == list(range(1, len(known) + 1))
    assert [one.name[:5] for one in known] == [f"{one.version:04}_" for one in known]


async def test_every_table_and_view_has_a_comment(database: Database) -> None:
    async with database.connect() as connection:
        found = await connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p', 'v') AND NOT relispartition"
            " AND obj_description(oid, 'pg_class') IS NULL"
        )
        assert await found.fetchall() == []


async def test_a_database_from_before_the_baseline_is_left_unchanged(
    empty_settings: Settings,
) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        await before_the_baseline(connection)
        tables = "SELECT array_agg(relname::text ORDER BY 1) FROM pg_stat_user_tables"
        before = await (await connection.execute(tables)).fetchone()
        with pytest.raises(DatabaseError, match="made by a development version"):
            await migrate(connection)
        with pytest.raises(DatabaseError, match="Start with an empty one"):
            await status(connection)
        assert await (await connection.execute(tables)).fetchone() == before


async def test_opening_a_database_from_before_the_baseline_is_refused(
    empty_settings: Settings,
) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        await before_the_baseline(connection)
    with pytest.raises(DatabaseError, match="made by a development version"):
        async with Database.open(empty_settings):
            pass


async def test_an_embedded_database_of_another_development_version_names_its_folder(
    scratch: Path,
) -> None:
    """As what to move away or to remove, since nothing else makes the gateway start again."""
    settings = settings_for(scratch / "changed")
    async with Database.open(settings) as database, database.connect() as connection:
        changed = "UPDATE schema_version_t SET checksum = repeat('0', 64) WHERE version = 1"
        await connection.execute(changed)
    with pytest.raises(DatabaseError, match="was changed after it was applied") as caught:
        async with Database.open(settings):
            pass
    assert f"the folder {scratch / 'changed'}:" in str(caught.value)
    shutil.move(scratch / "changed", scratch / "kept")
    async with Database.open(settings) as database:
        assert await database.alive()


async def test_components_are_migrated_in_their_order_with_numbers_of_their_own(
    empty_settings: Settings,
) -> None:
    components = (REGISTRY, WORDS, SOUNDS)
    toys = ["words/0001_word", "words/0002_meaning", "sounds/0001_sound"]
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        assert await migrate(connection, components) == [*LABELS, *toys]
        assert await migrate(connection, components) == []
        states = await status(connection, components)
        assert [f"{one.component}/{one.name}" for one in states] == [*LABELS, *toys]
        assert all(one.applied for one in states)
        found = await connection.execute("SELECT meaning, sound FROM toy_word_t, toy_sound_t")
        assert await found.fetchall() == []


async def test_a_component_that_is_off_creates_nothing(
    empty_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Database.open(empty_settings, components=(REGISTRY, SOUNDS)) as database,
        database.connect() as connection,
    ):
        assert await present(connection, "toy_word_t", "toy_sound_t") == [False, True]
        # switched off later: its tables stay, and it is no newer release
        with caplog.at_level(logging.WARNING, "toolgate.database"):
            assert await migrate(connection) == []
        assert caplog.records == []
        assert await present(connection, "toy_word_t", "toy_sound_t") == [False, True]
        assert (await status(connection))[-1].name == "0001_sound"
        # switched on later
        assert await migrate(connection, (REGISTRY, WORDS)) == [
            "words/0001_word",
            "words/0002_meaning",
        ]


async def test_all_that_is_applied_at_once_is_one_line_of_the_log(
    empty_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "toolgate.database"):
        async with Database.open(empty_settings, wait=False):
            pass
    [told] = [one for one in caplog.records if one.message.startswith("migration")]
    known = migrations()
    assert (told.message, vars(told)["count"]) == ("migrations_applied", len(known))
    assert vars(told)["last"] == known[-1].label


async def before_the_baseline(connection: AsyncConnection) -> None:
    """The version table as development versions made it."""
    await connection.execute(
        "CREATE TABLE schema_version_t (version integer PRIMARY KEY, name text NOT NULL,"
        " checksum char(64) NOT NULL, applied_ts timestamptz NOT NULL DEFAULT current_timestamp)"
    )
    await connection.execute(
        "INSERT INTO schema_version_t (version, name, checksum) VALUES (1, '0001_registry', 'x')"
    )


async def present(connection: AsyncConnection, *tables: str) -> list[bool]:
    found = await connection.execute(
        "SELECT to_regclass(name) IS NOT NULL FROM unnest(%s::text[]) AS name", [list(tables)]
    )
    return [there async for (there,) in found]
