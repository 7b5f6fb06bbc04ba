"""Selection and weights of the query words to look up. Pure.

BM25F (Robertson and Zaragoza 2009, 3.6), over the word tables of 0008_search.sql. One query sums at
most `search.postings_limit` of their rows to propose documents: rare words come first, because they
decide. Documents proposed by words or by meaning are then scored by all words (after MaxScore:
Turtle and Flood 1995).
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

K1 = 1.2
B = 0.6
WORDS = 64  # distinct words of a query, the rarest first

_WORD = re.compile(r"[^\W_]+\Z")


@dataclass(frozen=True, slots=True)
class Word:
    term: str
    docs: int  # document frequency


@dataclass(frozen=True, slots=True)
class WordPlan:
    """Plan of a lexical search: `scanned` words propose documents; with `rest` they score the
    proposed ones."""

    scanned: tuple[Word, ...] = ()
    rest: tuple[Word, ...] = ()
    docs: int = 0  # in the searched corpus
    average: float = 1.0  # average length of a document

    @property
    def all(self) -> tuple[Word, ...]:
        return self.scanned + self.rest


def plan(words: Iterable[Word], docs: int, length: float, postings_limit: int) -> WordPlan:
    """Plan the words of a query. `docs` and `length`: number of documents, and their total
    length."""
    rising = sorted(
        (word for word in words if word.docs > 0), key=lambda word: (word.docs, word.term)
    )
    rising = rising[:WORDS]
    scanned, budget = 0, postings_limit
    while scanned < len(rising) and (scanned == 0 or rising[scanned].docs <= budget):
        budget -= rising[scanned].docs
        scanned += 1
    average = length / docs if docs > 0 and length > 0 else 1.0
    return WordPlan(tuple(rising[:scanned]), tuple(rising[scanned:]), docs, average)


def idfs(words: Sequence[Word], docs: int) -> list[float]:
    """Inverse document frequencies: high where few of `docs` documents have the word, always above
    0."""
    return [math.log(1 + max(docs - word.docs + 0.5, 0.5) / (word.docs + 0.5)) for word in words]


def last_word(text: str) -> str:
    """The last word, possibly half typed, if the query ends in it. Empty: there is none."""
    match = _WORD.search(text)
    return match[0].lower() if match else ""
