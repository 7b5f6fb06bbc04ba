"""Memories in the database: writing, reading by id, lists, and history.

Writers lock the subject, which an erasure locks exclusively, and then the row of the owner in
`memory_owner_t`, and so take turns: of two values of one slot, or two equal contents, the second
finds the first. All times are the database's.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from config.memory import MemorySettings
from gateway.operations.problems import ProblemDetails, conflict, not_found
from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.memory_rows import (
    COLUMNS,
    SCOPES,
    Memory,
    NewMemory,
    Scope,
    content_hash,
    memory_of,
    new_ids,
)
from gateway.wings.memory.search_conditions import EVERY, NOW, Condition, Times, visible
from registry.database.postgres import Pool, autocommit, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables
from schemas.jsonrpc import encode

SUBJECT_LOCK = sql.SQL("hashtextextended(%(key)s, 0)")
QUOTAS = ("writes_per_minute", "owner_rows", "owner_bytes")
MINUTE_S = 60
TENANT_COUNTED_S = 30.0  # the rows of a tenant are counted anew after that


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory that was stored, or that was there already."""

    id: str
    created: bool
    superseded: str | None = None  # the id of the value that was in its slot, or that it replaces
    refusal: ProblemDetails | None = None  # why one of several was not stored


@dataclass(frozen=True, slots=True)
class Target:
    """Where memories are written."""

    reader: Reader
    scope: Scope
    owner: str
    subject: str | None  # whose data it is

    @classmethod
    def of(cls, reader: Reader, scope: Scope) -> "Target":
        """Raises ProblemDetails."""
        personal = scope in ("session", "user")
        return cls(reader, scope, reader.owner(scope), reader.subject if personal else None)

    @property
    def values(self) -> dict[str, Any]:
        return {
            "host": self.reader.tenant,
            "scope": self.scope,
            "owner": self.owner,
            "subject": self.subject,
            "key": subject_key(self.reader.tenant, self.subject or ""),
            "agent": self.reader.agent,
        }


def subject_key(tenant: str, subject: str) -> str:
    return f"{tenant} {subject}"


@contextmanager
def refusals() -> Iterator[None]:
    """The refusals of the functions that write, as ProblemDetails."""
    try:
        yield
    except psycopg.errors.CheckViolation as error:
        text = error.diag.message_primary or ""
        match error.diag.constraint_name:
            case "memory_quota":
                raise too_many(text) from error
            case "memory_writes":
                raise too_many(text, MINUTE_S) from error
            case "memory_erased":
                raise conflict(text) from error
            case _:
                raise


def too_many(text: str, retry_s: int | None = None) -> ProblemDetails:
    headers = {} if retry_s is None else {"Retry-After": str(retry_s)}
    return ProblemDetails(429, "quota", text, headers=headers)


