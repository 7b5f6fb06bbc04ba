"""Passages that answer a question together, and their best sentences, without a model. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.wings.document_library import Lines, Passage
from gateway.wings.librarian.citations import Citation, VerifiedClaim, terms_of

RELEVANCE = 0.7  # share of relevance against novelty
PER_FILE = 0.5  # share of one file in a selection
SENTENCES = 6  # of an extractive answer
LONGEST = 400  # characters of a sentence
LEAST = 12
_END = re.compile(r"(?<=[.!?])\s+(?=\S)|\n")
_BLANK = re.compile(r"[\s#*>|=_`+-]*")


def diverse(question: str, hits: Sequence[Passage], limit: int) -> list[Passage]:
    """At most `limit` hits by maximal marginal relevance, in the order of their scores: each says
    something that those before it do not, and no file takes more than half of the places while
    others have something."""
    if len(hits) <= limit:
        return list(hits)
    terms = frozenset(terms_of(question))
    words = [frozenset(terms_of(f"{hit.header} {hit.text}")) for hit in hits]
    top = max((hit.score for hit in hits), default=0.0) or 1.0
    per_file = max(math.ceil(limit * PER_FILE), 1)
    left = dict.fromkeys(range(len(hits)), 0.0)  # how near each is to what was chosen
    files: Counter[tuple[str, str]] = Counter()
    missing = terms

    def gain(place: int) -> tuple[bool, float, int]:
        fresh = len(missing & words[place]) / (len(terms) or 1)
        score = RELEVANCE * hits[place].score / top + (1 - RELEVANCE) * (fresh - left[place])
        return files[hits[place].collection, hits[place].path] < per_file, score, -place

    chosen: list[int] = []
    while len(chosen) < limit:
        best = max(left, key=gain)
        chosen.append(best)
        del left[best]
        files[hits[best].collection, hits[best].path] += 1
        missing -= words[best]
        for place, near in left.items():
            left[place] = max(near, _likeness(words[place], words[best]))
    return [
        hits[position] for position in sorted(chosen, key=lambda place: (-hits[place].score, place))
    ]


def by_file(hits: Sequence[Passage], limit: int) -> list[Passage]:
    """The best passage of each file, the best files first: the score of a file is that of its best
    passage, half of that of the next one, and so on."""
    files: dict[tuple[str, str], list[Passage]] = {}
    for hit_ in sorted(hits, key=lambda hit: -hit.score):
        files.setdefault((hit_.collection, hit_.path), []).append(hit_)
    ranked = (
        replace(first, score=sum(hit.score / 2**place for place, hit in enumerate([first, *more])))
        for first, *more in files.values()
    )
    return sorted(ranked, key=lambda one: (-one.score, one.collection, one.path))[:limit]


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / (len(one | other) or 1)


@dataclass(frozen=True, slots=True)
class _Sentence:
    passage: Passage
    text: str
    lines: Lines
    score: float


def extract_claims(question: str, hits: Sequence[Passage]) -> list[VerifiedClaim]:
    """The sentences of passages that have most of the terms of a question, each with its place."""
    terms = set(terms_of(question))
    texts = [set(terms_of(term.text)) for term in hits]
    rare = {term: math.log(1 + len(hits) / (1 + sum(term in t for t in texts))) for term in terms}
    top = max((hit.score for hit in hits), default=0.0) or 1.0
    sentences_ = [
        _Sentence(hit, text, lines, sum(rare[t] for t in own) * (0.5 + hit.score / top))
        for hit in hits
        for text, lines in sentences(hit)
        if (own := terms & set(terms_of(f"{hit.symbol} {text}")))
    ]
    sentences_.sort(key=lambda one: (-one.score, one.passage.path, one.lines))
    return [_claim(sentence) for sentence in _distinct(sentences_)] or [
        _first(sentence) for sentence in hits[:1]
    ]


def _distinct(found: Sequence[_Sentence]) -> Iterator[_Sentence]:
    keys: set[str] = set()
    for sentence in found:
        key = " ".join(sentence.text.lower().split())
        if key not in keys and len(keys) < SENTENCES:
            keys.add(key)
            yield sentence


def _claim(one: _Sentence) -> VerifiedClaim:
    hit = one.passage
    cited = Citation(hit.collection, hit.path, hit.version, one.lines, one.text)
    return VerifiedClaim(one.text, (cited,))


def _first(hit: Passage) -> VerifiedClaim:
    """The beginning of a passage: meaning found it, no word of the question stands in it."""
    text, lines = next(sentences(hit), (hit.text[:LONGEST], hit.lines))
    return _claim(_Sentence(hit, text, lines, 0.0))


def sentences(hit: Passage) -> Iterator[tuple[str, Lines]]:
    """Sentences, or lines of code, with their lines in the document."""
    at, line = 0, hit.lines[0]
    for end in [*(end for end in _END.finditer(hit.text)), None]:
        stop = len(hit.text) if end is None else end.start()
        text = hit.text[at:stop]
        begin = line + text[: len(text) - len(text.lstrip())].count("\n")
        shown = " ".join(text.split())
        if len(shown) >= LEAST and not _BLANK.fullmatch(shown):
            yield shown[:LONGEST], (begin, begin + text.strip().count("\n"))
        if end is not None:
            line += hit.text.count("\n", at, end.end())
            at = end.end()
