# ruff: noqa: S608 - made of constants; the values of callers are parameters
"""Memories in the database: writing, reading by id, lists, and history.

Writers lock the subject, which an erasure locks exclusively, and then the row of the owner in
`memory_owner_t`, and so take turns: of two values of one slot, or two equal contents, the second
finds the first. All times are the database's.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
from msgspec import to_builtins
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from config.wings import MemorySettings
from gateway.operations.operation import ProblemDetails, conflict, not_found
from gateway.wings.memory.conditions import EVERY, NOW, Condition, Times, visible
from gateway.wings.memory.readers import Reader
from gateway.wings.memory.rows import (
    COLUMNS,
    SCOPES,
    Memory,
    NewMemory,
    Scope,
    content_hash,
    memory_of,
    new_ids,
)
from registry.database.postgres import Pool, borrowed

SUBJECT_LOCK = "hashtextextended(%(key)s, 0)"
MINUTE = "date_trunc('minute', now())"
ROW_BYTES = 256  # of a row of history, besides its content
TENANT_COUNTED_S = 30.0  # the rows of a tenant are counted anew after that


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory that was stored, or that was there already."""

    id: str
    created: bool
    superseded: str | None = None  # the id of the value that was in its slot, or that it replaces


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


def too_many(text: str, retry_s: int | None = None) -> ProblemDetails:
    headers = {} if retry_s is None else {"Retry-After": str(retry_s)}
    return ProblemDetails(429, "quota", text, headers=headers)


