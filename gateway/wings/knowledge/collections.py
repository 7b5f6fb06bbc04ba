"""Collections of documents: their owners, and whom they grant access."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from gateway.operations.problems import ProblemDetails, conflict, not_found
from gateway.wings.knowledge.caller_access import READABLE, Access, KnowledgeReader, has_access
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables

CollectionKind = Literal["docs", "code", "conversation", "mixed"]
OnSameSource = Literal["version", "append", "reject"]


@dataclass(frozen=True, slots=True)
class Collection:
    id: str
    name: str
    kind: CollectionKind
    owner: str
    description: str
    on_same_source: OnSameSource
    skip_trivial: bool
    documents: int
    grants: Mapping[str, Access]  # shown to its administrators alone
    is_admin: bool


@dataclass(frozen=True, slots=True)
class NewCollection:
    name: str
    kind: CollectionKind = "mixed"
    description: str = ""
    on_same_source: OnSameSource | None = None  # None: that of the kind
    skip_trivial: bool = False
    grants: Mapping[str, Access] | None = None
    id: str | None = None  # of the one that is meant; None: whichever has the name

    @property
    def same_source(self) -> OnSameSource:
        """Names of exchanges have a resolution of a second: two of one name are both kept."""
        return self.on_same_source or ("append" if self.kind == "conversation" else "version")


def no_write(name: str) -> ProblemDetails:
    text = f"The caller may not write to the collection {name[:100]!r}."
    return ProblemDetails(403, "forbidden", text)


class CollectionStore(Tables):
    def __init__(self, pool: Pool, limit: int) -> None:
        """`limit`: of collections of one owner."""
        self._pool = pool
        self._limit = limit

    async def find(
        self, reader: KnowledgeReader, names: Sequence[str] | None = None, access: Access = "read"
    ) -> list[Collection]:
        """Collections that the caller has this access to, by name. `names` None: all."""
        values = {**reader.values(access), "names": None if names is None else list(names)}
        rows = await self._fetch(_FIND, values)
        return [_collection(row) for row in rows]

    async def get(self, reader: KnowledgeReader, name: str, access: Access = "read") -> Collection:
        """Raises ProblemDetails: what may not be read is not there."""
        collections = await self.find(reader, [name])
        if not collections:
            raise not_found("collection", name)
        if access != "read" and not await self.find(reader, [name], access):
            raise no_write(name)
        return collections[0]

    async def put(self, reader: KnowledgeReader, new: NewCollection) -> Collection:
        """Create a collection of the caller, or change one that it administers; without `grants`
        those stay. Raises ProblemDetails."""
        async with borrow(self._pool) as connection:
            values = await self.ensure_in(connection, reader, new, access="admin")
            await connection.execute(_CHANGE, {**values, **_settings_of(new)})
            if new.grants is not None:
                await connection.execute(_GRANT, {**values, "grants": Jsonb(dict(new.grants))})
        return await self.get(reader, new.name)

    async def ensure_in(
        self,
        connection: AsyncConnection,
        reader: KnowledgeReader,
        new: NewCollection,
        access: Access,
    ) -> dict[str, Any]:
        """The parameters `host` and `collection` for the collection of that name, which is created
        if it does not exist, and its settings. Raises ProblemDetails without the access, and for
        one that was to be there (`NewCollection.id`) and was deleted."""
        values = {**reader.values(access), **_settings_of(new)}
        rows = await (await connection.execute(_OPEN, values)).fetchall()
        if not rows and new.id is None:
            await self._create(connection, reader, values)
            rows = await (await connection.execute(_OPEN, values)).fetchall()
        if new.id is not None and [row[0] for row in rows] != [new.id]:
            raise conflict(f"The collection {new.name[:100]!r} was deleted.")
        ((id_, same_source, skip_trivial, chunkers, owner, allowed),) = rows
        if not allowed:
            raise no_write(new.name)
        return {
            "host": reader.tenant,
            "collection": id_,
            "on_same_source": same_source,
            "skip_trivial": skip_trivial,
            "chunkers": chunkers,
            "collection_owner": owner,
        }

    async def _create(
        self, connection: AsyncConnection, reader: KnowledgeReader, values: Mapping[str, Any]
    ) -> None:
        reader.require_owner()
        await connection.execute(_OWNER_LOCK, values)
        counted = await connection.execute(
            "SELECT count(*) FROM knowledge_collection_t WHERE (host_id, owner)"
            " = (%(host)s, %(owner)s)",
            values,
        )
        ((count,),) = await counted.fetchall()
        if count >= self._limit:
            raise ProblemDetails(
                429,
                "quota",
                f"The caller owns {count} collections, expected at most {self._limit}"
                " (knowledge.collections).",
            )
        await connection.execute(_CREATE, {**values, "collection": str(uuid.uuid4())})

    async def delete(self, reader: KnowledgeReader, name: str) -> Collection:
        """The empty collection, now gone. Raises ProblemDetails."""
        collection = await self.get(reader, name, "admin")
        values = {**reader.values("admin"), "collection": collection.id}
        try:
            await self._execute(
                sql.SQL(
                    "DELETE FROM knowledge_collection_t AS collection WHERE {allowed}"
                    " AND collection_id = %(collection)s"
                ).format(allowed=READABLE),
                values,
            )
        except psycopg.errors.ForeignKeyViolation as error:
            text = f"Documents were added meanwhile to the collection {name[:100]!r}."
            raise conflict(text) from error
        return collection


def _settings_of(new: NewCollection) -> dict[str, Any]:
    return {
        "name": new.name,
        "kind": new.kind,
        "description": new.description,
        "on_same_source": new.same_source,
        "skip_trivial": new.skip_trivial,
    }


def _collection(row: Sequence[Any]) -> Collection:
    collection = Collection(*row)
    return collection if collection.is_admin else replace(collection, grants={})


_IS_ADMIN = has_access("ARRAY['admin']")
_FIND = compose(
    """
    SELECT collection_id::text, name, kind, owner, description, on_same_source, skip_trivial,
        (SELECT count(*) FROM knowledge_document_t AS document WHERE document.host_id = %(host)s
            AND document.collection_id = collection.collection_id)::integer,
        coalesce((SELECT jsonb_object_agg(grantee, access) FROM knowledge_grant_t AS granted
            WHERE granted.host_id = %(host)s
                AND granted.collection_id = collection.collection_id), '{{}}'),
        {is_admin}
    FROM knowledge_collection_t AS collection
    WHERE {allowed} AND (%(names)s::text[] IS NULL OR name = ANY (%(names)s)) ORDER BY name
