"""Passages that answer a question together, and their best sentences, without a model. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.wings.document_library import DATA_KINDS, PROSE_KINDS, Lines, Passage, RelatedFile
from gateway.wings.librarian.citations import Citation, VerifiedClaim, terms_of

RELEVANCE = 0.7  # share of relevance against novelty
PER_FILE = 0.5  # share of one file in a selection
SENTENCES = 6  # of an extractive answer
LONGEST = 400  # characters of a sentence
LEAST = 12
# Weights of hits beside those in sources. Of 100 files that answer a question about code, 79 are
# sources, 17 tests and 4 documents; without weights more of the first ten were tests and documents.
TESTS, DOCUMENTS = 0.75, 0.5
RELATING = 10  # best passages whose names raise the files that define or have them
RELATED_WEIGHT = 0.3  # of the score of such a passage
FURTHER = 0.4  # share of each further passage of a file in its score
SLOWER = 0.1  # by its rank
QUESTION = ""  # the chunk of names in the question itself
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)(?:test_|conftest\.)[^/]*\Z"
    r"|[._-](?:test|spec)\.[^./]+\Z"
)
_DOCUMENT = re.compile(r"(?:^|/)(?:docs?|examples?)/")
_USAGE = re.compile(
    r"\bhow (?:do|can|should) (?:i|we|you)\b|\bhow to\b|\b(?:docs|tutorials?|guides?|changelog)\b",
    re.IGNORECASE,
)
# `run`, load_settings, _close, loadSettings, HttpError or settings.load
_IDENTIFIER = re.compile(
    r"`(?P<quoted>[\w.:>()-]+)`|(?<![\w.])(?=\w*(?:_|[a-z][A-Z]|\w\.\w\w))[A-Za-z_][\w.]*\w"
)
IDENTIFIERS = 20  # of a question
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
    nearness = dict.fromkeys(range(len(hits)), 0.0)  # how near each is to what was chosen
    files: Counter[tuple[str, str]] = Counter()
    missing = terms

    def gain(place: int) -> tuple[bool, float, int]:
        fresh = len(missing & words[place]) / (len(terms) or 1)
        score = RELEVANCE * hits[place].score / top + (1 - RELEVANCE) * (fresh - nearness[place])
        return files[hits[place].collection, hits[place].path] < per_file, score, -place

    chosen: list[int] = []
    while len(chosen) < limit:
        best = max(nearness, key=gain)
        chosen.append(best)
        del nearness[best]
        files[hits[best].collection, hits[best].path] += 1
        missing -= words[best]
        for place, near in nearness.items():
            nearness[place] = max(near, _likeness(words[place], words[best]))
    return [
        hits[position] for position in sorted(chosen, key=lambda place: (-hits[place].score, place))
    ]


def prefer_sources(question: str, hits: Sequence[Passage]) -> list[Passage]:
    """Hits in sources before those in tests and documents, which describe the same code: for
    questions about how it works, not how to use it. Hits in collections without code, such as the
    handbook of a company beside its repositories, keep their scores."""
    coded = {hit.collection for hit in hits if hit.kind not in DATA_KINDS}
    if not coded or _USAGE.search(question):
        return list(hits)
    weighted = [
        replace(hit, score=round(hit.score * _path_weight(hit.path, hit.kind), 9))
        if hit.collection in coded
        else hit
        for hit in hits
    ]
    return sorted(weighted, key=lambda hit: -hit.score)


def _path_weight(path: str, kind: str) -> float:
    if _TEST.search(path):
        return TESTS
    return DOCUMENTS if kind in PROSE_KINDS or _DOCUMENT.search(path) else 1.0


def identifiers(question: str) -> list[str]:
    """The last parts of the names of code in a question."""
    names = (match["quoted"] or match[0] for match in _IDENTIFIER.finditer(question))
    last_parts = (re.split(r"\.|::|->", name.removesuffix("()"))[-1] for name in names)
    return list(dict.fromkeys(filter(None, last_parts)))[:IDENTIFIERS]


def rank_files(
    hits: Sequence[Passage], limit: int, related_files: Sequence[RelatedFile] = ()
) -> list[tuple[str, float]]:
    """The best files, each as its best chunk and its score: that of its best passage, 0.4 of that
    of the next one, 0.16 of the third, and so on, and a part of that of each passage to which it is
    related, also of a file without a hit. The question itself counts as its best passage."""
    files: dict[tuple[str, str], str] = {}
    scores: dict[tuple[str, str], float] = {}
    counts: Counter[tuple[str, str]] = Counter()
    by_chunk: dict[str, tuple[int, Passage]] = {}
    for place, hit in enumerate(sorted(hits, key=lambda hit: -hit.score)):
        file = (hit.collection, hit.path)
        files.setdefault(file, hit.chunk)
        scores[file] = scores.get(file, 0.0) + hit.score * FURTHER ** counts[file]
        counts[file] += 1
        by_chunk.setdefault(QUESTION, (place, hit))
        by_chunk[hit.chunk] = (place, hit)
    for target in related_files:
        place, hit = by_chunk[target.chunk]
        file = (target.collection, target.path)
        weight = RELATED_WEIGHT * _path_weight(target.path, "code") * target.share
        files.setdefault(file, target.passage)
        scores[file] = scores.get(file, 0.0) + weight * hit.score / (1 + SLOWER * place)
    order = sorted(files, key=lambda file: (-scores[file], *file))[:limit]
    return [(files[file], scores[file]) for file in order]


def _likeness(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / (len(left | right) or 1)


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
        _Sentence(hit, text, lines, sum(rare[t] for t in sentence_terms) * (0.5 + hit.score / top))
        for hit in hits
        for text, lines in sentences(hit)
        if (sentence_terms := terms & set(terms_of(f"{hit.symbol} {text}")))
    ]
    sentences_.sort(key=lambda sentence: (-sentence.score, sentence.passage.path, sentence.lines))
    return [_claim(sentence) for sentence in _distinct(sentences_)] or [
        _first(sentence) for sentence in hits[:1]
    ]


def _distinct(sentences: Sequence[_Sentence]) -> Iterator[_Sentence]:
    keys: set[str] = set()
    for sentence in sentences:
        key = " ".join(sentence.text.lower().split())
        if key not in keys and len(keys) < SENTENCES:
            keys.add(key)
            yield sentence


def _claim(sentence: _Sentence) -> VerifiedClaim:
    hit = sentence.passage
    cited = Citation(hit.collection, hit.path, hit.version, sentence.lines, sentence.text)
    return VerifiedClaim(sentence.text, (cited,))


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
        sentence = " ".join(text.split())
        if len(sentence) >= LEAST and not _BLANK.fullmatch(sentence):
            yield sentence[:LONGEST], (begin, begin + text.strip().count("\n"))
        if end is not None:
            line += hit.text.count("\n", at, end.end())
            at = end.end()