class MemoryStore(Tables):
    def __init__(self, pool: Pool, settings: MemorySettings) -> None:
        self._pool = pool
        self._settings = settings
        self._limits = Jsonb({name: getattr(settings, name) for name in QUOTAS})
        self._tenants: dict[str, tuple[float, int]] = {}  # when counted, rows
        self.given: Counter[tuple[str, str]] = Counter()  # memories, by scope and outcome

    async def add(
        self, target: Target, memories: Sequence[NewMemory], document: str | None = None
    ) -> list[StoredMemory]:
        """Store memories in one transaction, in their order. `document`: whose chunks they are;
        those that it had and that are not among these are retired. One of several that replaces
        what is not there is refused by itself. Raises ProblemDetails."""
        added = await self._add_once(target, memories, document)
        self.given.update(
            (target.scope, "added" if item.created else "present")
            for item in added
            if item.refusal is None
        )
        return added

    async def _add_once(
        self, target: Target, memories: Sequence[NewMemory], document: str | None
    ) -> list[StoredMemory]:
        placed = any(memory.slot is not None or memory.replaces is not None for memory in memories)
        if target.scope != "session" and document is None and not placed:
            return await self._add_at_once(target, memories)
        async with borrow(self._pool) as connection:
            added = await self.add_in(connection, target, memories, partly=True)
            if all(stored.refusal is not None for stored in added):
                raise next(stored.refusal for stored in added if stored.refusal is not None)
            if document is not None:
                values = {
                    **target.values,
                    "document": document,
                    "ids": [stored.id for stored in added if stored.id],
                }
                await connection.execute(_REPLACE_CHUNKS, values)
            return added

    async def _add_at_once(
        self, target: Target, memories: Sequence[NewMemory]
    ) -> list[StoredMemory]:
        """`add` in one statement: nothing in it depends on what is there but equal contents."""
        hashes, ids = [memory.hash for memory in memories], new_ids(len(memories))
        new: dict[bytes, tuple[str, NewMemory]] = {}
        for digest, id_, memory in zip(hashes, ids, memories, strict=True):
            new.setdefault(digest, (id_, memory))
        async with autocommit(self._pool) as connection:
            await self._check_tenant(connection, target, len(memories))
            with refusals():
                values = self._quotas(target, memories) | rows(new)
                result = await connection.execute(_ADD, values)
            present = {bytes(digest): str(id_) for digest, id_ in await result.fetchall()}
        return [
            StoredMemory(present[digest], created=present[digest] == id_)
            for digest, id_ in zip(hashes, ids, strict=True)
        ]

    async def add_in(
        self,
        connection: AsyncConnection,
        target: Target,
        memories: Sequence[NewMemory],
        *,
        partly: bool = False,
    ) -> list[StoredMemory]:
        """`add` within a transaction of the caller. `partly`: one that replaces what is not there
        is refused by itself. Raises ProblemDetails."""
        await self.begin(connection, target, memories)
        hashes = [memory.hash for memory in memories]
        ids_by_hash = await self._known_ids(connection, target, memories, hashes)
        added: list[StoredMemory] = []
        new: dict[bytes, tuple[str, NewMemory]] = {}
        for digest, id_, memory in zip(hashes, new_ids(len(memories)), memories, strict=True):
            if (same := ids_by_hash.get(digest)) is not None:
                added.append(StoredMemory(same, created=False))
                continue
            ids_by_hash[digest], old = id_, None
            if memory.slot is not None or memory.replaces is not None:
                await self._insert(connection, target, new)  # an earlier value of the slot
                new = {}
                try:
                    memory, old = await self._supersede(connection, target, id_, memory)
                except ProblemDetails as problem:  # before anything of it was written
                    if not partly:
                        raise
                    del ids_by_hash[digest]
                    added.append(StoredMemory("", created=False, refusal=problem))
                    continue
            new[digest] = id_, memory
            added.append(StoredMemory(id_, created=True, superseded=old))
        await self._insert(connection, target, new)
        await self.cap(connection, target)
        await self._renew(connection, target)
        return added

    async def begin(
        self,
        connection: AsyncConnection,
        target: Target,
        memories: Sequence[NewMemory | Memory],
        old_memories: Sequence[Memory] = (),
    ) -> None:
        """Lock owner and subject, and check quotas. `old_memories`: those that the memories
        replace, which become history. Raises ProblemDetails."""
        await self._check_tenant(connection, target, len(memories) - len(old_memories))
        with refusals():
            await connection.execute(_BEGIN, self._quotas(target, memories, old_memories))

    def _quotas(
        self,
        target: Target,
        memories: Sequence[NewMemory | Memory],
        old_memories: Sequence[Memory] = (),
    ) -> dict[str, Any]:
        """Sums that quotas are checked against."""
        return {
            **target.values,
            "caller": target.reader.subject,
            "count": len(memories),
            "replaced": len(old_memories),
            "size": _size(memories) - _size(old_memories),
            "limits": self._limits,
        }

    async def _check_tenant(self, connection: AsyncConnection, target: Target, count: int) -> None:
        """Raises ProblemDetails where a tenant has too many rows, as counted a moment ago."""
        tenant = target.reader.tenant
        counted, rows = self._tenants.get(tenant, (float("-inf"), 0))
        if time.monotonic() - counted > TENANT_COUNTED_S:
            result = await connection.execute(
                "SELECT coalesce(sum(rows), 0)::bigint FROM memory_owner_t WHERE host_id = %s",
                [tenant],
            )
            ((rows,),) = await result.fetchall()
            self._tenants[tenant] = (time.monotonic(), rows)
        if rows + count > self._settings.tenant_rows:
            text = f"{self._settings.tenant_rows} memories (memory.tenant_rows)"
            raise too_many(f"The tenant has {text}.")

    async def _known_ids(
        self,
        connection: AsyncConnection,
        target: Target,
        memories: Sequence[NewMemory],
        hashes: Sequence[bytes],
    ) -> dict[bytes, str]:
        """Ids of present memories with these contents. Those that have expired make room."""
        values = {
            **target.values,
            "hashes": list(hashes),
            "slots": [memory.slot for memory in memories if memory.slot is not None],
        }
        rows = await connection.execute(_EARLIER_MEMORIES, values)
        return {bytes(digest): id_ for digest, id_ in await rows.fetchall()}

    async def _supersede(
        self, connection: AsyncConnection, target: Target, id_: str, memory: NewMemory
    ) -> tuple[NewMemory, str | None]:
        """Retire what the new memory replaces, or the present value of its slot; returns the new
        one and the id of the old one. A value that was true before the present one is history: it
        ends where that begins. Raises ProblemDetails."""
        values = {**target.values, "new": id_, "slot": memory.slot, "from": memory.valid_from}
        values |= {"replaces": memory.replaces}
        if memory.replaces is not None:
            rows = await connection.execute(_REPLACE, values)
            if not await rows.fetchall():
                raise not_found("memory", memory.replaces)
        if memory.slot is None or memory.valid_to is not None:
            return memory, memory.replaces
        rows = await connection.execute(_PRESENT, values)
        present = await rows.fetchall()
        if not present:
            return memory, memory.replaces
        ((old, since),) = present
        if memory.valid_from is not None and memory.valid_from < since:
            return replace(memory, valid_to=since), memory.replaces
        await connection.execute(_RETIRE_SLOT, values)
        return memory, old

    async def _insert(
        self,
        connection: AsyncConnection,
        target: Target,
        new: Mapping[bytes, tuple[str, NewMemory]],
    ) -> None:
        """Raises ProblemDetails where the subject was erased after these were made."""
        if new:
            lifetime_s = self._settings.session.ttl_s if target.scope == "session" else None
            values = {**target.values, **rows(new), "lifetime": lifetime_s}
            with refusals():
                await connection.execute(_INSERT, values)

    async def cap(self, connection: AsyncConnection, target: Target) -> None:
        """Retire the least of a session that is full."""
        if target.scope == "session":
            values = {**target.values, "max": self._settings.session.max}
            await connection.execute(_CAP, values)

    async def _renew(self, connection: AsyncConnection, target: Target) -> None:
        """Renew what a session has."""
        if target.scope == "session":
            values = {**target.values, "ttl": self._settings.session.ttl_s}
            await connection.execute(_RENEW, values)

    async def get(
        self, reader: Reader, ids: Sequence[str], times: Times | None = None
    ) -> list[Memory]:
        """Memories that the reader may read, in the given order."""
        condition, values = readable(reader)
        if times is not None:
            text, more = visible(times, reader.agent)
            condition, values = (
                sql.SQL("{condition} AND {text}").format(condition=condition, text=text),
                {**values, **more},
            )
        rows = await self._fetch(
            sql.SQL(
                "SELECT {columns} FROM memory_t AS m WHERE {condition}"
                " AND m.memory_id = ANY (%(ids)s::uuid[])"
            ).format(columns=COLUMNS, condition=condition),
            {**values, "ids": list(ids)},
        )
        memories = {memory.id: memory for memory in map(memory_of, rows)}
        return [memories[id_] for id_ in ids if id_ in memories]

    async def page(
        self,
        reader: Reader,
        *,
        scopes: Sequence[Scope] = SCOPES,
        condition: Condition = EVERY,
        times: Times = NOW,
        after: tuple[datetime, str] | None = None,
        limit: int,
    ) -> list[Memory]:
        """Memories, newest first; one more than `limit` if there are more."""
        places = reader.places(scopes)
        visibility, values = visible(times, reader.agent)
        rows = await self._fetch(
            sql.SQL("""
            SELECT {columns} FROM unnest(%(scopes)s::text[], %(owners)s::text[])
                AS place (scope, owner)
            JOIN memory_t AS m ON m.host_id = %(host)s AND m.scope = place.scope
                AND m.owner = place.owner
            WHERE {shown} AND {condition} AND (%(after)s::timestamptz IS NULL
                OR (m.created_ts, m.memory_id) < (%(after)s, %(after_id)s::uuid))
            ORDER BY m.created_ts DESC, m.memory_id DESC LIMIT %(limit)s
            """).format(columns=COLUMNS, shown=visibility, condition=condition[0]),
            {
                **values,
                **condition[1],
                "host": reader.tenant,
                "scopes": [scope for scope, _ in places],
                "owners": [owner for _, owner in places],
                "after": None if after is None else after[0],
                "after_id": None if after is None else after[1],
                "limit": limit + 1,
            },
        )
        return [memory_of(row) for row in rows]

    async def counts(self, reader: Reader) -> dict[str, int]:
        """Memories that the reader may read now, by scope."""
        condition, values = readable(reader)
        visibility, more = visible(NOW, reader.agent)
        rows = await self._fetch(
            sql.SQL(
                "SELECT m.scope, count(*) FROM memory_t AS m WHERE {condition} AND {shown}"
                " GROUP BY m.scope"
            ).format(condition=condition, shown=visibility),
            {**values, **more},
        )
        counts: dict[str, int] = dict(rows)
        return {scope: counts.get(scope, 0) for scope in SCOPES}

    async def history(self, reader: Reader, id_: str) -> list[Memory]:
        """A memory, what it superseded, and what superseded it, oldest first; none if it may not
        be read."""
        condition, values = readable(reader)
        rows = await self._fetch(
            sql.SQL("""
            WITH RECURSIVE chain AS (
                SELECT m.memory_id, m.superseded_by FROM memory_t AS m
                WHERE {condition} AND m.memory_id = %(id)s::uuid
                UNION
                SELECT m.memory_id, m.superseded_by FROM chain JOIN memory_t AS m
                    ON m.superseded_by = chain.memory_id OR m.memory_id = chain.superseded_by
                WHERE {condition}
            )
            SELECT {columns} FROM memory_t AS m
            WHERE {condition} AND m.memory_id IN (SELECT memory_id FROM chain)
            ORDER BY m.valid_from, m.created_ts, m.memory_id
            """).format(condition=condition, columns=COLUMNS),
            {**values, "id": id_},
        )
        return [memory_of(row) for row in rows]

    async def update(
        self, reader: Reader, id_: str, version: int, changes: Mapping[str, Any]
    ) -> Memory:
        """Change a memory, which keeps its id; the text before stays as history. Raises
        ProblemDetails: 404, 409 where the version is not the present one."""
        condition, values = readable(reader)
        async with borrow(self._pool) as connection:
            await connection.execute(_LOCK_OF, {**values, "id": id_})
            result = await connection.execute(
                sql.SQL(
                    "SELECT {columns} FROM memory_t AS m WHERE {condition}"
                    " AND m.memory_id = %(id)s::uuid AND retired_ts IS NULL"
                    " AND (expires_ts IS NULL OR expires_ts > now()) FOR UPDATE"
                ).format(columns=COLUMNS, condition=condition),
                {**values, "id": id_},
            )
            rows = await result.fetchall()
            if not rows:
                raise not_found("memory", id_)
            present = memory_of(rows[0])
            if present.version != version:
                raise conflict(
                    f"The memory has the version {present.version}, not {version}: read it again."
                )
            changed = replace(present, **changes, version=version + 1)
            subject = present.subject if present.scope in ("session", "user") else None
            target = Target(reader, present.scope, present.owner, subject)
            await self.begin(connection, target, [changed], [present])
            try:
                await _rewrite(connection, reader.tenant, present, changed)
            except psycopg.errors.UniqueViolation as error:
                raise conflict("Another memory says exactly this: forget one of them.") from error
            return changed