""",
    is_admin=_IS_ADMIN,
    allowed=READABLE,
)
# Collections of an owner are created one after the other, so that none is beyond the limit.
_OWNER_LOCK = b"""
    SELECT pg_advisory_xact_lock(hashtextextended(%(host)s || %(owner)s, 21))
"""
_OPEN = compose(
    """
    SELECT collection_id::text, on_same_source, skip_trivial, chunkers, owner, {allowed}
    FROM knowledge_collection_t AS collection WHERE (host_id, name) = (%(host)s, %(name)s)
    FOR KEY SHARE
""",
    allowed=READABLE,
)
_CREATE = b"""
    INSERT INTO knowledge_collection_t (host_id, collection_id, name, kind, owner, description,
        on_same_source, skip_trivial)
    VALUES (%(host)s, %(collection)s, %(name)s, %(kind)s, %(owner)s, %(description)s,
        %(on_same_source)s, %(skip_trivial)s)
    ON CONFLICT DO NOTHING
"""
_CHANGE = b"""
    UPDATE knowledge_collection_t SET kind = %(kind)s, description = %(description)s,
        on_same_source = %(on_same_source)s, skip_trivial = %(skip_trivial)s
    WHERE (host_id, collection_id) = (%(host)s, %(collection)s)
"""
_GRANT = b"""
    WITH given AS MATERIALIZED (SELECT key, value FROM jsonb_each_text(%(grants)s)),
    gone AS (
        DELETE FROM knowledge_grant_t WHERE (host_id, collection_id) = (%(host)s, %(collection)s)
            AND grantee NOT IN (SELECT key FROM given)
    )
    INSERT INTO knowledge_grant_t (host_id, collection_id, grantee, access)
    SELECT %(host)s, %(collection)s, key, value FROM given
    ON CONFLICT (host_id, collection_id, grantee) DO UPDATE SET access = excluded.access
"""
