"""`python -m benchmarks.many_chunks DIR`: how long queries of many chunks take, mode by mode and
filter by filter.

DIR has musique, hotpotqa and 2wiki, each with corpus.jsonl and queries.jsonl (see
`benchmarks.multihop`). Their passages are stored in documents of forty, over and over, until there
are enough chunks. Their vectors are made up, around five hundred centres, since a model would take
minutes; those of the queries are at hand, so that their encoding is not measured.
"""

import hashlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import click
import numpy as np
from msgspec.structs import replace

from benchmarks.multihop import GOALS
from config.load import load
from config.settings import Settings
from config.types import VECTOR_DIMENSION
from gateway.app.components import components_of
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import NewDocument
from gateway.wings.knowledge.filters import ChunkFilter
from gateway.wings.knowledge.readers import KnowledgeReader
from gateway.wings.knowledge.search import KIND, ChunkQuery, Mode
from gateway.wings.knowledge.wiring import KnowledgeParts
from gateway.wings.table import wing_components
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.embedding.abc import Embedder, Vectors
from registry.embedding.kinds import search_kinds
from registry.embedding.models import register, settle
from registry.embedding.worker import Worker
from registry.search.indexes import ensure_indexes

GOAL_MS = 150  # p95
MODES: tuple[Mode, ...] = ("naive", "local", "global", "hybrid", "mix")
FILTER_GOAL = 1.5  # p95 of a query with a filter, of that without
FILTERS = {
    "none": ChunkFilter(),
    "paths, all": ChunkFilter(paths=("**/*.md",)),
    "paths, few": ChunkFilter(paths=("1?.md",)),
    "kinds": ChunkFilter(kinds=("text", "prose", "section")),
    "languages": ChunkFilter(languages=("en", "english")),
    "heading": ChunkFilter(heading="a"),
    "since": ChunkFilter(since=datetime(2020, 1, 1, tzinfo=UTC)),
    "metadata": ChunkFilter(metadata={"origin": "benchmark"}),
}
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
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Opened:
    database: Database
    settings: Settings
    parts: KnowledgeParts
    embedder: Embedder
    reader: KnowledgeReader


@asynccontextmanager
async def opened(folder: Path, embedder: Embedder | None = None) -> AsyncIterator[Opened]:
    """The wing on an empty database; without an embedder with made-up vectors."""
    settings = load(None, {})
    settings = replace(
        settings,
        knowledge=replace(settings.knowledge, enabled=True),
        database=replace(settings.database, data_dir=str(folder / "data")),
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
            yield Opened(database, settings, parts, embedder, reader)
        finally:
            await parts.workers.close()


async def fill(one: Opened, passages: Sequence[str], count: int) -> int:
    """Store documents until there are `count` chunks, embed and index them; the number of them."""
    stored, number, endless = 0, 0, cycle(passages)
    while stored < count:
        number += 1
        text = "\n\n".join(islice(endless, PASSAGES)) + f"\n\nCopy {number}."
        document = NewDocument(f"{number}.md", text)
        kept = await one.parts.ingestion.text(one.reader, NewCollection("all"), document)
        stored += kept.chunks
    kinds = search_kinds([KIND])
    worker = Worker(one.database.pool, one.embedder, one.settings.embedding, kinds)
    while await worker.step():
        pass
    async with one.database.pool.connection() as connection:
        await settle(connection, KIND.purpose, kinds)
    await ensure_indexes(one.database, one.settings.search.exact_limit)
    async with one.database.connect() as connection:
        await connection.execute("VACUUM ANALYZE")
    return stored


async def time_queries(
    one: Opened, questions: Sequence[str], mode: Mode, narrowed: ChunkFilter = FILTERS["none"]
) -> list[float]:
    """Milliseconds of each query. Raises ClickException if one without a filter finds nothing."""
    spent = []
    for text in islice(cycle(questions), WARM + TIMED):
        query = ChunkQuery(reader=one.reader, text=text, mode=mode, filter=narrowed)
        started = time.perf_counter()
        result = await one.parts.searcher.search(query)
        spent.append(1000 * (time.perf_counter() - started))
        if not result.chunks and narrowed == FILTERS["none"]:
            raise click.ClickException(f"nothing was found for {text!r}")
    return spent[WARM:]


async def measure(
    folder: Path, passages: Sequence[str], questions: Sequence[str], count: int
) -> None:
    async with opened(folder) as one:
        click.echo(f"storing {count:,} chunks: some minutes")
        stored = await fill(one, passages, count)
        click.echo(f"{stored:,} chunks; milliseconds of {TIMED} queries of each mode")
        for mode in MODES:
            cuts = statistics.quantiles(await time_queries(one, questions, mode), n=100)
            verdict = "reached" if cuts[94] < GOAL_MS else "NOT reached"
            click.echo(f"{mode:7} p50 {cuts[49]:.0f}, p95 {cuts[94]:.0f} ({verdict}: < {GOAL_MS})")
        whole = 0.0
        for name, narrowed in FILTERS.items():
            spent = await time_queries(one, questions, "mix", narrowed)
            cuts = statistics.quantiles(spent, n=100)
            whole = whole or cuts[94]
            share = cuts[94] / whole
            verdict = "reached" if share <= FILTER_GOAL else "NOT reached"
            click.echo(
                f"{name:10} p50 {cuts[49]:.0f}, p95 {cuts[94]:.0f}, {share:.2f} of no filter "
                f"({verdict}: <= {FILTER_GOAL})"
            )


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--chunks", type=click.IntRange(100), default=100_000, show_default=True)
def main(folder: Path, chunks: int) -> None:
    """Measure queries of many chunks, of the question sets in FOLDER, without a gateway."""
    passages, questions = [], []
    for name in GOALS:
        rows = map(json.loads, (folder / name / "corpus.jsonl").read_text().splitlines())
        passages += [f"# {row['title']}\n\n{row['text']}" for row in rows]
        rows = map(json.loads, (folder / name / "queries.jsonl").read_text().splitlines())
        questions += [row["query"] for row in rows]
    with TemporaryDirectory(prefix="toolgate-bench-", ignore_cleanup_errors=True) as work:
        Path(work).chmod(0o755)  # of PostgreSQL's own user
        anyio.run(measure, Path(work), passages, questions, chunks)


if __name__ == "__main__":
    main()
