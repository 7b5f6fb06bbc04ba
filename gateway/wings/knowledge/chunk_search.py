"""Searching chunks by words and meaning, with tenant, caller, collection and filters as conditions
inside each statement.

Words are those of the index of the registry (0017_wordlists.sql), of which each collection is a
part; frequencies are counted in the collections that the caller may read, so that they tell nothing
of others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import isqrt
from typing import Any, Literal, TypeVar

from msgspec import convert
from psycopg import IsolationLevel, sql

from config.knowledge import KnowledgeSettings
from gateway.wings.document_library import Passage, PassageHits
from gateway.wings.documents.chunking.mentions import normal
from gateway.wings.knowledge.abbreviations import abbreviation_pairs, numeric_types
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.chunk_filters import ChunkFilter, narrowing
from gateway.wings.knowledge.graph_ranking import (
    SEEDS,
    Edge,
    blend_scores,
    edges,
    page_ranked,
    prefer_named,
    raise_linked,
)
from registry.database.postgres import Pool
from registry.database.sql_fragments import Fragment, compose
from registry.embedding.search_kinds import SearchKind
from registry.embedding.texts import readable
from registry.embedding.vectors import half_vector
from registry.search.fusion import DIGITS, Candidate, enough, rank
from registry.search.indexes import predicate
from registry.search.languages import words_note
from registry.search.query_encoding import EncodedQuery, QueryEncoder
from registry.search.search_run import effort
from registry.search.transaction import (
    LOOKUPS,
    SCANS,
    HalfVector,
    Planner,
    Transaction,
    transaction,
)
from registry.search.word_selection import K1, B, Word, WordPlan, idfs, plan

KIND = SearchKind("knowledge_chunk", purpose="passages", owned=True)
NOTHING = "nothing to search: {} is empty, or no collection that you may read"
QUERY = 2000  # characters of a query that are used
EF = 100  # hnsw.ef_search of an index of 100,000 vectors
# A plan that suits any pattern expects few chunks: joined in loops, all that a pattern left took
# 4.5 times as long as no filter.
FILTERED_SCANS: Planner = {**SCANS, "plans": "force_custom_plan"}
LIST_FACTOR = (
    2  # times the limit of comparisons: chunks that a filter leaves, up to which a list of
)
# them costs less than evaluating the filter for each chunk that is proposed
SPREAD = 50  # chunks from which PageRank starts
QUERY_WORDS = 64  # words of a query in which names are sought
NAME = 6  # words of such a name at most
SHORTEST = 4  # characters of one that was not merged with another
EDGES = 5000  # rows of the graph that are read for a query
_NO_NAME = re.compile(r"[^\w'&-]+")
T = TypeVar("T")
Mode = Literal["naive", "local", "global", "hybrid", "mix"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkQuery:
    """Query of a search, and its caller."""

    reader: KnowledgeReader
    text: str
    collections: Sequence[str] | None = None  # None: all that the caller may read
    filter: ChunkFilter = field(default_factory=ChunkFilter)
    limit: int = 10
    mode: Mode = "mix"
    share: float | None = None  # of meaning; None: that of the settings


class Searcher:
    def __init__(self, pool: Pool, encoding: QueryEncoder, settings: KnowledgeSettings) -> None:
        self._pool = pool
        self._encoding = encoding
        self._settings = settings

    async def search(self, query: ChunkQuery) -> PassageHits:
        text = readable(query.text, QUERY).strip()
        query = replace(query, text=text)
        if not text:
            return PassageHits()
        share = self._settings.semantic_share if query.share is None else query.share
        encoded = await self._encoding.of(KIND.purpose, text) if share else EncodedQuery()
        # All statements see the same version of each document.
        snapshot = IsolationLevel.REPEATABLE_READ
        async with transaction(self._pool, Transaction, snapshot) as opened:
            candidates, docs = await self._candidates(opened, query, text, encoded)
            vectors = encoded.vectors is not None
            fused = rank(
                candidates,
                share if vectors else 0.0,
                len(candidates),
                enough(docs) if vectors else 0.0,
            )
            scores = {ranked.candidate.id: ranked.score for ranked in fused}
            if query.mode != "naive":
                scores = await self._relate(opened, query, scores)
            best = sorted(scores.items(), key=lambda item: (-round(item[1], DIGITS), item[0]))
            best = best[: query.limit]
            chunks_by_id = await self._load_chunks(opened, query, [id_ for id_, _ in best])
        candidates_by_id = {candidate.id: candidate for candidate in candidates}
        # Of what a query shares with nothing, the best is no good passage.
        level = min(max((candidate.score for candidate in fused), default=1.0), 1.0)
        chunks = [
            _with_scores(chunks_by_id[id_], level * score, candidates_by_id.get(id_))
            for id_, score in best
            if id_ in chunks_by_id
        ]
        note = encoded.why and f"searched by words only: {encoded.why}"
        if note is None and vectors:
            bm25 = max((candidate.bm25 for candidate in candidates), default=0.0)
            note = words_note(text, encoded.model, bm25=bm25, docs=docs)
        if not docs and query.collections is not None:
            note = NOTHING.format(", ".join(query.collections))
        return PassageHits(chunks, note)

    async def _candidates(
        self, transaction: Transaction, query: ChunkQuery, text: str, encoded_query: EncodedQuery
    ) -> tuple[list[Candidate], int]:
        """Candidates by words and meaning, and the number of chunks searched."""
        narrowed, values = self._values(query)
        facts = {**values, "text": text, "types": " ".join(numeric_types(text))}
        rows = await transaction.rows(LOOKUPS, _FACTS, facts)
        total = [(docs, length) for term, _, docs, length in rows if not term]
        if not total:
            return [], 0
        ((docs, length),) = total
        planned = plan(_words(rows), docs, length, self._settings.postings_limit)
        values |= _word_values(planned)
        if encoded_query.whole is not None:
            values |= {"vector": HalfVector.of(encoded_query.whole), "model": encoded_query.model}
        index: Fragment | None = None
        is_listed = encoded_query.whole is not None and narrowed is not None
        if encoded_query.whole is not None and docs > self._settings.exact_limit:
            row_count = await self._count_left(transaction, narrowed, values, docs)
            is_listed = is_listed and row_count <= LIST_FACTOR * self._settings.exact_limit
            if row_count > (self._scan_limit(values["reach"], docs) if is_listed else 0):
                index = predicate(query.reader.tenant, KIND.name, encoded_query.model or "")
                values["ef"] = str(effort(EF, docs, values["reach"]))
        statement = candidates(
            narrowed, encoded_query.whole is not None, index, is_listed=is_listed
        )
        compared = FILTERED_SCANS if is_listed else SCANS
        planner = compared if encoded_query.whole is not None and index is None else LOOKUPS
        return [Candidate(*row) for row in await transaction.rows(planner, statement, values)], docs

    def _scan_limit(self, reach: int, docs: int) -> int:
        """Chunks that a filter leaves up to which all their vectors are compared.

        An entry that a scan of the index reads costs about half a vector that is read by its id,
        and for `reach` chunks of n it reads reach * docs / n entries: both cost the same where
        2 * n * n = reach * docs.
        """
        return min(self._settings.exact_limit, isqrt(reach * docs // 2))

    async def _count_left(
        self,
        transaction: Transaction,
        condition: Fragment | None,
        values: Mapping[str, Any],
        docs: int,
    ) -> int:
        """The chunks that may be found, counted up to one more than are listed."""
        if condition is None:
            return docs
        most = LIST_FACTOR * self._settings.exact_limit + 1
        rows = await transaction.rows(LOOKUPS, _count_query(condition), {**values, "most": most})
        return int(rows[0][0])

    async def _relate(
        self, transaction: Transaction, query: ChunkQuery, scores: Mapping[str, float]
    ) -> dict[str, float]:
        """The scores, with what the graph of names around the best adds."""
        seeds = list(scores)[:SEEDS]
        links = await self._edges(transaction, query, seeds, about=True)
        raised = raise_linked(scores, links)
        if query.mode == "mix":
            return raised
        mentions = await self._edges(transaction, query, seeds, about=False)
        local = prefer_named(raised, [*links, *mentions])
        if query.mode == "local":
            return local
        best = sorted(local, key=lambda id_: (-round(local[id_], DIGITS), id_))[:SPREAD]
        walked = page_ranked(
            {id_: local[id_] for id_ in best},
            await self._edges(transaction, query, best, about=False),
        )
        return walked if query.mode == "global" else blend_scores(local, walked, 0.5)

    async def _edges(
        self, transaction: Transaction, query: ChunkQuery, seeds: Sequence[str], *, about: bool
    ) -> list[Edge]:
        """The graph around `seeds`; `about`: only to chunks that are about a name."""
        narrowed, values = self._values(query)
        words = _NO_NAME.sub(" ", normal(query.text)).split()
        values |= {"seeds": list(seeds), "question": f" {' '.join(words)} ", "edges": EDGES}
        values["spoken"] = list(_grams(words[:QUERY_WORDS]))
        values["asked"] = [word for word in values["spoken"] if len(word) >= SHORTEST]
        target = sql.Identifier("target", "chunk_id")
        allowed = None if narrowed is None else Fragment.of(_filter_clause(narrowed, target))
        statement = edges(PERMITTED, allowed, about=about)
        return [Edge(*row) for row in await transaction.rows(LOOKUPS, statement, values)]

    async def _load_chunks(
        self, transaction: Transaction, query: ChunkQuery, ids: Sequence[str]
    ) -> dict[str, Passage]:
        """Chunks by their ids, if they may be shown still."""
        if not ids:
            return {}
        narrowed, values = self._values(query)
        rows = await transaction.rows(LOOKUPS, chunks_query(narrowed), {**values, "ids": list(ids)})
        return passages_by_chunk(rows)

    def _values(self, query: ChunkQuery) -> tuple[Fragment | None, dict[str, Any]]:
        narrowed, values = narrowing(query.filter)
        names = None if query.collections is None else list(query.collections)
        reach = max(self._settings.candidates, query.limit)
        return narrowed, {**values, **query.reader.values(), "names": names, "reach": reach}


def _grams(words: Sequence[str]) -> Iterator[str]:
    """Possible names in a question: up to NAME words in a row."""
    for begin in range(len(words)):
        for end in range(begin + 1, min(begin + NAME, len(words)) + 1):
            yield " ".join(words[begin:end])


def _with_scores(chunk: Passage, score: float, candidate: Candidate | None) -> Passage:
    """`candidate`: None where the graph alone proposed it."""
    words, meaning = (0.0, None) if candidate is None else (candidate.bm25, candidate.cosine)
    return replace(chunk, score=round(score, DIGITS), words=words, meaning=meaning)


def _words(rows: Sequence[Sequence[Any]]) -> Iterator[Word]:
    """The words of a question, and abbreviations of those that fewer chunks have."""
    docs_by_term = {term: docs for term, word, docs, _ in rows if term and not word}
    short = {
        term: docs
        for term, word, docs, _ in rows
        if word and term not in docs_by_term and docs > docs_by_term.get(word, 0)
    }
    return (Word(term, docs) for term, docs in {**docs_by_term, **short}.items())


def _word_values(plan: WordPlan) -> dict[str, Any]:
    return {
        "scanned": [word.term for word in plan.scanned],
        "scanned_weights": _term_weights(plan.scanned, plan.docs),
        "rest": [word.term for word in plan.rest],
        "rest_weights": _term_weights(plan.rest, plan.docs),
        "tf_floor": K1 * (1 - B),
        "tf_slope": K1 * B / plan.average,
    }


def _term_weights(words: Sequence[Word], docs: int) -> list[float]:
    return [(K1 + 1) * idf for idf in idfs(words, docs)]


# The collections that the caller may read, each a part of the index of words.
PERMITTED = Fragment.of(
    sql.SQL("""permitted AS MATERIALIZED (
    SELECT collection.collection_id, collection.name, part.part_id
    FROM knowledge_collection_t AS collection
    JOIN search_part_t AS part ON (part.host_id, part.entity_type, part.owner)
        = (%(host)s, {kind}, collection.collection_id::text)
    WHERE {allowed} AND (%(names)s::text[] IS NULL OR collection.name = ANY (%(names)s))
)""").format(kind=sql.Literal(KIND.name), allowed=READABLE)
)
_LEXEMES = sql.SQL("""unnest(tsvector_to_array(
    to_tsvector('pg_catalog.english', search_words({})))) COLLATE "C" AS term""")
# A row for each word of the query, and one, with the empty word, for all chunks; where collections
# hold code, one for each type of a number and each abbreviation of a word. Whether they do is
# looked up for each collection, in the order of an index: a join would read all symbols of others.
_FACTS = compose(
    """
    WITH {permitted}, spoken AS MATERIALIZED (
        SELECT {text_lexemes}
    ), code AS MATERIALIZED (
        SELECT FROM permitted WHERE (
            SELECT true FROM knowledge_symbol_t AS symbol
            WHERE symbol.collection_id = permitted.collection_id
            ORDER BY symbol.name, symbol.host_id LIMIT 1
        ) LIMIT 1
    ), word AS MATERIALIZED (
        SELECT ''::text COLLATE "C" AS term, ''::text AS stands_for
        UNION
        SELECT term, '' FROM spoken
        UNION
        SELECT {type_lexemes}, '' FROM code
        UNION
        SELECT pair.short COLLATE "C", pair.stem
        FROM unnest({stems}::text[], {shorts}::text[]) AS pair (stem, short)
        JOIN spoken ON spoken.term = pair.stem COLLATE "C" CROSS JOIN code
    )
    SELECT word.term, word.stands_for, sum(counted.docs)::bigint, sum(counted.length)::float8
    FROM permitted CROSS JOIN word CROSS JOIN LATERAL (
        SELECT sum(docs) AS docs, sum(length) AS length FROM search_count_t AS count
        WHERE (count.part_id, count.term) = (permitted.part_id, word.term)
    ) AS counted
    GROUP BY word.term, word.stands_for HAVING sum(counted.docs) > 0
