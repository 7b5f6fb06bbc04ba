"""Retrieval quality of a model on tool sets: dense, lexical and fused, in numpy.

A reference for decisions about training. It ranks as the product does (the product's own measure
is `toolgate search eval`): dense = the cosine to the query (the sum of its sentence vectors)
and, with more weight, that to its best sentence; lexical = BM25F (Robertson & Zaragoza 2009) over
split, stemmed words.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

from benchmarks.training.sets import ToolSet, TrainingQuery, TrainingTool, tool_text
from registry.embedding.texts import identifier_words, query_text, sentences

Vectors = NDArray[np.float32]
Embed = Callable[[list[str]], Vectors]

K1, B = 1.2, 0.6
SHARE = 0.8  # of the cosine in the fused score
WORDS = 4  # as in `registry.search.fusion`, which this room may not import
WHOLE = 0.3  # weight of the cosine to the query; the rest is that of the best sentence
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and any are as at be been but by can could did do does for from had has have he her
        him his how i if in into is it its me my no nor not of on or our over own same she should so
        some such than that the their them then there these they this those to too under up very was
        we were what when where which while who whom why will with would you your""",
    )
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Scores:
    dense: float  # mean NDCG@10, 0 to 100
    lexical: float
    fused: float
    queries: int


def evaluate(
    tools: ToolSet,
    queries: Sequence[TrainingQuery],
    embed_tools: Embed,
    embed_queries: Embed,
    *,
    share: float = SHARE,
) -> Scores:
    """Mean NDCG@10 of `queries` against the whole catalogue of `tools`."""
    at = {tool.id: number for number, tool in enumerate(tools.tools)}
    rows: list[tuple[float, float, float]] = []
    for query, cosine, words in _both(tools, queries, embed_tools, embed_queries):
        gold = {at[id_] for id_ in query.gold}
        fused = _fused(cosine, words, share)
        rows.append((ndcg(cosine, gold), ndcg(words, gold), ndcg(fused, gold)))
    dense, worded, both = (100 * sum(column) / len(rows) for column in zip(*rows, strict=True))
    return Scores(dense, worded, both, len(rows))


def fused_scores(
    tools: ToolSet,
    queries: Sequence[TrainingQuery],
    embed_tools: Embed,
    embed_queries: Embed,
    *,
    share: float = SHARE,
) -> Vectors:
    """Scores of meaning and words together, of shape (queries, tools)."""
    both = _both(tools, queries, embed_tools, embed_queries)
    scores = [_fused(cosine, words, share) for _, cosine, words in both]
    return np.array(scores, np.float32).reshape(len(queries), len(tools.tools))


def _both(
    tools: ToolSet, queries: Sequence[TrainingQuery], embed_tools: Embed, embed_queries: Embed
) -> Iterator[tuple[TrainingQuery, Vectors, NDArray[np.float64]]]:
    """Each query with its scores by meaning and by words, each of shape (tools,)."""
    lexical = Lexical(tools.tools)
    vectors = embed_tools([tool_text(tool) for tool in tools.tools])
    cosines = dense_scores(vectors, queries, embed_queries)
    for query, cosine in zip(queries, cosines, strict=True):
        yield query, cosine, lexical.scores(query.text)


def _fused(cosine: Vectors, words: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    return share * cosine + (1 - share) * words / _full(words)


def _full(words: NDArray[np.float64]) -> float:
    """The BM25 that counts as all of the words."""
    return max(float(words.max()), WORDS * math.log(1 + len(words)))


def dense_scores(tools: Vectors, queries: Sequence[TrainingQuery], embed: Embed) -> Vectors:
    """Scores of shape (queries, tools)."""
    asked = [query_text(query.text) for query in queries]
    parts = [sentences(text) or [text] for text in asked]
    vectors = embed([part for group in parts for part in group])
    scores = np.empty((len(queries), len(tools)), np.float32)
    start = 0
    for row, group in zip(scores, parts, strict=True):
        sentence_vectors = vectors[start : start + len(group)]
        start += len(group)
        query_vector = np.array([len(part) for part in group], np.float32) @ sentence_vectors
        row[:] = WHOLE * (tools @ (query_vector / np.linalg.norm(query_vector)))
        row += (1 - WHOLE) * (tools @ sentence_vectors.T).max(1)
    return scores


def ndcg(scores: NDArray[np.floating], gold: set[int], depth: int = 10) -> float:
    best = np.argpartition(-scores, min(depth, len(scores) - 1))[:depth]
    best = best[np.argsort(-scores[best], kind="stable")]
    gained = sum(1 / math.log2(rank + 2) for rank, id_ in enumerate(best) if id_ in gold)
    return gained / sum(1 / math.log2(rank + 2) for rank in range(min(depth, len(gold))))


_stemmer = snowballstemmer.stemmer("english")


@cache
def _word_terms(word: str) -> list[str]:
    split = identifier_words(word).split()
    return [_stemmer.stemWord(part) for part in split if part not in STOP_WORDS]


def terms(text: str) -> list[str]:
    return [term for word in _WORD.findall(text) for term in _word_terms(word)]


class Lexical:
    """BM25F over one catalogue."""

    def __init__(self, tools: Sequence[TrainingTool]) -> None:
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        lengths = np.zeros(len(tools))
        for number, tool in enumerate(tools):
            weights = _weighted_terms(tool)
            lengths[number] = sum(weights.values())
            for term, weight in weights.items():
                postings[term].append((number, weight))
        norm = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        self.count = len(tools)
        self._impacts = {term: _impacts(rows, norm) for term, rows in postings.items()}

    def scores(self, query: str) -> NDArray[np.float64]:
        total = np.zeros(self.count)
        for term in set(terms(query)):
            if term in self._impacts:
                numbers, impacts = self._impacts[term]
                total[numbers] += impacts
        return total


def _weighted_terms(tool: TrainingTool) -> Counter[str]:
    fields = (
        (2.0, tool.name),
        (1.5, tool.description),
        (1.0, " ".join((tool.source, *tool.tags))),
        (0.6, " ".join(tool.parameters)),
        (0.4, " ".join(tool.parameter_texts)),
    )
    weights: Counter[str] = Counter()
    for weight, text in fields:
        for term in terms(text):
            weights[term] += weight  # type: ignore[assignment]
    return weights


def _impacts(
    rows: list[tuple[int, float]], norm: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    numbers = np.array([number for number, _ in rows])
    weights = np.array([weight for _, weight in rows])
    rarity = math.log(1 + (len(norm) - len(rows) + 0.5) / (len(rows) + 0.5))
    return numbers, rarity * weights * (K1 + 1) / (weights + norm[numbers])
