"""Tracked sources: what collections follow, and when it is read again.

A source is read by one process at a time, which holds a lease. What asks for a reading meanwhile,
such as a webhook, makes it due again, so that nothing is missed and requests are coalesced.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString

import anyio
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from config.librarian import LibrarianSettings
from gateway.context import CallHeaders, Context, new_request_id
from gateway.operations.job_declarations import NO_JOB, Job
from gateway.operations.problems import ProblemDetails, conflict, not_found
from gateway.operations.stored_callers import caller_of, current_caller, later_context, read_caller
from gateway.wings.document_library import IngestedSource, ReadableCollection, SourcePlace
from gateway.wings.librarian.library_access import LibraryAccess
from registry.database.leases import Leases
from registry.database.postgres import Pool, borrow, read_clock
from registry.database.sql_fragments import compose
from registry.database.tables import Tables
from registry.database.tenants import list_tenants

UNREAD_REPORTED = 20  # files of a report that were not read
ERROR = 500  # characters
LEAVING_S = 10.0  # to note a cancellation


@dataclass(frozen=True, slots=True)
class TrackedSource:
    id: str
    tenant: str
    collection: str
    collection_id: str
    place: SourcePlace
    interval_s: int
    webhook: bool
    status: str
    error: str | None
    report: Mapping[str, Any]
    read: datetime | None
    due: datetime | None
    caller: str = field(repr=False, default="")  # as `caller_of` gives it
    claim: str | None = None  # of the one who reads it


class TrackedSources(Tables):
    def __init__(self, pool: Pool, access: LibraryAccess, settings: LibrarianSettings) -> None:
        self._pool = pool
        self._access = access
        self._settings = settings

    async def add(
        self,
        context: Context,
        collection: str,
        place: SourcePlace,
        *,
        interval_s: int,
        webhook: bool,
    ) -> TrackedSource:
        """The source, which is due at once; one of the same location is replaced. Raises
        ProblemDetails."""
        prepared = await self._access.library.prepare(context, collection, place)
        values = {
            "host": context.principal.tenant,
            "source": str(uuid.uuid4()),
            "collection": prepared.name,
            "collection_id": prepared.id,
            "type": place.type,
            "location": place.location,
            "ref": place.ref,
            "filter": list(place.filter),
            "folder": place.folder,
            "caller": caller_of(context).decode(),
            "interval": interval_s,
            "webhook": webhook,
            "most": self._settings.sources,
        }
        async with borrow(self._pool) as connection:
            await connection.execute(_LOCK, values)
            rows = await (await connection.execute(_ADD, values)).fetchall()
        if not rows:
            text = f"The collection has {self._settings.sources} sources (librarian.sources)."
            raise ProblemDetails(429, "quota", text)
        return _source(rows[0])

    async def of(self, context: Context, id_: str | None = None) -> list[TrackedSource]:
        """The sources of the collections to which the caller may write, or one of them."""
        readable = await self._access.library.collections(context)
        values = {
            "host": context.principal.tenant,
            "collections": [collection.id for collection in readable if collection.writable],
            "source": id_,
        }
        return await self._sources(_OF, values)

    async def delete(self, context: Context, id_: str) -> bool:
        """Stop to follow a source; its documents stay. False: there is none for the caller."""
        sources = await self.of(context, id_)
        for source in sources:
            await self._sources(_DELETE, {"host": source.tenant, "id": source.id})
        return bool(sources)

    async def find_hooked(self, tenant: str, id_: str) -> TrackedSource | None:
        """The source of a webhook, whoever calls it."""
        sources = await self._sources(_GET_WITH_WEBHOOK, {"host": tenant, "id": id_})
        return sources[0] if sources else None

    async def make_due(self, source: TrackedSource) -> None:
        await self._sources(_DUE_NOW, {"host": source.tenant, "id": source.id})

    async def refresh(self, context: Context, source: TrackedSource, job: Job) -> TrackedSource:
        """The source after a reading with the caller's rights; while another process reads it, it
        is due again after that. Raises ProblemDetails."""
        values = {"host": source.tenant, "id": source.id, "lease": self._settings.lease_s}
        if claimed := await self._sources(_CLAIM, values):
            return await self._read(context, claimed[0], job)
        if due := await self._sources(_DUE_NOW, values):
            return due[0]
        raise not_found("source", source.id)

    async def refresh_due(self) -> int:
        """Read the sources of all tenants that are due, each with what the credential of the one
        who added it still permits; returns how many there were."""
        hosts = await list_tenants(self._pool)
        async with borrow(self._pool) as connection:
            began = await read_clock(connection)
        count = 0
        for host in hosts:
            # What is due again meanwhile waits for the next round: others have their turn first.
            values = {"host": host, "lease": self._settings.lease_s, "began": began, "limit": 1}
            while claimed := await self._sources(_CLAIM_DUE, values):
                await self._read_due(claimed[0])
                count += 1
        return count

    async def context_of(self, source: TrackedSource) -> Context:
        """The context of who added a source. Raises ProblemDetails if the credential was
        revoked."""
        caller = read_caller(source.caller)
        principal = await current_caller(self._pool, caller.principal)
        return later_context(caller, principal, request_id=new_request_id(), headers=CallHeaders())

    async def _read_due(self, source: TrackedSource) -> None:
        """A failure is the state of the source."""
        try:
            context = await self.context_of(source)
        except ProblemDetails as error:
            await self._end(source, None, error.detail)
            return
        try:
            await self._read(context, source, NO_JOB)
        except ProblemDetails:
            return

    async def _read(self, context: Context, source: TrackedSource, job: Job) -> TrackedSource:
        """Read a source that was claimed. Raises ProblemDetails."""
        outcome: IngestedSource | ProblemDetails | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._renew, source, tasks.cancel_scope)
                outcome = await self._ingest(context, source, job)
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LEAVING_S, shield=True):
                await self._sources(_LEAVE, claim_of(source))
            raise
        if outcome is None:
            raise await self._claim_problem(source)
        if isinstance(outcome, ProblemDetails):
            await self._end(source, None, outcome.detail)
            raise outcome
        return await self._end(source, outcome, None)

    async def _claim_problem(self, source: TrackedSource) -> ProblemDetails:
        """Why a claim is no longer there."""
        if await self._sources(_GET, claim_of(source)):
            return conflict("Another process reads the source now.")
        return not_found("source", source.id)

    async def _ingest(
        self, context: Context, source: TrackedSource, job: Job
    ) -> IngestedSource | ProblemDetails:
        """A problem is returned: a task group would wrap it."""
        collection = ReadableCollection(
            id=source.collection_id, name=source.collection, writable=True
        )
        try:
            return await self._access.library.ingest(context, collection, source.place, job)
        except ProblemDetails as error:
            return error

    async def _renew(self, source: TrackedSource, reading: anyio.CancelScope) -> None:
        """Keep the claim; a reading that has lost it, or whose source is gone, is ended."""
        values = {**claim_of(source), "lease": self._settings.lease_s}
        while True:
            await anyio.sleep(self._settings.lease_s / 3)
            try:
                if not await self._sources(_RENEW, values):
                    reading.cancel()
            except psycopg.OperationalError:
                continue  # the lease lasts for two more attempts

    async def _end(
        self, source: TrackedSource, outcome: IngestedSource | None, error: str | None
    ) -> TrackedSource:
        values = {
            **claim_of(source),
            "status": "ready" if error is None else "failed",
            "error": error and error[:ERROR],
            "seen": None if outcome is None else outcome.seen,
            "report": None if outcome is None else Jsonb(_report(outcome)),
            "ref": source.place.ref,
            "filter": list(source.place.filter),
            "folder": source.place.folder,
        }
        ended = await self._sources(_END, values)
        return ended[0] if ended else source  # it was deleted, or taken up by another, meanwhile

    async def _sources(self, statement: bytes, values: Mapping[str, Any]) -> list[TrackedSource]:
        rows = await self._fetch(statement, values)
        return [_source(row) for row in rows]


def claim_of(source: TrackedSource) -> dict[str, Any]:
    return {"host": source.tenant, "id": source.id, "fence": source.claim}


def _report(outcome: IngestedSource) -> dict[str, Any]:
    return {
        "added": outcome.added,
        "changed": outcome.changed,
        "unchanged": outcome.unchanged,
        "deleted": outcome.deleted,
        "failed": [list(entry) for entry in outcome.failed[:UNREAD_REPORTED]],
        "left_out": [list(entry) for entry in outcome.left_out[:UNREAD_REPORTED]],
    }


def _source(row: Sequence[Any]) -> TrackedSource:
    (
        id_,
        tenant,
        collection,
        collection_id,
        type_,
        location,
        ref,
        filter_,
        folder,
        validator,
        *more,
    ) = row
    place = SourcePlace(
        type=type_,
        location=location,
        ref=ref,
        filter=tuple(filter_),
        folder=folder,
        seen=validator,
    )
    return TrackedSource(id_, tenant, collection, collection_id, place, *more)


_COLUMNS = sql.SQL("""source_id::text, host_id::text, collection, collection_id::text, type,
    location, ref, filter, folder, seen, interval_s, webhook, status, error, report, read_ts,
    next_ts, caller::text, claim::text""")
_LEASES = Leases(
    "librarian_source_t",
    "source_id",
    "r.lease_ts IS NOT NULL",
    fence="claim",
    next_fence="gen_random_uuid()",
)
_ONE = sql.SQL("host_id = %(host)s AND source_id = %(id)s::uuid")
# Sources of a collection are added one after the other, so that none is beyond the limit.
_LOCK = b"""
    SELECT pg_advisory_xact_lock(hashtextextended(%(host)s || %(collection_id)s, 31))
