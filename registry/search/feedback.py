"""Usage feedback: tools come nearer to queries like those that were followed by calls of them.

Only calls with success count. The cosine of a tool grows by search.feedback_share * min(1, n / 3) *
max(0, c - 0.4), where c is the cosine to the mean of those queries and n the number of callers.
Each has three queries at most: frequent queries of one caller add no weight. Nothing is taken from
a tool, and queries that are far change nothing: in a simulated month (`python -m
benchmarks.feedback`) no caller loses 2 %, where the mixture of both cosines (arXiv 2603.13426)
serves some 5 % worse and others 8 % better. Vectors stay in the tenant and the model they are of.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from registry.database.postgres import Pool, borrow
from registry.embedding.search_kinds import TOOL, SearchKind
from registry.search.transaction import HalfVector, VectorDumper

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERIES = 3  # newest queries of one caller that count
CALLERS = 32  # callers of one tool that count; more would change little
PAUSE_S = 60.0  # rate limit: between two recorded queries of one caller for one tool


class Feedback:
    """Records successful calls. Raises `psycopg.OperationalError`."""

    def __init__(self, pool: Callable[[], Pool | None]) -> None:
        self._pool = pool

    async def record(
        self,
        host_id: str,
        entity_id: str,
        *,
        model: str,
        vector: "NDArray[np.float32]",
        principal: str,
        kind: SearchKind = TOOL,
    ) -> bool:
        """Record a success; `vector` and `model` are those of `SearchResult`. Returns whether it
        counts: not if the same caller did the same a moment ago, if enough callers are recorded, or
        if the tool was deleted."""
        if (pool := self._pool()) is None:
            return False
        values = {
            "host": host_id,
            "kind": kind.name,
            "id": entity_id,
            "model": model,
            "caller": caller_hash(principal),
            "vector": HalfVector.of(vector),
            "queries": QUERIES,
            "callers": CALLERS,
            "pause": PAUSE_S,
        }
        async with borrow(pool) as connection, connection.cursor() as cursor:
            cursor.adapters.register_dumper(HalfVector, VectorDumper)
            await cursor.execute(_RECORD, values)
            if cursor.rowcount == 0:
                return False
            await cursor.execute(_DERIVE, values)
        return True


def caller_hash(principal: str) -> str:
    """A caller as tables on usage name it: MD5 of its name, 32 characters."""
    return hashlib.md5(principal.encode(), usedforsecurity=False).hexdigest()


# A caller's oldest query is evicted. Of two at the same moment one counts.
_RECORD = """
WITH had AS (
    SELECT slot, principal, update_ts FROM usage_query_t
    WHERE (host_id, entity_type, entity_id, model) = (%(host)s, %(kind)s, %(id)s, %(model)s)
), own AS (
    SELECT slot, update_ts FROM had WHERE principal = %(caller)s
)
INSERT INTO usage_query_t (host_id, entity_type, entity_id, model, principal, slot, embedding)
SELECT %(host)s, %(kind)s, %(id)s, %(model)s, %(caller)s, CASE
        WHEN (SELECT count(*) FROM own) < %(queries)s THEN (SELECT count(*) FROM own)
        ELSE (SELECT slot FROM own ORDER BY update_ts, slot LIMIT 1) END,
    %(vector)s::vector
WHERE EXISTS (
        SELECT FROM search_doc_t AS doc JOIN search_part_t AS part USING (part_id)
        WHERE (part.host_id, part.entity_type, doc.entity_id) = (%(host)s, %(kind)s, %(id)s))
    AND NOT EXISTS (SELECT FROM own
        WHERE update_ts > current_timestamp - make_interval(secs => %(pause)s))
    AND (EXISTS (SELECT FROM own) OR (SELECT count(DISTINCT principal) FROM had) < %(callers)s)
ON CONFLICT (host_id, entity_type, entity_id, model, principal, slot) DO UPDATE SET
    embedding = excluded.embedding, update_ts = current_timestamp
"""

_DERIVE = """
INSERT INTO usage_embedding_t (host_id, entity_type, entity_id, model, embedding, principals)
SELECT %(host)s, %(kind)s, %(id)s, %(model)s, l2_normalize(avg(caller.embedding)), count(*)
FROM (
    SELECT l2_normalize(avg(embedding)) AS embedding FROM usage_query_t
    WHERE (host_id, entity_type, entity_id, model) = (%(host)s, %(kind)s, %(id)s, %(model)s)
    GROUP BY principal
) AS caller
HAVING count(*) > 0
ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
    embedding = excluded.embedding, principals = excluded.principals,
    update_ts = current_timestamp
"""
