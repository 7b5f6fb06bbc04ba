"""HNSW indexes on vectors: a partial index for each tenant, kind and model with many vectors.

An index shared by tenants would mostly find neighbours that a small tenant may not see. What
belongs to single owners is searched exactly: they have few vectors.
`search.exact_limit` selects the path of a search; the index is built in the background, and until
it is there large tenants are searched exactly, which takes longer: of 12,000 tools 20 ms instead of
5 in the database, of 100,000 some 250 instead of 10 (medians).
"""

import hashlib
import logging
from functools import lru_cache

from psycopg import AsyncConnection, sql

from registry.database.postgres import Database
from registry.database.sql_fragments import Fragment
from registry.embedding.vectors import half_vector

log = logging.getLogger("toolgate.search")

LOCK = 0x746F6F6C686E7377  # "toolhnsw": one node builds at a time
DROP_SHARE = 0.5  # of the limit: hysteresis, against repeated building and dropping
M = 16
EF_CONSTRUCTION = 128  # twice the default builds longer, and finds 98% where that finds 92%


def suffix(model: str) -> str:
    """The suffix of the index's name, after search_hnsw_<part>."""
    return f"_{hashlib.md5(model.encode(), usedforsecurity=False).hexdigest()[:8]}"


@lru_cache(maxsize=256)
def predicate(host_id: str, kind: str, model: str) -> Fragment:
    """The index's predicate on table `vector`, "%" doubled for a statement with parameters."""
    values = (value.replace("%", "%%") for value in (host_id, kind, model))
    return Fragment.of(_condition(*values, table=("vector",)))


def _condition(host_id: str, kind: str, model: str, *, table: tuple[str, ...] = ()) -> sql.Composed:
    """The predicate in literals; with parameters the planner does not match it to the index."""
    columns = ("host_id", "entity_type", "model", "status")
    host_id_, type_, model_, status = (sql.Identifier(*table, column) for column in columns)
    return sql.SQL(
        "{host_column} = {host}::uuid AND {type_column} = {kind} AND {model_column} = {model}"
        " AND {status_column} = 'ready'"
    ).format(
        host_column=host_id_,
        host=sql.Literal(host_id),
        type_column=type_,
        kind=sql.Literal(kind),
        model_column=model_,
        model=sql.Literal(model),
        status_column=status,
    )


async def ensure_indexes(database: Database, exact_limit: int) -> list[str]:
    """Build missing indexes and drop unneeded ones; returns those built.

    It may take minutes for a million vectors, and blocks no writer. While another node builds, it
    does no work.
    """
    async with database.connect() as connection:
        if not await _take_lock(connection):
            return []
        conditions = await _wanted_conditions(connection, exact_limit)
        existing = await _existing(connection)
        for name, valid in existing.items():
            if not valid or name not in conditions:
                await _drop(connection, name)
        await _forget_usage(connection)
        missing = {
            name: where
            for name, (where, many) in conditions.items()
            if many and not existing.get(name, False)
        }
        for name, where in missing.items():
            await _build(connection, name, where)
        return list(missing)


async def _take_lock(connection: AsyncConnection) -> bool:
    """Advisory lock, held until the connection is closed."""
    rows = await connection.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
    return await rows.fetchone() == (True,)


async def _wanted_conditions(
    connection: AsyncConnection, limit: int
) -> dict[str, tuple[sql.Composed, bool]]:
    """Conditions by name, and whether there are enough vectors for an index; a new model gets its
    index before it serves."""
    rows = await connection.execute(
        """
        SELECT part.part_id, part.host_id::text, part.entity_type, model.model, ready.count
        FROM search_part_t AS part
        JOIN search_kind_t AS kind USING (entity_type)
        JOIN embedding_model_t AS model USING (purpose)
        CROSS JOIN LATERAL (
            SELECT count(*) FROM entity_embedding_t AS had
            WHERE (had.host_id, had.entity_type, had.model, had.status)
                = (part.host_id, part.entity_type, model.model, 'ready')
        ) AS ready
        WHERE part.owner = '' AND (
            SELECT sum(docs) FROM search_count_t AS count
            WHERE (count.part_id, count.term) = (part.part_id, '')) > %s
        """,
        [int(limit * DROP_SHARE)],
    )
    return {
        f"search_hnsw_{part}{suffix(model)}": (_condition(host, kind, model), ready > limit)
        async for part, host, kind, model, ready in rows
        if ready > limit * DROP_SHARE
    }


async def _existing(connection: AsyncConnection) -> dict[str, bool]:
    """Existing indexes by name, and whether they are valid: an interrupted build leaves an invalid
    one."""
    rows = await connection.execute(
        "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " WHERE indrelid = 'entity_embedding_t'::regclass AND starts_with(relname, 'search_hnsw_')"
    )
    return {name: valid async for name, valid in rows}


async def _build(connection: AsyncConnection, name: str, where: sql.Composed) -> None:
    log.info("search_index_building", extra={"index": name})
    await connection.execute(
        sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON entity_embedding_t"
            " USING hnsw (({vector}) halfvec_ip_ops)"
            " WITH (m = {m}, ef_construction = {ef}) WHERE {where}"
        ).format(
            name=sql.Identifier(name),
            vector=half_vector(sql.SQL("embedding")),
            m=sql.Literal(M),
            ef=sql.Literal(EF_CONSTRUCTION),
            where=where,
        )
    )
    log.info("search_index_built", extra={"index": name})


async def _drop(connection: AsyncConnection, name: str) -> None:
    await connection.execute(
        sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name))
    )
    log.info("search_index_dropped", extra={"index": name})


async def _forget_usage(connection: AsyncConnection) -> None:
    """Delete feedback vectors of models no longer in use."""
    for table in ("usage_query_t", "usage_embedding_t"):
        await connection.execute(
            sql.SQL(
                "DELETE FROM {} AS used WHERE NOT EXISTS"
                " (SELECT FROM embedding_model_t AS model JOIN search_kind_t USING (purpose)"
                " WHERE (model.model, entity_type) = (used.model, used.entity_type))"
            ).format(sql.Identifier(table))
        )
