"""Searching memories by words and meaning, in one statement with all permissions inside.

The owners that a caller may read are each an index range: of their memories (`visible`), of their
words, and of their vectors. Frequencies of words are counted among what is visible, so that they
tell nothing of others. Where an owner has more than `memory.exact_limit` memories, not all are
compared: words, an index on the organisation's vectors, and recency propose.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import anyio
from psycopg import IsolationLevel, sql

from config.memory import MemorySettings
from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.memory_rows import COLUMNS, SCOPES, Memory, Scope, memory_of
from gateway.wings.memory.named_dates import TIME_WORDS, asks_for_time
from gateway.wings.memory.ranking import RecalledMemory, ScoredMemory, rank, rank_without_query
from gateway.wings.memory.search_conditions import EVERY, NOW, Condition, Times, visible
from gateway.wings.memory.text_similarity import group_similar, is_known, overlap, words
from registry.database.postgres import Pool
from registry.database.sql_fragments import Fragment, compose
from registry.embedding.search_kinds import SearchKind
from registry.embedding.texts import readable
from registry.embedding.vectors import half_vector
from registry.search.indexes import predicate
from registry.search.languages import words_note
from registry.search.query_encoding import EncodedQuery, QueryEncoder
from registry.search.search_run import effort
from registry.search.transaction import LOOKUPS, HalfVector, Transaction, transaction
from registry.search.word_selection import K1

KIND = SearchKind("memory", purpose="passages", owned=True)
KIND_ORG = SearchKind("memory_org", purpose="passages", owned=True)
KINDS = (KIND, KIND_ORG)
EF = 100  # hnsw.ef_search of an index of 100,000 vectors
COMMON = 5000  # postings that are read for proposals
QUERY = 2000  # characters of a query that are used
NEAR = 5  # memories that are named as similar
BEGINNING = 200  # characters of them
ENDING = 60  # characters of a turn in which a question mark makes it a question
QUESTION = r"\?(?!\w)|[\uff1f\u061f]"  # Chinese and Arabic ones, too, but no "?" of a URL
READ = 2000  # characters of a memory in which times are looked for
MEMORIES_DATED = 100  # memories, best first, in which times are looked for: 400 take 2 ms more
SIMILAR_S = 0.25  # time limit of the vector that finds them
LATE = "the embedding model is late"
UNKNOWN_SCRIPT = "the embedding model does not know the script of the query"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery:
    """Query of a search, and its caller."""

    reader: Reader
    query: str = ""  # empty: by importance and recency
    scopes: Sequence[Scope] = SCOPES
    condition: Condition = EVERY
    times: Times = NOW
    limit: int | None = None  # None: those of the scopes
    counts: bool = True  # as a use of what it finds
    folds: bool = True  # whether what says nearly the same is found once


@dataclass(frozen=True, slots=True)
class RecalledMemories:
    """Memories, best first. `note`: why some may be missing."""

    scored: Sequence[tuple[Memory, ScoredMemory]] = ()
    note: str | None = None
    duplicates: Mapping[str, Sequence[str]] = field(default_factory=dict)  # ids that are left out


@dataclass(slots=True)
class PendingUseCounts:
    """Uses that are not yet stored, by tenant and memory."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, tenant: str, ids: Iterable[str]) -> None:
        self.counts.update((tenant, id_) for id_ in ids)

    def take(self) -> Counter[tuple[str, str]]:
        counts, self.counts = self.counts, Counter()
        return counts


