"""Lists of tools that a second stage is trained and evaluated on: a request, and what the first
stage finds for it. Pure.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.operations import operation_pairs
from benchmarks.training.sets import ToolSet, TrainingQuery, TrainingTool, seeded, tool_text
from registry.embedding.texts import query_text

READ = 24  # tools of the first stage that are read
BATCH = 8  # requests


@dataclass(frozen=True)
class Ranking:
    """A request, and the texts of tools in the order and with the scores of the first stage."""

    query: str
    texts: tuple[str, ...]
    scores: NDArray[np.float32]
    gold: frozenset[int]  # places in `texts`
    wanted: int  # tools that the request needs, found or not


def rankings(
    tools: ToolSet, queries: Sequence[TrainingQuery], scores: NDArray[np.float32]
) -> list[Ranking]:
    """Ranking of the first stage for `queries`, by its scores of shape (queries, tools)."""
    texts = [read_text(tool) for tool in tools.tools]
    ids = [tool.id for tool in tools.tools]
    rankings_ = []
    for query, row in zip(queries, scores, strict=True):
        best = np.argsort(-row, kind="stable")[:READ]
        gold = frozenset(at for at, place in enumerate(best) if ids[place] in query.gold)
        listed_texts = tuple(texts[place] for place in best)
        rankings_.append(
            Ranking(query_text(query.text), listed_texts, row[best], gold, len(query.gold))
        )
    return rankings_


def read_text(tool: TrainingTool) -> str:
    """The text of a tool that the second stage reads: what a search shows of it."""
    return tool_text(replace(tool, tags=(), parameters=()))


def of_operations(path: Path, seed: int, wrong: int) -> list[Ranking]:
    """Requests made of an OpenAPI description, each with its operation and `wrong` others,
    operations of the same resource first."""
    pairs, chance = operation_pairs(path, seed), seeded(seed)
    rankings_ = []
    for pair in pairs:
        others = [rival for rival in pairs if rival.tool.id not in pair.also]
        near = [rival for rival in others if rival.group == pair.group]
        near = chance.sample(near, min(len(near), wrong))
        far = chance.sample(others, wrong)
        texts = [read_text(rival.tool) for rival in (pair, *(near + far)[:wrong])]
        scores = np.zeros(len(texts), np.float32)
        rankings_.append(Ranking(pair.query, tuple(texts), scores, frozenset((0,)), 1))
    return rankings_


def usable(lists: Sequence[Ranking], wrong: int) -> list[Ranking]:
    """Lists with a right tool, and `wrong` others."""
    return [
        ranking
        for ranking in lists
        if ranking.gold and len(ranking.texts) - len(ranking.gold) >= wrong
    ]


def lots(
    lists: Sequence[Ranking], chance: random.Random, steps: int
) -> Iterator[Sequence[Ranking]]:
    """Batches of `lists` in a new order each time all were used."""
    order: list[Ranking] = []
    for _ in range(steps):
        if len(order) < BATCH:
            order = chance.sample(lists, len(lists))
        lot, order = order[:BATCH], order[BATCH:]
        yield lot


def chosen(ranking: Ranking, wrong: int, chance: random.Random) -> list[tuple[str, str]]:
    """Pairs of request and text: that of a right tool, then those of `wrong` others."""
    others = [at for at in range(len(ranking.texts)) if at not in ranking.gold]
    places = [chance.choice(sorted(ranking.gold)), *chance.sample(others, wrong)]
    return [(ranking.query, ranking.texts[at]) for at in places]