""",
    permitted=PERMITTED,
    text_lexemes=_LEXEMES.format(sql.Placeholder("text")),
    type_lexemes=_LEXEMES.format(sql.Placeholder("types")),
    stems=sql.Literal([stem for stem, _ in abbreviation_pairs()]),
    shorts=sql.Literal([short for _, short in abbreviation_pairs()]),
)
# Of BM25, all that is the same for each document is computed before.
_BM25 = sql.SQL("""word.weight * posting.tf
    / (posting.tf + (%(tf_floor)s::float8 + %(tf_slope)s::float8 * posting.length))""")
# The frequent words of a query, which propose nothing, are sought in the lists of each candidate. A
# copy of a list is read once from where it is stored, the column for each word.
_REST = sql.SQL("""coalesce((
    SELECT sum({bm25})
    FROM (
        SELECT tf, length, words || '' AS words FROM search_wordlist_t AS list
        WHERE (list.part_id, list.doc_id) = (candidate.part_id, candidate.doc_id)
            AND %(rest)s::text[] <> '{{}}' OFFSET 0
    ) AS posting
    JOIN unnest(%(rest)s::text[], %(rest_weights)s::float8[]) AS word (term, weight)
        ON strpos(posting.words, concat(' ', word.term, ' ')) > 0), 0)""").format(bm25=_BM25)
_ALLOWED_POSTINGS = sql.SQL("""JOIN (
    SELECT doc_id FROM allowed WHERE allowed.part_id = permitted.part_id
) AS allowed USING (doc_id)""")
_DOCUMENT = sql.SQL("""JOIN knowledge_document_t AS document
    ON (document.host_id, document.document_id) = (%(host)s, chunk.document_id)""")


_NOTHING: sql.Composable = sql.SQL("")


def _filter_clause(condition: Fragment, of: sql.Identifier) -> sql.Composed:
    """A condition on a document of the index."""
    return sql.SQL("""({of} IS NOT NULL AND (
        SELECT true FROM knowledge_chunk_t AS chunk {document}
        WHERE (chunk.host_id, chunk.chunk_id) = (%(host)s, {of}) AND {narrowed}))""").format(
        of=of, document=_DOCUMENT, narrowed=condition
    )


@lru_cache(maxsize=256)
def candidates(
    condition: Fragment | None,
    vectors: bool,
    index: Fragment | None = None,
    *,
    is_listed: bool = False,
) -> bytes:
    """Rows of (chunk_id, place, weight, bm25, cosine), in no order: the chunks that have the best
    of the words %(scanned)s, and those nearest to %(vector)s, scored by both. `index`: the
    predicate of the index on vectors that proposes them; None: all are compared. `is_listed`: the
    chunks that a filter leaves are found first, as a table; else the filter is evaluated for each
    chunk that is proposed, which costs less if it leaves many.

    Where all are compared, they are found by one join: looked up for each chunk, in a plan for
    joins of many rows, the filter took ten times as long as all else.
    """
    # Without a condition the best are chosen by a heap; else all are sorted, until enough hold it.
    sorted_, where = sql.SQL("LIMIT %(reach)s"), sql.Composed([sql.SQL("true")])
    allowed = only = union = near = _NOTHING
    cosine: sql.Composable = sql.SQL("NULL::float8")
    entity = sql.Identifier("doc", "entity_id")
    if condition is not None and is_listed and index is None:
        allowed, only = _allowed_sql(condition), _ALLOWED_POSTINGS
    elif condition is not None:
        sorted_ = sql.SQL("OFFSET 0")
        allowed = _listed_sql(condition) if is_listed else _NOTHING
        where = _listed_clause(entity) if is_listed else _filter_clause(condition, entity)
    if vectors:
        near, union, cosine = (
            _near_sql(condition, index, is_listed=is_listed),
            _NEAR_WORDED,
            _COSINE,
        )
    return compose(
        """
        WITH {permitted}{allowed}, worded AS (
            SELECT part_id, doc_id, bm25 FROM permitted CROSS JOIN LATERAL (
                SELECT doc_id, sum({bm25}) AS bm25
                FROM unnest(%(scanned)s::text[], %(scanned_weights)s::float8[])
                    AS word (term, weight)
                CROSS JOIN LATERAL search_postings(permitted.part_id, word.term) AS posting
                {only} GROUP BY doc_id
            ) AS scored
        ), worded_best AS MATERIALIZED (
            SELECT found.part_id, found.doc_id, found.bm25 FROM (
                SELECT * FROM worded ORDER BY bm25 DESC, part_id, doc_id {sorted}
            ) AS found WHERE (SELECT true FROM search_doc_t AS doc
                WHERE (doc.part_id, doc.doc_id) = (found.part_id, found.doc_id)
                AND {narrowing}) LIMIT %(reach)s
        ){near}, candidate AS MATERIALIZED (
            SELECT part_id, doc_id, bm25 FROM worded_best {union}
        )
        SELECT doc.entity_id::text, doc.entity_id::text, doc.weight, candidate.bm25 + {rest},
            {cosine}
        FROM candidate JOIN search_doc_t AS doc USING (part_id, doc_id)
    """,
        permitted=PERMITTED,
        allowed=allowed,
        only=only,
        bm25=_BM25,
        rest=_REST,
        sorted=sorted_,
        narrowing=where,
        near=near,
        union=union,
        cosine=cosine,
    )


_VECTOR = sql.SQL("""FROM entity_embedding_t AS vector
    WHERE vector.host_id = %(host)s AND vector.entity_type = {kind}
        AND vector.entity_id = doc.entity_id AND vector.model = %(model)s
        AND vector.status = 'ready'""").format(kind=sql.Literal(KIND.name))

_COSINE = sql.SQL("(SELECT -(vector.embedding <#> %(vector)s::vector) {vector})").format(
    vector=_VECTOR
)
# IS TRUE makes it a hash table, whatever the planner expects: see _listed_clause.
_NEAR_WORDED = sql.SQL("""UNION
    SELECT part_id, doc_id, sum(bm25) FROM (
        SELECT part_id, doc_id, 0::float8 AS bm25 FROM near
        UNION ALL
        SELECT part_id, doc_id, bm25 FROM worded
        WHERE ((part_id, doc_id) IN (SELECT part_id, doc_id FROM near)) IS TRUE
    ) AS near_worded GROUP BY part_id, doc_id""")


def _allowed_sql(condition: Fragment) -> sql.Composed:
    return sql.SQL(""", allowed AS MATERIALIZED (
        SELECT doc.part_id, doc.doc_id
        FROM permitted JOIN knowledge_chunk_t AS chunk ON chunk.host_id = %(host)s
            AND chunk.collection_id = permitted.collection_id
        {document}
        JOIN search_doc_t AS doc
            ON (doc.part_id, doc.entity_id) = (permitted.part_id, chunk.chunk_id)
        WHERE {narrowed}
    )""").format(document=_DOCUMENT, narrowed=condition)


def _listed_sql(condition: Fragment) -> sql.Composed:
    return sql.SQL(""", allowed AS MATERIALIZED (
        SELECT chunk.chunk_id
        FROM permitted JOIN knowledge_chunk_t AS chunk ON chunk.host_id = %(host)s
            AND chunk.collection_id = permitted.collection_id
        {document}
        WHERE {narrowed}
    )""").format(document=_DOCUMENT, narrowed=condition)


def _listed_clause(of: sql.Identifier) -> sql.Composed:
    """A condition by a hash table: IS TRUE keeps it from becoming a join for each row."""
    return sql.SQL("({of} IN (SELECT chunk_id FROM allowed)) IS TRUE").format(of=of)


def _near_sql(
    narrowed: Fragment | None, index: Fragment | None, *, is_listed: bool
) -> sql.Composed:
    """The nearest chunks. Those of a list that the index proposes too few of, since they are far
    from the query, are compared one by one."""
    compared = sql.SQL("""
        SELECT doc.part_id, doc.doc_id
        FROM {source}
        JOIN entity_embedding_t AS vector ON vector.host_id = %(host)s
            AND vector.entity_type = {kind} AND vector.entity_id = doc.entity_id
            AND vector.model = %(model)s AND vector.status = 'ready'
        {where} ORDER BY vector.embedding <#> %(vector)s::vector, doc.doc_id LIMIT %(reach)s
    """)
    kind = sql.Literal(KIND.name)
    if index is None:
        source = sql.SQL(
            "allowed JOIN search_doc_t AS doc USING (part_id, doc_id)"
            if is_listed
            else "permitted JOIN search_doc_t AS doc USING (part_id)"
        )
        rows = compared.format(source=source, kind=kind, where=_NOTHING)
        return sql.SQL(", near AS MATERIALIZED ({rows})").format(rows=rows)
    if not is_listed:
        permitted = _permitted_clause(narrowed)
        return sql.SQL(", near AS MATERIALIZED ({rows})").format(rows=_index_sql(permitted, index))
    rows = compared.format(
        source=sql.SQL("""permitted JOIN search_doc_t AS doc USING (part_id)
            JOIN allowed ON allowed.chunk_id = doc.entity_id"""),
        kind=kind,
        where=sql.SQL("WHERE (SELECT count(*) FROM proposed) < %(reach)s"),
    )
    condition = _listed_clause(sql.Identifier("vector", "entity_id"))
    return sql.SQL(""", proposed AS MATERIALIZED ({proposed}), near AS MATERIALIZED (
        SELECT part_id, doc_id FROM proposed UNION ({rows}))""").format(
        proposed=_index_sql(condition, index), rows=rows
    )


def _permitted_clause(condition: Fragment | None) -> sql.Composed:
    """The conditions on a vector, evaluated for each, in a subquery that cannot become a join."""
    joined: sql.Composable = sql.SQL("WHERE")
    if condition is not None:
        joined = sql.SQL("{document} WHERE {narrowed} AND").format(
            document=_DOCUMENT, narrowed=condition
        )
    return sql.SQL("""(
        SELECT true FROM permitted JOIN knowledge_chunk_t AS chunk USING (collection_id)
        {joined} (chunk.host_id, chunk.chunk_id) = (%(host)s, vector.entity_id))""").format(
        joined=joined
    )


def _index_sql(condition: sql.Composed, index: Fragment) -> sql.Composed:
    """The nearest by the index of those vectors for which the condition holds."""
    column = half_vector(sql.SQL("vector.embedding"))
    query = half_vector(sql.SQL("%(vector)s::vector"))
    return sql.SQL("""
        SELECT doc.part_id, doc.doc_id FROM (
            SELECT set_config('hnsw.ef_search', %(ef)s, true) AS value
        ) AS effort CROSS JOIN LATERAL (
            SELECT vector.entity_id FROM entity_embedding_t AS vector
            WHERE {index} AND effort.value <> '' AND {condition}
            ORDER BY {whole} <#> {query} LIMIT %(reach)s
        ) AS found CROSS JOIN permitted JOIN search_doc_t AS doc
            ON (doc.part_id, doc.entity_id) = (permitted.part_id, found.entity_id)
    """).format(index=index, condition=condition, whole=column, query=query)


@lru_cache(maxsize=256)
def _count_query(condition: Fragment) -> bytes:
    """The number of chunks that may be found, at most %(most)s."""
    return compose(
        """
        WITH {permitted}
        SELECT count(*) FROM (
            SELECT FROM permitted JOIN knowledge_chunk_t AS chunk ON chunk.host_id = %(host)s
                AND chunk.collection_id = permitted.collection_id
            {document} WHERE {narrowed} LIMIT %(most)s
        ) AS chunk
    """,
        permitted=PERMITTED,
        document=_DOCUMENT,
        narrowed=condition,
    )


def convert_rows(kind: type[T], rows: Sequence[Sequence[Any]]) -> list[T]:
    """Values of rows, whose columns are in the order of its first fields."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # of a dataclass
    return convert([dict(zip(names, row, strict=False)) for row in rows], list[kind])  # type: ignore[valid-type]


