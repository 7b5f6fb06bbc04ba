"""Thousands of texts, four workers in two processes, and one process that is killed midway."""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, Process

import anyio
import pytest

from config.settings import DatabaseSettings as Settings
from tests.polling import until
from tests.properties import SHARE
from tests.registry.embedding.conftest import Queued

pytestmark = pytest.mark.anyio

COUNT = 10_000 if SHARE >= 1 else 2_500
# Triggers that have nothing to do with it are spared: making the tools would take most of the time.
POPULATE = """
SET session_replication_role = replica;
INSERT INTO host_t (host_id, name) VALUES ('00000000-0000-0000-0000-000000000001', 'x');
INSERT INTO tool_t (host_id, name, description, input_schema, binding)
    SELECT host_id, 't' || n, 'Does ' || n, '{}', '{"type": "openapi"}'
    FROM host_t, generate_series(1, %d) AS n;
RESET session_replication_role;
SELECT embedding_queue('tool', array_agg(host_id), array_agg(entity_id),
    array_agg(source_hash(source_text))) FROM entity_source_v;
CREATE TABLE written (entity_id uuid, source_hash text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO written VALUES (NEW.entity_id, NEW.source_hash);
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE OF embedding ON entity_embedding_t FOR EACH ROW
    WHEN (NEW.embedding IS NOT NULL) EXECUTE FUNCTION note();
"""


async def test_no_text_is_lost_stale_or_done_twice_when_a_worker_is_killed(
    embedding_queue: Queued, database_settings: Settings
) -> None:
    async with embedding_queue.database.connect() as connection:
        await connection.execute((POPULATE % COUNT).encode())
    doomed, other = [await drain(database_settings.url) for _ in range(2)]
    try:
        await until(lambda: quarter_done(embedding_queue))
        await stop_in_a_batch(embedding_queue, doomed)
        doomed.send_signal(signal.SIGKILL)
        # some texts change while they are worked on
        await embedding_queue.execute(
            "UPDATE tool_t SET description = 'Edited ' || name"
            " WHERE tool_id IN (SELECT entity_id FROM embedding_task_t LIMIT 200)"
        )
        await until(lambda: all_done(embedding_queue))
    finally:
        for process in (doomed, other):
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert doomed.returncode == -signal.SIGKILL
    lost = "SELECT FROM entity_embedding_t WHERE status <> 'ready'"
    assert await embedding_queue.rows(lost) == []
    stale = (
        "SELECT FROM entity_embedding_t AS had JOIN entity_source_v AS source"
        " USING (host_id, entity_type, entity_id) WHERE had.source_hash <> source_hash(source_text)"
    )
    assert await embedding_queue.rows(stale) == []
    assert await count(embedding_queue, "entity_embedding_t") == COUNT
    twice = "SELECT FROM written GROUP BY entity_id, source_hash HAVING count(*) > 1"
    assert await embedding_queue.rows(twice) == []


async def drain(url: str) -> Process:
    module = "tests.registry.embedding.drain"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, url, "2", stdin=DEVNULL, stdout=DEVNULL
    )


async def stop_in_a_batch(queued: Queued, process: Process) -> None:
    """Stop the process while it has tasks in hand."""
    held = "SELECT FROM embedding_task_t WHERE status = 'running' AND worker LIKE %s"
    while True:
        process.send_signal(signal.SIGSTOP)
        if await queued.rows(held, f"%:{process.pid}:%"):
            return
        process.send_signal(signal.SIGCONT)
        await anyio.sleep(0.01)


async def quarter_done(queued: Queued) -> bool:
    return await count(queued, "written") >= COUNT // 4


async def all_done(queued: Queued) -> bool:
    return await count(queued, "embedding_task_t") == 0


async def count(queued: Queued, table: str) -> int:
    ((found,),) = await queued.rows(f"SELECT count(*) FROM {table}")
    return int(found)
