"""Search latency: a call of search_tools over HTTP, and inside the process, among 12,000 tools, or
as many as requested, with the bundled model and one client; and its recall of the nearest tools.

How long a search may take depends on the processor, so the bound of the 95th percentile is made of
the median of one encoding, of the same requests by a model of this process between the calls.

Each tool (see `catalog`) is written through the registry and really embedded. The settings are the
defaults, except that a database of many tools has a larger cache: for 100,000 tools the words, the
vectors and their indexes are 700 MB.
"""

import asyncio
import dataclasses
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks import calls
from benchmarks.catalog import asked, catalog
from benchmarks.processes import pin
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import installation, serving
from config.load import load
from config.settings import Settings
from registry.database.postgres import Database
from registry.embedding.embedder_factory import make_embedder
from registry.evaluation.corpus import Corpus, load_corpus
from registry.evaluation.request_sets import CatalogTool
from registry.evaluation.temporary_catalog import CARELESS
from registry.search import Mode, Search, SearchQuery, SearchResult
from registry.search.query_encoding import EncodedQuery, QueryEncoder

COUNT, QUICK_COUNT = 12_000, 600  # tools
REQUESTS, QUICK_REQUESTS = 400, 40
WARM = 20  # requests before it counts
COMPARED = 200  # requests, with exact search
TOP = 10
TIMEOUT_S = 120.0  # of the first calls, which load the model

MANY = 50_000  # tools, from which on the database has more than its usual cache
CACHE = "512MB"

P95_ENCODINGS, P95_MS = 1.5, 8.0  # bound: so many encodings, and so many milliseconds more
RECALL_TARGETS = (Target("least", 98.0),)


@dataclass(frozen=True, slots=True)
class SearchMeasurements:
    inside: Sequence[tuple[float, SearchResult]]  # milliseconds of a search, and what it found
    recall: float  # of vectors, per cent
    loaded_s: float
    calls_ms: list[float] = field(default_factory=list)  # of a call of search_tools
    encodings_ms: list[float] = field(default_factory=list)  # of encoding its query


def measure_search(rig: Rig, directory: Path | None, quick: bool, count: int | None) -> list[Row]:
    """On all cores: the gateway, its model and its database share them. `count`: of tools."""
    tools = count or (QUICK_COUNT if quick else COUNT)
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    try:
        everywhere = dataclasses.replace(rig, cores=dataclasses.replace(rig.cores, tested=cores))
        number = QUICK_REQUESTS if quick else REQUESTS
        run = _measure(everywhere, catalog(directory, tools), asked(directory, number + WARM))
    finally:
        pin(0, rig.cores.load)
    return rows(run, tools)


def _measure(rig: Rig, tools: Sequence[CatalogTool], requests: Sequence[str]) -> SearchMeasurements:
    cache = {"shared_buffers": CACHE} if len(tools) >= MANY else {}
    with installation(rig, "search", {}, {"database": {"options": CARELESS, **cache}}) as site:
        settings = load(str(site.settings), {})
        run = asyncio.run(_inside(rig, settings, tools, requests))
        with serving(rig, site) as child, asyncio.Runner() as runner:
            rig.say(f"search: {len(requests)} calls of search_tools")
            encode = _encoder(settings)
            for request in requests:
                run.calls_ms.append(_called(child.port, request))
                run.encodings_ms.append(runner.run(encode(request)).took_ms)
    del run.calls_ms[:WARM], run.encodings_ms[:WARM]
    return run


def _encoder(settings: Settings) -> Callable[[str], Coroutine[Any, Any, EncodedQuery]]:
    """Encodes as a search does, in this process."""
    embedder, search = make_embedder(settings.embedding), settings.search
    assert embedder is not None  # the settings of a benchmark have a model
    encoding = QueryEncoder(
        lambda _: embedder, timeout_s=TIMEOUT_S, sentences_limit=search.sentences
    )
    return partial(encoding.encode, embedder)


def _called(port: int, request: str) -> float:
    """Milliseconds of one call on a connection of its own."""
    params = {"name": "search_tools", "arguments": {"query": request}}
    call = calls.stateless(port, "tools/call", params, "/mcp?mode=search")
    with closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.connect()
        started = time.perf_counter()
        answer = call.send_on(connection)
        spent = (time.perf_counter() - started) * 1000
    if b'"score"' not in bytes(calls.result(answer)["structuredContent"]):
        raise Unavailable(f"nothing was found for {request!r}")
    return spent


async def _inside(
    rig: Rig, settings: Settings, tools: Sequence[CatalogTool], requests: Sequence[str]
) -> SearchMeasurements:
    embedder = make_embedder(settings.embedding)

    def say(step: str, done: int, total: int) -> None:
        rig.say(f"search: {step} {done:,} of {total:,}")

    async with Database.open(settings.database) as database:
        started = time.perf_counter()
        corpus = await load_corpus(database, tools, settings, embedder, progress=say)
        loaded_s = time.perf_counter() - started
        rig.say(f"search: {len(requests)} requests")
        spent = [await _ask(corpus.search, corpus, request, "hybrid") for request in requests]
        rig.say("search: the same, exactly")
        recall = await _recall(database, settings, corpus, requests[:COMPARED])
    return SearchMeasurements(spent[WARM:], recall, loaded_s)


async def _ask(
    search: Search, corpus: Corpus, request: str, mode: Mode, limit: int = 5
) -> tuple[float, SearchResult]:
    started = time.perf_counter()
    result = await search.run(SearchQuery(request, limit, mode, corpus.filters))
    return (time.perf_counter() - started) * 1000, result


async def _recall(
    database: Database, settings: Settings, corpus: Corpus, requests: Sequence[str]
) -> float:
    """Of what is nearest by comparing all vectors, how much is found, per cent."""
    exact_settings = replace(settings.search, exact_limit=len(corpus.tools))
    exact = Search(lambda: database.pool, lambda _: corpus.embedder, exact_settings)
    shares = []
    for request in requests:
        answers, best = [
            {hit.id for hit in (await _ask(search, corpus, request, "dense", TOP))[1].hits}
            for search in (corpus.search, exact)
        ]
        shares.append(len(answers & best) / len(best))
    return statistics.mean(shares) * 100


def rows(run: SearchMeasurements, count: int) -> list[Row]:
    inside = [ms for ms, _ in run.inside]
    encode = [result.took.encode_ms for _, result in run.inside]
    path = run.inside[0][1].path
    encoding = statistics.median(run.encodings_ms)
    bound = P95_ENCODINGS * encoding + P95_MS
    return [
        Row(
            f"search_tools among {count:,}, p50",
            statistics.median(run.calls_ms),
            "ms",
            note=f"{len(run.calls_ms)} calls over HTTP, {path}"
            + (f", shared_buffers {CACHE}" if count >= MANY else ""),
        ),
        Row(
            "search_tools, p95",
            p95(run.calls_ms),
            "ms",
            targets=(Target("value", round(bound, 1)),),
            note=f"at most {P95_ENCODINGS} encodings and {P95_MS:g} ms",
            rounds=tuple(run.calls_ms),
        ),
        Row("one encoding of the same query, p50", encoding, "ms", rounds=tuple(run.encodings_ms)),
        Row("inside the process, p50", statistics.median(inside), "ms"),
        Row("inside the process, p95", p95(inside), "ms", rounds=tuple(inside)),
        Row("of it the vectors of the query, p95", p95(encode), "ms"),
        Row(f"dense recall@{TOP}", run.recall, "%", targets=RECALL_TARGETS, note="against exact"),
        Row("tools written and embedded", count / run.loaded_s, "tools/s", note="one worker"),
    ]


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]
