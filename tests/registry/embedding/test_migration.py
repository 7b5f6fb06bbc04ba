"""A database of the release before embeddings, brought to this one."""

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings as Settings
from registry.database.migrate import migrate, migrations
from registry.database.postgres import Database
from registry.embedding.models import register
from registry.embedding.population import queue_missing
from registry.embedding.worker import Worker
from tests.registry.embedding.conftest import SETTINGS
from tests.registry.embedding.fakes import HashEmbedder

pytestmark = pytest.mark.anyio

BEFORE = 7  # the last migration of that release
TOOLS = """
INSERT INTO host_t (host_id, name) VALUES (gen_random_uuid(), 'one'), (gen_random_uuid(), 'two');
INSERT INTO tool_t (host_id, name, description, input_schema, binding, active,
        description_embedding, description_embedding_status)
    SELECT host_id, 't' || n, 'Does ' || n, '{"properties": {"id": {}}}', '{"type": "openapi"}',
        n > 1, array_fill(0.5, ARRAY[384])::vector, 'ready'
    FROM host_t, generate_series(1, 4) AS n;
"""


async def test_tools_that_were_there_get_vectors(empty_settings: Settings) -> None:
    embedder = HashEmbedder()
    async with Database.open(empty_settings, migrate=False) as database:
        async with database.connect() as connection:
            for migration in migrations():
                if migration.version <= BEFORE:
                    await connection.execute(migration.sql)
            await connection.execute(TOOLS.encode())
            before = await versions(database)
            for migration in migrations():
                if migration.version > BEFORE:
                    await connection.execute(migration.sql)
        assert await versions(database) == before
        await register(database.pool, embedder)
        assert await queue_missing(database.pool) == 6  # of those in service
        worker = Worker(database.pool, embedder, replace(SETTINGS, poll_s=0.1))
        while await worker.step():
            pass
        assert worker.done == 6


async def test_this_release_migrates_an_empty_database(empty_settings: Settings) -> None:
    async with (
        Database.open(empty_settings, migrate=False) as database,
        database.connect() as connection,
    ):
        assert await migrate(connection) == [migration.label for migration in migrations()]
        found = await connection.execute("SELECT count(*) FROM entity_source_v")
        assert await found.fetchone() == (0,)


async def versions(database: Database) -> list[tuple[object, ...]]:
    async with database.pool.connection() as connection:
        found = await connection.execute(
            "SELECT host_id, name, aggregate_version, digest, update_ts FROM tool_t ORDER BY 1, 2"
        )
        return await found.fetchall()
