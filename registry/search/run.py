"""One search, in three statements.

The first says how frequent the words of the query are and what there is to search; the second finds
candidates and scores them by words and by meaning; the third reads what is shown of the best.
Between them stand pure functions: `lexical.plan` and `fusion.ranked`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from config.settings import Search as Settings
from registry.search import statements
from registry.search.encoding import Encoded
from registry.search.filters import narrowing
from registry.search.fusion import Candidate, Hit, Ranked, enough, ranked
from registry.search.indexes import predicate, suffix
from registry.search.lexical import Plan, Word, idfs, last_word, plan
from registry.search.query import Found, Path, Query
from registry.search.statements import Shape
from registry.search.vectors import Vector

COUNTS_S = 60.0  # for which a count is believed
COUNTS = 256
MISSING_MOST = 1000  # that are counted


class Counts:
    """How many documents filters let through, of tenants that are too large to count each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[object, ...], tuple[float, int]] = {}

    def get(self, key: tuple[object, ...]) -> int | None:
        moment, count = self._known.get(key, (float("-inf"), 0))
        return count if self._clock() - moment < COUNTS_S else None

    def put(self, key: tuple[object, ...], count: int) -> int:
        if len(self._known) >= COUNTS:
            self._known.clear()
        self._known[key] = (self._clock(), count)
        return count


@dataclass(frozen=True, slots=True)
class _Facts:
    part_id: int
    plan: Plan
    indexed: bool  # there is an index on the vectors of this tenant and model
    missing: int  # texts that wait for their vectors; see MISSING_MOST


