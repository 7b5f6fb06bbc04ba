"""Progress of embeddings: for commands, metrics and views of a tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct
from psycopg.rows import class_row

from registry.database.postgres import Pool, borrow
from registry.embedding.search_kinds import KINDS, TOOL, Kinds, SearchKind
from registry.embedding.target_models import Models, models, models_by_purpose


@dataclass(frozen=True, slots=True)
class EmbeddingCounts:
    """Counts of the active entities of one kind, for one model."""

    entity_type: str
    purpose: str
    model: str  # "": none, embeddings are disabled
    role: str  # "target", "serving", "target and serving"; "": neither
    total: int
    ready: int
    pending: int
    failed: int
    disabled: int
    blank: int


class FailureCount(Struct, frozen=True):
    """A reason why texts have no vector, and how many it affects."""

    error: str
    count: int
    example: str  # name of a tool, or the id of another entity


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    models: dict[str, Models]  # by purpose
    counts: tuple[EmbeddingCounts, ...]
    failed: tuple[FailureCount, ...]  # most frequent reasons first


class EntityEmbedding(Struct, frozen=True):
    """Status of one entity; `model` is the target, or the serving model while the target has no
    vector of it."""

    status: str
    model: str | None
    error: str | None
    embedded: datetime | None


async def status(pool: Pool, host_id: str) -> EmbeddingStatus:
    async with borrow(pool) as connection:
        models_of = await models_by_purpose(connection)
        async with connection.cursor(row_factory=class_row(EmbeddingCounts)) as cursor:
            await cursor.execute(_COUNTS, {"host": host_id, **_labels(models_of)})
            counts = await cursor.fetchall()
        async with connection.cursor(row_factory=class_row(FailureCount)) as failures:
            await failures.execute(_FAILURE_COUNTS, [host_id])
            failed = await failures.fetchall()
    return EmbeddingStatus(models_of, tuple(counts), tuple(failed))


async def tasks(pool: Pool, kinds: Kinds = KINDS) -> dict[str, int]:
    """Number of tasks of these kinds, of all tenants, by status."""
    counts = dict.fromkeys(("pending", "running", "failed"), 0)
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT status, count(*) FROM embedding_task_t WHERE entity_type = ANY(%s) GROUP BY 1",
            [list(kinds)],
        )
        return counts | {name: count async for name, count in rows}


async def embedding_of(
    pool: Pool, host_id: str, entity_id: str, kind: SearchKind = TOOL
) -> EntityEmbedding:
    """Status of an entity. Without a row: pending, or disabled where there is no target."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            """
            SELECT had.status, nullif(had.model, ''), had.error, had.embedded_ts
            FROM entity_embedding_t AS had LEFT JOIN embedding_model_t AS model
                ON (model.purpose, model.model) = (%s, had.model)
            WHERE (host_id, entity_type, entity_id) = (%s, %s, %s)
            ORDER BY coalesce(model.target, had.model = '') DESC, model.serving DESC LIMIT 1
            """,
            [kind.purpose, host_id, kind.name, entity_id],
        )
        row = await rows.fetchone()
        if row is not None:
            return EntityEmbedding(*row)
        target = (await models(connection, kind.purpose)).target
    return EntityEmbedding("pending" if target else "disabled", target, None, None)


def _labels(models_of: Mapping[str, Models]) -> dict[str, list[str]]:
    """Columns of the models of each purpose."""
    pairs = [
        (purpose, label)
        for purpose, of in models_of.items()
        for label in dict.fromkeys((of.target or "", of.serving or of.target or ""))
    ]
    return {"purposes": [purpose for purpose, _ in pairs], "models": [label for _, label in pairs]}


# Entities without a row: not queued yet, which happens when a model is registered.
_COUNTS = b"""
WITH entity AS (
    SELECT host_id, entity_type, entity_id FROM entity_source_v WHERE host_id = %(host)s AND active
), stood AS (
    SELECT entity.entity_type, label.purpose, label.model, coalesce((
        SELECT had.status FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
            = (entity.host_id, entity.entity_type, entity.entity_id, label.model)
        ), CASE WHEN label.model = '' THEN 'disabled' ELSE 'pending' END) AS status
    FROM entity JOIN search_kind_t AS kind USING (entity_type)
    JOIN unnest(%(purposes)s::text[], %(models)s::text[]) AS label (purpose, model)
        ON label.purpose = kind.purpose
)
SELECT entity_type, stood.purpose, stood.model, concat_ws(' and ',
        CASE WHEN known.target THEN 'target' END, CASE WHEN known.serving THEN 'serving' END
    ) AS role, count(*) AS total,
    count(*) FILTER (WHERE status = 'ready') AS ready,
    count(*) FILTER (WHERE status = 'pending') AS pending,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE status = 'disabled') AS disabled,
    count(*) FILTER (WHERE status = 'blank') AS blank
FROM stood LEFT JOIN embedding_model_t AS known USING (purpose, model)
GROUP BY entity_type, stood.purpose, stood.model, role ORDER BY entity_type DESC, role DESC
"""
_FAILURE_COUNTS = b"""
SELECT had.error, count(*) AS count,
    coalesce(min(tool.name), min(had.entity_id::text)) AS example
FROM entity_embedding_t AS had
LEFT JOIN tool_t AS tool
    ON had.entity_type = 'tool' AND (tool.host_id, tool.tool_id) = (had.host_id, had.entity_id)
WHERE had.host_id = %s AND had.error IS NOT NULL
GROUP BY had.error ORDER BY count(*) DESC, had.error LIMIT 5
"""
