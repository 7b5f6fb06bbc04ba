"""Bulk work on a local Ray of two workers: `make test-ray`, in an environment of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import numpy
import psutil
import psycopg
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.wings.documents.reading.source_files import SourceFile
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_search import KIND
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.ingestion import IngestReport
from registry.embedding.backfills import refresh
from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import make_embedder
from registry.embedding.search_kinds import search_kinds
from registry.embedding.target_models import models, register
from registry.embedding.worker import Worker
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig
from tests.wings.knowledge.test_vectors import Colours

pytest.importorskip("ray", reason="Ray is not installed: make test-ray", exc_type=ImportError)
from gateway.wings.knowledge import ray_bulk

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
ANN = KnowledgeReader(HOST, "ann", ("*", "user:ann"))
ROWS = """
    SELECT path, ordinal, chunk.kind, start_byte, end_byte, start_line, end_line, header, symbol,
        chunk.sha256, (SELECT count(*) FROM knowledge_mention_v AS mention
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
KINDS = search_kinds([KIND])
VECTORS = """
    SELECT entity_id::text, model, status, source_hash, embedding::real[] FROM entity_embedding_t
    WHERE entity_type = 'knowledge_chunk' AND model <> %s ORDER BY entity_id
"""


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


async def kill_one(is_wanted: Callable[[psutil.Process], bool]) -> None:
    while not (found := [one for one in processes() if _holds(is_wanted, one)]):  # noqa: ASYNC110
        await anyio.sleep(0.02)
    found[0].kill()


def processes() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _holds(is_wanted: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return is_wanted(process)
    except psutil.Error:
        return False


def is_reading(process: psutil.Process) -> bool:
    """Its reading process is there, and has not answered yet."""
    return "ray::MapWorker" in " ".join(process.cmdline()) and bool(process.children())


def is_embedding(process: psutil.Process) -> bool:
    return "ray::_Embedding.embed" in " ".join(process.cmdline())


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
    async with ray_bulk.cluster("local", cpus=2) as actors:
        assert actors == 2
        with anyio.fail_after(600):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_one, is_reading)
                report = await ray_bulk.ingest_files(
                    rig.parts.ingestion, files(), on_stored=lambda: None, **arguments
                )
            assert (report.added, [one.path for one in report.failed]) == (FILES, ["broken.pdf"])
            count = await ray_bulk.embed_queued(
                rig.database.pool, settings, KINDS, actors=2, on_stored=lambda _: None
            )
            again = await ray_bulk.ingest_files(
                rig.parts.ingestion, files(), on_stored=lambda: None, **arguments
            )
    assert (again.added, again.changed, again.unchanged) == (0, 0, FILES)
    bulk_rows, direct_rows = await rig.rows(ROWS, "bulk"), await rig.rows(ROWS, "direct")
    assert len(bulk_rows) == len(direct_rows) >= 5 * FILES
    assert bulk_rows == direct_rows
    assert count == len(bulk_rows) + len(direct_rows)


async def test_texts_get_the_vectors_of_another_model_though_a_worker_is_killed(
    rig: KnowledgeRig,
) -> None:
    pool, settings = rig.database.pool, load(None, {})
    # Each text is a batch of its own: a vector varies with the rest of its batch.
    settings = replace(settings, embedding=replace(settings.embedding, batch_size=1))
    await register(pool, Colours(), KIND.purpose)
    report = IngestReport()
    for file in files():
        if file.path != "broken.pdf":
            found = await rig.parts.workers.read(file.path, file.data or b"")
            await rig.parts.ingestion.take(ANN, NewCollection("docs"), file, found, report=report)
    await work_off(Worker(pool, Colours(), settings.embedding, KINDS))
    with anyio.fail_after(600):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill_one, is_embedding)
            done = await ray_bulk.reembed_on_ray(
                rig.database, settings, KINDS, address="local", on_embedded=lambda _: None
            )
    local = make_embedder(settings.embedding.of(KIND.purpose))
    assert local is not None
    by_ray = await rig.rows(VECTORS, Colours.model)
    assert len(by_ray) >= 5 * FILES
    assert (done.queued, done.vectors, done.waiting) == (len(by_ray), len(by_ray), 0)
    assert {(model, status) for _, model, status, _, _ in by_ray} == {(local.model, "ready")}
    assert (done.model, done.serving) == (local.model, True)
    async with pool.connection() as connection:
        assert (await models(connection, KIND.purpose)).serving == local.model

    ids = [one[0] for one in by_ray]
    assert await refresh(pool, HOST, ids, kind=KIND.name, force=True) == len(ids)
    await work_off(Worker(pool, local, settings.embedding, KINDS))
    direct = await rig.rows(VECTORS, Colours.model)
    assert [one[:4] for one in direct] == [one[:4] for one in by_ray]
    assert numpy.array_equal([one[4] for one in direct], [one[4] for one in by_ray])


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[None]:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


async def test_an_error_of_the_database_ends_the_work_as_itself(
    rig: KnowledgeRig, shared_cluster: None
) -> None:
    """The command tells it in a line."""
    settings = load(None, {}).embedding
    await register(rig.database.pool, make_embedder(settings.of(KIND.purpose)), KIND.purpose)
    await rig.caller().add("The heron nests.", path="a.md")
    async with rig.database.connect() as connection, connection.transaction():
        await connection.execute("SELECT FROM entity_embedding_t FOR UPDATE")
        with anyio.fail_after(300), pytest.raises(psycopg.errors.LockNotAvailable):
            await ray_bulk.embed_queued(
                rig.database.pool, settings, KINDS, actors=1, on_stored=lambda _: None
            )


async def test_a_cluster_with_another_release_embeds_nothing(
    rig: KnowledgeRig, shared_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(None, {}).embedding
    local = make_embedder(settings.of(KIND.purpose))
    assert local is not None
    local.model = "bundled/later"
    monkeypatch.setattr(ray_bulk, "make_embedder", lambda _: local)
    await register(rig.database.pool, local, KIND.purpose)
    await rig.caller().add("The heron nests.", path="a.md")
    with anyio.fail_after(300), pytest.raises(EmbeddingFailed, match="expected bundled/later"):
        await ray_bulk.embed_queued(
            rig.database.pool, settings, KINDS, actors=1, on_stored=lambda _: None
        )
    assert await rig.rows("SELECT status, attempt_count FROM embedding_task_t") == [("pending", 0)]


async def work_off(worker: Worker) -> None:
    while await worker.step():
        pass
