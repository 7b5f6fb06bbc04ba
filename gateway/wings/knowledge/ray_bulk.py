"""Bulk work on Ray: a cluster reads, cuts and embeds files, or embeds texts that were stored for
another model; this process stores what it gets.

Files are read and cut by the functions of the gateway, in its reading processes, as a stage of Ray
Data. Documents are stored in the transactions of the gateway, a document each, so that a worker
that dies costs its files another reading and nothing else: what is stored already has the same
hash, and is not changed. Texts are embedded from the queue of the gateway, by actors: claimed under
the leases of an embedding worker, and stored by its statement.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import numpy
import ray
from anyio import to_thread
from anyio.from_thread import start_blocking_portal

from config.knowledge import KnowledgeSettings
from config.settings import EmbeddingSettings, Settings
from config.telemetry import disable_telemetry
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reader_messages import NotRead, ReadDocument
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.documents.reading.source_files import SourceFile
from gateway.wings.knowledge.caller_access import ALL, KnowledgeReader
from gateway.wings.knowledge.chunk_search import KIND
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.ingestion import Ingestion, IngestReport, reading_limits
from gateway.wings.knowledge.wiring import KnowledgeParts
from registry.access.secrets import Keys
from registry.database.postgres import Database, Pool, borrow
from registry.embedding.backfills import queue_missing
from registry.embedding.embedder import Embedder, EmbeddingFailed, Vectors
from registry.embedding.embedder_factory import DISABLED_TEXT, make_embedder
from registry.embedding.search_kinds import Kinds, of_purpose
from registry.embedding.status import tasks
from registry.embedding.target_models import models, register, settle
from registry.embedding.worker import Worker
from registry.search.indexes import ensure_indexes
from registry.search.search import both

LOCAL = "local"
FILES = 16  # of one task
WINDOW_BYTES = 256 * 2**20  # of files that are on the cluster at a time
WINDOW = 10_000  # of such files
_Answer = ReadDocument | NotRead
_decoder = msgspec.msgpack.Decoder(_Answer)


class _Reading:
    """An actor that reads files, in a process with the limits of the gateway."""

    def __init__(self, settings: bytes) -> None:
        decoded = msgspec.msgpack.decode(settings, type=KnowledgeSettings)
        self._chunking = ChunkingOptions(decoded.chunking.size, decoded.chunking.overlap)
        self._workers = ReadingWorkers(1, reading_limits(decoded))
        self._portal = start_blocking_portal("asyncio")
        self._call = self._portal.__enter__().call

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        answers = [
            self._call(self._read, path, data)
            for path, data in zip(batch["path"], batch["data"], strict=True)
        ]
        return {"path": batch["path"], "id": batch["id"], "answer": answers}

    async def _read(self, path: str, data: bytes) -> bytes:
        answer: _Answer
        try:
            answer = await self._workers.read(path, bytes(data), self._chunking)
        except ReadingRefused as error:
            answer = NotRead(str(error))
        return msgspec.msgpack.encode(answer)


class _Embedding:
    """An actor that has a model of the settings."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        embedder = make_embedder(settings)
        if embedder is None:
            raise ValueError("embeddings are disabled")
        self._embedder = embedder

    def model(self) -> str:
        return self._embedder.model

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return await self._embedder.embed(texts)


class RayEmbedder:
    """An embedder of which the actors each take a part of the texts."""

    def __init__(self, settings: EmbeddingSettings, embedder: Embedder, actors: int) -> None:
        self.model, self.dimension = embedder.model, embedder.dimension
        options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "num_cpus": 1}
        make = ray.remote(_Embedding).options(**options)
        self._actors = [make.remote(settings) for _ in range(actors)]

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        del query  # chunks alone are embedded here
        parts = numpy.array_split(numpy.arange(len(texts)), len(self._actors))
        vectors = await asyncio.gather(
            *(
                actor.embed.remote([texts[at] for at in part])
                for actor, part in zip(self._actors, parts, strict=True)
                if len(part)
            )
        )
        return numpy.concatenate(vectors)

    async def check(self) -> None:
        """Raises EmbeddingFailed if an actor has no model, or another one: another release has
        another bundled model."""
        try:
            models = await asyncio.gather(*(actor.model.remote() for actor in self._actors))
        except ray.exceptions.RayError as error:
            reason = f"the cluster cannot load the model: {type(error).__name__}"
            raise EmbeddingFailed(reason, retryable=False) from error
        if others := sorted(set(models) - {self.model}):
            raise EmbeddingFailed(
                f"the cluster embeds with {', '.join(others)}, expected {self.model}: install the"
                " release of this machine on all others",
                retryable=False,
            )

    async def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


@asynccontextmanager
async def cluster(address: str, *, cpus: int | None = None) -> AsyncIterator[int]:
    """The number of CPUs of the cluster at an address. "local": of a new one on this machine, with
    so many."""
    new_cluster: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    options = new_cluster if address == LOCAL else {}
    disable_telemetry()
    await to_thread.run_sync(partial(ray.init, address, log_to_driver=False, **options))
    try:
        yield max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        await to_thread.run_sync(ray.shutdown)