class Recaller:
    def __init__(
        self, pool: Pool, encoding: QueryEncoder, settings: MemorySettings, uses: PendingUseCounts
    ) -> None:
        self._pool = pool
        self._encoding = encoding
        self._settings = settings
        self._known = frozenset(script.upper() for script in settings.scripts)
        self._uses = uses
        self.outcomes: Counter[str] = Counter()  # of searches

    async def search(self, recall: MemoryQuery, *, wait_s: float = math.inf) -> RecalledMemories:
        """`wait_s`: how long to wait for the vector of the query at most."""
        text = readable(recall.query, QUERY).strip()
        encoded = EncodedQuery(why=LATE)
        with anyio.move_on_after(wait_s):
            encoded = await self._encode_query(text)
        # What is found is shown as it was: an update gives the text before it another id.
        snapshot = IsolationLevel.REPEATABLE_READ
        async with transaction(self._pool, Transaction, snapshot) as opened:
            candidates, docs = await self._candidates(opened, recall, text, encoded)
            share = 0.0 if encoded.vectors is None else self._settings.semantic_share
            ranking = self._settings.ranking
            if any(candidate.bm25 or candidate.cosine is not None for candidate in candidates):
                best = rank(candidates, text, share=share, docs=docs, settings=ranking)
            else:
                best = rank_without_query(candidates, ranking)
            rows = await self._load_rows(opened, recall, self._limit_scopes(best, recall.limit))
        memories, duplicates = self._fold_similar(rows) if recall.folds else (rows, {})
        if recall.counts and text:
            self._uses.add(recall.reader.tenant, [memory.id for memory, _ in memories])
        note = encoded.why and f"searched by words only: {encoded.why}"
        if note is None and encoded.vectors is not None:
            bm25 = max((candidate.bm25 for candidate in candidates), default=0.0)
            note = words_note(text, encoded.model, bm25=bm25, docs=docs)
        self.outcomes["nothing" if not memories else "words_only" if encoded.why else "found"] += 1
        return RecalledMemories(memories, note, duplicates)

    async def similar(
        self, reader: Reader, scope: Scope, id_: str, content: str
    ) -> list[tuple[str, str, float]]:
        """Id, beginning and nearness of other memories of an owner that are near to a new one; by
        words alone where the model is slow, for the memory is stored already."""
        recall = MemoryQuery(
            reader=reader, query=content, scopes=[scope], limit=NEAR + 1, counts=False, folds=False
        )
        result = await self.search(recall, wait_s=SIMILAR_S)
        return list(self._near(result, id_, content))[:NEAR]

    def _near(
        self, memories: RecalledMemories, id_: str, content: str
    ) -> Iterator[tuple[str, str, float]]:
        content_words, settings = words(content), self._settings.ranking
        for memory, scored in memories.scored:
            cosine = scored.candidate.cosine or 0.0
            shared = overlap(content_words, words(memory.content))
            if memory.id == id_ or memory.kind == "turn":
                continue
            if cosine >= settings.similar_cosine or shared >= settings.similar_words:
                yield memory.id, memory.content[:BEGINNING], round(max(cosine, shared), 3)

    def _fold_similar(
        self, rows: Sequence[tuple[Memory, ScoredMemory]]
    ) -> tuple[list[tuple[Memory, ScoredMemory]], dict[str, list[str]]]:
        """The first of those that say nearly the same, and the ids of the others. Turns are what
        was said, and stay."""
        least = self._settings.ranking.similar_words
        texts = ["" if memory.kind == "turn" else memory.content for memory, _ in rows]
        groups = group_similar(texts, least)
        ids = [[rows[place][0].id for place in group] for group in groups]
        return [rows[group[0]] for group in groups], {
            first: others for first, *others in ids if others
        }

    async def _encode_query(self, text: str) -> EncodedQuery:
        if not text or not self._settings.semantic_share:
            return EncodedQuery()
        embedder = self._encoding.ready(KIND.purpose).embedder
        if not is_known(text, self._known, "" if embedder is None else embedder.model):
            return EncodedQuery(why=UNKNOWN_SCRIPT)
        return await self._encoding.of(KIND.purpose, text)

    async def _candidates(
        self, transaction: Transaction, recall: MemoryQuery, text: str, encoded_query: EncodedQuery
    ) -> tuple[list[RecalledMemory], int]:
        """Candidates by words and meaning, and the number of memories searched."""
        values = self._values(recall)
        docs = await self._docs(transaction, values)
        model = encoded_query.model or ""
        reach = max(self._settings.candidates, recall.limit or 0)
        near = max(reach // 2, recall.limit or 0)
        of_org = docs > 0 and "org" in values["scopes"]
        kinds = {scope == "org" for scope in values["scopes"]}
        values |= {
            "text": text,
            "reach": reach,
            "share": self._settings.semantic_share,
            "model": model,
            "vector_kinds": [KIND_ORG.name if org else KIND.name for org in sorted(kinds)],
            "docs": docs,
            "exact": self._settings.exact_limit,
            "ef": str(effort(EF, docs, near)),
        }
        if encoded_query.whole is not None:
            values["vector"] = HalfVector.of(encoded_query.whole)
        shape = RecallShape(
            _allowed_condition(recall),
            vectors=encoded_query.whole is not None,
            listed=not text,
            large=docs > 0,
            indexed=predicate(recall.reader.tenant, KIND_ORG.name, model) if of_org else None,
            near=near,
            timed=self._settings.ranking.times > 0 and asks_for_time(text),
        )
        rows = await transaction.rows(LOOKUPS, statement(shape), values)
        if not rows and text:  # of stop words, or of none that is known
            shape = replace(shape, vectors=False, listed=True)
            rows = await transaction.rows(LOOKUPS, statement(shape), values)
        return [RecalledMemory(*row[1:]) for row in rows], rows[0][0] if rows else 0

    async def _docs(self, transaction: Transaction, values: Mapping[str, Any]) -> int:
        """The memories of these owners, where one of them has too many to compare all; else 0."""
        ((largest, docs),) = await transaction.rows(LOOKUPS, _SIZES, values)
        return docs if largest > self._settings.exact_limit else 0

    def _limit_scopes(self, best: Sequence[ScoredMemory], limit: int | None) -> list[ScoredMemory]:
        """The best of each scope, and of all together."""
        if limit is not None:
            return list(best[:limit])
        room = {scope: getattr(self._settings.results, scope) for scope in SCOPES}
        limited: list[ScoredMemory] = []
        for scored in best:
            if room[scored.candidate.scope]:
                room[scored.candidate.scope] -= 1
                limited.append(scored)
        return limited

    async def _load_rows(
        self, transaction: Transaction, recall: MemoryQuery, best: Sequence[ScoredMemory]
    ) -> list[tuple[Memory, ScoredMemory]]:
        """Their rows, under the same conditions."""
        values = self._values(recall) | {"ids": [scored.candidate.id for scored in best]}
        rows = (
            await transaction.rows(LOOKUPS, rows_query(_allowed_condition(recall)), values)
            if best
            else []
        )
        memories = {memory.id: memory for memory in map(memory_of, rows)}
        return [
            (memories[scored.candidate.id], scored)
            for scored in best
            if scored.candidate.id in memories
        ]

    def _values(self, recall: MemoryQuery) -> dict[str, Any]:
        places = recall.reader.places(recall.scopes)
        return {
            **visible(recall.times, recall.reader.agent)[1],
            **recall.condition[1],
            "host": recall.reader.tenant,
            "scopes": [scope for scope, _ in places],
            "owners": [owner for _, owner in places],
        }


def _allowed_condition(recall: MemoryQuery) -> Fragment:
    visibility, _ = visible(recall.times, recall.reader.agent)
    condition, _ = recall.condition
    return Fragment.of(
        sql.SQL("{shown} AND {condition}").format(shown=visibility, condition=condition)
    )


_PLACES = sql.SQL("""place AS MATERIALIZED (
    SELECT scope, owner FROM unnest(%(scopes)s::text[], %(owners)s::text[]) AS place (scope, owner)
)""")


_SIZES = b"""
    SELECT coalesce(max(rows), 0), coalesce(sum(rows), 0)::bigint
    FROM unnest(%(scopes)s::text[], %(owners)s::text[]) AS place (scope, owner)
    JOIN memory_owner_t AS had ON had.host_id = %(host)s AND had.scope = place.scope
        AND had.owner = place.owner
"""


@dataclass(frozen=True, slots=True)
class RecallShape:
    """The variable parts of the statement."""

    allowed: Fragment  # condition on memory_t AS m
    vectors: bool  # whether there is one of the query
    listed: bool  # without a query: those that are most important and recent
    large: bool = False  # some owner has too many memories to compare all
    indexed: Fragment | None = None  # the predicate of the index on the organisation's vectors
    near: int = 0  # how many it proposes: a number, without which plans leave the index out
    timed: bool = False  # whether the query asks for a time


@lru_cache(maxsize=256)
def statement(shape: RecallShape) -> bytes:
    """Rows of the number of memories searched and the fields of a RecalledMemory: those with the
    best of words and of meaning."""
    near, cosine, join = sql.SQL(""), sql.SQL("NULL::float8"), sql.SQL("")
    matched, order = sql.SQL("bm25 > 0"), _FUSED_SCORE
    if shape.vectors:
        near, cosine = _NEAR, sql.SQL("near.cosine")
        join, matched = sql.SQL("LEFT JOIN near USING (memory_id)"), sql.SQL("true")
    if shape.listed:
        matched = sql.SQL("true")
        order = sql.SQL("scored.pinned DESC, scored.importance DESC, scored.created_ts DESC")
    visible, worded = (
        (_proposal_clause(shape), _WORDED_LARGE) if shape.large else (_whole(shape), _WORD_SCORES)
    )
    return compose(
        """
        WITH {places}, query AS MATERIALIZED (
            SELECT DISTINCT unnest(tsvector_to_array(to_tsvector('pg_catalog.english',
                search_words(%(text)s)))) COLLATE "C" AS term
        ), {visible}, {worded}, {scores}{near}, scored AS MATERIALIZED (
            SELECT visible.*, coalesce(worded.bm25, 0) AS bm25, {cosine} AS cosine
            FROM visible LEFT JOIN worded USING (memory_id) {join}
        ), best AS MATERIALIZED (
            SELECT scored.* FROM scored WHERE {matched} ORDER BY {order} LIMIT %(reach)s
        ), {sayings}
        SELECT (SELECT docs FROM total), best.memory_id::text, best.scope, best.session,
            best.position, best.importance, best.confidence, best.pinned, best.trust,
            extract(epoch FROM now() - best.created_ts)::float8, best.created_ts, best.valid_from,
            coalesce(used.uses, 0), best.bm25, best.cosine,
            saying.speaker, saying.asks, saying.timed
        FROM best JOIN saying USING (memory_id) LEFT JOIN memory_use_t AS used
            ON (used.host_id, used.memory_id) = (%(host)s, best.memory_id)
    """,
        places=_PLACES,
        visible=visible,
        worded=worded,
        scores=_SCORES,
        near=near,
        cosine=cosine,
        join=join,
        matched=matched,
        order=order,
        sayings=_sayings(shape.timed),
    )


def _sayings(timed: bool) -> sql.Composed:
    """Speakers, questions and times, of the best alone: it reads their texts."""
    times = sql.SQL("""CASE WHEN m.memory_id = ANY (ARRAY(SELECT memory_id FROM best LIMIT {first}))
                THEN left(m.content, {read}) ~ {words} ELSE false END""").format(
        first=sql.Literal(MEMORIES_DATED), read=sql.Literal(READ), words=sql.Literal(TIME_WORDS)
    )
    return sql.SQL("""saying AS MATERIALIZED (
            SELECT m.memory_id, m.source ->> 'speaker' AS speaker, m.position IS NOT NULL
                AND right(m.content, {ending}) ~ {question} AS asks, {times} AS timed
            FROM memory_t AS m WHERE m.host_id = %(host)s AND m.scope = ANY (%(scopes)s)
                AND m.memory_id = ANY (ARRAY(SELECT memory_id FROM best))
        )""").format(
        ending=sql.Literal(ENDING),
        question=sql.Literal(QUESTION),
        times=times if timed else sql.SQL("false"),
    )


_COLUMNS = sql.SQL("""m.memory_id, m.scope, m.owner, m.session, m.position, m.importance,
    m.confidence, m.pinned, m.trust, m.created_ts, m.valid_from""")
_IN_PLACE = sql.SQL("m.host_id = %(host)s AND m.scope = place.scope AND m.owner = place.owner")


def _whole(shape: RecallShape) -> sql.Composed:
    """All that may be shown."""
    return sql.SQL("""visible AS MATERIALIZED (
        SELECT memory.* FROM place CROSS JOIN LATERAL (
            SELECT {shown} FROM memory_t AS m WHERE {in_place} AND {allowed} OFFSET 0
        ) AS memory
    )""").format(shown=_COLUMNS, in_place=_IN_PLACE, allowed=shape.allowed)


def _proposal_clause(shape: RecallShape) -> sql.Composed:
    """Candidates with the rarest words of the query, the newest of each owner, and, of the
    organisation, instead of that what the index on its vectors finds near."""
    near: sql.Composable = sql.SQL("")
    newest = sql.SQL("true")
    if shape.vectors and shape.indexed is not None and not shape.listed:
        near, newest = _near_org(shape, shape.indexed), sql.SQL("place.scope <> 'org'")
    return sql.SQL("""size AS MATERIALIZED (
        SELECT place.scope, place.owner, query.term, few.docs,
            ln(1 + %(docs)s::float8 / (few.docs + 0.5)::float8) AS weight,
            sum(few.docs) OVER (ORDER BY few.docs, place.scope, query.term) AS read
        FROM place CROSS JOIN query CROSS JOIN LATERAL (
            SELECT count(*) AS docs FROM (
                SELECT FROM memory_word_t AS posting
                WHERE posting.host_id = %(host)s AND posting.scope = place.scope
                    AND posting.owner = place.owner AND posting.term = query.term
                LIMIT {common}
            ) AS posting
        ) AS few
    ), visible AS MATERIALIZED (
        SELECT memory.* FROM (
            (SELECT found.scope, found.memory_id FROM (
                SELECT size.scope, size.owner, posting.memory_id
                FROM size CROSS JOIN LATERAL (
                    SELECT memory_id, tf FROM memory_word_t AS posting
                    WHERE posting.host_id = %(host)s AND posting.scope = size.scope
                        AND posting.owner = size.owner AND posting.term = size.term OFFSET 0
                ) AS posting
                WHERE size.read < {common} -- the rarest words first, for they decide
                GROUP BY size.scope, size.owner, posting.memory_id
                ORDER BY sum(size.weight * posting.tf / (posting.tf + {k1}::float8)) DESC,
                    posting.memory_id OFFSET 0
            ) AS found WHERE (
                SELECT true FROM memory_t AS m WHERE m.host_id = %(host)s
                    AND m.scope = found.scope AND m.owner = found.owner
                    AND m.memory_id = found.memory_id AND {allowed}
            ) LIMIT %(reach)s)
            UNION
            SELECT place.scope, newest.memory_id FROM place CROSS JOIN LATERAL (
                SELECT m.memory_id FROM memory_t AS m WHERE {in_place} AND {allowed}
                ORDER BY m.created_ts DESC LIMIT %(exact)s
            ) AS newest WHERE {newest}
            {near}
        ) AS one (scope, memory_id) CROSS JOIN LATERAL (
            SELECT {shown} FROM memory_t AS m
            WHERE m.host_id = %(host)s AND m.scope = one.scope AND m.memory_id = one.memory_id
            OFFSET 0
        ) AS memory
    )""").format(
        common=sql.Literal(COMMON),
        k1=sql.Literal(K1),
        allowed=shape.allowed,
        in_place=_IN_PLACE,
        newest=newest,
        near=near,
        shown=_COLUMNS,
    )


def _near_org(shape: RecallShape, indexed: Fragment) -> sql.Composed:
    """The filter is evaluated for each, in a subquery that cannot become a join."""
    column = half_vector(sql.SQL("vector.embedding"))
    query = half_vector(sql.SQL("%(vector)s::vector"))
    return sql.SQL("""UNION (SELECT 'org', near.entity_id FROM (
        SELECT set_config('hnsw.ef_search', %(ef)s, true) AS value
    ) AS effort CROSS JOIN LATERAL (
        SELECT vector.entity_id FROM entity_embedding_t AS vector
        WHERE {indexed} AND effort.value <> '' AND (
            SELECT true FROM place JOIN memory_t AS m ON {in_place}
            WHERE m.memory_id = vector.entity_id AND {allowed})
        ORDER BY {whole} <#> {query} LIMIT {near}
    ) AS near)""").format(
        indexed=indexed,
        in_place=_IN_PLACE,
        allowed=shape.allowed,
        whole=column,
        query=query,
        near=sql.Literal(shape.near),
    )


# One scan of the index for all ids takes less than a lookup for each.
_NEAR = sql.SQL(""", near AS MATERIALIZED (
    SELECT vector.entity_id AS memory_id, -(vector.embedding <#> %(vector)s::vector) AS cosine
    FROM entity_embedding_t AS vector
    WHERE vector.host_id = %(host)s AND vector.entity_type = ANY (%(vector_kinds)s)
        AND vector.entity_id = ANY (ARRAY(SELECT memory_id FROM visible))
        AND vector.model = %(model)s AND vector.status = 'ready'
)""")
_FUSED_SCORE = sql.SQL("""%(share)s * coalesce(cosine, 0) + (1 - %(share)s) * bm25 / greatest(
    (SELECT max(bm25) FROM worded), (SELECT 4 * ln(1 + docs) FROM total), 1e-9) DESC, memory_id""")
_POSTINGS = sql.SQL("""SELECT term, memory_id, tf FROM memory_word_t AS posting
        WHERE posting.host_id = %(host)s AND posting.scope = place.scope
            AND posting.owner = place.owner AND posting.term = query.term""")
_IDF = sql.SQL("ln(1 + ({docs} - {had} + 0.5)::float8 / ({had} + 0.5)::float8) AS idf")
# Words of what is visible alone.
_WORD_SCORES = sql.SQL("""total AS MATERIALIZED (
    SELECT count(*) AS docs FROM visible
), posting AS MATERIALIZED (
    SELECT found.* FROM query CROSS JOIN place CROSS JOIN LATERAL ({postings} OFFSET 0) AS found
), matched AS MATERIALIZED (
    SELECT posting.* FROM posting JOIN visible USING (memory_id)
), word AS MATERIALIZED (
    SELECT term, {idf}
    FROM matched CROSS JOIN total GROUP BY term, docs
)""").format(postings=_POSTINGS, idf=_IDF.format(docs=sql.SQL("docs"), had=sql.SQL("count(*)")))
_WORDED_LARGE = sql.SQL("""total AS MATERIALIZED (
    SELECT %(docs)s::bigint AS docs
), matched AS MATERIALIZED (
    SELECT posting.term, posting.tf, posting.memory_id
    FROM query CROSS JOIN place CROSS JOIN LATERAL (
        {postings} AND posting.memory_id = ANY (ARRAY(SELECT memory_id FROM visible)) OFFSET 0
    ) AS posting
), word AS MATERIALIZED (
    SELECT term, {idf}
    FROM size CROSS JOIN total GROUP BY term
)""").format(
    postings=_POSTINGS,
    idf=_IDF.format(
        docs=sql.SQL("max(total.docs)"), had=sql.SQL("least(sum(size.docs), max(total.docs))")
    ),
)
# BM25 (Robertson and Zaragoza 2009, 3.6) without a norm of lengths: in memories, what is long has
# more to say. LoCoMo's NDCG@10 gains 2.5 points.
_SCORES = sql.SQL("""worded AS MATERIALIZED (
    SELECT matched.memory_id, sum(word.idf * {k1_plus_1} * matched.tf / (matched.tf
        + {k1}))::float8 AS bm25
    FROM matched JOIN word USING (term) GROUP BY matched.memory_id
)""").format(k1_plus_1=sql.Literal(K1 + 1), k1=sql.Literal(K1))


@lru_cache(maxsize=256)
def rows_query(allowed: Fragment) -> bytes:
    """The rows of %(ids)s that may be shown."""
    return compose(
        """
        WITH {places}
        SELECT {columns} FROM place CROSS JOIN memory_t AS m
        WHERE m.host_id = %(host)s AND m.scope = place.scope AND m.owner = place.owner
            AND m.memory_id = ANY (%(ids)s::uuid[]) AND {allowed}
    """,
        places=_PLACES,
        columns=COLUMNS,
        allowed=allowed,
    )
