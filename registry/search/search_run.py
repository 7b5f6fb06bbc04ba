"""One search, in two steps.

`prepare` needs no vectors, so it runs concurrently with the encoding of the query: word
frequencies, the path of the vector search, and proposals by words. `finish` adds proposals by
meaning, scores all by both, and reads the displayed fields of the best. Between statements run pure
functions: `lexical.plan` and `fusion.ranked`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import TupleRow

from config.settings import SearchSettings as Settings
from registry.database.sql_fragments import Fragment
from registry.embedding.search_kinds import TOOL
from registry.search import statements
from registry.search.calibration import POOR, fit
from registry.search.filters import DocumentCounts, narrowing, partitions
from registry.search.fusion import Candidate, Hit, RankedCandidate, covering, enough, rank
from registry.search.indexes import predicate, suffix
from registry.search.languages import language_note, most_meaning
from registry.search.query import Path, SearchQuery, SearchResult
from registry.search.query_encoding import EncodedQuery
from registry.search.spelling import ENOUGH, UnknownWord, meaning_left, replacements, unknown_words
from registry.search.statements import Shape
from registry.search.transaction import (
    LOOKUPS,
    NARROWED_SCANS,
    SCANS,
    HalfVector,
    Planner,
    Transaction,
)
from registry.search.word_selection import Word, WordPlan, idfs, last_word, plan

ENDS = " .!?\u3002\uff01\uff1f\u061f"  # of a sentence
NO_VECTORS = "no vectors: nothing can be found by meaning"
NEAR_READ = 5000  # words with the first letter of an unknown one that are read at most
MISSING_LIMIT = 1000  # maximum counted
SENTENCE_EF = 40  # minimum of index candidates for one sentence
USUAL = 100_000  # size of a vector index that `search.hnsw_ef` is meant for
EF_LIMIT = 1000  # maximum of hnsw.ef_search (pgvector)


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """Prepared part: facts of one partition of the index that need no vectors of the query."""

    part_id: int
    plan: WordPlan
    path: Path  # of the vector search, if there will be one
    missing: int  # texts without a vector yet; see MISSING_LIMIT
    proposed: list[int]  # numbers of documents
    replaced: float = 0.0  # share of the words of the query that others stand in for


class SearchRun:
    def __init__(
        self,
        settings: Settings,
        counts: DocumentCounts,
        query: SearchQuery,
        *,
        text: str,
        model: str | None,
        english: str = "",
    ) -> None:
        """A run for `text`, the cleaned query, and its words in English, if it is in another
        language; `model` is the one whose vectors are searched."""
        self._settings = settings
        self._counts = counts
        self._query = query
        self._text = text
        self._english = english
        self._model = model
        self._narrowed, narrow = narrowing(query.filters, query.kind)
        self._reach = max(settings.candidates, query.limit)
        self._values: dict[str, Any] = {
            **narrow,
            "host": query.filters.host_id,
            "owners": partitions(query.filters, query.kind),
            "kind": query.kind.name,
            "model": model or "",
            "reach": self._reach,
        }

    @property
    def whole(self) -> str:
        """The query as it is searched: its words in English are a sentence of their own, so that
        tools in either language are found."""
        return f"{self._text.rstrip(ENDS)}.\n{self._english}" if self._english else self._text

    async def prepare(self, transaction: Transaction) -> list[PreparedPart]:
        """Prepare the partitions to search; none: there have never been documents."""
        values = {
            "text": self.whole,
            "begun": last_word(self._text) if self._query.prefix else "",
            "index": suffix(self._model or ""),
            "missing": MISSING_LIMIT,
        }
        rows = await transaction.rows(LOOKUPS, statements.FACTS, self._values | values)
        parts: defaultdict[int, list[TupleRow]] = defaultdict(list)
        for row in rows:
            parts[row[0]].append(row)
        return [await self._prepare_part(transaction, part) for part in parts.values()]

    async def _prepare_part(
        self, transaction: Transaction, rows: Sequence[TupleRow]
    ) -> PreparedPart:
        part_id, _, docs, length, indexed, missing = next(row for row in rows if row[1] == "")
        planned, replaced = WordPlan(docs=docs), 0.0
        if not self._dense:
            words = [Word(term, count) for _, term, count, *_ in rows if term]
            words, replaced = await self._replace_unknown(transaction, part_id, words)
            planned = plan(words, docs, length, self._postings_limit)
        return PreparedPart(
            part_id,
            planned,
            await self._path(transaction, part_id, docs, indexed),
            missing if self._model else 0,
            await self._propose(transaction, part_id, planned),
            replaced,
        )

    async def _replace_unknown(
        self, transaction: Transaction, part_id: int, words: Sequence[Word]
    ) -> tuple[list[Word], float]:
        """The known words, with those that stand in for others; and the share of the words of the
        query that are replaced. Kinds with owners, whose texts are prose, keep their words."""
        known_words = {word.term: word for word in words if word.docs > 0}
        if self._query.kind.owned or len(known_words) == len(words) or len(words) > ENOUGH:
            return list(known_words.values()), 0.0
        unknown = unknown_words(self._text, [word.term for word in words if word.docs <= 0])
        if not unknown:
            return list(known_words.values()), 0.0
        near, pieces = await self._read_spellings(transaction, part_id, unknown)
        replaced = [replacements(word, near[word.text], pieces) for word in unknown]
        merged = {word.term: word for stand_ins in replaced for word in stand_ins} | known_words
        return list(merged.values()), sum(map(bool, replaced)) / len(words)

    async def _read_spellings(
        self, transaction: Transaction, part_id: int, unknown: Sequence[UnknownWord]
    ) -> tuple[dict[str, list[Word]], dict[str, Word]]:
        """Known words near to each of these, by its text; and the known ones of their pieces."""
        values = {
            "part": part_id,
            "words": [word.text for word in unknown],
            "pieces": list({piece for word in unknown for piece in word.pieces}),
            "read": NEAR_READ,
        }
        rows = await transaction.rows(LOOKUPS, statements.SPELLINGS, values)
        *listed, (_, texts, terms, docs) = [
            (text, texts, terms or (), docs or ()) for text, texts, terms, docs in rows
        ]
        near = {text: list(map(Word, *columns)) for text, _, *columns in listed}
        return near, dict(zip(texts or (), map(Word, terms, docs), strict=True))

    async def finish(
        self,
        transaction: Transaction,
        parts: Sequence[PreparedPart],
        encoded_query: EncodedQuery,
    ) -> SearchResult:
        candidates: list[Candidate] = []
        for part in parts:
            candidates += await self._candidates(transaction, part, encoded_query)
        worded = encoded_query.vectors is None
        replaced = max(part.replaced for part in parts)
        share = 0.0 if worded else self._share * meaning_left(replaced)
        least = 0.0 if worded else enough(sum(part.plan.docs for part in parts))
        best = covering(rank(candidates, share, len(candidates), least), self._query.limit)
        note = self.note(encoded_query, max(part.missing for part in parts))
        path: Path = "lexical" if worded else parts[0].path
        fits = None if note or self._query.mode != "hybrid" else self._fit(candidates, parts)
        poor = fits is not None and fits < self._settings.min_fit
        warning = POOR.format(fits) if poor else None
        if not worded and self._query.mode == "hybrid":
            bm25 = max((candidate.bm25 for candidate in candidates), default=0.0)
            docs = sum(part.plan.docs for part in parts)
            warning = language_note(self._text, self._model, bm25=bm25, docs=docs) or warning
        return SearchResult(await self._hits(transaction, best), note, warning, fits, path)

    def _fit(self, candidates: Sequence[Candidate], parts: Sequence[PreparedPart]) -> float | None:
        """Filters may leave fewer tools than there are: then it is that of as many as were
        compared, which is rather too high."""
        if self._query.kind is not TOOL or not candidates:
            return None
        docs = sum(part.plan.docs for part in parts)
        return fit(
            candidates, len(candidates) if self._narrowed is not None else docs, self._model or ""
        )

    def note(self, encoded_query: EncodedQuery, missing: int = 0) -> str | None:
        """The parts that could not be searched, if any."""
        if encoded_query.why:
            by_words = f"searched by words only: {encoded_query.why}"
            return f"{NO_VECTORS}. {encoded_query.why}" if self._dense else by_words
        return _waiting(missing, self._query.kind.name, self._dense)

    @property
    def _dense(self) -> bool:
        return self._query.mode == "dense"

    @property
    def _share(self) -> float:
        if self._dense:
            return 1.0
        share = self._query.kind.semantic_share
        if share is None:
            share = min(self._settings.semantic_share, most_meaning(self._text, self._model))
        return share

    @property
    def _postings_limit(self) -> int:
        """Limit of postings to read. Half suffice where meaning proposes as well: of 100,000 tools,
        98% of the best five either way; by words alone, of 10,000 entries 98%, of 5,000 90%."""
        limit = self._settings.postings_limit
        return limit // 2 if self._model else limit

    @property
    def _scans(self) -> Planner:
        return NARROWED_SCANS if self._narrowed is not None or self._query.kind.owned else SCANS

    async def _path(self, transaction: Transaction, part_id: int, docs: int, indexed: bool) -> Path:
        """Exact search where few enough vectors are to be compared; it has better recall and is
        faster there."""
        if self._model is None:
            return "lexical"
        limit = self._settings.exact_limit
        if docs <= limit or not indexed:
            return "exact"
        if self._narrowed is None:
            return "hnsw"
        counted = await self._count(transaction, part_id, self._narrowed, limit + 1)
        return "exact" if counted <= limit else "hnsw"

    async def _count(
        self, transaction: Transaction, part_id: int, condition: Fragment, limit: int
    ) -> int:
        key = (part_id, limit, self._query.filters.key)
        if (cached_count := self._counts.get(key)) is not None:
            return cached_count
        values = {**self._values, "part": part_id, "limit": limit}
        statement = statements.count(condition)
        ((count,),) = await transaction.rows(self._scans, statement, values)
        return self._counts.put(key, count)

    async def _propose(self, transaction: Transaction, part_id: int, words: WordPlan) -> list[int]:
        if not words.scanned:
            return []
        values = {
            **self._values,
            "part": part_id,
            "scanned": [word.term for word in words.scanned],
            "scanned_idfs": idfs(words.scanned, words.docs),
            "average": words.average,
        }
        rows = await transaction.rows(LOOKUPS, statements.proposals(self._narrowed), values)
        return [doc_id for (doc_id,) in rows]

    async def _candidates(
        self, transaction: Transaction, part: PreparedPart, encoded_query: EncodedQuery
    ) -> list[Candidate]:
        words, vectors = part.plan, encoded_query.vectors
        queries: Any = () if vectors is None else vectors  # of the whole, then of its sentences
        path: Path = "lexical" if vectors is None else part.path
        if path == "lexical" and not part.proposed:
            return []
        sentences = max(len(queries) - 1, 0)
        shape = Shape(
            self._narrowed,
            vectors=None if path == "lexical" else path,
            # an exact comparison computes each cosine of all documents
            sentences=statements.places(sentences) if path == "hnsw" else sentences,
            indexed=self._predicate if path == "hnsw" else None,
            usage=self._settings.feedback and vectors is not None,
        )
        share = max(self._reach // max(sentences, 1), 2 * self._query.limit)
        ef = effort(self._settings.hnsw_ef, words.docs, self._reach)
        planner = self._scans if path == "exact" else LOOKUPS
        values = {
            **self._values,
            "part": part.part_id,
            "proposed": part.proposed,
            "share": share,
            "ef": str(ef),
            "sentence_ef": str(min(max(share, SENTENCE_EF), ef)),
            "terms": [word.term for word in words.all],
            "idfs": idfs(words.all, words.docs),
            "average": words.average,
            "usage_share": self._settings.feedback_share,
            **dict.fromkeys(f"q{n}" for n in range(sentences + 1, shape.sentences + 1)),
            **{f"q{n}": HalfVector.of(row) for n, row in enumerate(queries)},
        }
        rows = await transaction.rows(planner, statements.candidates(shape), values)
        return [Candidate(*row) for row in rows]

    async def _hits(self, transaction: Transaction, best: Sequence[RankedCandidate]) -> list[Hit]:
        if not best or not self._query.details:
            return [_hit(ranked, None, "", "") for ranked in best]
        values = {**self._values, "ids": [ranked.candidate.id for ranked in best]}
        statement = statements.details(self._query.kind.name)
        columns_by_id = {
            id_: rest for id_, *rest in await transaction.rows(LOOKUPS, statement, values)
        }
        # the others were deleted a moment ago
        return [
            _hit(ranked, *columns_by_id[ranked.candidate.id])
            for ranked in best
            if ranked.candidate.id in columns_by_id
        ]

    @property
    def _predicate(self) -> Fragment:
        return predicate(self._query.filters.host_id, self._query.kind.name, self._model or "")


def effort(ef: int, docs: int, reach: int) -> int:
    """The hnsw.ef_search of an index of `docs` vectors, where `ef` suits one of USUAL.

    Recall falls with the size of the index: 400 in a million give as much as 200 in 300,000 and 100
    in 100,000 (`make bench-large`). `reach` are wanted of them.
    """
    return min(max(round(ef * math.pow(docs / USUAL, 0.6)), reach), EF_LIMIT)


def _hit(ranked: RankedCandidate, title: str | None, description: str, source: str) -> Hit:
    candidate = ranked.candidate
    return Hit(
        *(candidate.id, candidate.name, title, description, source),
        *(ranked.score, candidate.bm25, candidate.cosine, ranked.covered),
    )


def _waiting(missing: int, kind: str, dense: bool) -> str | None:
    if missing == 0:
        return None
    if missing == 1:
        how = "not found" if dense else "found by its words only"
        return f"1 {kind} has no vector yet and is {how}"
    many = "more than 999" if missing >= MISSING_LIMIT else str(missing)
    how = "not found" if dense else "found by their words only"
    return f"{many} {kind}s have no vector yet and are {how}"