def rows(new: Mapping[bytes, tuple[str, NewMemory]]) -> dict[str, Any]:
    """New memories with their ids, by their hashes, as the functions that write take them."""
    return {
        "ids": [id_ for id_, _ in new.values()],
        "hashes": list(new),
        "rows": Jsonb([memory for _, memory in new.values()], encode),
    }


def _size(memories: Sequence[NewMemory | Memory]) -> int:
    return sum(len(memory.content.encode()) for memory in memories)


async def _rewrite(
    connection: AsyncConnection, tenant: str, present: Memory, memory: Memory
) -> None:
    """The old text becomes a retired row of a new id, which the changed one superseded. Deleting
    and inserting makes the triggers index and embed it."""
    (old,) = new_ids(1)
    await connection.execute(
        _REWRITE,
        {
            "host": tenant,
            "scope": present.scope,
            "owner": present.owner,
            "id": present.id,
            "old": old,
            "content": memory.content,
            "hash": content_hash(memory),
            "importance": memory.importance,
            "pinned": memory.pinned,
            "metadata": Jsonb(dict(memory.metadata)),
            "masked": list(memory.masked),
        },
    )


OF_PLACES = sql.SQL("""m.host_id = %(host)s AND (m.scope, m.owner) IN
    (SELECT * FROM unnest(%(scopes)s::text[], %(owners)s::text[]))
    AND (m.audience = '{}' OR %(agent)s::text = ANY (m.audience))
    AND (m.expires_ts IS NULL OR m.expires_ts > now())""")


