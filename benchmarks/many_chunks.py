"""`python -m benchmarks.many_chunks DIR`: how long queries of many chunks take, mode by mode and
filter by filter.

DIR has musique, hotpotqa and 2wiki, each with corpus.jsonl and queries.jsonl (see
`benchmarks.multihop`). Their passages are stored in documents of forty, over and over, until there
are enough chunks; a small collection stands beside them. Their vectors are made up, around five
hundred centres, since a model would take minutes; those of the queries are at hand, so that their
encoding is not measured. Each question is asked with every filter before the next, so that other
work of the machine slows all of them alike.
"""

import hashlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import click
import msgspec
import numpy as np

from benchmarks.multihop import GOALS
from config.load import load
from config.settings import Settings
from config.value_types import VECTOR_DIMENSION
from gateway.app.components import components_of
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_filters import ChunkFilter
from gateway.wings.knowledge.chunk_search import KIND, ChunkQuery, Mode
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import NewDocument
from gateway.wings.knowledge.wiring import KnowledgeParts
from gateway.wings.table import wing_components
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.embedding.embedder import Embedder, Vectors
from registry.embedding.search_kinds import search_kinds
from registry.embedding.target_models import register, settle
from registry.embedding.worker import Worker
from registry.search.indexes import ensure_indexes

GOAL_MS = 150  # p95
MODES: tuple[Mode, ...] = ("naive", "local", "global", "hybrid", "mix")
FILTER_GOAL = 1.5  # p95 of a query with a filter, of that without
PARTS = 10  # which documents are of, in turns
FILTERS = {
    "none": ChunkFilter(),
    "paths, all": ChunkFilter(paths=("**/*.md",)),
    "paths, a tenth": ChunkFilter(paths=("**/*7.md",)),
    "paths, few": ChunkFilter(paths=("**/1?.md",)),
    "kinds": ChunkFilter(kinds=("section",)),
    "languages": ChunkFilter(languages=("english",)),
    "heading": ChunkFilter(heading="a"),
    "since": ChunkFilter(since=datetime(2020, 1, 1, tzinfo=UTC)),
    "until": ChunkFilter(until=datetime(2100, 1, 1, tzinfo=UTC)),
    "metadata": ChunkFilter(metadata={"part": 3}),
}
MANY, FEW = "all", "few"  # collections
FEW_CHUNKS = 5_000  # whose vectors are compared without an index
PASSAGES = 40  # of one document
CENTRES, SEED = 500, 7
WARM, TIMED = 20, 200  # queries of each mode
HOST = "00000000-0000-4000-8000-000000000001"


