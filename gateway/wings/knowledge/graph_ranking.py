"""The graph of names and chunks around what a query finds: a few rows, and ranking over them.

Three ways to rank, each over the one before: links, from what the best chunks mention to the chunks
that are about it; chunks with these names before others; and personalised PageRank over chunks and
names (Haveliwala 2002). All see only chunks that the statement of the search might have found, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from psycopg import sql

from registry.database.sql_fragments import Fragment, compose

if TYPE_CHECKING:
    import numpy

SEEDS = 3  # chunks whose mentions are followed
HUB = 25  # chunks that mention a name, above which it says nothing
MERGES = 1000  # pairs of merged names that count for a query
QUESTION = ""  # the source of edges from names in the question itself
NAME_WEIGHT = 0.3  # weight of an edge from the question
EDGE_WEIGHT = 0.6  # weight of another edge
LEAST = 1.0  # of a link, to a chunk without a score
SLOWER = 0.1  # by the rank of the chunk that it comes from
UNNAMED_FACTOR = 0.5  # factor of chunks that share no name with the question or the best chunks
DAMPING = 0.5
ROUNDS = 12
OF_GRAPH = 0.2  # share of PageRank in the score
CHUNK_WEIGHT = 0.6  # of the personalisation: the rest is that of names


@dataclass(frozen=True, slots=True)
class Edge:
    """A name that joins two chunks."""

    source: str  # a chunk that mentions it
    norm: str
    target: str  # a chunk that is about it, or mentions it


def raise_linked(scores: Mapping[str, float], edges: Sequence[Edge]) -> dict[str, float]:
    """The scores, raised for chunks that are about what the best chunks mention. Each pair of
    chunks counts once."""
    by_chunk = scale(scores)
    ranks = {QUESTION: 0} | {id_: rank for rank, id_ in enumerate(scores)}
    pairs = sorted({(ranks[edge.source], edge.source, edge.target) for edge in edges})
    raised = dict(by_chunk)
    for rank, source, target in pairs:
        if source != target:
            h_j = by_chunk.get(target, 0.0)
            weight = EDGE_WEIGHT * by_chunk[source] if source else NAME_WEIGHT
            bonus = weight / (1 + SLOWER * rank) * (LEAST + h_j)
            raised[target] = raised.get(target, 0.0) + bonus
    return raised


def prefer_named(scores: Mapping[str, float], edges: Sequence[Edge]) -> dict[str, float]:
    """The scores, lowered for chunks that no edge joins: chunks with the names that the question
    or the best chunks mention come first."""
    named = {chunk for edge in edges for chunk in (edge.source, edge.target)}
    factor = UNNAMED_FACTOR if named else 1.0
    return {id_: score if id_ in named else factor * score for id_, score in scores.items()}


def scale(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores from 0, of the worst, to 1, of the best: what all share is no evidence."""
    least, best = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    return {id_: (score - least) / ((best - least) or 1.0) for id_, score in scores.items()}


def blend_scores(
    scores: Mapping[str, float], others: Mapping[str, float], share: float
) -> dict[str, float]:
    """Scores of which `share` is that of the first, each scaled."""
    first, second = scale(scores), scale(others)
    return {
        id_: share * first.get(id_, 0.0) + (1 - share) * second.get(id_, 0.0)
        for id_ in {**first, **second}
    }


def page_ranked(scores: Mapping[str, float], edges: Sequence[Edge]) -> dict[str, float]:
    """The scores, mixed with the PageRank of chunks and names that a walk from the scored chunks
    and their names, and from names of the question, visits."""
    scores = scale(scores)
    if any(edge.source == QUESTION for edge in edges):
        scores[QUESTION] = 1.0
    chunks = sorted({*scores, *(edge.source for edge in edges), *(edge.target for edge in edges)})
    names = sorted({edge.norm for edge in edges})
    if not names:
        return dict(scores)
    places = {name: place for place, name in enumerate((*chunks, *(f"\0{name}" for name in names)))}
    pairs = {
        (places[chunk], places[f"\0{edge.norm}"])
        for edge in edges
        for chunk in (edge.source, edge.target)
    }
    rank = _random_walk(places, sorted(pairs), scores, len(chunks))
    ranks = {id_: float(rank[places[id_]]) for id_ in chunks if id_ != QUESTION}
    highest = max(ranks.values()) or 1.0
    return {
        id_: (1 - OF_GRAPH) * scores.get(id_, 0.0) + OF_GRAPH * rank / highest
        for id_, rank in ranks.items()
    }


