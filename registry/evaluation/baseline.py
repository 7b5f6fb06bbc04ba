"""A conventional baseline to compare with: plain BM25 and vectors, rank fusion. Pure.

BM25 (Robertson and Zaragoza 2009; k1 1.5, b 0.75) over unprocessed name and description, words as
`\\w+` finds them, each word of a request once; the cosine of request and "name: description";
reciprocal rank fusion (Cormack, Clarke and Büttcher 2009, k 60) of the first 100 of both.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

K1, B = 1.5, 0.75
RRF_K, RRF_DEPTH = 60, 100
DEPTH = 10
_WORD = re.compile(r"\w+")

Floats = NDArray[np.float32]


def text(name: str, description: str) -> str:
    """The embedded text of a tool."""
    return f"{name}: {description}"


class Baseline:
    """Baseline search of a catalog."""

    def __init__(self, texts: Sequence[str], vectors: Floats | None) -> None:
        """`vectors`: unit length, one row for each text; None: words alone."""
        words = [_words(text) for text in texts]
        self._vectors = vectors
        self._size = len(words)
        self._postings = _postings(words)

    def search(self, query: str, vector: Floats | None) -> list[int]:
        """Indexes of the first DEPTH tools in the catalog, best first; ties in its order."""
        ranked = [self._by_words(query)]
        if vector is not None and self._vectors is not None:
            ranked.append(_first(self._vectors @ vector))
        fused: dict[int, float] = defaultdict(float)
        for places in ranked:
            for rank, place in enumerate(places, start=1):
                fused[place] += 1 / (RRF_K + rank)
        return sorted(fused, key=lambda place: (-fused[place], place))[:DEPTH]

    def _by_words(self, query: str) -> list[int]:
        sums = np.zeros(self._size)
        for word in sorted(set(_words(query))):
            if word in self._postings:
                places, weights = self._postings[word]
                sums[places] += weights
        return [place for place in _first(sums) if sums[place] > 0]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _first(values: NDArray[np.floating]) -> list[int]:
    return [int(place) for place in np.argsort(-values, kind="stable")[:RRF_DEPTH]]


def _postings(
    documents: Sequence[Sequence[str]],
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Postings by word: indexes of the documents that have it, and its BM25 contribution."""
    average = sum(map(len, documents)) / max(len(documents), 1)
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, words in enumerate(documents):
        for word, count in Counter(words).items():
            counts[word].append((place, count))
    postings = {}
    for word, pairs in counts.items():
        idf = math.log(1 + (len(documents) - len(pairs) + 0.5) / (len(pairs) + 0.5))
        weights = [
            idf * count * (K1 + 1) / (count + K1 * (1 - B + B * len(documents[place]) / average))
            for place, count in pairs
        ]
        postings[word] = (np.array([place for place, _ in pairs]), np.array(weights))
    return postings
