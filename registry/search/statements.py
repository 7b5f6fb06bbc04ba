"""The statements of a search, as text. Pure.

The statements fix what matters, instead of the planner. Of a tenant with 1% of the rows it searches
an index on vectors that finds 4% of what it should, or does not, depending on how often a statement
ran before. An exact comparison cannot use such an index, because there is none on that expression;
and words are looked up one by one.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from psycopg import sql

from registry.database.sql_fragments import Fragment, compose
from registry.embedding.vectors import half_vector
from registry.search.word_selection import K1, B

USED_ABOVE = 0.4  # cosine to queries that a tool was used for, from which they count
WHOLE = 0.3  # of a cosine, where there are sentences: the rest is that of the best of them
PLACES = 8  # of sentences in one statement: a shorter query leaves places NULL

# A row for each word of the query, and one, with the empty word, for all documents. The last word,
# half typed, stands for the most frequent words with that prefix.
FACTS = b"""
WITH part AS MATERIALIZED (
    SELECT part_id FROM search_part_t
    WHERE (host_id, entity_type) = (%(host)s, %(kind)s) AND owner = ANY(%(owners)s)
), word AS (
    SELECT ''::text COLLATE "C" AS term
    UNION
    SELECT unnest(tsvector_to_array(to_tsvector('pg_catalog.english', search_words(%(text)s))))
    UNION
    SELECT term FROM (
        SELECT count.term FROM part JOIN search_count_t AS count USING (part_id)
        WHERE %(begun)s <> '' AND count.term >= %(begun)s
            AND count.term < %(begun)s || U&'\\+10FFFF'
        GROUP BY count.term ORDER BY sum(count.docs) DESC, count.term LIMIT 8
    ) AS begun
)
SELECT part.part_id, word.term, coalesce(count.docs, 0)::integer,
    coalesce(count.length, 0)::float8,
    coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(
        'search_hnsw_' || part.part_id || %(index)s)), false),
    CASE word.term WHEN '' THEN (SELECT count(*) FROM (
        SELECT FROM embedding_task_t
        WHERE (host_id, entity_type, model) = (%(host)s, %(kind)s, %(model)s) LIMIT %(missing)s
    ) AS open) END
FROM part CROSS JOIN word
LEFT JOIN LATERAL (
    SELECT sum(docs) AS docs, sum(length) AS length FROM search_count_t AS count
    WHERE (count.part_id, count.term) = (part.part_id, word.term)
) AS count ON true
"""

# Words of documents that may stand in for unknown ones: a row for each of %(words)s, with those
# that begin like it or have about its length; and the last row, with the %(pieces)s that are words.
SPELLINGS = b"""
SELECT word.text, NULL::text[], near.terms, near.docs
FROM unnest(%(words)s::text[]) AS word (text)
CROSS JOIN LATERAL (
    SELECT array_agg(count.term) AS terms, array_agg(count.docs) AS docs
    FROM (
        SELECT term, sum(docs)::integer AS docs FROM search_count_t
        WHERE part_id = %(part)s AND term >= left(word.text, 1)
            AND term < left(word.text, 1) || U&'\\+10FFFF'
        GROUP BY term ORDER BY term LIMIT %(read)s
    ) AS count
    WHERE docs > 0 AND (starts_with(term, word.text)
        OR length(term) BETWEEN length(word.text) - 3 AND length(word.text) + 2
        OR starts_with(term, left(word.text, 4)))
) AS near
UNION ALL
SELECT NULL, array_agg(piece.text), array_agg(piece.term), array_agg(count.docs::integer)
FROM (
    SELECT text, (ts_lexize('pg_catalog.english_stem', text))[1] AS term
    FROM unnest(%(pieces)s::text[]) AS piece (text) OFFSET 0
) AS piece
CROSS JOIN LATERAL (
    SELECT sum(docs) AS docs FROM search_count_t
    WHERE part_id = %(part)s AND term = piece.term COLLATE "C"
) AS count
WHERE count.docs > 0
"""

_NOTHING: sql.Composable = sql.SQL("")
_REACH = sql.SQL("LIMIT %(reach)s")
_AMONG = sql.SQL("doc.part_id = %(part)s AND doc.doc_id = ANY(%(proposed)s::integer[])")

_BM25 = sql.SQL("""sum(word.idf * {k1_plus_1} * posting.tf
    / (posting.tf + {k1} * ({unnormed} + {normed} * posting.length / %(average)s)))""").format(
    k1_plus_1=sql.Literal(K1 + 1),
    k1=sql.Literal(K1),
    unnormed=sql.Literal(1 - B),
    normed=sql.Literal(B),
)

# Of a candidate; read once, since a look-up costs as much as a cosine.
_FIELDS = sql.SQL("doc.doc_id, doc.entity_id, doc.name, doc.weight")
_DOCS = sql.SQL("SELECT {shown} FROM search_doc_t AS doc WHERE doc.part_id = %(part)s").format(
    shown=_FIELDS
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The variable parts of a statement that scores candidates."""

    narrowed: Fragment | None = None  # condition on search_doc_t AS doc
    vectors: Literal["exact", "hnsw"] | None = None
    sentences: int = 0  # places of vectors besides that of the whole query; see `places`
    indexed: Fragment | None = None  # hnsw: the predicate of the index, without parameters
    usage: bool = False


