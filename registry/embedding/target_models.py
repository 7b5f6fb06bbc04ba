"""Embedding models: their labels, and of each purpose the target model of new vectors and the
serving model of searches.

A label is "<provider>/<name of the model>". A model that no name identifies has a label ending in
"@" and a hash: of a directory's files, or of a nameless service's address. A label too long for its
column ends in "~" and a hash. Neither can be turned back into a model.

The two differ while a new model takes over: the old one's vectors are searched until the new one
has embedded everything, and are deleted then. A tool edited meanwhile loses its old vector at once
and is found by its words until it has the new one.

With embeddings disabled there is no target: what is written then has the status disabled. Vectors
stay, and serve again when the same model comes back.
"""

import hashlib
import logging
from pathlib import Path

from msgspec import Struct
from psycopg import AsyncConnection, sql

from config.value_types import VECTOR_DIMENSION
from registry.database.postgres import Pool, borrow
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.search_kinds import KINDS, TOOLS, Kinds, of_purpose

LONGEST = 128  # embedding_model_t.model
_HASH = 12  # hexadecimal digits: 48 bits distinguish a few models
_SAMPLE_BYTES = 65536  # from either end of a file; retrained weights differ there

log = logging.getLogger("toolgate.embedding")


CHANNEL = "toolgate_embedding"  # "": texts were queued; "model": target or serving changed
_LOCK = 0x746F6F6C656D6264  # as in 0006_embeddings.sql: queueing holds it, shared
_FAILED_MOST = 0.1  # of all texts; a model that fails more often replaces no other
_PURGE_BATCH = 1000  # vectors per statement


def label(provider: str, model: str) -> str:
    """The label of a model whose name `model` identifies it everywhere."""
    full_label = f"{provider}/{model}"
    if len(full_label) <= LONGEST:
        return full_label
    return f"{full_label[: LONGEST - _HASH - 1]}~{_hash(full_label.encode())}"


def nameless(provider: str, address: str) -> str:
    """The label of a service with a single, nameless model. The address cannot be recovered from
    it."""
    return label(provider, f"@{_hash(address.encode())}")