"""
_ADD = compose(
    """
    INSERT INTO librarian_source_t AS had (host_id, source_id, collection, collection_id, type,
        location, ref, filter, folder, caller, interval_s, webhook, next_ts)
    SELECT %(host)s, %(source)s, %(collection)s, %(collection_id)s, %(type)s, %(location)s, %(ref)s,
        %(filter)s, %(folder)s, %(caller)s::jsonb, %(interval)s, %(webhook)s, now()
    WHERE %(most)s > (SELECT count(*) FROM librarian_source_t AS other
        WHERE (other.host_id, other.collection_id) = (%(host)s, %(collection_id)s::uuid)
            AND (other.type, other.location) <> (%(type)s, %(location)s))
    ON CONFLICT (host_id, collection_id, type, location) DO UPDATE SET ref = excluded.ref,
        filter = excluded.filter, folder = excluded.folder, caller = excluded.caller,
        interval_s = excluded.interval_s, webhook = excluded.webhook, next_ts = now(), seen = ''
    RETURNING {columns}
""",
    columns=_COLUMNS,
)
_OF = compose(
    """
    SELECT {columns} FROM librarian_source_t
    WHERE host_id = %(host)s AND collection_id = ANY (%(collections)s::uuid[])
        AND (%(source)s::uuid IS NULL OR source_id = %(source)s::uuid)
    ORDER BY collection, type, location
