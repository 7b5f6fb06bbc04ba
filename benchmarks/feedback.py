"""`python -m benchmarks.feedback DIR...`: a month of searches and calls, and how well callers are
served after it, with `search.feedback` and without.

Each DIR is a set of requests and tools, as for `toolgate search eval`. Its requests are split: one
half is asked during the month, by callers who each have tools that they need more than others; the
other half is what each caller asks afterwards. A caller calls what it needs if the search shows it,
and sometimes something else, which counts as a success, too. Everything is drawn with a seed.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from config.load import load
from registry.database.postgres import Database, borrow
from registry.embedding.embedder_factory import make_embedder
from registry.evaluation.corpus import Corpus, load_corpus
from registry.evaluation.evaluate import sample_requests
from registry.evaluation.quality_metrics import ndcg
from registry.evaluation.request_sets import (
    QUERIES,
    TOOLS,
    EvaluationRequest,
    read_catalog,
    read_requests,
)
from registry.evaluation.temporary_catalog import HOST, scratch_database
from registry.search import Search, SearchQuery
from registry.search.feedback import Feedback

SEED = 11
REQUESTS = 800  # of a set, in both halves
CALLERS, DAYS, A_DAY = 12, 30, 4  # callers, days, requests of a caller on a day
OWN = 0.8  # share of a caller's requests that are for the tools that it needs most
MISTAKEN = 0.1  # share of calls that are of another tool than the one that was needed
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Served:
    """Mean NDCG@10 of what one caller asks after the month, in per cent."""

    without: float
    with_feedback: float

    @property
    def change(self) -> float:
        return 100 * (self.with_feedback - self.without) / self.without if self.without else 0.0


class Month:
    def __init__(self, requests: Sequence[EvaluationRequest], chance: random.Random) -> None:
        self._chance = chance
        half = chance.sample(list(requests), len(requests))
        self._asked, self._later = half[: len(half) // 2], half[len(half) // 2 :]
        tools = sorted({tool for request in requests for tool in request.wanted_tools})
        self._needs = [set(chance.sample(tools, len(tools) // CALLERS)) for _ in range(CALLERS)]

    def day(self, caller: int) -> list[EvaluationRequest]:
        return self._of(caller, self._asked, A_DAY)

    def afterwards(self, caller: int) -> list[EvaluationRequest]:
        return self._of(caller, self._later, len(self._later) // 3)

    def _of(
        self, caller: int, requests: Sequence[EvaluationRequest], number: int
    ) -> list[EvaluationRequest]:
        caller_requests = [
            request for request in requests if self._needs[caller] & set(request.wanted_tools)
        ] or requests
        drawn_from = (
            caller_requests if self._chance.random() < OWN else requests for _ in range(number)
        )
        return [self._chance.choice(pool) for pool in drawn_from]

    def called(self, request: EvaluationRequest, tools: Sequence[str]) -> str | None:
        """What a caller calls of the tools that it is shown."""
        if tools and self._chance.random() < MISTAKEN:
            return self._chance.choice(tools)
        return next((tool for tool in tools if tool in request.wanted_tools), None)


async def month(directory: Path, say: Console) -> list[Served]:
    """How well each caller is served after a month."""
    settings = load(None, {})
    learning = replace(settings.search, feedback=True)
    say.print(f"{directory.name}: loading", style="dim")
    async with AsyncExitStack() as stack:
        embedder = make_embedder(settings.embedding)
        if embedder is None:
            raise click.ClickException("feedback needs an embedding model")
        stack.push_async_callback(embedder.close)
        database = await stack.enter_async_context(scratch_database(settings.database))
        tools = read_catalog(directory / TOOLS)
        corpus = await load_corpus(database, tools, settings, embedder, progress=lambda *_: None)
        drawing = Search(lambda: database.pool, lambda _: embedder, learning)
        simulated = Month(
            sample_requests(read_requests(directory / QUERIES), REQUESTS, SEED), random.Random(SEED)
        )
        for day in range(DAYS):
            say.print(f"{directory.name}: day {day + 1} of {DAYS}", style="dim")
            await _one_day(simulated, database, drawing, corpus)
        return [
            await _served(corpus, drawing, simulated.afterwards(caller))
            for caller in range(CALLERS)
        ]


async def _one_day(simulated: Month, database: Database, drawing: Search, corpus: Corpus) -> None:
    feedback = Feedback(lambda: database.pool)
    for caller in range(CALLERS):
        for request in simulated.day(caller):
            query = SearchQuery(request.query, SHOWN, "hybrid", corpus.filters)
            result = await drawing.run(query)
            ids = {corpus.names[hit.id]: hit.id for hit in result.hits}
            called = simulated.called(request, list(ids))
            if called is None or result.model is None or result.vector is None:
                continue
            await feedback.record(
                *(HOST, ids[called]),
                model=result.model,
                vector=result.vector,
                principal=f"caller {caller}",
            )
    async with borrow(database.pool) as connection:
        await connection.execute(
            "UPDATE usage_query_t SET update_ts = update_ts - interval '1 day'"
        )


async def _served(corpus: Corpus, drawing: Search, requests: Sequence[EvaluationRequest]) -> Served:
    sums = [0.0, 0.0]
    for request in requests:
        gold = corpus.index.resolve(request).gold
        for number, search in enumerate((corpus.search, drawing)):
            query = SearchQuery(request.query, SHOWN, "hybrid", corpus.filters)
            hits = (await search.run(query)).hits
            sums[number] += ndcg([corpus.names[hit.id] for hit in hits], gold)
    without, with_feedback = (100 * total / len(requests) for total in sums)
    return Served(without, with_feedback)


def row(name: str, callers: Sequence[Served]) -> list[str]:
    before, after = (
        sum(values) / len(callers)
        for values in (
            [caller.without for caller in callers],
            [caller.with_feedback for caller in callers],
        )
    )
    changes = sorted(caller.change for caller in callers)
    return [name, f"{before:.1f}", f"{after:.1f}", f"{changes[0]:+.1f} %", f"{changes[-1]:+.1f} %"]


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(directories: tuple[Path, ...]) -> None:
    """Simulate a month with each of the sets in DIRECTORIES."""
    say = Console(stderr=True)
    results = Table("set", "NDCG@10 without", "with feedback", "worst caller", "best caller")
    for directory in directories:
        results.add_row(*row(directory.name, asyncio.run(month(directory, say))))
    Console().print(results)


if __name__ == "__main__":
    main()
