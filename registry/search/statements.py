# ruff: noqa: S608 - made of constants; what callers say are parameters
"""The statements of a search, as text. Pure.

What matters is decided here and not by the planner. Of a tenant with 1% of the rows it searches an
index on vectors that finds 4% of what it should, or does not, depending on how often a statement
ran before. What has to be compared exactly cannot use such an index, because there is none on that
expression; and words are looked up one by one.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from registry.search.lexical import K1, B

# For one transaction. Nothing here is large enough to be compiled.
_LOCAL = """
    SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
        set_config('work_mem', '32MB', true), set_config('hnsw.ef_search', %(ef)s, true),
        set_config('hnsw.iterative_scan', 'relaxed_order', true)
"""

# Where many vectors are compared they are read in the order in which they lie, and joined at once:
# in the order of their ids, or looked up one by one, it takes twice as long. Parallel workers are
# not worth their start.
EXACT = b"""
    SELECT set_config('enable_indexscan', 'off', true), set_config('enable_mergejoin', 'off', true),
        set_config('max_parallel_workers_per_gather', '0', true),
        set_config('enable_nestloop', %(nestloop)s, true)
"""

# A row for each word of the query, and one, with the empty word, for all documents. The last word,
# half typed, stands for the most frequent ones that begin with it.
FACTS = f"""
WITH part AS MATERIALIZED (
    SELECT part_id FROM search_part_t WHERE (host_id, entity_type) = (%(host)s, %(kind)s)
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
FROM ({_LOCAL}) AS local CROSS JOIN part CROSS JOIN word
LEFT JOIN LATERAL (
    SELECT sum(docs) AS docs, sum(length) AS length FROM search_count_t AS count
    WHERE (count.part_id, count.term) = (part.part_id, word.term)
) AS count ON true
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a statement that finds candidates has in it."""

    narrowed: str = ""  # condition on search_doc_t AS doc
    words: bool = True  # looks words up
    vectors: Literal["exact", "hnsw"] | None = None
    sentences: int = 0  # vectors besides that of the whole query
    indexed: str = ""  # hnsw: the predicate of the index, without parameters
    usage: bool = False


@lru_cache(maxsize=256)
def candidates(shape: Shape) -> bytes:
    """Rows of (entity_id, name, weight, bm25, cosine), in no order: what words propose and what
    meaning proposes, each %(reach)s of them, scored by both.

    By an index, sentences propose %(share)s each besides: what one of them alone is near to.
    """
    parts: list[str] = []
    proposed: list[str] = []
    if shape.narrowed:
        parts.append(_ALLOWED % shape.narrowed)
    if shape.words:
        proposed.append(_by_words("JOIN allowed USING (doc_id)" if shape.narrowed else ""))
    if shape.vectors == "exact":
        parts.append(_dense(shape, "allowed" if shape.narrowed else f"({_DOCS})"))
        proposed.append(_NEAREST)
    elif shape.vectors == "hnsw":
        parts.append(f"near AS MATERIALIZED ({_near(shape)})")
        proposed.append(_NEAR)
    parts.append(f"candidate AS MATERIALIZED ({' UNION '.join(proposed)})")
    if shape.words:
        parts.append(_WORDED)
    if shape.vectors == "hnsw":
        parts.append(_dense(shape, "candidate"))
    statement = f"""
        WITH {", ".join(parts)}
        SELECT doc.entity_id::text, doc.name, doc.weight,
            {"coalesce(worded.bm25, 0)" if shape.words else "0::float8"},
            {"dense.cosine" if shape.vectors else "NULL::float8"}
        FROM candidate AS doc
        {"LEFT JOIN worded USING (doc_id)" if shape.words else ""}
        {"LEFT JOIN dense USING (doc_id)" if shape.vectors else ""}
    """
    return statement.encode()


def count(narrowed: str) -> bytes:
    """How many documents there are, counted as far as %(most)s."""
    return f"SELECT count(*) FROM ({_DOCS} AND {narrowed} LIMIT %(most)s) AS doc".encode()


def details(kind: str) -> bytes:
    """Title, description and source, by id."""
    return f"""
        SELECT entity_id::text, title, description, source FROM {kind}_search_v
        WHERE host_id = %(host)s AND entity_id = ANY(%(ids)s::uuid[])
    """.encode()


_DOCS = "SELECT doc.doc_id, doc.entity_id FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"
_ALLOWED = f"allowed AS MATERIALIZED ({_DOCS} AND %s)".replace("%(part)s", "%%(part)s")
_REACH = "LIMIT %(reach)s"

_BM25 = f"""sum(word.idf * {K1 + 1} * posting.tf
    / (posting.tf + {K1} * ({1 - B} + {B} * posting.length / %(average)s)))"""

# Of a candidate; read once, since a look-up costs as much as a cosine.
_SHOWN = "doc.doc_id, doc.entity_id, doc.name, doc.weight"
_NEAREST = f"""
    SELECT {_SHOWN} FROM (SELECT doc_id FROM dense ORDER BY cosine DESC, doc_id {_REACH}) AS nearest
    JOIN search_doc_t AS doc USING (doc_id)"""

_NEAR = f"""
    SELECT {_SHOWN} FROM near JOIN search_doc_t AS doc USING (entity_id)
    WHERE doc.part_id = %(part)s"""

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


def _by_words(allowed: str) -> str:
    """Those with the best of the words of which all entries are read."""
    return f"""
        SELECT {_SHOWN} FROM (
            SELECT doc_id FROM (
                SELECT posting.doc_id, {_BM25} AS bm25
                FROM unnest(%(scanned)s::text[], %(scanned_idfs)s::float8[]) AS word (term, idf)
                CROSS JOIN LATERAL (
                    SELECT doc_id, tf, length FROM search_posting_t
                    WHERE part_id = %(part)s AND term = word.term OFFSET 0
                ) AS posting
                GROUP BY posting.doc_id
            ) AS found {allowed} ORDER BY bm25 DESC, doc_id {_REACH}
        ) AS best JOIN search_doc_t AS doc USING (doc_id)"""


def _cosine(column: str, sentences: int) -> str:
    """Of vectors of length 1: half of it that of the whole query, half that of the sentence that
    fits best. `<#>` is the negative inner product."""
    whole = f"({column} <#> %(q0)s::vector)"
    if not sentences:
        return f"-{whole}"
    each = ", ".join(f"{column} <#> %(q{n})s::vector" for n in range(1, sentences + 1))
    return f"-({whole} + least({each})) / 2"


def _dense(shape: Shape, docs: str) -> str:
    """Cosines of all of `docs`; drawn to the queries that a thing was used for, if so wanted."""
    cosine, used = _cosine("vector.embedding", shape.sentences), ""
    if shape.usage:
        drawn = "least(%(usage_share)s, 0.5 * used.principals / 3.0)"
        asked = _cosine("used.embedding", shape.sentences)
        cosine = (
            f"CASE WHEN used.principals IS NULL THEN {cosine}"
            f" ELSE (1 - {drawn}) * ({cosine}) + {drawn} * ({asked}) END"
        )
        used = f"LEFT JOIN usage_embedding_t AS used ON {_same('used')}"
    return f"""dense AS MATERIALIZED (
        SELECT doc.doc_id, {cosine} AS cosine
        FROM {docs} AS doc JOIN entity_embedding_t AS vector ON {_same("vector")}
            AND vector.status = 'ready'
        {used}
    )"""


def _same(table: str) -> str:
    return (
        f"{table}.host_id = %(host)s AND {table}.entity_type = %(kind)s"
        f" AND {table}.entity_id = doc.entity_id AND {table}.model = %(model)s"
    )


def _near(shape: Shape) -> str:
    """Entities near one of the vectors of the query, by the index of this tenant alone.

    Whether one may be found is asked of each as the index gives them, in a subquery that cannot
    become a join: a join might sort all of them.
    """
    narrowed = f" AND {shape.narrowed}" if shape.narrowed else ""
    found = (
        "(SELECT true FROM search_doc_t AS doc WHERE doc.part_id = %(part)s"
        f" AND doc.entity_id = vector.entity_id{narrowed})"
    )
    scans = [
        f"""(SELECT vector.entity_id FROM entity_embedding_t AS vector
            WHERE {shape.indexed} AND {found}
            ORDER BY vector.embedding::halfvec(384) <#> %(q{n})s::vector::halfvec(384)
            LIMIT {"%(share)s" if n else "%(reach)s"})"""
        for n in range(shape.sentences + 1)
    ]
    if shape.usage:
        scans.append(
            "(SELECT used.entity_id FROM usage_embedding_t AS used WHERE used.host_id = %(host)s"
            " AND used.entity_type = %(kind)s AND used.model = %(model)s AND "
            + found.replace("vector.", "used.")
            + f" ORDER BY used.embedding <#> %(q0)s::vector {_REACH})"
        )
    return " UNION ".join(scans)