class Run:
    def __init__(
        self,
        settings: Settings,
        counts: Counts,
        query: Query,
        text: str,
        encoded: Encoded,
        cursor: AsyncCursor[TupleRow],
    ) -> None:
        """`text` is what is readable of the query, `encoded` its vectors."""
        self._settings = settings
        self._counts = counts
        self._query = query
        self._text = text
        self._encoded = encoded
        self._cursor = cursor
        self._narrowed, narrow = narrowing(query.filters)
        self._mode = "lexical" if encoded.vectors is None else query.mode
        self._values: dict[str, Any] = {
            **narrow,
            "host": query.filters.host_id,
            "kind": query.entity_type,
            "model": encoded.model or "",
        }

    async def found(self) -> Found:
        encoded = self._encoded
        facts = await self._facts()
        if facts is None:
            return Found(note=encoded.note, model=encoded.model, vector=_whole(encoded))
        path = await self._path(facts)
        candidates = await self._candidates(facts, path)
        least = 0.0 if path == "lexical" else enough(facts.plan.docs)
        best = ranked(candidates, self._share, self._query.limit, least)
        return Found(
            await self._hits(best),
            self._note(facts),
            path,
            model=encoded.model,
            vector=_whole(encoded),
        )

    @property
    def _share(self) -> float:
        return {"lexical": 0.0, "dense": 1.0}.get(self._mode, self._settings.semantic_share)

    @property
    def _postings_limit(self) -> int:
        """Where meaning proposes as well, half as many find the same: of 100,000 tools, 98% of the
        best five either way; by words alone, of 10,000 entries 98%, of 5,000 90%."""
        limit = self._settings.postings_limit
        return limit if self._mode == "lexical" else limit // 2

    async def _facts(self) -> _Facts | None:
        """None: there has never been anything to find."""
        values = {
            "text": self._text,
            "begun": last_word(self._text) if self._query.prefix else "",
            "index": suffix(self._encoded.model or ""),
            "missing": MISSING_MOST,
            "ef": str(min(max(self._settings.hnsw_ef, self._settings.candidates), 1000)),
        }
        await self._cursor.execute(statements.FACTS, self._values | values)
        rows = await self._cursor.fetchall()
        if not rows:
            return None
        all_ = next(row for row in rows if row[1] == "")
        words = [Word(term, docs) for _, term, docs, *_ in rows if term]
        return _Facts(
            all_[0],
            plan(words, all_[2], all_[3], self._postings_limit),
            all_[4],
            all_[5] if self._encoded.model else 0,
        )

    async def _path(self, facts: _Facts) -> Path:
        """Exactly, wherever few enough vectors are to be compared; that finds more, and sooner."""
        if self._mode == "lexical":
            return "lexical"
        limit = self._settings.exact_limit
        if facts.plan.docs <= limit or not facts.indexed:
            return "exact"
        if self._narrowed and await self._count(facts.part_id, limit + 1) <= limit:
            return "exact"
        return "hnsw"

    async def _count(self, part_id: int, most: int) -> int:
        key = (part_id, most, self._query.filters.key)
        if (known := self._counts.get(key)) is not None:
            return known
        values = self._values | {"part": part_id, "most": most}
        await self._cursor.execute(statements.count(self._narrowed), values)
        row = await self._cursor.fetchone()
        return self._counts.put(key, int(row[0]) if row else 0)

    async def _candidates(self, facts: _Facts, path: Path) -> list[Candidate]:
        words = facts.plan if self._mode != "dense" else Plan()
        if path == "lexical" and not words.scanned:
            return []
        vectors = self._encoded.vectors if path != "lexical" else None
        shape = Shape(
            self._narrowed,
            words=bool(words.scanned),
            vectors=None if path == "lexical" else path,
            sentences=0 if vectors is None else len(vectors) - 1,
            indexed=self._predicate if path == "hnsw" else "",
            usage=self._settings.feedback and vectors is not None,
        )
        reach = max(self._settings.candidates, self._query.limit)
        values = {
            "part": facts.part_id,
            "reach": reach,
            "share": max(reach // max(shape.sentences, 1), 2 * self._query.limit),
            "scanned": [one.term for one in words.scanned],
            "scanned_idfs": idfs(words.scanned, words.docs),
            "terms": [one.term for one in words.all],
            "idfs": idfs(words.all, words.docs),
            "average": words.average,
            "usage_share": self._settings.feedback_share,
        }
        vectors_given = {} if vectors is None else _numbered(vectors)
        if path == "exact":
            nestloop = "on" if self._narrowed else "off"  # few may be left
            await self._cursor.execute(statements.EXACT, {"nestloop": nestloop})
        await self._cursor.execute(
            statements.candidates(shape), self._values | values | vectors_given
        )
        return [Candidate(*row) for row in await self._cursor.fetchall()]

    async def _hits(self, best: Sequence[Ranked]) -> list[Hit]:
        if not best:
            return []
        await self._cursor.execute(
            statements.details(self._query.entity_type),
            self._values | {"ids": [one.candidate.id for one in best]},
        )
        shown = {id_: rest async for id_, *rest in self._cursor}
        # what is not among them was deleted a moment ago
        return [_hit(one, *shown[one.candidate.id]) for one in best if one.candidate.id in shown]

    def _note(self, facts: _Facts) -> str | None:
        if self._encoded.note:
            return self._encoded.note
        if facts.missing:
            return _waiting(facts.missing, self._query.entity_type)
        return None

    @property
    def _predicate(self) -> str:
        return predicate(
            self._query.filters.host_id, self._query.entity_type, self._encoded.model or ""
        )


def _hit(one: Ranked, title: str | None, description: str, source: str) -> Hit:
    found = one.candidate
    return Hit(
        found.id, found.name, title, description, source, one.score, found.bm25, found.cosine
    )


def _waiting(missing: int, kind: str) -> str:
    if missing == 1:
        return f"1 {kind} has no vector yet and is found by its words only"
    many = "more than 999" if missing >= MISSING_MOST else str(missing)
    return f"{many} {kind}s have no vector yet and are found by their words only"


def _whole(encoded: Encoded) -> Any:
    return None if encoded.vectors is None else encoded.vectors[0]


def _numbered(vectors: Any) -> dict[str, Vector]:
    return {f"q{n}": Vector.of(row) for n, row in enumerate(vectors)}
