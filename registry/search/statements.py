# ruff: noqa: S608 - made of constants; the values of callers are parameters
"""The statements of a search, as text. Pure.

The statements fix what matters, instead of the planner. Of a tenant with 1% of the rows it searches
an index on vectors that finds 4% of what it should, or does not, depending on how often a statement
ran before. An exact comparison cannot use such an index, because there is none on that expression;
and words are looked up one by one.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from registry.embedding.vectors import half_vector
from registry.search.lexical import K1, B

USED_ABOVE = 0.4  # cosine to queries that a tool was used for, from which they count
WHOLE = 0.3  # of a cosine, where there are sentences: the rest is that of the best of them

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

_REACH = "LIMIT %(reach)s"
_PROPOSED = "doc.part_id = %(part)s AND doc.doc_id = ANY(%(proposed)s::integer[])"

_BM25 = f"""sum(word.idf * {K1 + 1} * posting.tf
    / (posting.tf + {K1} * ({1 - B} + {B} * posting.length / %(average)s)))"""

# Of a candidate; read once, since a look-up costs as much as a cosine.
_SHOWN = "doc.doc_id, doc.entity_id, doc.name, doc.weight"
_DOCS = f"SELECT {_SHOWN} FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"


@dataclass(frozen=True, slots=True)
class Shape:
    """The variable parts of a statement that scores candidates."""

    narrowed: str = ""  # condition on search_doc_t AS doc
    vectors: Literal["exact", "hnsw"] | None = None
    sentences: int = 0  # vectors besides that of the whole query
    indexed: str = ""  # hnsw: the predicate of the index, without parameters
    usage: bool = False


@lru_cache(maxsize=64)
def proposals(narrowed: str) -> bytes:
    """Numbers of the %(reach)s documents that have the best of the words %(scanned)s.

    Filters are evaluated best first until there are enough: for all documents that would dominate
    the time.
    """
    allowed = (
        "SELECT true FROM search_doc_t AS doc"
        f" WHERE doc.part_id = %(part)s AND doc.doc_id = found.doc_id AND {narrowed}"
    )
    return f"""
        SELECT doc_id FROM (
            SELECT posting.doc_id, {_BM25} AS bm25
            FROM unnest(%(scanned)s::text[], %(scanned_idfs)s::float8[]) AS word (term, idf)
            CROSS JOIN LATERAL (
                SELECT doc_id, tf, length FROM search_posting_t
                WHERE part_id = %(part)s AND term = word.term OFFSET 0
            ) AS posting
            GROUP BY posting.doc_id ORDER BY bm25 DESC, doc_id
            {"OFFSET 0" if narrowed else ""}
        ) AS found {f"WHERE ({allowed})" if narrowed else ""} {_REACH}
    """.encode()


@lru_cache(maxsize=256)
def candidates(shape: Shape) -> bytes:
    """Rows of (entity_id, name, weight, bm25, cosine), in no order: the proposals by words,
    %(proposed)s, and the %(reach)s proposed by meaning, scored by both; and, of a query of several
    sentences, the cosines to each.

    With an index, which keeps %(ef)s candidates, sentences propose %(share)s of %(sentence_ef)s
    each besides: the neighbours of a single sentence.
    """
    parts = {None: _worded_only, "exact": _exact, "hnsw": _index_clauses}[shape.vectors](shape)
    return f"""
        WITH {", ".join(parts)}, {_WORDED}
        SELECT doc.entity_id::text, doc.name, doc.weight, coalesce(worded.bm25, 0), doc.cosine
            {_sentences(shape)}
        FROM candidate AS doc LEFT JOIN worded USING (doc_id)
    """.encode()


def count(narrowed: str) -> bytes:
    """The number of documents, counted up to %(limit)s."""
    allowed = f"SELECT FROM search_doc_t AS doc WHERE doc.part_id = %(part)s AND {narrowed}"
    return f"SELECT count(*) FROM ({allowed} LIMIT %(limit)s) AS doc".encode()


def details(kind: str) -> bytes:
    """Title, description and source, by id."""
    return f"""
        SELECT entity_id::text, title, description, source FROM {kind}_search_v
        WHERE host_id = %(host)s AND entity_id = ANY(%(ids)s::uuid[])
    """.encode()


# All words, of the candidates alone: PostgreSQL walks once through the entries of a word.
_WORDED = f"""worded AS MATERIALIZED (
    SELECT posting.doc_id, {_BM25} AS bm25
    FROM unnest(%(terms)s::text[], %(idfs)s::float8[]) AS word (term, idf)
    CROSS JOIN LATERAL (
        SELECT doc_id, tf, length FROM search_posting_t
        WHERE part_id = %(part)s AND term = word.term
            AND doc_id = ANY (ARRAY(SELECT doc_id FROM candidate)) OFFSET 0
    ) AS posting
    GROUP BY posting.doc_id
)"""


def _worded_only(_: Shape) -> list[str]:
    return [
        f"""candidate AS MATERIALIZED (
            SELECT {_SHOWN}, NULL::float8 AS cosine FROM search_doc_t AS doc WHERE {_PROPOSED})"""
    ]


def _exact(shape: Shape) -> list[str]:
    """The cosines of all permitted documents, by exact search; those of lexical proposals that are
    not near are looked up."""
    docs = f"{_DOCS} AND {shape.narrowed} OFFSET 0" if shape.narrowed else _DOCS
    cosine, used = _cosine("vector.embedding", shape.sentences), ""
    if shape.usage:
        cosine = f"CASE WHEN used.principals IS NULL THEN {cosine} ELSE {_usage_cosine(shape)} END"
        used = f"LEFT JOIN usage_embedding_t AS used ON {_same('used', 'doc')}"
    return [
        f"""near AS MATERIALIZED (
            SELECT {_SHOWN}, {cosine} AS cosine
            FROM ({docs}) AS doc
            JOIN entity_embedding_t AS vector ON {_ready("doc")}
            {used}
            ORDER BY cosine DESC, doc_id {_REACH}
        )""",
        f"""candidate AS MATERIALIZED (
            SELECT * FROM near
            UNION ALL
            SELECT {_SHOWN}, (
                SELECT {_looked_up(shape)} FROM entity_embedding_t AS vector WHERE {_ready("doc")}
            ) FROM search_doc_t AS doc
            WHERE {_PROPOSED}
                AND NOT EXISTS (SELECT FROM near WHERE near.doc_id = doc.doc_id)
        )""",
    ]


def _index_clauses(shape: Shape) -> list[str]:
    """The cosines of neighbours of the query's vectors, by the index of this tenant alone; those of
    proposals by words and by usage are looked up.

    The few neighbours are looked up as well, in a subquery that cannot become a join: a join might
    read all documents.
    """
    others = f"SELECT {_SHOWN} FROM search_doc_t AS doc WHERE {_PROPOSED}"
    if shape.usage:
        others += f" UNION {_usage_clause(shape)}"
    scans = " UNION ".join(_near(shape, n) for n in range(shape.sentences + 1))
    return [
        f"near AS MATERIALIZED ({scans})",
        f"""candidate AS MATERIALIZED (
            SELECT {_SHOWN}, near.cosine FROM near CROSS JOIN LATERAL (
                {_DOCS} AND doc.entity_id = near.entity_id OFFSET 0
            ) AS doc
            UNION ALL
            SELECT {_SHOWN}, {_looked_up(shape)}
            FROM ({others}) AS doc LEFT JOIN entity_embedding_t AS vector ON {_ready("doc")}
            WHERE NOT EXISTS (SELECT FROM near WHERE near.entity_id = doc.entity_id)
        )""",
    ]


def _near(shape: Shape, n: int) -> str:
    """Statement of the entities near the vector of this number, in the order of the index.

    The filter is evaluated per entity, in a subquery that cannot become a join: a join might sort
    all of them. The scan begins after `effort` is set: sentences need few candidates, and scan few.
    """
    ef, limit = ("%(sentence_ef)s", "%(share)s") if n else ("%(ef)s", "%(reach)s")
    return f"""(
        SELECT near.* FROM (
            SELECT set_config('hnsw.ef_search', {ef}, true) AS value
        ) AS effort CROSS JOIN LATERAL (
            SELECT vector.entity_id, {_looked_up(shape)} AS cosine
            FROM entity_embedding_t AS vector
            WHERE {shape.indexed} AND {_findable(shape, "vector")} AND effort.value <> ''
            ORDER BY {half_vector("vector.embedding")} <#> {half_vector(f"%(q{n})s::vector")}
            LIMIT {limit}
        ) AS near)"""


def _usage_clause(shape: Shape) -> str:
    """Entities called with success after queries near to this one."""
    return f"""
        SELECT {_SHOWN} FROM (
            SELECT used.entity_id FROM usage_embedding_t AS used
            WHERE used.host_id = %(host)s AND used.entity_type = %(kind)s
                AND used.model = %(model)s AND {_findable(shape, "used")}
            ORDER BY used.embedding <#> %(q0)s::vector {_REACH}
        ) AS used JOIN search_doc_t AS doc USING (entity_id) WHERE doc.part_id = %(part)s"""


def _findable(shape: Shape, table: str) -> str:
    narrowed = f" AND {shape.narrowed}" if shape.narrowed else ""
    return (
        "(SELECT true FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"
        f" AND doc.entity_id = {table}.entity_id{narrowed})"
    )


def _cosine(column: str, sentences: int) -> str:
    """Cosine of vectors of length 1: a weighted sum of that of the whole query and, with more
    weight, that of the best sentence. `<#>` is the negative inner product."""
    whole = f"({column} <#> %(q0)s::vector)"
    if not sentences:
        return f"-{whole}"
    each = ", ".join(f"{column} <#> %(q{n})s::vector" for n in range(1, sentences + 1))
    return f"-({WHOLE} * {whole} + {1 - WHOLE} * least({each}))"


def _sentences(shape: Shape) -> str:
    if not shape.sentences:
        return ""
    each = ", ".join(
        f"-(vector.embedding <#> %(q{n})s::vector)" for n in range(1, shape.sentences + 1)
    )
    return f", (SELECT ARRAY[{each}] FROM entity_embedding_t AS vector WHERE {_ready('doc')})"


def _usage_cosine(shape: Shape) -> str:
    """The cosine of `vector`, raised by how near the queries are that it was `used` for."""
    share = "%(usage_share)s * least(1, used.principals / 3.0)"
    own, asked = (_cosine(f"{table}.embedding", shape.sentences) for table in ("vector", "used"))
    return f"(({own}) + {share} * greatest(0, ({asked}) - {USED_ABOVE}))"


def _looked_up(shape: Shape) -> str:
    """The cosine of one `vector`, without a join."""
    cosine = _cosine("vector.embedding", shape.sentences)
    if not shape.usage:
        return cosine
    return (
        f"coalesce((SELECT {_usage_cosine(shape)} FROM usage_embedding_t AS used"
        f" WHERE {_same('used', 'vector')}), {cosine})"
    )


def _ready(owner: str) -> str:
    return f"{_same('vector', owner)} AND vector.status = 'ready'"


def _same(table: str, owner: str) -> str:
    return (
        f"{table}.host_id = %(host)s AND {table}.entity_type = %(kind)s"
        f" AND {table}.entity_id = {owner}.entity_id AND {table}.model = %(model)s"
    )
