"""Ranking of memories: evidence of words and meaning first, bounded priors after. Pure.

    relevance = share * cosine + (1 - share) * bm25 / max(best bm25, 4 ln(1 + N))
    turns     + 0.2 * (the turns before and after) + 0.4 * mean of the best three of their session
              with 0.5 of the turn before if that asks, for a reply seldom repeats its question;
              - 0.06 of a turn that asks itself
    speaker   + 0.12 where the query names who said it, and not everybody
    dates     - 0.1 where the query names another time
              + 0.1 where the query asks for a time and the text names one
    score     = relevance * (0.85 + 0.15 importance) * (0.9 + 0.1 recency) * uses * trust

Recency as a bare factor would cost 33 of 53 points on LoCoMo; so no prior moves a score by more
than its share.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from config.memory import MemoryRanking
from gateway.wings.memory.memory_rows import SCOPES, Scope, normalise
from gateway.wings.memory.named_dates import is_of_another_time, named_dates
from gateway.wings.memory.text_similarity import UNSPACED
from registry.search.fusion import enough, relevance_of

BEST_TURNS = 3
MANY_USES = 20
DIGITS = 9  # of scores
LEAST_CONFIDENCE = 0.8  # factor of what is not certain at all
_NAME = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_CONTRACTION = re.compile(r"['\u2019]\w{1,2}\b")  # "Bob's" names no "S. Miller"
_NO_NAMES = frozenset(("will", "may", "the", "of", "a", "i"))  # as written: "Will" is a name


class RecalledMemory(NamedTuple):
    """A memory that words or meaning proposed."""

    id: str
    scope: Scope
    session: str | None  # of a turn
    position: int | None  # of a turn, among those of its owner
    importance: float
    confidence: float
    pinned: bool
    trust: str
    age_s: float  # by the clock of the database
    created: datetime
    valid_from: datetime
    uses: int
    bm25: float  # 0: it has no word of the query
    cosine: float | None  # None: it has no vector, or vectors were not compared
    speaker: str | None = None
    asks: bool = False  # of a turn: whether it ends with a question
    timed: bool = False  # whether it names a time, and the query asks for one


class ScoredMemory(NamedTuple):
    """A candidate with its score and what that is made of."""

    candidate: RecalledMemory
    score: float
    prior: float
    relevance: float = 0.0
    turns: float = 0.0
    speaker: float = 0.0
    date: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """Parts of the score, as answers explain it."""
        candidate = self.candidate
        return {
            "words": candidate.bm25, "meaning": candidate.cosine or 0.0,
            "relevance": self.relevance,
            "turns": self.turns, "speaker": self.speaker, "date": self.date, "prior": self.prior,
        }  # fmt: skip


def rank(
    candidates: Sequence[RecalledMemory],
    query: str,
    *,
    share: float,
    docs: int,
    settings: MemoryRanking,
) -> list[ScoredMemory]:
    """The candidates, best first, pinned ones before all. `docs`: number of memories searched."""
    relevance = _relevance(candidates, share, docs)
    bonus = _turns(candidates, relevance, settings)
    dates, speakers = named_dates(query), named_speakers(query, candidates)
    prior = priors(settings)
    scored = []
    for candidate in candidates:
        late = bool(dates) and is_of_another_time(dates, (candidate.valid_from, candidate.created))
        parts = (
            relevance[candidate.id],
            bonus.get(candidate.id, 0.0),
            settings.speakers * (candidate.speaker in speakers),
            settings.times * candidate.timed - settings.dates * late,
        )
        factor = prior(candidate)
        scored.append(ScoredMemory(candidate, round(sum(parts) * factor, DIGITS), factor, *parts))
    return sorted(scored, key=_order)


def named_speakers(query: str, candidates: Iterable[RecalledMemory]) -> frozenset[str]:
    """The speakers whom the query names. A word of one name alone counts first ("Ann" of "Ann
    Smith" and "Bob Smith"), else one that several share. Empty where the query names all."""
    speakers = {candidate.speaker for candidate in candidates if candidate.speaker}
    text, query_words = normalise(query), _name_words(query)
    names = {speaker: _name_words(speaker) for speaker in speakers}
    shared_words = {
        name: [word for word in name if word in query_words or _is_part(word, text)]
        for name in set(names.values())
    }
    counts = Counter(word for words in shared_words.values() for word in words)
    own = {name for name, words in shared_words.items() if any(counts[word] == 1 for word in words)}
    named = own or {name for name, words in shared_words.items() if words}
    named_speakers = {speaker for speaker, name in names.items() if name in named}
    return frozenset() if named_speakers == speakers else frozenset(named_speakers)


def _name_words(text: str) -> frozenset[str]:
    """The words of a name or a query in lower case, without words that are no names."""
    words = _NAME.findall(_CONTRACTION.sub("", unicodedata.normalize("NFKC", text)))
    return frozenset(word.casefold() for word in words if word not in _NO_NAMES)


def _is_part(word: str, text: str) -> bool:
    """Whether a text has a word of a script without spaces."""
    return _UNSPACED.match(word) is not None and word in text


def rank_without_query(
    candidates: Sequence[RecalledMemory], settings: MemoryRanking
) -> list[ScoredMemory]:
    """Without a query: by importance and recency."""
    prior, recency = priors(settings), recencies(settings)
    scored = [
        ScoredMemory(
            candidate, round(candidate.importance * recency(candidate), DIGITS), prior(candidate)
        )
        for candidate in candidates
    ]
    return sorted(scored, key=_order)


Factor = Callable[[RecalledMemory], float]


def priors(settings: MemoryRanking) -> Factor:
    """The factor of what is known of a memory beside its text."""
    weight, recent, uses = settings.importance, settings.recency, settings.uses
    recency, many = recencies(settings), math.log(MANY_USES)
    trusts = {
        "agent": settings.trust_agent, "tool": settings.trust_tool,
        "inferred": settings.trust_inferred,
    }  # fmt: skip

    def prior(memory: RecalledMemory) -> float:
        important = 1 - weight + weight * memory.importance
        newness = 1 - recent + recent * recency(memory)
        used = 1 + uses * min(1.0, math.log1p(memory.uses) / many)
        certain = LEAST_CONFIDENCE + (1 - LEAST_CONFIDENCE) * memory.confidence
        return important * newness * used * trusts.get(memory.trust, 1.0) * certain

    return prior


def recencies(settings: MemoryRanking) -> Factor:
    half_lives = {scope: float(getattr(settings, f"half_life_{scope}_s")) for scope in SCOPES}

    def recency(memory: RecalledMemory) -> float:
        half_life_s = half_lives[memory.scope]
        return 1.0 if not half_life_s else 0.5 ** (max(memory.age_s, 0.0) / half_life_s)

    return recency


def _relevance(candidates: Sequence[RecalledMemory], share: float, docs: int) -> dict[str, float]:
    relevance = relevance_of(candidates, share, enough(docs) if share else 0.0)
    return {candidate.id: relevance(candidate) for candidate in candidates}


def _turns(
    candidates: Sequence[RecalledMemory], relevance: Mapping[str, float], settings: MemoryRanking
) -> dict[str, float]:
    """Additions to a turn's relevance by its neighbours and by the best turn of its session."""
    sessions: defaultdict[tuple[Scope, str], dict[int, RecalledMemory]] = defaultdict(dict)
    for candidate in candidates:
        if candidate.position is not None:
            sessions[candidate.scope, candidate.session or ""][candidate.position] = candidate
    additions: dict[str, float] = {}
    for turns in sessions.values():
        beside = dict.fromkeys(turns, 0.0)
        for place, turn in turns.items():
            if place + 1 in turns:
                share = settings.replies if turn.asks else settings.neighbours
                beside[place + 1] += share * relevance[turn.id]
            if place - 1 in turns:
                beside[place - 1] += settings.neighbours * relevance[turn.id]
        scores = (relevance[turn.id] + beside[place] for place, turn in turns.items())
        best = sorted(scores, reverse=True)[:BEST_TURNS]
        session_addition = settings.session * sum(best) / BEST_TURNS
        for place, turn in turns.items():
            additions[turn.id] = beside[place] + session_addition - settings.questions * turn.asks
    return additions


def _order(memory: ScoredMemory) -> tuple[bool, float, float, str]:
    """Pinned ones, then by score, then the newest."""
    candidate = memory.candidate
    return not candidate.pinned, -memory.score, -candidate.created.timestamp(), candidate.id
