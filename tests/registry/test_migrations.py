"""Migrations, on databases that are empty, migrated, tampered with, or ahead of us."""

import dataclasses
import logging
from datetime import UTC, datetime

import anyio
import pytest
from psycopg import DataError, IntegrityError

from config.settings import DatabaseSettings as Settings
from registry.database.embedded import DatabaseError
from registry.database.migrate import Migration, migrate, migrations, pending, status
from registry.database.postgres import Database

pytestmark = pytest.mark.anyio

NAMES = [migration.name for migration in migrations()]
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def applied(*known: Migration) -> dict[int, tuple[str, str, datetime]]:
    return {one.version: (one.name, one.checksum, MOMENT) for one in known}


async def test_an_empty_database_gets_all_migrations_once(empty_settings: Settings) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        assert [one.applied for one in await status(connection)] == [None] * len(NAMES)
        assert await migrate(connection) == NAMES
        assert await migrate(connection) == []
        assert [one.name for one in await status(connection) if one.applied] == NAMES


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
    assert done == NAMES


async def test_opening_migrates(empty_settings: Settings) -> None:
    async with Database.open(empty_settings) as database, database.pool.connection() as connection:
        found = await connection.execute("SELECT count(*) FROM tool_t")
        assert await found.fetchone() == (0,)


async def test_what_an_older_node_writes_beside_a_newer_one_has_its_defaults(
    empty_settings: Settings,
) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        for migration in migrations()[:2]:
            await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (gen_random_uuid(), 'x')"
        )
        add = (
            b"INSERT INTO api_t (host_id, name, kind, location)"
            b" SELECT host_id, '%s', 'openapi', 'x.json' FROM host_t"
        )
        await connection.execute(add % b"before")
        await connection.execute(migrations()[2].sql)
        await connection.execute(add % b"after")
        found = await connection.execute("SELECT name, options FROM api_t ORDER BY name")
        assert await found.fetchall() == [("after", {}), ("before", {})]


async def test_tools_that_an_older_node_writes_keep_the_digest_they_had(
    empty_settings: Settings,
) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        for migration in migrations()[:3]:
            await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (gen_random_uuid(), 'x')"
        )
        add = (
            b"INSERT INTO tool_t (host_id, name, description, input_schema, binding)"
            b" SELECT host_id, 'tool', 'd', '{}', '{\"type\": \"openapi\"}' FROM host_t"
        )
        digests = "SELECT digest, held IS NULL FROM tool_t"
        await connection.execute(add)
        found = await connection.execute("SELECT digest, true FROM tool_t")
        before = await found.fetchall()
        await connection.execute(migrations()[3].sql)
        assert await (await connection.execute(digests)).fetchall() == before
        await connection.execute("DELETE FROM tool_t")
        await connection.execute(add)
        assert await (await connection.execute(digests)).fetchall() == before


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


async def test_a_user_who_may_not_create_is_told_what_to_ask_for(empty_settings: Settings) -> None:
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
    with pytest.raises(DatabaseError, match=f"{first.name} was changed"):
        pending(migrations(), applied(dataclasses.replace(first, checksum="0" * 64)))


def test_a_database_that_is_ahead_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer = Migration(9999, "9999_later", b"", "0" * 64)
    with caplog.at_level(logging.WARNING, "toolgate.database"):
        assert pending(migrations(), applied(*migrations(), newer)) == []
    assert [record.message for record in caplog.records] == ["database_newer"]


def test_versions_are_unique_and_ordered() -> None:
    versions = [migration.version for migration in migrations()]
    assert versions == sorted(set(versions))


async def test_all_that_is_applied_at_once_is_one_line_of_the_log(
    empty_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "toolgate.database"):
        async with Database.open(empty_settings, wait=False):
            pass
    [told] = [one for one in caplog.records if one.message.startswith("migration")]
    known = migrations()
    assert (told.message, vars(told)["count"]) == ("migrations_applied", len(known))
    assert vars(told)["last"] == known[-1].name