class MadeUp:
    """`Embedder` whose vectors lie around a few centres, as those of texts do."""

    model, dimension = "benchmark/centres", VECTOR_DIMENSION

    def __init__(self) -> None:
        chance = np.random.default_rng(SEED)
        self._centres = chance.standard_normal((CENTRES, self.dimension)).astype(np.float32)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:  # noqa: ARG002
        rows = np.empty((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            digest = hashlib.sha256(text.encode()).digest()
            chance = np.random.default_rng(int.from_bytes(digest[:8]))
            row[:] = self._centres[chance.integers(CENTRES)]
            row += chance.standard_normal(self.dimension)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class OpenedWing:
    database: Database
    settings: Settings
    parts: KnowledgeParts
    embedder: Embedder
    reader: KnowledgeReader


@asynccontextmanager
async def open_wing(folder: Path, embedder: Embedder | None = None) -> AsyncIterator[OpenedWing]:
    """The wing on an empty database; without an embedder with made-up vectors."""
    settings = load(None, {})
    settings = msgspec.structs.replace(
        settings,
        knowledge=msgspec.structs.replace(settings.knowledge, enabled=True),
        database=msgspec.structs.replace(settings.database, data_dir=str(folder / "data")),
    )
    embedder = embedder or MadeUp()
    components = (*components_of(settings), *wing_components(settings))
    async with Database.open(settings.database, components=components) as database:
        async with database.pool.connection() as connection:
            await connection.execute(
                "INSERT INTO host_t (host_id, name) VALUES (%s, 'a') ON CONFLICT DO NOTHING", [HOST]
            )
        await register(database.pool, embedder, KIND.purpose)
        parts = KnowledgeParts(database.pool, lambda _: embedder, settings.knowledge, Keys(b"k"))
        reader = KnowledgeReader(HOST, "ann", ("*", "user:ann"))
        try:
            yield OpenedWing(database, settings, parts, embedder, reader)
        finally:
            await parts.workers.close()


async def fill(wing: OpenedWing, passages: Sequence[str], count: int) -> int:
    """Store `count` chunks, and a small collection, unless they are there; embed and index them.
    The number of chunks of the large one."""
    for collection, target_count in ((MANY, count), (FEW, min(count, FEW_CHUNKS))):
        if not await count_chunks(wing, collection):
            await store(wing, passages, collection, target_count)
    kinds = search_kinds([KIND])
    worker = Worker(wing.database.pool, wing.embedder, wing.settings.embedding, kinds)
    while await worker.step():
        pass
    async with wing.database.pool.connection() as connection:
        await settle(connection, KIND.purpose, kinds)
    await ensure_indexes(wing.database, wing.settings.search.exact_limit)
    async with wing.database.connect() as connection:
        await connection.execute("VACUUM ANALYZE")
    return await count_chunks(wing, MANY)


async def count_chunks(wing: OpenedWing, collection: str) -> int:
    async with wing.database.pool.connection() as connection:
        rows = await connection.execute(
            """
            SELECT count(*) FROM knowledge_chunk_t
            JOIN knowledge_collection_t AS collection USING (collection_id)
            WHERE collection.name = %s
            """,
            [collection],
        )
        [(count,)] = await rows.fetchall()
    return int(count)


async def store(wing: OpenedWing, passages: Sequence[str], collection: str, count: int) -> None:
    """Store documents until there are `count` chunks."""
    stored, number, endless = 0, 0, cycle(passages)
    while stored < count:
        number += 1
        text = "\n\n".join(islice(endless, PASSAGES)) + f"\n\nCopy {number}."
        document = NewDocument(
            f"{number}.md", text, language="english", metadata={"part": number % PARTS}
        )
        stored_document = await wing.parts.ingestion.text(
            wing.reader, NewCollection(collection), document
        )
        stored += stored_document.chunks


async def time_modes(wing: OpenedWing, questions: Sequence[str]) -> dict[str, list[float]]:
    """Milliseconds of each query of the large collection, by mode."""
    queries: dict[str, ChunkQuery] = {
        mode: ChunkQuery(reader=wing.reader, text="", mode=mode, collections=[MANY])
        for mode in MODES
    }
    return await time_queries(wing, questions, queries)


async def time_filters(
    wing: OpenedWing, questions: Sequence[str], collection: str
) -> dict[str, list[float]]:
    """Milliseconds of each query of a collection, by filter."""
    queries: dict[str, ChunkQuery] = {
        name: ChunkQuery(reader=wing.reader, text="", collections=[collection], filter=narrowed)
        for name, narrowed in FILTERS.items()
    }
    return await time_queries(wing, questions, queries)


async def time_queries(
    wing: OpenedWing, questions: Sequence[str], queries: Mapping[str, ChunkQuery]
) -> dict[str, list[float]]:
    """Milliseconds of each query. Raises ClickException if a query never finds a chunk."""
    spent: dict[str, list[float]] = {name: [] for name in queries}
    chunks = dict.fromkeys(queries, 0)
    for text in islice(cycle(questions), WARM + TIMED):
        for name, query in queries.items():
            started = time.perf_counter()
            result = await wing.parts.searcher.search(replace(query, text=text))
            spent[name].append(1000 * (time.perf_counter() - started))
            chunks[name] += len(result.passages)
    if missing := [name for name, count in chunks.items() if not count]:
        raise click.ClickException(f"nothing was found with {', '.join(missing)}")
    return {name: values[WARM:] for name, values in spent.items()}


async def measure(
    folder: Path, passages: Sequence[str], questions: Sequence[str], count: int
) -> None:
    async with open_wing(folder) as wing:
        click.echo(f"storing {count:,} chunks: some minutes")
        stored = await fill(wing, passages, count)
        click.echo(f"{stored:,} chunks; milliseconds of {TIMED} queries of each mode")
        for mode, spent in (await time_modes(wing, questions)).items():
            median, p95 = quantiles(spent)
            verdict = "reached" if p95 < GOAL_MS else "NOT reached"
            click.echo(f"{mode:7} p50 {median:.0f}, p95 {p95:.0f} ({verdict}: < {GOAL_MS})")
        for collection in (MANY, FEW):
            chunks = await count_chunks(wing, collection)
            click.echo(f"filters of mix, in a collection of {chunks:,} chunks")
            report_filters(await time_filters(wing, questions, collection))


def report_filters(spent: Mapping[str, Sequence[float]]) -> None:
    _, floor = quantiles(spent["none"])
    for name, values in spent.items():
        median, p95 = quantiles(values)
        verdict = "reached" if p95 <= FILTER_GOAL * floor else "NOT reached"
        click.echo(
            f"{name:14} p50 {median:.0f}, p95 {p95:.0f}, {p95 / floor:.2f} of no filter "
            f"({verdict}: <= {FILTER_GOAL})"
        )


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 95th percentile."""
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[94]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--chunks", type=click.IntRange(100), default=100_000, show_default=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a database that is kept, and filled once.  [default: a temporary one]",
)
def main(folder: Path, chunks: int, data: Path | None) -> None:
    """Measure queries of many chunks, of the question sets in FOLDER, without a gateway."""
    passages, questions = [], []
    for name in GOALS:
        rows = map(json.loads, (folder / name / "corpus.jsonl").read_text().splitlines())
        passages += [f"# {row['title']}\n\n{row['text']}" for row in rows]
        rows = map(json.loads, (folder / name / "queries.jsonl").read_text().splitlines())
        questions += [row["query"] for row in rows]
    with TemporaryDirectory(prefix="toolgate-bench-", ignore_cleanup_errors=True) as work:
        Path(work).chmod(0o755)  # of PostgreSQL's own user
        anyio.run(measure, data or Path(work), passages, questions, chunks)


if __name__ == "__main__":
    main()
