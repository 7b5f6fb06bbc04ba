"""How long a search takes, from query to answer: 12,000 tools, or as many as are asked for, the
bundled model, one client; and how much of what is nearest it finds.

Each tool (see `catalog`) is written through the registry and really embedded. The settings are
those that the product comes with, except that a database of many tools has the cache that it needs:
of 100,000 tools the words, the vectors and their indexes are 700 MB.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchmarks.catalog import asked, catalog
from benchmarks.processes import pin
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from config.load import load
from config.settings import Settings
from registry.embedding.providers import make_embedder
from registry.evaluation.corpus import Corpus, loaded
from registry.evaluation.scratch import scratch_database
from registry.postgres import Database
from registry.search import Found, Mode, Query, Search

COUNT, QUICK_COUNT = 12_000, 600  # tools
REQUESTS, QUICK_REQUESTS = 400, 40
WARM = 20  # requests before it counts
COMPARED = 200  # requests, with exact search
TOP = 10

MANY = 50_000  # tools, from which on the database has more than its usual cache
CACHE = "512MB"

P95_MS = {COUNT: 25.0, 100_000: 40.0}
RECALL_TARGETS = (Target("least", 98.0),)


@dataclass(frozen=True, slots=True)
class Measured:
    spent: Sequence[tuple[float, Found]]  # milliseconds, and the answer
    recall: float  # of vectors, per cent
    loaded_s: float


def measure_search(rig: Rig, directory: Path | None, quick: bool, count: int | None) -> list[Row]:
    """On all cores: the gateway, its model and its database share them. `count`: of tools."""
    tools = count or (QUICK_COUNT if quick else COUNT)
    pin(0, rig.cores.tested | rig.cores.load)
    try:
        found = asyncio.run(_measure(rig, directory, tools, QUICK_REQUESTS if quick else REQUESTS))
    finally:
        pin(0, rig.cores.load)
    return rows(found, tools)


async def _measure(rig: Rig, directory: Path | None, count: int, number: int) -> Measured:
    settings = load(None, {})
    if count >= MANY:
        settings = replace(settings, database=replace(settings.database, shared_buffers=CACHE))
    embedder = make_embedder(settings.embedding)
    tools, requests = catalog(directory, count), asked(directory, number + WARM)

    def say(step: str, done: int, total: int) -> None:
        rig.say(f"search: {step} {done:,} of {total:,}")

    async with scratch_database(settings.database) as database:
        started = time.perf_counter()
        corpus = await loaded(database, tools, settings, embedder, say)
        loaded_s = time.perf_counter() - started
        rig.say(f"search: {len(requests)} requests")
        spent = [await _ask(corpus.search, corpus, request, "hybrid") for request in requests]
        rig.say("search: the same, exactly")
        recall = await _recall(database, settings, corpus, requests[:COMPARED])
    return Measured(spent[WARM:], recall, loaded_s)


async def _ask(
    search: Search, corpus: Corpus, request: str, mode: Mode, limit: int = 5
) -> tuple[float, Found]:
    started = time.perf_counter()
    found = await search.run(Query(request, limit, mode, corpus.filters))
    return (time.perf_counter() - started) * 1000, found


async def _recall(
    database: Database, settings: Settings, corpus: Corpus, requests: Sequence[str]
) -> float:
    """Of what is nearest by comparing all vectors, how much is found, per cent."""
    everything = replace(settings.search, exact_limit=len(corpus.tools))
    exact = Search(lambda: database.pool, lambda: corpus.embedder, everything)
    shares = []
    for request in requests:
        found, best = [
            {hit.id for hit in (await _ask(search, corpus, request, "dense", TOP))[1].hits}
            for search in (corpus.search, exact)
        ]
        shares.append(len(found & best) / len(best))
    return statistics.mean(shares) * 100


def rows(found: Measured, count: int) -> list[Row]:
    whole = [ms for ms, _ in found.spent]
    encode = [one.took.encode_ms for _, one in found.spent]
    path = found.spent[0][1].path
    targets = (Target("value", P95_MS[count]),) if count in P95_MS else ()
    return [
        Row(
            f"search of {count:,}, p50",
            statistics.median(whole),
            "ms",
            note=f"{len(found.spent)} requests, {path}"
            + (f", shared_buffers {CACHE}" if count >= MANY else ""),
        ),
        Row("search, p95", p95(whole), "ms", targets=targets, rounds=tuple(whole)),
        Row("of it the vectors of the query, p95", p95(encode), "ms"),
        Row(f"dense recall@{TOP}", found.recall, "%", targets=RECALL_TARGETS, note="against exact"),
        Row("tools written and embedded", count / found.loaded_s, "tools/s", note="one worker"),
    ]


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]