def directory(provider: str, folder: Path) -> str:
    """The label of the model in directory `folder`, the same for each copy of it.

    Raises OSError.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(file.read(_SAMPLE_BYTES))
    name = folder.resolve().name[: LONGEST - len(provider) - _HASH - 2]
    return f"{provider}/{name}@{digest.hexdigest()[:_HASH]}"


def by_name(label: str) -> tuple[str, str]:
    """(provider, model) of a label; the model is "" where the label contains no name."""
    provider, _, model = label.partition("/")
    hashed = model[-_HASH - 1 : -_HASH] in ("@", "~")
    return provider, "" if hashed else model


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


class Models(Struct, frozen=True):
    """The target and serving models, by label; None: no model."""

    target: str | None
    serving: str | None


async def models(connection: AsyncConnection, purpose: str = TOOLS) -> Models:
    return (await models_by_purpose(connection)).get(purpose, Models(None, None))


async def models_by_purpose(connection: AsyncConnection) -> dict[str, Models]:
    """Models of every purpose that some kind of entity has."""
    rows = await connection.execute(
        """
        SELECT purpose, max(model) FILTER (WHERE target), max(model) FILTER (WHERE serving)
        FROM (SELECT DISTINCT purpose FROM search_kind_t) AS used
        LEFT JOIN embedding_model_t USING (purpose) GROUP BY purpose ORDER BY purpose
        """
    )
    return {purpose: Models(target, serving) async for purpose, target, serving in rows}


async def check_kinds(pool: Pool, kinds: Kinds) -> None:
    """Check the purposes of `kinds`. Raises EmbeddingFailed where the database has another purpose
    for one of these kinds, or does not know it: its texts would be queued for no model, or for
    another."""
    async with borrow(pool) as connection:
        rows = await connection.execute("SELECT entity_type, purpose FROM search_kind_t")
        added = {name: purpose async for name, purpose in rows}
    for name, kind in kinds.items():
        if added.get(name) != kind.purpose:
            presence = f"has the purpose {added[name]}" if name in added else "is missing"
            raise EmbeddingFailed(
                f"the kind of search {name} {presence} in the database, and not {kind.purpose}: "
                "its migrations have to call search_kind_add with the purpose of its SearchKind",
                retryable=name not in added,  # its tables may come a moment later
            )


async def register(pool: Pool, embedder: Embedder | None, purpose: str = TOOLS) -> bool:
    """Make `embedder` the target of new texts of this purpose; None: disable them. Returns whether
    the target changed.

    Gateways of one database should agree; otherwise the last one decides. Raises EmbeddingFailed
    for a model whose vectors cannot be stored, and for one that is to replace another and does not
    work: the existing one serves better.
    """
    model = embedder.model if embedder else None
    if embedder and embedder.dimension != VECTOR_DIMENSION:
        raise EmbeddingFailed(
            f"{model} makes vectors of {embedder.dimension} numbers; only {VECTOR_DIMENSION} can "
            "be stored: choose another model, or embedding.dimension where the service can shorten",
            retryable=False,
        )
    async with borrow(pool) as connection:
        present = (await models(connection, purpose)).target
    if present == model:
        return False
    if embedder is not None and present is not None:
        await embedder.embed(["a text to begin with"])
    async with borrow(pool) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        before = await models(connection, purpose)
        if before.target == model:  # another node was faster
            return False
        await _retire_target(connection, purpose, keep=model is None)
        if embedder is not None:
            await _enter(connection, embedder, purpose)
        await connection.execute("SELECT pg_notify(%s, 'model')", [CHANNEL])
    facts = {"model": model, "purpose": purpose}
    if before.target:
        log.warning("embedding_model_changed", extra={"before": before.target, **facts})
    else:
        log.info("embedding_model", extra=facts)
    return True


async def settle(connection: AsyncConnection, purpose: str = TOOLS, kinds: Kinds = KINDS) -> bool:
    """Let the target of a purpose serve once it has no open tasks; returns whether it does from now
    on.

    It does not while a text of these kinds has no vector, or where one in ten has failed: then the
    model is faulty, and the old vectors are better.
    """
    result = await connection.execute(
        """
        SELECT target.model FROM embedding_model_t AS target
        WHERE target.purpose = %(purpose)s AND target.target AND NOT target.serving
            AND NOT EXISTS (
                SELECT FROM embedding_task_t AS task
                WHERE task.model = target.model AND task.entity_type = ANY(%(kinds)s)
                    AND task.status <> 'failed')
            AND NOT EXISTS (
                SELECT FROM entity_source_v AS source
                WHERE source.entity_type = ANY(%(kinds)s) AND source.active AND (
                    SELECT true FROM entity_embedding_t AS had
                    WHERE (had.host_id, had.entity_type, had.entity_id, had.model) = (
                        source.host_id, source.entity_type, source.entity_id, target.model)
                    ) IS NULL)
            AND (SELECT count(*) FILTER (WHERE status = 'failed') <= %(failed)s * count(*)
                FROM entity_embedding_t AS had
                WHERE had.model = target.model AND had.entity_type = ANY(%(kinds)s))
        FOR UPDATE OF target
        """,
        {"purpose": purpose, "kinds": list(of_purpose(kinds, purpose)), "failed": _FAILED_MOST},
    )
    row = await result.fetchone()
    if row is None:
        return False
    for statement in (
        b"UPDATE embedding_model_t SET serving = false WHERE serving AND purpose = %s",
        b"UPDATE embedding_model_t SET serving = true WHERE target AND purpose = %s",
    ):
        await connection.execute(statement, [purpose])
    await connection.execute("SELECT pg_notify(%s, 'model')", [CHANNEL])
    log.info("embedding_model_serving", extra={"model": row[0], "purpose": purpose})
    return True


async def purge(pool: Pool) -> int:
    """Delete models that are neither target nor serving; returns the number of their vectors.

    In small transactions that wait for no lock: writers of tools come first.
    """
    count = 0
    async with borrow(pool) as connection:
        result = await connection.execute(
            "SELECT FROM embedding_model_t WHERE NOT target AND NOT serving LIMIT 1"
        )
        if result.rowcount == 0:
            return 0
    while True:
        async with borrow(pool) as connection:
            done = await connection.execute(
                """
                DELETE FROM entity_embedding_t WHERE ctid = ANY (ARRAY(
                    SELECT had.ctid FROM entity_embedding_t AS had
                    WHERE had.model <> '' AND NOT EXISTS (
                        SELECT FROM embedding_model_t AS used JOIN search_kind_t USING (purpose)
                        WHERE (used.target OR used.serving)
                            AND (used.model, entity_type) = (had.model, had.entity_type))
                    LIMIT %s FOR UPDATE SKIP LOCKED))
                """,
                [_PURGE_BATCH],
            )
            count += done.rowcount
            if done.rowcount < _PURGE_BATCH:
                await connection.execute(
                    "DELETE FROM embedding_model_t WHERE NOT target AND NOT serving"
                )
                return count


async def _retire_target(connection: AsyncConnection, purpose: str, *, keep: bool) -> None:
    """Retire the target. `keep`: its rows get the status disabled; otherwise they are deleted."""
    change = sql.SQL(
        "UPDATE entity_embedding_t SET model = '', error = NULL,"
        " status = CASE status WHEN 'blank' THEN 'blank' ELSE 'disabled' END"
        if keep
        else "DELETE FROM entity_embedding_t"
    )
    among = sql.SQL(
        "entity_type IN (SELECT entity_type FROM search_kind_t WHERE purpose = %(purpose)s)"
    )
    for statement in (
        sql.SQL("DELETE FROM embedding_task_t WHERE {among}").format(among=among),
        sql.SQL(
            "{rest} WHERE status <> 'ready' AND {among} AND model = ("
            "SELECT model FROM embedding_model_t WHERE target AND purpose = %(purpose)s)"
        ).format(rest=change, among=among),
        sql.SQL(
            "UPDATE embedding_model_t SET target = false WHERE target AND purpose = %(purpose)s"
        ),
    ):
        await connection.execute(statement, {"purpose": purpose})


async def _enter(connection: AsyncConnection, embedder: Embedder, purpose: str) -> None:
    """Insert the target; it serves too where there is no vector to search meanwhile."""
    await connection.execute(
        """
        UPDATE embedding_model_t AS model SET serving = false
        WHERE serving AND purpose = %(purpose)s AND NOT EXISTS (
            SELECT FROM entity_embedding_t AS had JOIN search_kind_t AS kind USING (entity_type)
            WHERE had.model = model.model AND had.status = 'ready'
                AND kind.purpose = model.purpose)
        """,
        {"purpose": purpose},
    )
    await connection.execute(
        """
        INSERT INTO embedding_model_t AS old
            (purpose, model, provider, dimension, target, serving)
        VALUES (%(purpose)s::text, %(model)s, %(provider)s, %(dimension)s, true, NOT EXISTS (
            SELECT FROM embedding_model_t WHERE serving AND purpose = %(purpose)s::text))
        ON CONFLICT (purpose, model) DO UPDATE SET target = true,
            serving = old.serving OR excluded.serving
        """,
        {
            "purpose": purpose,
            "model": embedder.model,
            "provider": embedder.model.partition("/")[0],
            "dimension": embedder.dimension,
        },
    )