def passages_by_chunk(rows: Sequence[Sequence[Any]]) -> dict[str, Passage]:
    """Rows of `chunks_query` by the ids of their chunks."""
    return {passage.chunk: passage for passage in convert_rows(Passage, rows)}


@lru_cache(maxsize=256)
def chunks_query(condition: Fragment | None) -> bytes:
    """The chunks of %(ids)s that may be shown."""
    also = _NOTHING
    if condition is not None:
        also = sql.SQL("AND {narrowed}").format(narrowed=condition)
    return compose(
        """
        WITH {permitted}
        SELECT permitted.name, document.path, document.live,
            ARRAY[chunk.start_line, chunk.end_line], knowledge_text(content, start_byte, end_byte),
            chunk.chunk_id::text, chunk.kind, chunk.header, chunk.symbol, chunk.ordinal,
            document.document_id::text, chunk.page
        FROM permitted JOIN knowledge_chunk_t AS chunk ON chunk.host_id = %(host)s
            AND chunk.collection_id = permitted.collection_id
        {document}
        JOIN knowledge_blob_t AS blob
            ON (blob.host_id, blob.sha256) = (%(host)s, chunk.sha256)
        WHERE chunk.chunk_id = ANY (%(ids)s::uuid[]) {also}
    """,
        permitted=PERMITTED,
        document=_DOCUMENT,
        also=also,
    )
