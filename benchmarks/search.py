"""How long a search takes, from query to answer: 12,000 tools, the bundled model, one client.

Tools and requests are those of public sets where a directory is given, and invented ones up to the
number; each of them is written through the registry and really embedded.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.processes import pin
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from config.load import load
from registry.evaluation.corpus import Corpus, of_catalog
from registry.evaluation.sets import QUERIES, TOOLS, Listed, read_catalog, read_requests
from registry.search import Found, Query

COUNT, QUICK_COUNT = 12_000, 600  # tools
REQUESTS, QUICK_REQUESTS = 400, 40
WARM = 20  # requests before it counts
SEED = 20260728

P95_TARGETS = (Target("value", 25.0),)

_VERBS = (
    "list", "create", "delete", "update", "approve", "export", "cancel", "find", "send", "count",
)  # fmt: skip
_THINGS = (
    "invoice", "customer", "shipment", "refund", "contract", "employee", "ticket", "forecast",
    "warehouse", "subscription", "payment", "course", "room", "flight", "recipe", "sensor",
    "report",
)  # fmt: skip
_OF = (
    "a customer", "one region", "the last quarter", "an open order", "a delivery that is late",
    "all suppliers", "the sales team", "a cancelled trip", "each branch", "an archived project",
)  # fmt: skip
_WITH = ("status", "date", "currency", "owner", "page", "limit", "reason", "priority", "language")


def measure_search(rig: Rig, directory: Path | None, quick: bool) -> list[Row]:
    """On all cores: the gateway, its model and its database share them."""
    pin(0, rig.cores.tested | rig.cores.load)
    try:
        return asyncio.run(_measure(rig, directory, quick))
    finally:
        pin(0, rig.cores.load)


async def _measure(rig: Rig, directory: Path | None, quick: bool) -> list[Row]:
    count, number = (QUICK_COUNT, QUICK_REQUESTS) if quick else (COUNT, REQUESTS)
    tools, requests = catalog(directory, count), asked(directory, number + WARM)

    def say(step: str, done: int, total: int) -> None:
        rig.say(f"search: {step} {done:,} of {total:,}")

    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        corpus = await stack.enter_async_context(of_catalog(tools, load(None, {}), say))
        made_s = time.perf_counter() - started
        rig.say(f"search: {len(requests)} requests")
        spent = [await _ask(corpus, request) for request in requests][WARM:]
    facts = f"{len(tools):,} tools, {len(spent)} requests, {spent[0][1].path}"
    return [
        *rows(spent, facts, P95_TARGETS if count == COUNT else ()),
        Row("tools written and embedded", len(tools) / made_s, "tools/s", note="one worker"),
    ]


async def _ask(corpus: Corpus, request: str) -> tuple[float, Found]:
    """Milliseconds, and the answer."""
    started = time.perf_counter()
    found = await corpus.search.run(Query(request, 5, "hybrid", corpus.filters))
    return (time.perf_counter() - started) * 1000, found


def rows(
    spent: Sequence[tuple[float, Found]], facts: str, targets: tuple[Target, ...]
) -> list[Row]:
    whole = [ms for ms, _ in spent]
    encode = [found.took.encode_ms for _, found in spent]
    database = [found.took.sql_ms for _, found in spent]
    return [
        Row("search, p50", statistics.median(whole), "ms", note=facts),
        Row("search, p95", p95(whole), "ms", targets=targets, rounds=tuple(whole)),
        Row("of it the vectors of the query, p95", p95(encode), "ms"),
        Row("of it the database, p95", p95(database), "ms"),
    ]


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def catalog(directory: Path | None, count: int) -> list[Listed]:
    """`count` tools, as far as possible those of the sets in `directory`."""
    paths = sorted(directory.glob(f"*/{TOOLS}")) if directory else []
    found = [
        replace(tool, server=tool.server or path.parent.name)  # else names might be taken twice
        for path in paths
        for tool in read_catalog(path)
    ]
    rng = random.Random(SEED)
    picked = rng.sample(found, min(len(found), count))
    # two sets may use the same ids
    given = [replace(tool, id=f"{number}:{tool.id}") for number, tool in enumerate(picked)]
    return [*given, *(invented(rng, number) for number in range(count - len(given)))]


def invented(rng: random.Random, number: int) -> Listed:
    verb, thing, of = rng.choice(_VERBS), rng.choice(_THINGS), rng.choice(_OF)
    names = rng.sample(_WITH, 3)
    about = f"{verb.capitalize()}s each {thing} of {of}, by {names[0]}. Number {number}."
    properties = {one: {"type": "string", "description": f"The {one} of it."} for one in names}
    return Listed(
        id=f"invented:{number}",
        name=f"{thing}s_{verb}_{number}",
        description=about,
        server=f"{rng.choice(_THINGS)}-service-{number % 40}",
        input_schema={"type": "object", "properties": properties},
    )


def asked(directory: Path | None, count: int) -> list[str]:
    """Different requests."""
    paths = sorted(directory.glob(f"*/{QUERIES}")) if directory else []
    rng = random.Random(SEED)
    found = sorted({request.query for path in paths for request in read_requests(path)})
    given = rng.sample(found, min(len(found), count))
    return [*given, *(_request(rng, number) for number in range(count - len(given)))]


def _request(rng: random.Random, number: int) -> str:
    def wish() -> str:
        return f"{rng.choice(_VERBS)} the {rng.choice(_THINGS)} of {rng.choice(_OF)}"

    rest = f" Then {wish()}, please." if number % 2 else ""
    return f"I would like to {wish()}, number {number}.{rest}"
