"""Bulk ingestion on a local Ray of two workers: `make test-ray`, in an environment of its own."""

from collections.abc import Iterator
from typing import Any

import anyio
import psutil
import pytest

from config.load import load
from gateway.documents.reading.sources import SourceFile
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.ingestion import IngestReport
from gateway.wings.knowledge.readers import KnowledgeReader
from gateway.wings.knowledge.search import KIND
from registry.embedding.models import register
from registry.embedding.providers import make_embedder
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig

pytest.importorskip("ray", reason="Ray is not installed: make test-ray", exc_type=ImportError)
from gateway.wings.knowledge import bulk

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
ANN = KnowledgeReader(HOST, "ann", ("*", "user:ann"))
ROWS = """
    SELECT path, ordinal, chunk.kind, start_byte, end_byte, start_line, end_line, header, symbol,
        chunk.sha256, (SELECT count(*) FROM knowledge_mention_t AS mention
            WHERE mention.chunk_id = chunk.chunk_id), vectors.source_hash, version.origin
    FROM knowledge_chunk_t AS chunk
    JOIN knowledge_document_t AS document ON document.document_id = chunk.document_id
    JOIN knowledge_collection_t AS collection
        ON collection.collection_id = document.collection_id
    JOIN knowledge_version_t AS version ON version.document_id = document.document_id
    LEFT JOIN entity_embedding_t AS vectors ON vectors.entity_id = chunk.chunk_id
    WHERE name = %s ORDER BY path, ordinal
"""
FILES = 60


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def files() -> Iterator[SourceFile]:
    for number in range(FILES):
        text = f"# Heron {number}\n\n" + "\n\n".join(
            f"## Part {n}\n\nThe Grey Heron {number} nests in reed {n}." for n in range(5)
        )
        yield SourceFile.of(f"docs/{number:02}.md", text.encode())
    yield SourceFile.of("broken.pdf", b"%PDF-1.7 no")


async def kill_one() -> None:
    """Kill a worker that is reading: its reading process is there, and has not answered yet."""

    while not (found := [one for one in processes() if _is_reading(one)]):  # noqa: ASYNC110
        await anyio.sleep(0.02)
    found[0].kill()


def processes() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _is_reading(process: psutil.Process) -> bool:
    try:
        return "ray::MapWorker" in " ".join(process.cmdline()) and bool(process.children())
    except psutil.Error:
        return False


async def test_a_worker_that_is_killed_changes_no_row(rig: KnowledgeRig) -> None:
    settings = load(None, {}).embedding
    await register(rig.database.pool, make_embedder(settings.of(KIND.purpose)), KIND.purpose)
    direct = IngestReport()
    for file in files():
        if file.path != "broken.pdf":
            found = await rig.parts.workers.read(file.path, file.data or b"")
            await rig.parts.ingestion.take(ANN, NewCollection("direct"), file, found, report=direct)
    arguments: dict[str, Any] = {
        "reader": ANN, "target": NewCollection("bulk"), "settings": rig.settings, "actors": 2,
    }  # fmt: skip
    async with bulk.cluster("local", cpus=2) as actors:
        assert actors == 2
        with anyio.fail_after(600):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_one)
                report = await bulk.ingested(
                    rig.parts.ingestion, files(), stored=lambda: None, **arguments
                )
            assert (report.added, [one.path for one in report.failed]) == (FILES, ["broken.pdf"])
            count = await bulk.embed_queued(
                rig.database.pool, settings, actors=2, stored=lambda _: None
            )
            again = await bulk.ingested(
                rig.parts.ingestion, files(), stored=lambda: None, **arguments
            )
    assert (again.added, again.changed, again.unchanged) == (0, 0, FILES)
    bulk_rows, direct_rows = await rig.rows(ROWS, "bulk"), await rig.rows(ROWS, "direct")
    assert len(bulk_rows) == len(direct_rows) >= 5 * FILES
    assert bulk_rows == direct_rows
    assert count == len(bulk_rows) + len(direct_rows)
