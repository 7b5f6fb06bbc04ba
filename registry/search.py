"""Finding tools by words, in PostgreSQL's full text search.

A query is a sentence: any of its words may match, and the last one may be half typed. Stop words do
not count; a query of nothing else finds nothing.
"""

from dataclasses import dataclass

from registry.postgres import Pool, borrowed

QUERY_LIMIT = 1000  # characters that are read
WORD_LIMIT = 32  # different words that are looked up


@dataclass(frozen=True, slots=True)
class Hit:
    tool_id: str
    name: str
    title: str | None
    description: str
    source: str  # empty: made by hand
    score: float  # comparable within one answer only


async def search(
    pool: Pool, host_id: str, query: str, limit: int, source: str | None = None
) -> list[Hit]:
    """The best `limit` active tools for `query`, best first; of one `source` if that is given."""
    async with borrowed(pool) as connection:
        rows = await connection.execute(
            _SEARCH,
            {
                "host": host_id,
                "query": _readable(query),
                "words": WORD_LIMIT,
                "source": source,
                "limit": limit,
            },
        )
        return [Hit(*row) async for row in rows]


# Each word is a query of its own, its stem or the word itself, so that rare words can weigh more
# (the idf of BM25: Robertson and Zaragoza 2009, 3.1). What a tool says about a word saturates; half
# as much again comes from how much of the tool's name the query covers, or `issues_create` would
# lose to every longer name. Measured on 34 requests to GitHub's 874 operations: the wanted one is
# among the first five for 32, mean reciprocal rank 0.77; plain ts_rank gives 24 and 0.49.
_SEARCH = r"""
WITH word AS (
    SELECT text, max(position) AS position
    FROM regexp_split_to_table(identifier_words(%(query)s), ' ')
        WITH ORDINALITY AS word (text, position)
    WHERE numnode(plainto_tsquery('pg_catalog.english', text)) > 0
    GROUP BY text ORDER BY min(position) LIMIT %(words)s
), term AS MATERIALIZED (
    SELECT text, plainto_tsquery('pg_catalog.english', text) || CASE
        WHEN position = (SELECT max(position) FROM word)
        THEN to_tsquery('pg_catalog.simple', text || ':*')
        ELSE plainto_tsquery('pg_catalog.simple', text) END AS query
    FROM word
), match AS MATERIALIZED (
    SELECT tool.tool_id,
        ts_filter(tool.search, '{a}') @@ term.query AS named,
        length(ts_filter(tool.search, '{a}')) AS name_length,
        ts_rank('{0.1, 0.3, 0.6, 1.0}', tool.search, term.query) AS rank,
        ln(1 + (SELECT count(*) FROM tool_t
                WHERE host_id = %(host)s AND active AND held IS NULL)::float8
            / count(*) OVER (PARTITION BY term.text)) AS idf
    FROM term JOIN tool_t AS tool ON tool.search @@ term.query
    WHERE tool.host_id = %(host)s AND tool.active AND tool.held IS NULL
), best AS (
    SELECT tool_id, sum(idf * rank / (rank + 0.4))
        * (1 + count(*) FILTER (WHERE named)::float8 / greatest(max(name_length), 1)) AS score
    FROM match GROUP BY tool_id
)
SELECT tool.tool_id::text, tool.name, tool.title, tool.description, coalesce(api.name, ''),
    best.score
FROM best JOIN tool_t AS tool ON tool.host_id = %(host)s AND tool.tool_id = best.tool_id
LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
LEFT JOIN api_t AS api USING (host_id, api_id)
WHERE %(source)s::text IS NULL OR api.name = %(source)s
ORDER BY best.score DESC, tool.name COLLATE "C"
LIMIT %(limit)s
"""


def _readable(query: str) -> str:
    """`query` as far as it is read, without what PostgreSQL cannot hold."""
    cut = query[:QUERY_LIMIT].replace("\0", " ")
    return cut.encode("utf-8", "replace").decode()
