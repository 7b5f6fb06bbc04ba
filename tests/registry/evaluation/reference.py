"""The ranking of tools as its description says it, in Python: slow, short, without a database.

    score = share * meaning + (1 - share) * words / best words (with meaning: or 4 ln(1 + tools))

With several sentences the best 20 are chosen one after the other, by the score and 0.2 of what a
tool adds to the cosines that the sentences have with those before.

meaning: the cosine to the whole query; with several sentences 0.3 of that, and 0.7 of the best
cosine to one of them. words: BM25F over the fields of a tool (Robertson and Zaragoza 2009, 3.6).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WEIGHTS = {
    "name": 2.0, "title": 1.0, "description": 1.5, "source": 1.0, "tags": 1.0,
    "parameters": 0.6, "parameter_texts": 0.4,
}  # fmt: skip
K1, B = 1.2, 0.6
RARE_WORDS = 4
WHOLE = 0.3
COVERAGE, CHOSEN = 0.2, 20

Terms = Callable[[str], Counter[str]]  # stems of a text, and how often each stands in it
Fields = Mapping[str, str]


@dataclass(frozen=True)
class Score:
    words: float
    meaning: float
    score: float


def bm25f(tools: Sequence[Fields], query: str, terms: Terms) -> list[float]:
    weighted: list[Counter[str]] = []
    for tool in tools:
        sums: Counter[str] = Counter()
        for field, text in tool.items():
            for term, count in terms(text).items():
                sums[term] += WEIGHTS[field] * count  # type: ignore[assignment]
        weighted.append(sums)
    lengths = [sum(sums.values()) for sums in weighted]
    average = sum(lengths) / len(lengths)
    scores = [0.0] * len(tools)
    for term in terms(query):
        having = sum(term in sums for sums in weighted)
        idf = math.log(1 + (len(tools) - having + 0.5) / (having + 0.5))
        for number, sums in enumerate(weighted):
            tf, length = sums[term], lengths[number]
            scores[number] += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average))
    return scores


def meaning(
    tools: NDArray[np.float32], sentences: NDArray[np.float32], sizes: Sequence[int]
) -> list[float]:
    """`tools`, `sentences`: one row each, of length 1. The whole query is the sum of its sentences,
    each with its size in characters, at length 1."""
    whole = np.array(sizes, dtype=np.float32) @ sentences
    cosines: NDArray[np.float32] = tools @ (whole / np.linalg.norm(whole))
    if len(sentences) > 1:
        cosines = WHOLE * cosines + (1 - WHOLE) * (tools @ sentences.T).max(axis=1)
    return [float(one) for one in cosines]


def score_all(words: Sequence[float], meanings: Sequence[float], share: float) -> list[Score]:
    enough = RARE_WORDS * math.log(1 + len(words)) if share else 0.0
    best = max(*words, enough) or 1.0
    return [
        Score(word, mean, share * mean + (1 - share) * word / best)
        for word, mean in zip(words, meanings, strict=True)
    ]


def covering(
    scores: Mapping[str, float], cosines: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """The scores by id, best first. `cosines` of a tool: to each sentence."""
    left, best, covered = dict(scores), dict[str, float](), np.float32(0)
    while left and len(best) < CHOSEN:
        gained = {
            id_: score + COVERAGE * float(np.maximum(cosines[id_] - covered, 0).sum())
            for id_, score in left.items()
        }
        id_ = max(gained, key=gained.__getitem__)
        best[id_] = gained[id_]
        covered = np.maximum(covered, cosines[id_])
        del left[id_]
    return best | dict(sorted(left.items(), key=lambda pair: -pair[1]))