def _random_walk(
    places: Mapping[str, int],
    pairs: Sequence[tuple[int, int]],
    scores: Mapping[str, float],
    chunks: int,
) -> "numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]":
    import numpy  # with the first text, as for vectors

    size, edges = len(places), numpy.array(pairs)
    start = numpy.zeros(size)
    for id_, score in scores.items():
        start[places[id_]] = max(score, 0.0)
    rows = numpy.concatenate((edges[:, 0], edges[:, 1]))
    columns = numpy.concatenate((edges[:, 1], edges[:, 0]))
    degree = numpy.bincount(rows, minlength=size).clip(min=1)
    reached = numpy.bincount(columns, weights=(start / degree)[rows], minlength=size)
    reached[:chunks] = 0.0
    start = CHUNK_WEIGHT * start / (start.sum() or 1.0)
    start += (1 - CHUNK_WEIGHT) * reached / (reached.sum() or 1.0)
    rank = start
    for _ in range(ROUNDS):
        walked = numpy.bincount(columns, weights=(rank / degree)[rows], minlength=size)
        rank = (1 - DAMPING) * start + DAMPING * walked
    return rank


# Names that are one with {name} in {shelf}.
_BESIDE = sql.SQL("""(
    SELECT edge.norm AS other FROM knowledge_alias_t AS edge
    WHERE (edge.host_id, edge.collection_id, edge.alias) = (%(host)s, {shelf}, {name})
    UNION ALL
    SELECT edge.alias FROM knowledge_alias_t AS edge
    WHERE (edge.host_id, edge.collection_id, edge.norm) = (%(host)s, {shelf}, {name})
) AS beside""")

# Names that are one with a name of the question or of its seeds, at most MERGES of them.
_MERGED_NAMES = sql.SQL("""same (collection_id, norm, other) AS (
    SELECT shelf.collection_id, one.norm, beside.other
    FROM shelf CROSS JOIN (
        SELECT norm FROM mentioned
        UNION SELECT unnest(%(spoken)s::text[]) COLLATE "C"
    ) AS one
    CROSS JOIN LATERAL {beside_one}
    UNION
    SELECT same.collection_id, same.norm, beside.other FROM same
    CROSS JOIN LATERAL {beside_other}
), merged AS MATERIALIZED (
    SELECT * FROM same LIMIT {merges}
)""").format(
    beside_one=_BESIDE.format(
        shelf=sql.Identifier("shelf", "collection_id"), name=sql.Identifier("one", "norm")
    ),
    beside_other=_BESIDE.format(
        shelf=sql.Identifier("same", "collection_id"), name=sql.Identifier("same", "other")
    ),
    merges=sql.Literal(MERGES),
)

# Names that at most HUB chunks have: those of more say little about any of them.
_RARE_NAMES = sql.SQL("""name AS MATERIALIZED (
    SELECT norm, chunks FROM (
        SELECT norm, ARRAY(
            SELECT naming.chunk_id FROM permitted
            CROSS JOIN LATERAL knowledge_naming(%(host)s, collection_id, one.norm, 0)
                AS naming
            LIMIT {above}
        ) AS chunks
        FROM (SELECT DISTINCT norm FROM named) AS one OFFSET 0
    ) AS one
    WHERE cardinality(chunks) <= {hub} AND (
        NOT EXISTS (SELECT FROM merged WHERE merged.norm = one.norm) OR (
        SELECT count(*) FROM (
            SELECT unnest(chunks)
            UNION
            SELECT naming.chunk_id FROM merged
            CROSS JOIN LATERAL knowledge_naming(%(host)s, collection_id, other, 0)
                AS naming
            WHERE merged.norm = one.norm
            LIMIT {above}
        ) AS chunk) <= {hub})
)""").format(above=sql.Literal(HUB + 1), hub=sql.Literal(HUB))