def readable(reader: Reader, scopes: Sequence[Scope] = SCOPES) -> Condition:
    """The condition that a row is of an owner, within these scopes, that the reader may read, and
    has not expired."""
    places = reader.places(scopes)
    values = {
        "host": reader.tenant,
        "scopes": [scope for scope, _ in places],
        "owners": [owner for _, owner in places],
        "agent": reader.agent,
    }
    return OF_PLACES, values


_OWN = sql.SQL("host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s")
_PLACE = sql.SQL("%(host)s, %(scope)s, %(owner)s")
_BEGIN = compose(
    """
    SELECT memory_begin({place}, %(subject)s, %(key)s, %(caller)s, %(count)s, %(replaced)s,
        %(size)s, %(limits)s)
""",
    place=_PLACE,
)
_INSERT = compose(
    """
    SELECT memory_insert({place}, %(subject)s, %(key)s, %(agent)s, %(ids)s::uuid[], %(hashes)s,
        %(rows)s, %(lifetime)s)
""",
    place=_PLACE,
)
_EARLIER_MEMORIES = compose(
    "SELECT hash, id::text FROM memory_known({place}, %(agent)s, %(hashes)s, %(slots)s)",
    place=_PLACE,
)
_ADD = compose(
    """
    SELECT hash, id FROM memory_add({place}, %(subject)s, %(key)s, %(agent)s, %(caller)s,
        %(ids)s::uuid[], %(hashes)s, %(rows)s, %(count)s, %(size)s, %(limits)s)
""",
    place=_PLACE,
)
_PRESENT = compose(
    """
    SELECT CASE WHEN audience = '{{}}' OR %(agent)s::text = ANY (audience)
        THEN memory_id::text END, valid_from FROM memory_t
    WHERE {own} AND slot = %(slot)s AND retired_ts IS NULL AND valid_to IS NULL
""",
    own=_OWN,
)
_RETIRE_SLOT = compose(
    """
    UPDATE memory_t SET retired_ts = now(), retired_by = 'slot', superseded_by = %(new)s::uuid,
        valid_to = greatest(coalesce(%(from)s, now()), valid_from)
    WHERE {own} AND slot = %(slot)s AND retired_ts IS NULL AND valid_to IS NULL
""",
    own=_OWN,
)
_REPLACE = compose(
    """
    UPDATE memory_t SET retired_ts = now(), retired_by = 'replaced',
        superseded_by = %(new)s::uuid
    WHERE {own} AND memory_id = %(replaces)s::uuid AND retired_ts IS NULL
        AND (audience = '{{}}' OR %(agent)s::text = ANY (audience))
        AND (expires_ts IS NULL OR expires_ts > now())
    RETURNING 1
""",
    own=_OWN,
)
_REPLACE_CHUNKS = compose(
    """
    UPDATE memory_t SET retired_ts = now(), retired_by = 'replaced'
    WHERE {own} AND kind = 'chunk' AND source ->> 'document' = %(document)s
        AND retired_ts IS NULL AND memory_id <> ALL (%(ids)s::uuid[])
""",
    own=_OWN,
)
_CAP = compose(
    """
    WITH live AS (
        SELECT memory_id, row_number() OVER (ORDER BY pinned DESC, importance DESC,
            created_ts DESC, memory_id DESC) AS place, pinned
        FROM memory_t WHERE {own} AND retired_ts IS NULL AND expires_ts > now()
    )
    UPDATE memory_t SET retired_ts = now(), retired_by = 'cap'
    WHERE {own} AND memory_id IN (SELECT memory_id FROM live WHERE place > %(max)s AND NOT pinned)
""",
    own=_OWN,
)
# Not more often than twice in a lifetime.
_RENEW = compose(
    """
    UPDATE memory_t SET expires_ts = now() + make_interval(secs => %(ttl)s)
    WHERE {own} AND ttl_s IS NULL AND retired_ts IS NULL
        AND expires_ts BETWEEN now() AND now() + make_interval(secs => %(ttl)s / 2)
""",
    own=_OWN,
)
# Of a memory, the subject and then the owner.
_LOCK_OF = compose(
    """
    WITH wanted AS MATERIALIZED (
        SELECT m.host_id, m.scope, m.owner, CASE WHEN m.subject IS NOT NULL THEN
            pg_advisory_xact_lock_shared(hashtextextended(m.host_id || ' ' || m.subject, 0)) END
        FROM memory_t AS m WHERE {of_places} AND m.memory_id = %(id)s::uuid
    )
    SELECT FROM memory_owner_t AS had WHERE (had.host_id, had.scope, had.owner)
        IN (SELECT host_id, scope, owner FROM wanted) FOR UPDATE
""",
    of_places=OF_PLACES,
)
_REWRITTEN = sql.SQL("""kind, slot, dated, confidence, keep, trust, session, position, source,
    valid_from, valid_to, expires_ts, ttl_s""")
_REWRITE = compose(
    """
    WITH gone AS (
        DELETE FROM memory_t WHERE {own} AND memory_id = %(id)s::uuid RETURNING *
    )
    INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, agent, audience, content,
        content_hash, importance, pinned, masked, metadata, created_ts, retired_ts, retired_by,
        superseded_by, aggregate_version, {rewritten})
    SELECT host_id, %(id)s::uuid, scope, owner, subject, agent, audience, %(content)s, %(hash)s,
        %(importance)s, %(pinned)s, %(masked)s, %(metadata)s, now(), NULL, NULL, NULL,
        aggregate_version + 1, {rewritten} FROM gone
    UNION ALL
    SELECT host_id, %(old)s::uuid, scope, owner, subject, agent, audience, content, content_hash,
        importance, pinned, masked, metadata, created_ts, now(), 'update', %(id)s::uuid,
        aggregate_version, {rewritten} FROM gone
""",
    own=_OWN,
    rewritten=_REWRITTEN,
)