async def upload_on_ray(
    pool: Pool,
    settings: Settings,
    files: Iterable[SourceFile],
    *,
    collection: str,
    address: str,
    owner: str,
    on_stored: Callable[[], None],
    on_embedded: Callable[[int], None],
) -> tuple[IngestReport, int]:
    """Read, store and embed files for a principal; the report, and how many chunks were embedded,
    which `on_embedded` is told meanwhile. Raises ProblemDetails."""
    parts = KnowledgeParts(pool, lambda _: None, settings.knowledge, Keys.of(settings.secrets))
    reader = KnowledgeReader(settings.tenant.host_id, owner, (ALL, f"user:{owner}"))
    local = make_embedder(settings.embedding.of(KIND.purpose))
    await register(pool, local, KIND.purpose)  # what is stored from now on is queued
    async with cluster(address) as actors:
        report = await ingest_files(
            parts.ingestion,
            files,
            reader=reader,
            target=await parts.ingestion.ensure(reader, NewCollection(collection)),
            settings=settings.knowledge,
            actors=actors,
            on_stored=on_stored,
        )
        kinds = {KIND.name: KIND}
        vectors = await embed_queued(
            pool, settings.embedding, kinds, actors=actors, on_stored=on_embedded
        )
    return report, vectors


@dataclass(frozen=True, slots=True)
class ReembeddingReport:
    model: str
    queued: int  # texts without a vector of the model
    vectors: int  # embedded here
    waiting: int  # that other workers have taken, or that are tried again later
    serving: bool  # whether queries compare with the model's vectors now


async def reembed_on_ray(
    database: Database,
    settings: Settings,
    kinds: Kinds,
    *,
    address: str,
    on_embedded: Callable[[int], None],
) -> ReembeddingReport:
    """Embed the texts of `kinds` of which the model of passages has no vector, and have it serve
    once it has them all; until then the model before serves. `on_embedded` is told how many there
    are meanwhile. Raises EmbeddingFailed."""
    pool, purpose = database.pool, KIND.purpose
    kinds = of_purpose(kinds, purpose)
    local = make_embedder(settings.embedding.of(purpose))
    if local is None:
        raise EmbeddingFailed(DISABLED_TEXT, retryable=False)
    await register(pool, local, purpose)
    queued = await queue_missing(pool, kinds)
    async with cluster(address) as actors:
        vectors = await embed_queued(
            pool, settings.embedding, kinds, actors=actors, on_stored=on_embedded
        )
    await ensure_indexes(database, settings.search.exact_limit)
    async with borrow(pool) as connection:
        await settle(connection, purpose, kinds)
        serving = (await models(connection, purpose)).serving
    counts = await tasks(pool, kinds)
    waiting = counts["pending"] + counts["running"]
    return ReembeddingReport(local.model, queued, vectors, waiting, serving == local.model)


async def ingest_files(
    ingestion: Ingestion,
    files: Iterable[SourceFile],
    *,
    reader: KnowledgeReader,
    target: NewCollection,
    settings: KnowledgeSettings,
    actors: int,
    on_stored: Callable[[], None],
) -> IngestReport:
    """Read files on the cluster, and store them; `on_stored` is told of each. Raises
    ProblemDetails."""
    report = IngestReport()
    encoded_settings = msgspec.msgpack.encode(settings)
    for window in _windows(files):
        rows = await to_thread.run_sync(_rows, window, encoded_settings, actors)
        while row := await to_thread.run_sync(next, rows, None):
            answer = _decoder.decode(row["answer"])
            file = SourceFile(row["path"], row["id"], None)
            await ingestion.take(reader, target, file, answer, report=report)
            on_stored()
    return report


def _windows(files: Iterable[SourceFile]) -> Iterator[list[SourceFile]]:
    """Files that are on the cluster together."""
    remaining = iter(files)
    while window := list(islice(remaining, 1)):
        window_bytes = len(window[0].data or b"")
        for file in islice(remaining, WINDOW - 1):
            window.append(file)
            window_bytes += len(file.data or b"")
            if window_bytes >= WINDOW_BYTES:
                break
        yield window


def _rows(files: Sequence[SourceFile], settings: bytes, actors: int) -> Iterator[dict[str, Any]]:
    items = [{"path": file.path, "id": file.id, "data": file.data or b""} for file in files]
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = ray.data.from_items(items, override_num_blocks=-(-len(items) // FILES)).map_batches(
        _Reading,
        fn_constructor_args=(settings,),
        batch_size=FILES,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
    )
    return iter(rows.iter_rows())


async def embed_queued(
    pool: Pool,
    settings: EmbeddingSettings,
    kinds: Kinds,
    *,
    actors: int,
    on_stored: Callable[[int], None],
) -> int:
    """Embed the texts of `kinds` that are queued, of whatever tenant; returns how many there were.
    0 also where embeddings are disabled. Raises EmbeddingFailed, and the errors of `Queue`."""
    purpose_settings = settings.of(KIND.purpose)
    local = make_embedder(purpose_settings)
    if local is None:
        return 0
    embedder = RayEmbedder(purpose_settings, local, actors)
    # While one is at the database, the cluster embeds for the other.
    crew = first, second = [Worker(pool, embedder, settings, kinds) for _ in range(2)]

    async def work(worker: Worker) -> None:
        while await worker.step():
            on_stored(sum(each.done for each in crew))

    try:
        await embedder.check()
        await both(partial(work, first), partial(work, second))
    finally:
        await embedder.close()
        await local.close()
    return sum(each.done for each in crew)