""",
    columns=_COLUMNS,
)
_GET = compose("SELECT {columns} FROM librarian_source_t WHERE {one}", columns=_COLUMNS, one=_ONE)
_GET_WITH_WEBHOOK = _GET + b" AND webhook"
_DELETE = compose(
    "DELETE FROM librarian_source_t WHERE {one} RETURNING {columns}", one=_ONE, columns=_COLUMNS
)
_DUE_NOW = compose(
    """
    UPDATE librarian_source_t SET next_ts = now() WHERE {one} RETURNING {columns}
""",
    one=_ONE,
    columns=_COLUMNS,
)
_SET_CLAIM: LiteralString = """status = 'reading',
    next_ts = CASE WHEN interval_s > 0 THEN now() + make_interval(secs => interval_s) END"""
# Times that no lease and no schedule reaches are of a clock that was ahead. A lease may be somewhat
# longer: a clock that is set by seconds ends none before its renewal.
_FREE = sql.SQL("""(lease_ts IS NULL OR lease_ts < now()
    OR lease_ts > now() + make_interval(secs => 2 * %(lease)s))""")
_CLAIM = _LEASES.claim(
    _SET_CLAIM, sql.SQL("WHERE {one} AND {free}").format(one=_ONE, free=_FREE), _COLUMNS
)
# Also those whose reader died.
_CLAIM_DUE = _LEASES.claim_due(
    _SET_CLAIM,
    sql.SQL("""{free} AND (next_ts <= %(began)s OR status = 'reading'
        OR next_ts > now() + make_interval(secs => interval_s))""").format(free=_FREE),
    "next_ts, source_id",
    _COLUMNS,
)
_RENEW = compose(
    """
    UPDATE librarian_source_t AS r SET lease_ts = now() + make_interval(secs => %(lease)s)
    WHERE {mine} RETURNING {columns}
""",
    mine=_LEASES.of_one,
    columns=_COLUMNS,
)
# A reading that was cancelled, perhaps with its process, is due again.
_LEAVE = compose(
    """
    UPDATE librarian_source_t AS r SET status = 'pending', lease_ts = NULL, next_ts = now()
    WHERE {mine} RETURNING {columns}
""",
    mine=_LEASES.of_one,
    columns=_COLUMNS,
)
# What was added again with another filter meanwhile has not been seen.
_END = compose(
    """
    UPDATE librarian_source_t AS r SET status = %(status)s, error = %(error)s, lease_ts = NULL,
        seen = CASE WHEN (ref, filter, folder) = (%(ref)s, %(filter)s::text[], %(folder)s)
            THEN coalesce(%(seen)s, seen) ELSE '' END,
        report = coalesce(%(report)s, report), read_ts = now()
    WHERE {mine} RETURNING {columns}
""",
    mine=_LEASES.of_one,
    columns=_COLUMNS,
)