def places(sentences: int) -> int:
    """Places of vectors in a statement for so many sentences: few numbers, since each connection
    plans each statement once, and that takes longer than running it."""
    return -(-sentences // PLACES) * PLACES


@lru_cache(maxsize=64)
def proposals(condition: Fragment | None) -> bytes:
    """Numbers of the %(reach)s documents that have the best of the words %(scanned)s.

    Filters are evaluated best first until there are enough: for all documents that would dominate
    the time.
    """
    sorted_, allowed = _NOTHING, _NOTHING
    if condition is not None:
        sorted_ = sql.SQL("OFFSET 0")
        allowed = sql.SQL(
            "WHERE (SELECT true FROM search_doc_t AS doc"
            " WHERE doc.part_id = %(part)s AND doc.doc_id = found.doc_id AND {narrowed})"
        ).format(narrowed=condition)
    return compose(
        """
        SELECT doc_id FROM (
            SELECT posting.doc_id, {bm25} AS bm25
            FROM unnest(%(scanned)s::text[], %(scanned_idfs)s::float8[]) AS word (term, idf)
            CROSS JOIN LATERAL (
                SELECT doc_id, tf, length FROM search_posting_t
                WHERE part_id = %(part)s AND term = word.term OFFSET 0
            ) AS posting
            GROUP BY posting.doc_id ORDER BY bm25 DESC, doc_id
            {sorted}
        ) AS found {allowed} {reach}
    """,
        bm25=_BM25,
        sorted=sorted_,
        allowed=allowed,
        reach=_REACH,
    )


@lru_cache(maxsize=256)
def candidates(shape: Shape) -> bytes:
    """Rows of (entity_id, name, weight, bm25, cosine), in no order: the proposals by words,
    %(proposed)s, and the %(reach)s proposed by meaning, scored by both; and, of a query of several
    sentences, the cosines to each.

    With an index, which keeps %(ef)s candidates, sentences propose %(share)s of %(sentence_ef)s
    each besides: the neighbours of a single sentence. Their places beyond those of the query are
    NULL: nothing is read for them.
    """
    parts = {None: _worded_only, "exact": _exact, "hnsw": _index_clauses}[shape.vectors](shape)
    return compose(
        """
        WITH {parts}, {worded}
        SELECT doc.entity_id::text, doc.name, doc.weight, coalesce(worded.bm25, 0), doc.cosine
            {sentences}
        FROM candidate AS doc LEFT JOIN worded USING (doc_id)
    """,
        parts=sql.SQL(", ").join(parts),
        worded=_WORDS,
        sentences=_sentences(shape),
    )


@lru_cache(maxsize=64)
def count(condition: Fragment) -> bytes:
    """The number of documents, counted up to %(limit)s."""
    return compose(
        "SELECT count(*) FROM (SELECT FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"
        " AND {narrowed} LIMIT %(limit)s) AS doc",
        narrowed=condition,
    )


@lru_cache(maxsize=64)
def details(kind: str) -> bytes:
    """Title, description and source, by id."""
    return compose(
        """
        SELECT entity_id::text, title, description, source FROM {view}
        WHERE host_id = %(host)s AND entity_id = ANY(%(ids)s::uuid[])
    """,
        view=sql.Identifier(f"{kind}_search_v"),
    )


# All words, of the candidates alone: PostgreSQL walks once through the entries of a word.
_WORDS = sql.SQL("""worded AS MATERIALIZED (
    SELECT posting.doc_id, {bm25} AS bm25
    FROM unnest(%(terms)s::text[], %(idfs)s::float8[]) AS word (term, idf)
    CROSS JOIN LATERAL (
        SELECT doc_id, tf, length FROM search_posting_t
        WHERE part_id = %(part)s AND term = word.term
            AND doc_id = ANY (ARRAY(SELECT doc_id FROM candidate)) OFFSET 0
    ) AS posting
    GROUP BY posting.doc_id
)""").format(bm25=_BM25)


def _worded_only(_: Shape) -> list[sql.Composed]:
    return [
        sql.SQL("""candidate AS MATERIALIZED (
            SELECT {shown}, NULL::float8 AS cosine FROM search_doc_t AS doc WHERE {proposed}
        )""").format(shown=_FIELDS, proposed=_AMONG)
    ]


def _exact(shape: Shape) -> list[sql.Composed]:
    """The cosines of all permitted documents, by exact search; those of lexical proposals that are
    not near are looked up."""
    docs, cosine, used = _DOCS, _cosine("vector", shape.sentences), _NOTHING
    if shape.narrowed is not None:
        docs = sql.SQL("{docs} AND {narrowed} OFFSET 0").format(docs=_DOCS, narrowed=shape.narrowed)
    if shape.usage:
        cosine = sql.SQL(
            "CASE WHEN used.principals IS NULL THEN {cosine} ELSE {usage_cosine} END"
        ).format(cosine=cosine, usage_cosine=_usage_cosine(shape))
        used = sql.SQL("LEFT JOIN usage_embedding_t AS used ON {same}").format(
            same=_same("used", "doc")
        )
    return [
        sql.SQL("""near AS MATERIALIZED (
            SELECT {shown}, {cosine} AS cosine
            FROM ({docs}) AS doc
            JOIN entity_embedding_t AS vector ON {ready}
            {used}
            ORDER BY cosine DESC, doc_id {reach}
        )""").format(
            shown=_FIELDS, cosine=cosine, docs=docs, ready=_ready("doc"), used=used, reach=_REACH
        ),
        sql.SQL("""candidate AS MATERIALIZED (
            SELECT * FROM near
            UNION ALL
            SELECT {shown}, (
                SELECT {cosine} FROM entity_embedding_t AS vector WHERE {ready}
            ) FROM search_doc_t AS doc
            WHERE {proposed}
                AND NOT EXISTS (SELECT FROM near WHERE near.doc_id = doc.doc_id)
        )""").format(shown=_FIELDS, cosine=_looked_up(shape), ready=_ready("doc"), proposed=_AMONG),
    ]


def _index_clauses(shape: Shape) -> list[sql.Composed]:
    """The cosines of neighbours of the query's vectors, by the index of this tenant alone; those of
    proposals by words and by usage are looked up.

    The few neighbours are looked up as well, in a subquery that cannot become a join: a join might
    read all documents.
    """
    others = sql.SQL("SELECT {shown} FROM search_doc_t AS doc WHERE {proposed}").format(
        shown=_FIELDS, proposed=_AMONG
    )
    if shape.usage:
        others += sql.SQL(" UNION {usage}").format(usage=_usage_clause(shape))
    each_near, each_vector = _NOTHING, _NOTHING
    if shape.sentences:
        each_near, each_vector = sql.SQL(", near.cosines"), _found_cosines(shape)
    return [
        sql.SQL("near AS MATERIALIZED ({near})").format(near=_near(shape)),
        sql.SQL("""candidate AS MATERIALIZED (
            SELECT {shown}, near.cosine{each_near} FROM near CROSS JOIN LATERAL (
                {docs} AND doc.entity_id = near.entity_id OFFSET 0
            ) AS doc
            UNION ALL
            SELECT {shown}, {cosine}{each_vector}
            FROM ({others}) AS doc LEFT JOIN entity_embedding_t AS vector ON {ready}
            WHERE NOT EXISTS (SELECT FROM near WHERE near.entity_id = doc.entity_id)
        )""").format(
            shown=_FIELDS,
            each_near=each_near,
            docs=_DOCS,
            cosine=_looked_up(shape),
            each_vector=each_vector,
            others=others,
            ready=_ready("doc"),
        ),
    ]


def _near(shape: Shape) -> sql.Composed:
    """Statement of the entities near each vector of the query, read in the order of the index.

    The filter is evaluated per entity, in a subquery that cannot become a join: a join might sort
    all of them. A scan begins after its `effort` is set: sentences need few candidates, and scan
    few.
    """
    scans = [_scan(n) for n in range(shape.sentences + 1)]
    distinct, cosines = _NOTHING, _NOTHING
    if shape.sentences:
        distinct = sql.SQL("DISTINCT ON (vector.entity_id)")
        cosines = sql.SQL(", {cosines} AS cosines").format(cosines=_cosines(shape))
    return sql.SQL("""
        SELECT {distinct} vector.entity_id, {cosine} AS cosine{cosines}
        FROM (VALUES {scans}) AS scan (ef, reach, query) CROSS JOIN LATERAL (
            SELECT vector.* FROM (
                SELECT set_config('hnsw.ef_search', scan.ef, true) AS value
            ) AS effort CROSS JOIN LATERAL (
                SELECT vector.entity_id, vector.embedding
                FROM entity_embedding_t AS vector
                WHERE {indexed} AND {findable} AND effort.value <> ''
                ORDER BY {whole} <#> {query}
                LIMIT scan.reach
            ) AS vector
        ) AS vector
        WHERE scan.query IS NOT NULL""").format(
        distinct=distinct,
        cosine=_looked_up(shape),
        cosines=cosines,
        scans=sql.SQL(", ").join(scans),
        indexed=shape.indexed or _NOTHING,
        findable=_findable(shape, "vector"),
        whole=half_vector(sql.SQL("vector.embedding")),
        query=half_vector(sql.SQL("scan.query")),
    )


def _scan(n: int) -> sql.Composed:
    """Scan of the index for the vector of this number: its effort, its rows, its vector."""
    ef, reach = map(sql.Placeholder, ("sentence_ef", "share") if n else ("ef", "reach"))
    return sql.SQL("({ef}, {reach}::bigint, {query})").format(
        ef=ef, reach=reach, query=_query_vector(n)
    )


def _usage_clause(shape: Shape) -> sql.Composed:
    """Entities called with success after queries near to this one."""
    return sql.SQL("""
        SELECT {shown} FROM (
            SELECT used.entity_id FROM usage_embedding_t AS used
            WHERE used.host_id = %(host)s AND used.entity_type = %(kind)s
                AND used.model = %(model)s AND {findable}
            ORDER BY used.embedding <#> %(q0)s::vector {reach}
        ) AS used JOIN search_doc_t AS doc USING (entity_id)
        WHERE doc.part_id = %(part)s""").format(
        shown=_FIELDS, findable=_findable(shape, "used"), reach=_REACH
    )


def _findable(shape: Shape, table: str) -> sql.Composed:
    narrowed = _NOTHING
    if shape.narrowed is not None:
        narrowed = sql.SQL(" AND {narrowed}").format(narrowed=shape.narrowed)
    return sql.SQL(
        "(SELECT true FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"
        " AND doc.entity_id = {entity_id}{narrowed})"
    ).format(entity_id=sql.Identifier(table, "entity_id"), narrowed=narrowed)


def _query_vector(n: int) -> sql.Composed:
    """The vector of the whole query, for 0, or of its sentence of this number."""
    return sql.SQL("{number}::vector").format(number=sql.Placeholder(f"q{n}"))


def _cosine(table: str, sentences: int) -> sql.Composed:
    """Cosine of vectors of length 1: a weighted sum of that of the whole query and, with more
    weight, that of the best sentence. `<#>` is the negative inner product, whose operands have one
    type."""
    column = sql.Identifier(table, "embedding")
    distance = sql.SQL("({column} <#> {query})").format(column=column, query=_query_vector(0))
    if not sentences:
        return sql.SQL("-{whole}").format(whole=distance)
    each = sql.SQL(", ").join(
        sql.SQL("{column} <#> {query}").format(column=column, query=sql.Placeholder(f"q{n}"))
        for n in range(1, sentences + 1)
    )
    return sql.SQL("-({whole_share} * {whole} + {rest_share} * least({each}))").format(
        whole_share=sql.Literal(WHOLE), whole=distance, rest_share=sql.Literal(1 - WHOLE), each=each
    )


def _cosines(shape: Shape) -> sql.Composed:
    """The cosines of one `vector` to the sentences of the query."""
    each = sql.SQL(", ").join(
        sql.SQL("-(vector.embedding <#> {query})").format(query=sql.Placeholder(f"q{n}"))
        for n in range(1, shape.sentences + 1)
    )
    return sql.SQL("array_remove(ARRAY[{each}], NULL)").format(each=each)


def _found_cosines(shape: Shape) -> sql.Composed:
    """Cosines of a `vector` that may be missing to the sentences: NULL then."""
    return sql.SQL(", CASE WHEN vector.entity_id IS NOT NULL THEN {cosines} END").format(
        cosines=_cosines(shape)
    )


def _sentences(shape: Shape) -> sql.Composable:
    """The cosines of a candidate to the sentences, which the scans of an index have read."""
    if not shape.sentences:
        return _NOTHING
    if shape.vectors == "hnsw":
        return sql.SQL(", doc.cosines")
    return sql.SQL(", (SELECT {cosines} FROM entity_embedding_t AS vector WHERE {ready})").format(
        cosines=_cosines(shape), ready=_ready("doc")
    )


def _usage_cosine(shape: Shape) -> sql.Composed:
    """The cosine of `vector`, raised by how near the queries are that it was `used` for."""
    share = sql.SQL("%(usage_share)s * least(1, used.principals / 3.0)")
    cosine, used = (_cosine(table, shape.sentences) for table in ("vector", "used"))
    return sql.SQL("(({own}) + {share} * greatest(0, ({asked}) - {used_above}))").format(
        own=cosine, share=share, asked=used, used_above=sql.Literal(USED_ABOVE)
    )


def _looked_up(shape: Shape) -> sql.Composed:
    """The cosine of one `vector`, without a join."""
    cosine = _cosine("vector", shape.sentences)
    if not shape.usage:
        return cosine
    return sql.SQL(
        "coalesce((SELECT {usage_cosine} FROM usage_embedding_t AS used WHERE {same}), {cosine})"
    ).format(usage_cosine=_usage_cosine(shape), same=_same("used", "vector"), cosine=cosine)


def _ready(owner: str) -> sql.Composed:
    return sql.SQL("{same} AND vector.status = 'ready'").format(same=_same("vector", owner))


def _same(table: str, owner: str) -> sql.Composed:
    return sql.SQL(
        "{table}.host_id = %(host)s AND {table}.entity_type = %(kind)s"
        " AND {table}.entity_id = {owner}.entity_id AND {table}.model = %(model)s"
    ).format(table=sql.Identifier(table), owner=sql.Identifier(owner))
