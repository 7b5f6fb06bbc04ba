"""Deletions that run at once: of documents, of their former versions, of names and relations."""

from collections.abc import Awaitable
from typing import Any

import anyio
import psycopg
import pytest

from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import NewDocument
from gateway.wings.knowledge.entities import Entities
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig

pytestmark = pytest.mark.anyio

ANN = KnowledgeReader(HOST, "ann", ("*", "user:ann"))
NOTES = NewCollection("notes")
NAMES = ("Tancred Ibsen", "Lillebil Ibsen", "Agnes Mowinckel", "Per Aabel", "Wenche Foss")
ROUNDS = 4
DOCUMENTS = 3


def text_of(number: int, version: int) -> str:
    """Many chunks, of which a third differs from version to version."""
    return "\n\n".join(
        f"# Part {part} of {number} in {version if part % 3 else 0}\n\n"
        f"{', '.join(NAMES)} met in Gausdal."
        for part in range(100)
    )


async def write(rig: KnowledgeRig, number: int, version: int) -> str:
    new = NewDocument(f"{number}.md", text_of(number, version), "text/markdown")
    return (await rig.parts.documents.add(ANN, NOTES, new)).id


async def relate(rig: KnowledgeRig) -> None:
    """State relations of both names in all chunks, as a chat model does."""
    async with rig.database.pool.connection() as connection:
        await connection.execute(
            """
            INSERT INTO knowledge_relation_t (host_id, chunk_id, source, target, type,
                collection_id, description, start_byte, end_byte)
            SELECT host_id, chunk_id, source, target, 'met', collection_id, '', 0, 1
            FROM knowledge_chunk_t CROSS JOIN (VALUES ('tancred ibsen', 'lillebil ibsen'),
                ('lillebil ibsen', 'tancred ibsen')) AS pair (source, target)
            ORDER BY ordinal DESC ON CONFLICT DO NOTHING
            """
        )


async def test_deletions_that_run_at_once_meet_no_deadlock(rig: KnowledgeRig) -> None:
    """All of them take the rows of names and relations in one order (mending 35)."""
    entities = Entities(rig.database.pool)
    deadlocks = []

    async def attempt(deletion: Awaitable[Any]) -> None:
        try:
            await deletion
        except psycopg.errors.DeadlockDetected as error:
            deadlocks.append(str(error))

    with anyio.fail_after(240):
        for round_ in range(ROUNDS):
            ids = [await write(rig, number, 2 * round_) for number in range(DOCUMENTS)]
            await relate(rig)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, write(rig, 0, 2 * round_ + 1))
                tasks.start_soon(attempt, rig.parts.documents.delete(ANN, "notes", ids[1:]))
                for name in NAMES:
                    tasks.start_soon(attempt, entities.delete(ANN, "notes", [name], pair=False))
    assert deadlocks == []