_ABOUT = {  # what holds for chunks that are about a name, by its place in the statement
    "of_code": sql.SQL("AND (mention.type <> 'symbol' OR mention.role = 'mention')"),
    "asked": sql.SQL("UNION SELECT NULL, one FROM unnest(%(asked)s::text[]) AS one"),
    # kinds of keys: see knowledge_name_key
    "targets": sql.SQL("""CROSS JOIN permitted
        CROSS JOIN unnest(CASE WHEN named.id IS NULL THEN '{1}' ELSE '{1,2}' END::integer[]) AS kind
        CROSS JOIN LATERAL knowledge_naming(%(host)s, collection_id, name.norm, kind)
            AS target"""),
    "merged_kinds": sql.SQL("CASE WHEN named.id IS NULL THEN '{0}' ELSE '{1,2}' END::integer[]"),
}
_MENTIONING = {
    "of_code": sql.SQL(""),
    "asked": sql.SQL(""),
    "targets": sql.SQL("CROSS JOIN LATERAL unnest(name.chunks) AS target (chunk_id)"),
    "merged_kinds": sql.SQL("'{0}'::integer[]"),
}


@lru_cache(maxsize=256)
def edges(permitted: Fragment, allowed: Fragment | None, *, about: bool) -> bytes:
    """Rows of (source, norm, target): what the chunks %(seeds)s mention, and the chunks that are
    about that, or, without `about`, that mention it. Names that were merged count as one in the
    collection of their merge, and lead from the question to all that mentions them. `allowed`: a
    condition on `target`.

    Links to code come from texts that mention a symbol. What a definition calls, its namesakes, and
    symbols that are words of the question are seldom what is asked for: without them the definition
    is among the first 5 in 71 of 100 searches of click, with them in 55.
    """
    parts = _ABOUT if about else _MENTIONING
    return compose(
        """
        WITH RECURSIVE {permitted}, shelf AS MATERIALIZED (
            SELECT collection_id FROM permitted WHERE EXISTS (
                SELECT FROM knowledge_alias_t AS edge WHERE edge.host_id = %(host)s
                    AND edge.collection_id = permitted.collection_id)
        ), mentioned AS MATERIALIZED (
            SELECT DISTINCT seed.id, collection_id, mention.norm
            FROM unnest(%(seeds)s::uuid[]) AS seed (id)
            JOIN knowledge_mention_v AS mention
                ON (mention.host_id, mention.chunk_id) = (%(host)s, seed.id) {of_code}
            JOIN permitted USING (collection_id)
        ), {merged}, named AS MATERIALIZED (
            SELECT id, norm FROM mentioned
            WHERE strpos(%(question)s, ' ' || norm || ' ') = 0 AND NOT EXISTS (
                SELECT FROM merged WHERE merged.collection_id = mentioned.collection_id
                    AND merged.other = mentioned.norm AND merged.norm = ANY (%(spoken)s::text[]))
            {asked}
            UNION SELECT NULL, norm FROM merged WHERE norm = ANY (%(spoken)s::text[])
        ), {rare}
        SELECT coalesce(named.id::text, ''), name.norm, target.chunk_id::text
        FROM name JOIN named USING (norm) {targets}
        WHERE name.chunks <> '{{}}' AND {allowed}
        UNION
        SELECT coalesce(named.id::text, ''), name.norm, target.chunk_id::text
        FROM name JOIN named USING (norm) JOIN merged USING (norm)
        CROSS JOIN unnest({merged_kinds}) AS kind
        CROSS JOIN LATERAL knowledge_naming(%(host)s, collection_id, merged.other, kind) AS target
        WHERE {allowed}
        ORDER BY 1, 2, 3 LIMIT %(edges)s
    """,
        permitted=permitted,
        merged=_MERGED_NAMES,
        rare=_RARE_NAMES,
        allowed=allowed or sql.SQL("true"),
        **parts,
    )
