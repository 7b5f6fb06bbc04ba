"""Files and graphs as memories of one owner: a file is a memory of the kind `file` whose slot is
its path, an entity one of the kind `entity`, an observation a fact with its entity as the source.

They belong to the user of the call, or to its session where it has none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.dialects.anthropic_files import FileChanged, FileVersion
from gateway.wings.memory.dialects.mcp_graph import Entity, GraphChange, KnowledgeGraph, Relation
from gateway.wings.memory.erasure import forget_in
from gateway.wings.memory.memory_rows import NewMemory, Scope, check_content, check_text
from gateway.wings.memory.memory_search import MemoryQuery
from gateway.wings.memory.memory_store import Target, too_many
from gateway.wings.memory.search_conditions import Condition
from gateway.wings.memory.wiring import MemoryParts
from registry.database.postgres import borrow
from registry.database.sql_fragments import compose

RANKED_ENTITIES = 10  # entities that a search finds beside those that contain its query
NEAR = 0.5  # least cosine of one that shares no word with the query

_LIVE = sql.SQL("""host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s
    AND retired_ts IS NULL AND (expires_ts IS NULL OR expires_ts > now())
    AND (audience = '{}' OR %(agent)s::text = ANY (audience))""")
_FILE = sql.SQL("{live} AND kind = 'file' AND slot IS NOT NULL AND valid_to IS NULL").format(
    live=_LIVE
)
_NODES = compose(
    """
    SELECT memory_id::text, kind = 'entity', source ->> 'entity', content, metadata ->> 'type'
    FROM memory_t WHERE {live} AND kind IN ('entity', 'fact') AND source ? 'entity'
    ORDER BY created_ts, memory_id
""",
    live=_LIVE,
)
_RELATIONS = b"""
    SELECT from_name, to_name, relation FROM memory_relation_t
    WHERE host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s
    ORDER BY valid_from, from_name, relation, to_name
"""
_RELATE = b"""
    INSERT INTO memory_relation_t
        (host_id, scope, owner, subject, from_name, relation, to_name, valid_from)
    SELECT %(host)s, %(scope)s, %(owner)s, %(subject)s, one.*,
        clock_timestamp() + nth * interval '1 microsecond'
    FROM unnest(%(from)s::text[], %(relation)s::text[], %(to)s::text[])
        WITH ORDINALITY AS new (from_name, relation, to_name, nth)
    CROSS JOIN LATERAL (SELECT from_name, relation, to_name) AS one
    WHERE NOT EXISTS (SELECT FROM memory_tombstone_t AS tombstone
        WHERE tombstone.host_id = %(host)s AND tombstone.ts > now()
            AND tombstone.subject_hash = sha256(convert_to(%(key)s, 'UTF8')))
"""
_UNRELATE = b"""
    DELETE FROM memory_relation_t
    WHERE host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s
        AND (from_name, relation, to_name) IN (
            SELECT * FROM unnest(%(from)s::text[], %(relation)s::text[], %(to)s::text[]))