class MemoryStore:
    def __init__(self, pool: Pool, settings: MemorySettings) -> None:
        self._pool = pool
        self._settings = settings
        self._tenants: dict[str, tuple[float, int]] = {}  # when counted, rows

    async def add(
        self, target: Target, memories: Sequence[NewMemory], document: str | None = None
    ) -> list[StoredMemory]:
        """Store memories in one transaction, in their order. `document`: whose chunks they are;
        those that it had and that are not among these are retired. Raises ProblemDetails."""
        async with borrowed(self._pool) as connection:
            added = await self.add_in(connection, target, memories)
            if document is not None:
                values = {**target.values, "document": document, "ids": [one.id for one in added]}
                await connection.execute(_REPLACE_CHUNKS, values)
            return added

    async def add_in(
        self, connection: AsyncConnection, target: Target, memories: Sequence[NewMemory]
    ) -> list[StoredMemory]:
        """`add` within a transaction of the caller."""
        await self.begin(connection, target, memories)
        known = await self._known(connection, target, memories)
        added: list[StoredMemory] = []
        new: list[tuple[str, NewMemory]] = []
        for id_, one in zip(new_ids(len(memories)), memories, strict=True):
            if (same := known.get(one.hash)) is not None:
                added.append(StoredMemory(same, created=False))
                continue
            known[one.hash] = id_
            if one.slot is None and one.replaces is None:
                new.append((id_, one))
                added.append(StoredMemory(id_, created=True))
                continue
            await self._insert(connection, target, new)  # a later value of a slot needs the earlier
            new = []
            closed, old = await self._supersede(connection, target, id_, one)
            await self._insert(connection, target, [(id_, closed)])
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
        replaced: Sequence[Memory] = (),
    ) -> None:
        """Lock owner and subject, and check quotas. `replaced`: by the memories, which become
        history. Raises ProblemDetails."""
        count, size = len(memories), _size(memories) - _size(replaced)
        found = await connection.execute(
            f"""
            WITH locked AS MATERIALIZED (
                SELECT CASE WHEN %(subject)s::text IS NOT NULL
                    THEN pg_advisory_xact_lock_shared({SUBJECT_LOCK}) END
            )
            INSERT INTO memory_owner_t AS had (host_id, scope, owner, subject, writes)
            SELECT %(host)s::uuid, %(scope)s, %(owner)s, %(subject)s, %(count)s FROM locked
            ON CONFLICT (host_id, scope, owner) DO UPDATE SET minute = {MINUTE},
                written_ts = now(), subject = coalesce(had.subject, excluded.subject),
                writes = CASE had.minute WHEN {MINUTE} THEN had.writes ELSE 0 END + %(count)s
            RETURNING rows, bytes, writes, history
            """.encode(),
            {**target.values, "count": count},
        )
        ((rows, held, writes, history),) = await found.fetchall()
        settings = self._settings
        writes = max(writes, await _written(connection, target, count))
        if writes > settings.writes_per_minute:
            text = (
                f"more than {settings.writes_per_minute} writes a minute (memory.writes_per_minute)"
            )
            raise too_many(f"The owner, or the user, has {text}.", 60)
        count -= len(replaced)
        if rows + count > settings.owner_rows and target.scope != "session":
            raise too_many(
                f"The owner has {rows} memories, expected at most {settings.owner_rows}"
                " (memory.owner_rows)."
            )
        if held + size > settings.owner_bytes:
            raise too_many(
                f"The owner has {held} bytes, expected at most {settings.owner_bytes}"
                " (memory.owner_bytes)."
            )
        if await self._of_tenant(connection, target.reader.tenant) + count > settings.tenant_rows:
            raise too_many(f"The tenant has {settings.tenant_rows} memories (memory.tenant_rows).")
        if history > settings.owner_bytes:
            await connection.execute(_TRIM, {**target.values, "most": settings.owner_bytes // 2})

    async def _of_tenant(self, connection: AsyncConnection, tenant: str) -> int:
        """Rows of a tenant, as counted a moment ago."""
        counted, rows = self._tenants.get(tenant, (float("-inf"), 0))
        if time.monotonic() - counted > TENANT_COUNTED_S:
            found = await connection.execute(
                "SELECT coalesce(sum(rows), 0)::bigint FROM memory_owner_t WHERE host_id = %s",
                [tenant],
            )
            ((rows,),) = await found.fetchall()
            self._tenants[tenant] = (time.monotonic(), rows)
        return rows

    async def _known(
        self, connection: AsyncConnection, target: Target, memories: Sequence[NewMemory]
    ) -> dict[bytes, str]:
        """Ids of present memories with these contents. Those that have expired make room."""
        values = {
            **target.values,
            "hashes": [one.hash for one in memories],
            "slots": [one.slot for one in memories if one.slot is not None],
        }
        found = await connection.execute(_KNOWN, values)
        return {bytes(digest): id_ for digest, id_ in await found.fetchall()}

    async def _supersede(
        self, connection: AsyncConnection, target: Target, id_: str, one: NewMemory
    ) -> tuple[NewMemory, str | None]:
        """Retire what the new memory replaces, or the present value of its slot; returns the new
        one and the id of the old one. A value that was true before the present one is history: it
        ends where that begins. Raises ProblemDetails."""
        values = {**target.values, "new": id_, "slot": one.slot, "from": one.valid_from}
        values |= {"replaces": one.replaces}
        if one.replaces is not None:
            found = await connection.execute(_REPLACE, values)
            if not await found.fetchall():
                raise not_found("memory", one.replaces)
        if one.slot is None or one.valid_to is not None:
            return one, one.replaces
        found = await connection.execute(_PRESENT, values)
        present = await found.fetchall()
        if not present:
            return one, one.replaces
        ((old, since),) = present
        if one.valid_from is not None and one.valid_from < since:
            return replace(one, valid_to=since), one.replaces
        await connection.execute(_RETIRE_SLOT, values)
        return one, old

    async def _insert(
        self, connection: AsyncConnection, target: Target, new: Sequence[tuple[str, NewMemory]]
    ) -> None:
        """Raises ProblemDetails where the subject was erased after these were made."""
        if not new:
            return
        session = self._settings.session
        values = {
            **target.values,
            "rows": Jsonb([{**to_builtins(one), "id": id_} for id_, one in new]),
            "hashes": [one.hash for _, one in new],
            "ttl": session.ttl_s if target.scope == "session" else None,
        }
        found = await connection.execute(_INSERT, values)
        ((count,),) = await found.fetchall()
        if count != len(new):
            raise conflict("The memories of this user were erased: nothing older is stored again.")

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
        """Those that the reader may read, in their order."""
        condition, values = readable(reader)
        if times is not None:
            text, more = visible(times, reader.agent)
            condition, values = f"{condition} AND {text}", {**values, **more}
        async with borrowed(self._pool) as connection:
            found = await connection.execute(
                f"SELECT {COLUMNS} FROM memory_t AS m WHERE {condition}"
                " AND m.memory_id = ANY (%(ids)s::uuid[])".encode(),
                {**values, "ids": list(ids)},
            )
            memories = {one.id: one for one in map(memory_of, await found.fetchall())}
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
        shown, values = visible(times, reader.agent)
        async with borrowed(self._pool) as connection:
            found = await connection.execute(
                f"""
                SELECT {COLUMNS} FROM unnest(%(scopes)s::text[], %(owners)s::text[])
                    AS place (scope, owner)
                JOIN memory_t AS m ON m.host_id = %(host)s AND m.scope = place.scope
                    AND m.owner = place.owner
                WHERE {shown} AND {condition[0]} AND (%(after)s::timestamptz IS NULL
                    OR (m.created_ts, m.memory_id) < (%(after)s, %(after_id)s::uuid))
                ORDER BY m.created_ts DESC, m.memory_id DESC LIMIT %(limit)s
                """.encode(),
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
            return [memory_of(row) for row in await found.fetchall()]

    async def counts(self, reader: Reader) -> dict[str, int]:
        """Memories that the reader may read now, by scope."""
        condition, values = readable(reader)
        shown, more = visible(NOW, reader.agent)
        async with borrowed(self._pool) as connection:
            found = await connection.execute(
                f"SELECT m.scope, count(*) FROM memory_t AS m WHERE {condition} AND {shown}"
                " GROUP BY m.scope".encode(),
                {**values, **more},
            )
            counts = dict(await found.fetchall())
        return {scope: counts.get(scope, 0) for scope in SCOPES}

    async def history(self, reader: Reader, id_: str) -> list[Memory]:
        """A memory, what it superseded, and what superseded it, oldest first; none if it may not
        be read."""
        condition, values = readable(reader)
        async with borrowed(self._pool) as connection:
            found = await connection.execute(
                f"""
                WITH RECURSIVE chain AS (
                    SELECT m.memory_id, m.superseded_by FROM memory_t AS m
                    WHERE {condition} AND m.memory_id = %(id)s::uuid
                    UNION
                    SELECT m.memory_id, m.superseded_by FROM chain JOIN memory_t AS m
                        ON m.superseded_by = chain.memory_id OR m.memory_id = chain.superseded_by
                    WHERE {condition}
                )
                SELECT {COLUMNS} FROM memory_t AS m
                WHERE {condition} AND m.memory_id IN (SELECT memory_id FROM chain)
                ORDER BY m.valid_from, m.created_ts, m.memory_id
                """.encode(),
                {**values, "id": id_},
            )
            return [memory_of(row) for row in await found.fetchall()]

    async def update(
        self, reader: Reader, id_: str, version: int, changes: Mapping[str, Any]
    ) -> Memory:
        """Change a memory, which keeps its id; the text before stays as history. Raises
        ProblemDetails: 404, 409 where the version is not the present one."""
        condition, values = readable(reader)
        async with borrowed(self._pool) as connection:
            await connection.execute(_LOCK_OF.encode(), {**values, "id": id_})
            found = await connection.execute(
                f"SELECT {COLUMNS} FROM memory_t AS m WHERE {condition}"
                " AND m.memory_id = %(id)s::uuid AND retired_ts IS NULL"
                " AND (expires_ts IS NULL OR expires_ts > now()) FOR UPDATE".encode(),
                {**values, "id": id_},
            )
            rows = await found.fetchall()
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


def _size(memories: Sequence[NewMemory | Memory]) -> int:
    return sum(len(one.content.encode()) for one in memories)


async def _written(connection: AsyncConnection, target: Target, count: int) -> int:
    """Memories that the user has written in this minute, wherever, with these."""
    subject = target.reader.subject
    if subject is None or (target.scope, target.owner) == ("user", subject):
        return 0
    values = {"host": target.reader.tenant, "subject": subject, "count": count}
    found = await connection.execute(_WRITTEN.encode(), values)
    ((writes,),) = await found.fetchall()
    return int(writes)


async def _rewrite(
    connection: AsyncConnection, tenant: str, present: Memory, changed: Memory
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
            "content": changed.content,
            "hash": content_hash(changed),
            "importance": changed.importance,
            "pinned": changed.pinned,
            "metadata": Jsonb(dict(changed.metadata)),
            "masked": list(changed.masked),
            "size": _size([changed]) - _size([present]),
            "past": _size([present]) + ROW_BYTES,
        },
    )


OF_PLACES = """m.host_id = %(host)s AND (m.scope, m.owner) IN
    (SELECT * FROM unnest(%(scopes)s::text[], %(owners)s::text[]))
    AND (m.audience = '{}' OR %(agent)s::text = ANY (m.audience))
    AND (m.expires_ts IS NULL OR m.expires_ts > now())"""


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


# Only of a subject that was not erased since what is stored was made.
_INSERT = """
    WITH stored AS (
    INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, agent, audience, kind, slot,
        content, content_hash, dated, importance, confidence, pinned, keep, masked, trust, session,
        position, source, metadata, valid_from, valid_to, created_ts, expires_ts, ttl_s)
    SELECT %(host)s::uuid, id, %(scope)s, %(owner)s, %(subject)s, %(agent)s, audience, kind,
        slot, content, hash.value, dated, importance, confidence, pinned, keep, masked, trust,
        session, CASE kind WHEN 'turn' THEN had.turns + count(*) FILTER (WHERE kind = 'turn')
            OVER (ORDER BY hash.nth) END,
        source, metadata, coalesce(valid_from, now()), valid_to, coalesce(created, now()),
        now() + make_interval(secs => coalesce(new.expires_s, %(ttl)s)), new.expires_s
    FROM ROWS FROM (jsonb_to_recordset(%(rows)s) AS (id uuid, audience text[],
        kind text, slot text, content text, dated text, importance real, confidence real,
        pinned boolean, keep boolean, masked text[], trust text, session text, source jsonb,
        metadata jsonb, valid_from timestamptz, valid_to timestamptz, created timestamptz,
        expires_s real)) WITH ORDINALITY AS new
    JOIN unnest(%(hashes)s::bytea[]) WITH ORDINALITY AS hash (value, nth)
        ON hash.nth = new.ordinality
    CROSS JOIN (SELECT turns FROM memory_owner_t WHERE host_id = %(host)s
        AND scope = %(scope)s AND owner = %(owner)s) AS had
    WHERE %(subject)s::text IS NULL OR NOT EXISTS (SELECT FROM memory_tombstone_t AS tombstone
        WHERE tombstone.host_id = %(host)s
            AND tombstone.subject_hash = sha256(convert_to(%(key)s, 'UTF8'))
            AND tombstone.ts > coalesce(created, now()))
    ORDER BY hash.nth
    RETURNING kind, octet_length(content) AS size
    ), total AS (
        SELECT count(*), coalesce(sum(size), 0) AS size,
            count(*) FILTER (WHERE kind = 'turn') AS turns
        FROM stored
    ), counted AS (
        UPDATE memory_owner_t AS had SET rows = had.rows + total.count,
            bytes = had.bytes + total.size, turns = had.turns + total.turns
        FROM total WHERE host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s
    )
    SELECT count FROM total
"""
_OWN = "host_id = %(host)s AND scope = %(scope)s AND owner = %(owner)s"
_WRITTEN = f"""
    INSERT INTO memory_owner_t AS had (host_id, scope, owner, subject, writes)
    VALUES (%(host)s, 'user', %(subject)s, %(subject)s, %(count)s)
    ON CONFLICT (host_id, scope, owner) DO UPDATE SET minute = {MINUTE}, written_ts = now(),
        writes = CASE had.minute WHEN {MINUTE} THEN had.writes ELSE 0 END + %(count)s
    RETURNING writes
"""
# The oldest history, of which half as much may stay.
_TRIM = f"""
    WITH aged AS MATERIALIZED (
        SELECT memory_id, octet_length(content) + {ROW_BYTES} AS size,
            sum(octet_length(content) + {ROW_BYTES})
                OVER (ORDER BY retired_ts DESC, memory_id DESC) AS held
        FROM memory_t WHERE {_OWN} AND retired_ts IS NOT NULL
    ), gone AS (
        DELETE FROM memory_t WHERE {_OWN}
            AND memory_id IN (SELECT memory_id FROM aged WHERE held > %(most)s)
    )
    UPDATE memory_owner_t SET history = (
        SELECT coalesce(sum(size), 0) FROM aged WHERE held <= %(most)s) WHERE {_OWN}
"""
_PRESENT = f"""
    SELECT CASE WHEN audience = '{{}}' OR %(agent)s::text = ANY (audience)
        THEN memory_id::text END, valid_from FROM memory_t
    WHERE {_OWN} AND slot = %(slot)s AND retired_ts IS NULL AND valid_to IS NULL
"""
# Of rows that were deleted, with the columns of `gone`; what was retired did not count.
COUNT_GONE = """
    UPDATE memory_owner_t AS had SET rows = had.rows - live.count, bytes = had.bytes - live.size
    FROM (SELECT scope, owner, count(*), sum(size) AS size FROM gone
        WHERE retired_ts IS NULL GROUP BY scope, owner) AS live
    WHERE (had.host_id, had.scope, had.owner) = (%(host)s, live.scope, live.owner)
"""
_COUNT_ONE_LESS = f"""
    UPDATE memory_owner_t SET rows = rows - (SELECT count(*) FROM retired),
        bytes = bytes - (SELECT coalesce(sum(octet_length(content)), 0) FROM retired),
        history = history + (SELECT coalesce(sum(octet_length(content) + {ROW_BYTES}), 0)
            FROM retired)
    WHERE {_OWN} AND EXISTS (SELECT FROM retired)
    RETURNING 1
"""
_KNOWN = f"""
    WITH retired AS (
        UPDATE memory_t SET retired_ts = now(), retired_by = 'expired'
        WHERE {_OWN} AND retired_ts IS NULL AND expires_ts <= now()
            AND (content_hash = ANY (%(hashes)s) OR slot = ANY (%(slots)s))
        RETURNING content
    ), counted AS ({_COUNT_ONE_LESS})
    SELECT content_hash, memory_id::text FROM memory_t
    WHERE {_OWN} AND coalesce(agent, '') = coalesce(%(agent)s, '') AND retired_ts IS NULL
        AND content_hash = ANY (%(hashes)s) AND (expires_ts IS NULL OR expires_ts > now())
"""
_RETIRE_SLOT = f"""
    WITH retired AS (
        UPDATE memory_t SET retired_ts = now(), retired_by = 'slot', superseded_by = %(new)s::uuid,
            valid_to = greatest(coalesce(%(from)s, now()), valid_from)
        WHERE {_OWN} AND slot = %(slot)s AND retired_ts IS NULL AND valid_to IS NULL
        RETURNING content
    ) {_COUNT_ONE_LESS}
"""
_REPLACE = f"""
    WITH retired AS (
        UPDATE memory_t SET retired_ts = now(), retired_by = 'replaced',
            superseded_by = %(new)s::uuid
        WHERE {_OWN} AND memory_id = %(replaces)s::uuid AND retired_ts IS NULL
            AND (audience = '{{}}' OR %(agent)s::text = ANY (audience))
            AND (expires_ts IS NULL OR expires_ts > now())
        RETURNING content
    ) {_COUNT_ONE_LESS}
"""
_REPLACE_CHUNKS = f"""
    WITH retired AS (
        UPDATE memory_t SET retired_ts = now(), retired_by = 'replaced'
        WHERE {_OWN} AND kind = 'chunk' AND source ->> 'document' = %(document)s
            AND retired_ts IS NULL AND memory_id <> ALL (%(ids)s::uuid[])
        RETURNING content
    ) {_COUNT_ONE_LESS}
"""
_CAP = f"""
    WITH live AS (
        SELECT memory_id, row_number() OVER (ORDER BY pinned DESC, importance DESC,
            created_ts DESC, memory_id DESC) AS place, pinned
        FROM memory_t WHERE {_OWN} AND retired_ts IS NULL AND expires_ts > now()
    ), retired AS (
        UPDATE memory_t SET retired_ts = now(), retired_by = 'cap'
        WHERE {_OWN} AND memory_id IN (
            SELECT memory_id FROM live WHERE place > %(max)s AND NOT pinned)
        RETURNING content
    ) {_COUNT_ONE_LESS}
"""
# Not more often than twice in a lifetime.
_RENEW = f"""
    UPDATE memory_t SET expires_ts = now() + make_interval(secs => %(ttl)s)
    WHERE {_OWN} AND ttl_s IS NULL AND retired_ts IS NULL
        AND expires_ts BETWEEN now() AND now() + make_interval(secs => %(ttl)s / 2)
"""
# Of a memory, the subject and then the owner.
_LOCK_OF = f"""
    WITH wanted AS MATERIALIZED (
        SELECT m.host_id, m.scope, m.owner, CASE WHEN m.subject IS NOT NULL THEN
            pg_advisory_xact_lock_shared(hashtextextended(m.host_id || ' ' || m.subject, 0)) END
        FROM memory_t AS m WHERE {OF_PLACES} AND m.memory_id = %(id)s::uuid
    )
    SELECT FROM memory_owner_t AS had WHERE (had.host_id, had.scope, had.owner)
        IN (SELECT host_id, scope, owner FROM wanted) FOR UPDATE
"""
_REWRITTEN = """kind, slot, dated, confidence, keep, trust, session, position, source, valid_from,
    valid_to, expires_ts, ttl_s"""
_REWRITE = f"""
    WITH gone AS (
        DELETE FROM memory_t WHERE {_OWN} AND memory_id = %(id)s::uuid RETURNING *
    ), counted AS (
        UPDATE memory_owner_t SET bytes = bytes + %(size)s,
            history = history + %(past)s, written_ts = now() WHERE {_OWN}
    )
    INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, agent, audience, content,
        content_hash, importance, pinned, masked, metadata, created_ts, retired_ts, retired_by,
        superseded_by, aggregate_version, {_REWRITTEN})
    SELECT host_id, %(id)s::uuid, scope, owner, subject, agent, audience, %(content)s, %(hash)s,
        %(importance)s, %(pinned)s, %(masked)s, %(metadata)s, now(), NULL, NULL, NULL,
        aggregate_version + 1, {_REWRITTEN} FROM gone
    UNION ALL
    SELECT host_id, %(old)s::uuid, scope, owner, subject, agent, audience, content, content_hash,
        importance, pinned, masked, metadata, created_ts, now(), 'update', %(id)s::uuid,
        aggregate_version, {_REWRITTEN} FROM gone
"""
