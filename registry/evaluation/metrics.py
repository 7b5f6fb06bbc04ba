"""How good one answer is. Pure.

Recall and completeness count the tools that are needed, any of whose alternatives will do: `slots`.
NDCG has binary gains over all of `gold`; its ideal has as many hits as fit (Järvelin and Kekäläinen
2002, with the discount 1 / log2(rank + 1)). MRR looks at the first hit. All are from 0 to 1.
"""

import math
from collections.abc import Collection, Sequence, Set

DEPTH = 10  # of the answers that are judged
METRICS = ("recall@1", "recall@5", "recall@10", "ndcg@10", "completeness@10", "mrr@10")


def scores(
    found: Sequence[str], gold: Set[str], slots: Sequence[Collection[str]]
) -> tuple[float, ...]:
    """One number for each of METRICS. `found`: ids of tools, the best first."""
    return (
        recall(found, slots, 1),
        recall(found, slots, 5),
        recall(found, slots, 10),
        ndcg(found, gold),
        float(recall(found, slots, DEPTH) == 1),
        reciprocal_rank(found, gold),
    )


def recall(found: Sequence[str], slots: Sequence[Collection[str]], depth: int) -> float:
    """The share of `slots` of which one is among the first `depth`."""
    first = set(found[:depth])
    return sum(not first.isdisjoint(slot) for slot in slots) / len(slots)


def ndcg(found: Sequence[str], gold: Set[str], depth: int = DEPTH) -> float:
    gained = sum(_discount(rank) for rank, one in enumerate(found[:depth], 1) if one in gold)
    return gained / sum(_discount(rank) for rank in range(1, min(depth, len(gold)) + 1))


def reciprocal_rank(found: Sequence[str], gold: Set[str], depth: int = DEPTH) -> float:
    """0 when none of `gold` is among the first `depth`."""
    return next((1 / rank for rank, one in enumerate(found[:depth], 1) if one in gold), 0.0)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)