"""


def target_of(reader: Reader) -> Target:
    """Raises ProblemDetails for a caller without user and session."""
    scope: Scope = "session" if reader.subject is None else "user"
    return Target.of(reader, scope)


class MemoryFiles:
    """The files of one owner. Implements `FileStore`."""

    def __init__(self, parts: MemoryParts, reader: Reader) -> None:
        self._parts = parts
        self._target = target_of(reader)

    async def sizes(self) -> Mapping[str, int]:
        rows = await self._rows(sql.SQL("slot, octet_length(content)"))
        return dict(rows)

    async def read(self, path: str) -> FileVersion | None:
        rows = await self._rows(sql.SQL("content, memory_id::text"), [path])
        return FileVersion(*rows[0]) if rows else None

    async def write(self, path: str, text: str, since: str) -> None:
        check_text(text, self._parts.settings.content_bytes)
        new = self._parts.intake.new_memory(self._target.scope, text, kind="file", slot=path)
        async with borrow(self._parts.pool) as connection:
            [stored] = await self._parts.store.add_in(connection, self._target, [new])
            earlier = stored.superseded if stored.created else stored.id
            if (earlier or "") != since:
                raise FileChanged(path)  # which rolls back

    async def delete(self, paths: Sequence[str]) -> None:
        text = sql.SQL("m.kind = 'file' AND m.slot = ANY (%(paths)s)")
        condition: Condition = (text, {"paths": list(paths)})
        await self._parts.eraser.forget(self._target.reader, [self._target.scope], condition)

    async def rename(self, paths: Mapping[str, str]) -> None:
        rows = await self._rows(sql.SQL("slot, content, memory_id::text"), list(paths))
        new = [
            self._parts.intake.new_memory(
                self._target.scope, text, kind="file", slot=paths[old], replaces=id_
            )
            for old, text, id_ in rows
        ]
        async with borrow(self._parts.pool) as connection:
            stored = await self._parts.store.add_in(connection, self._target, new)
            for stored_file, row in zip(stored, rows, strict=True):
                if not stored_file.created or stored_file.superseded != row[2]:
                    raise FileChanged(row[0])

    async def _rows(
        self, columns: sql.SQL, paths: list[str] | None = None
    ) -> list[tuple[Any, ...]]:
        named = sql.SQL("" if paths is None else "AND slot = ANY (%(paths)s)")
        async with borrow(self._parts.pool) as connection:
            rows = await connection.execute(
                sql.SQL("SELECT {columns} FROM memory_t WHERE {file} {named}").format(
                    columns=columns, file=_FILE, named=named
                ),
                {**self._target.values, "paths": paths},
            )
            return await rows.fetchall()


class MemoryGraph:
    """The graph of one owner. Implements `GraphStore`."""

    def __init__(self, parts: MemoryParts, reader: Reader) -> None:
        self._parts = parts
        self._target = target_of(reader)

    async def read(self) -> KnowledgeGraph:
        async with borrow(self._parts.pool) as connection:
            return (await self._read(connection))[0]

    async def change(self, decide: Callable[[KnowledgeGraph], GraphChange]) -> GraphChange:
        async with borrow(self._parts.pool) as connection:
            await self._parts.store.begin(connection, self._target, [])
            graph, ids = await self._read(connection)
            change = decide(graph)
            gone = [*change.gone_observations, *((name, None) for name in change.gone_entities)]
            lost = [id_ for key in gone for id_ in ids.get(key, ())]
            if lost:
                await forget_in(connection, self._target.reader, lost)
            await self._relate(connection, _UNRELATE, change.gone_relations)
            return await self._add(connection, change, len(graph.relations))

    async def rank_names(self, query: str) -> Sequence[str]:
        condition: Condition = (sql.SQL("m.source ? 'entity'"), {})
        recall = MemoryQuery(
            reader=self._target.reader,
            query=query,
            scopes=[self._target.scope],
            condition=condition,
            limit=RANKED_ENTITIES,
        )
        result = await self._parts.recaller.search(recall)
        return [
            memory.source["entity"]
            for memory, scored in result.scored
            if scored.candidate.bm25 > 0 or (scored.candidate.cosine or 0) >= NEAR
        ]

    async def _read(
        self, connection: AsyncConnection
    ) -> tuple[KnowledgeGraph, dict[tuple[str, str | None], list[str]]]:
        """The graph, and the ids of the memories of each observation, and of each entity with
        all that it has."""
        types: dict[str, str] = {}
        texts: dict[str, list[str]] = {}
        ids: dict[tuple[str, str | None], list[str]] = {}
        rows = await connection.execute(_NODES, self._target.values)
        for id_, is_entity, name, content, kind in await rows.fetchall():
            ids.setdefault((name, None), []).append(id_)
            if is_entity:
                types[name] = kind or ""
            else:
                texts.setdefault(name, []).append(content)
                ids.setdefault((name, content), []).append(id_)
        related = await connection.execute(_RELATIONS, self._target.values)
        relations = tuple(Relation(*row) for row in await related.fetchall())
        entities = [Entity(name, kind, tuple(texts.get(name, ()))) for name, kind in types.items()]
        return KnowledgeGraph(tuple(entities), relations), ids

    async def _add(
        self, connection: AsyncConnection, change: GraphChange, relations: int
    ) -> GraphChange:
        """The change without observations that were there in another spelling."""
        most = self._parts.settings.owner_rows
        if change.relations and relations + len(change.relations) > most:
            raise too_many(
                f"The owner has {relations} relations, expected at most {most} (memory.owner_rows)."
            )
        for relation in change.relations:
            names = [relation.from_, relation.relation_type, relation.to]
            self._parts.intake.check_names(self._target.scope, "relation", names)
        await self._relate(connection, _RELATE, change.relations)
        observed = [
            (entity.name, text) for entity in change.entities for text in entity.observations
        ]
        observed += change.observations
        entities = [self._entity(entity) for entity in change.entities]
        facts = [self._observation(name, text) for name, text in observed]
        if not entities and not facts:
            return change
        added = await self._parts.store.add_in(connection, self._target, [*entities, *facts])
        stored = dict(zip(observed, added[len(entities) :], strict=True))
        observations = [
            observation for observation in change.observations if stored[observation].created
        ]
        return GraphChange(
            entities=change.entities, relations=change.relations, observations=observations
        )

    def _entity(self, entity: Entity) -> NewMemory:
        check_content(entity.name, self._parts.settings.content_bytes)
        source, metadata = {"entity": entity.name}, {"type": entity.entity_type}
        return self._parts.intake.new_memory(
            self._target.scope, entity.name, kind="entity", slot=f"entity {entity.name}",
            source=source, metadata=metadata,
        )  # fmt: skip

    def _observation(self, entity: str, text: str) -> NewMemory:
        check_content(text, self._parts.settings.content_bytes)
        return self._parts.intake.new_memory(self._target.scope, text, source={"entity": entity})

    async def _relate(
        self, connection: AsyncConnection, statement: bytes, relations: Sequence[Relation]
    ) -> None:
        if relations:
            values = {
                "from": [relation.from_ for relation in relations],
                "relation": [relation.relation_type for relation in relations],
                "to": [relation.to for relation in relations],
            }
            await connection.execute(statement, {**self._target.values, **values})
