"""Targets, incidents and deliveries in the database. Each method is of one tenant, whose id is its
first argument, unless it says otherwise."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import sql

from gateway.wings.interface import Concern, Sentence
from gateway.wings.notifications.messages import DETAIL, TITLE, Kind, Phase, plain
from registry.database.leases import Leases
from registry.database.postgres import borrow, is_uuid
from registry.database.sql_fragments import compose
from registry.database.tables import Tables, fetch_rows
from schemas.jsonrpc import encode

LEASE_S = 60.0  # longer than any attempt


class StoredTarget(NamedTuple):
    name: str
    kind: Kind
    subjects: list[str]
    place: str
    recipients: list[str]
    sealed: bytes | None
    last_ts: datetime | None
    last_ok: bool | None
    last_answer: str
    waiting: int


class Incident(NamedTuple):
    incident_id: str
    subject: str
    title: str
    detail: str
    sentences: Mapping[str, Any]  # of `title` and `detail`
    path: str
    begun_ts: datetime
    ended_ts: datetime | None
    sent: list[str]
    failed: list[str]


class Delivery(NamedTuple):
    """A message that this process is to send."""

    delivery_id: str
    incident_id: str
    target: str
    phase: Phase
    attempt: int
    fence: int
    age_s: float


class IncidentText(NamedTuple):
    subject: str
    title: str
    detail: str
    path: str
    begun_ts: datetime
    ended_ts: datetime | None


_TARGETS = sql.SQL(
    "SELECT name, kind, subjects, place, recipients, sealed, last_ts, last_ok, last_answer,"
    " (SELECT count(*) FROM notification_delivery_t AS d WHERE (d.host_id, d.target) ="
    " (t.host_id, t.name) AND d.status IN ('PENDING', 'DISPATCHED')) AS waiting"
    " FROM notification_target_t AS t WHERE host_id = %s"
)
_TARGETS_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 37))"
_PUT_TARGET = b"""
    INSERT INTO notification_target_t (host_id, name, kind, subjects, place, recipients, sealed)
    SELECT %(host)s, %(name)s, %(kind)s, %(subjects)s, %(place)s, %(to)s, %(sealed)s
    WHERE (SELECT count(*) FROM notification_target_t
        WHERE host_id = %(host)s AND name <> %(name)s) < %(most)s
    ON CONFLICT (host_id, name) DO UPDATE SET kind = excluded.kind, subjects = excluded.subjects,
        place = excluded.place, recipients = excluded.recipients, sealed = excluded.sealed
"""
_SEE = b"""
    UPDATE notification_incident_t AS i SET seen_ts = clock_timestamp()
    FROM unnest(%(subjects)s::text[], %(keys)s::text[]) AS seen(subject, key)
    WHERE i.host_id = %(host)s AND i.ended_ts IS NULL
        AND (i.subject, i.key) = (seen.subject, seen.key)
    RETURNING i.subject, i.key
"""
_BEGIN = b"""
    WITH begun AS (
        INSERT INTO notification_incident_t (host_id, subject, key, title, detail, sentences, path)
        SELECT %(host)s, * FROM unnest(%(subjects)s::text[], %(keys)s::text[], %(titles)s::text[],
            %(details)s::text[], %(sentences)s::jsonb[], %(paths)s::text[])
        LIMIT greatest(0, %(most)s - (SELECT count(*) FROM notification_incident_t
            WHERE host_id = %(host)s AND ended_ts IS NULL))
        ON CONFLICT (host_id, subject, key) WHERE ended_ts IS NULL DO NOTHING
        RETURNING incident_id, subject)
    INSERT INTO notification_delivery_t (host_id, incident_id, target, phase)
    SELECT %(host)s, incident_id, name, 'begun' FROM begun JOIN notification_target_t AS t
        ON t.host_id = %(host)s AND begun.subject = ANY(t.subjects)
"""
# Who was not told of a beginning is not told of the end.
_END = b"""
    WITH ended AS (
        UPDATE notification_incident_t SET ended_ts = clock_timestamp()
        WHERE host_id = %(host)s AND ended_ts IS NULL AND subject = ANY(%(subjects)s)
            AND seen_ts < clock_timestamp() - make_interval(secs => %(unseen_s)s)
        RETURNING incident_id, subject),
    unsent AS (
        DELETE FROM notification_delivery_t AS d USING ended
        WHERE d.host_id = %(host)s AND d.incident_id = ended.incident_id AND d.attempt = 0
            AND d.status = 'PENDING' AND ended.subject = ANY(%(ending)s))
    INSERT INTO notification_delivery_t (host_id, incident_id, target, phase)
    SELECT %(host)s, ended.incident_id, d.target, 'ended' FROM ended
    JOIN notification_delivery_t AS d
        ON d.host_id = %(host)s AND d.incident_id = ended.incident_id
    WHERE d.status <> 'FAILED' AND (d.attempt > 0 OR d.status <> 'PENDING')
        AND ended.subject = ANY(%(ending)s)
"""
_TURN = b"""
    INSERT INTO notification_turn_t AS had (host_id, checked_ts) VALUES (%(host)s, now())
    ON CONFLICT (host_id) DO UPDATE SET checked_ts = now()
        WHERE had.checked_ts <= now() - make_interval(secs => %(every_s)s)
    RETURNING (SELECT extract(epoch FROM now() - checked_ts)::float8
        FROM notification_turn_t WHERE host_id = %(host)s)
"""
# A target has as many turns behind it as it was sent messages in this hour, so that targets of a
# tenant take turns, and none gets more than its number. An end waits for its beginning.
_LEASES = Leases("notification_delivery_t", "delivery_id", "r.status = 'DISPATCHED'")
_DUE = b"""
    WITH used AS (
        SELECT target, count(*) AS messages FROM notification_delivery_t
        WHERE host_id = %(host)s AND claimed_ts > clock_timestamp() - interval '1 hour'
            AND status <> 'PENDING' GROUP BY target),
    ranked AS (
        SELECT delivery_id, coalesce(messages, 0)
            + row_number() OVER (PARTITION BY target ORDER BY created_ts) AS place
        FROM notification_delivery_t AS d LEFT JOIN used USING (target)
        WHERE host_id = %(host)s AND (status = 'PENDING' AND due_ts <= clock_timestamp()
            OR status = 'DISPATCHED' AND lease_ts < clock_timestamp())
        AND (phase = 'begun' OR NOT EXISTS (SELECT FROM notification_delivery_t AS first
            WHERE (first.host_id, first.incident_id, first.target, first.phase)
                = (d.host_id, d.incident_id, d.target, 'begun')
            AND first.status IN ('PENDING', 'DISPATCHED')))),
    due (id) AS MATERIALIZED (
        SELECT r.delivery_id FROM notification_delivery_t AS r JOIN ranked USING (delivery_id)
        WHERE r.host_id = %(host)s AND place <= %(hourly)s
        ORDER BY place LIMIT %(limit)s FOR UPDATE OF r SKIP LOCKED)
"""
_CLAIM = _DUE + _LEASES.claim(
    "status = 'DISPATCHED', attempt = attempt + 1, claimed_ts = clock_timestamp()",
    sql.SQL("FROM due WHERE r.host_id = %(host)s AND r.delivery_id = due.id"),
    sql.SQL(
        "delivery_id::text, incident_id::text, target, phase, attempt, fence,"
        " extract(epoch FROM clock_timestamp() - created_ts)::float8 AS age_s"
    ),
)
_SETTLE = compose(
    "UPDATE notification_delivery_t AS r SET status = %(status)s, error = %(error)s,"
    " lease_ts = NULL, due_ts = clock_timestamp() + make_interval(secs => %(wait_s)s)"
    " WHERE {mine}",
    mine=_LEASES.of_one,
)
_INCIDENTS = sql.SQL(
    "SELECT incident_id::text, subject, title, detail, sentences, path, begun_ts, ended_ts,"
    " array(SELECT DISTINCT target FROM notification_delivery_t AS d WHERE d.host_id = i.host_id"
    "  AND d.incident_id = i.incident_id AND status = 'ACKED' ORDER BY target) AS sent,"
    " array(SELECT DISTINCT target FROM notification_delivery_t AS d WHERE d.host_id = i.host_id"
    "  AND d.incident_id = i.incident_id AND status = 'FAILED' ORDER BY target) AS failed"
    " FROM notification_incident_t AS i WHERE host_id = %(host)s"
    " AND (%(state)s::text IS NULL OR (ended_ts IS NULL) = (%(state)s = 'open'))"
    " AND (%(time)s::timestamptz IS NULL"
    "  OR (begun_ts, incident_id) < (%(time)s::timestamptz, %(id)s::uuid))"
    " ORDER BY begun_ts DESC, incident_id DESC LIMIT %(limit)s"
)


class NotificationStore(Tables):
    """All methods raise `psycopg.OperationalError`."""

    async def tenants(self) -> list[str]:
        """All tenants with a target."""
        rows = await self._fetch("SELECT DISTINCT host_id::text FROM notification_target_t")
        return [host for (host,) in rows]

    async def targets(self, host_id: str, name: str | None = None) -> list[StoredTarget]:
        """The targets by name, or the one of a name."""
        query = _TARGETS + sql.SQL(" AND (%s::text IS NULL OR name = %s) ORDER BY name")
        return await self._fetch_rows(StoredTarget, query, [host_id, name, name])

    async def put_target(
        self,
        host_id: str,
        name: str,
        *,
        kind: Kind,
        subjects: Collection[str],
        place: str,
        recipients: Collection[str],
        sealed_secrets: bytes | None,
        most: int,
    ) -> bool:
        """Store a target; False: there are `most` others."""
        values = {
            "host": host_id, "name": name, "kind": kind, "subjects": [*subjects],
            "place": place, "to": [*recipients], "sealed": sealed_secrets, "most": most,
        }  # fmt: skip
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(_TARGETS_LOCK, [host_id])
            return bool((await connection.execute(_PUT_TARGET, values)).rowcount)

    async def note_answer(self, host_id: str, name: str, *, done: bool, answer: str) -> None:
        await self._execute(
            "UPDATE notification_target_t SET last_ts = now(), last_ok = %s, last_answer = %s"
            " WHERE host_id = %s AND name = %s",
            [done, plain(answer, DETAIL), host_id, name],
        )

    async def delete_target(self, host_id: str, name: str) -> bool:
        return bool(
            await self._execute(
                "DELETE FROM notification_target_t WHERE host_id = %s AND name = %s",
                [host_id, name],
            )
        )

    async def see(self, host_id: str, concerns: Collection[Concern], most: int) -> None:
        """Begin an incident for each concern that has none, as long as fewer than `most` are open,
        and a message about it to each target of its subject."""
        if not concerns:
            return
        by_key = {(concern.subject, concern.key): concern for concern in concerns}
        async with borrow(self._pool) as connection, connection.transaction():
            columns = {"host": host_id, **_columns([*by_key])}
            async for subject, key in await connection.execute(_SEE, columns):
                by_key.pop((subject, key), None)
            if new := [*by_key.values()]:
                values = {
                    "host": host_id,
                    "most": most,
                    **_columns([*by_key]),
                    "titles": [plain(str(concern.title), TITLE) for concern in new],
                    "details": [plain(str(concern.detail), DETAIL) for concern in new],
                    "sentences": [_sentences(concern) for concern in new],
                    "paths": [concern.path for concern in new],
                }
                await connection.execute(_BEGIN, values)

    async def end_unseen(
        self, host_id: str, subjects: Collection[str], ending: Collection[str], unseen_s: float
    ) -> None:
        """End incidents of these subjects that were not seen for a time, with a message for those
        that are `ending`."""
        values = {"host": host_id, "subjects": [*subjects], "ending": [*ending]}
        await self._execute(_END, {**values, "unseen_s": unseen_s})

    async def take_turn(self, host_id: str, every_s: float) -> float | None:
        """Seconds since the last check of any gateway, infinite before the first, where the next
        one is this process's; None: it is not due."""
        rows = await self._fetch(_TURN, {"host": host_id, "every_s": every_s})
        return None if not rows else rows[0][0] if rows[0][0] is not None else float("inf")

    async def claim(self, host_id: str, limit: int, hourly: int) -> Sequence[Delivery]:
        values = {"host": host_id, "limit": limit, "hourly": hourly, "lease": LEASE_S}
        async with borrow(self._pool) as connection:
            return await fetch_rows(connection, Delivery, _CLAIM, values)

    async def settle(
        self, host_id: str, delivery: Delivery, status: str, *, error: str, wait_s: float
    ) -> None:
        await self._execute(
            _SETTLE,
            {
                "host": host_id, "id": delivery.delivery_id, "fence": delivery.fence,
                "status": status, "error": plain(error, DETAIL), "wait_s": wait_s,
            },
        )  # fmt: skip

    async def incident(self, host_id: str, incident_id: str) -> IncidentText | None:
        return await self._fetch_row(
            IncidentText,
            "SELECT subject, title, detail, path, begun_ts, ended_ts"
            " FROM notification_incident_t WHERE host_id = %s AND incident_id = %s",
            [host_id, incident_id],
        )

    async def incidents(
        self, host_id: str, *, state: str | None, after: str, limit: int
    ) -> list[Incident]:
        """The newest first, behind the place `after`."""
        time, _, id_ = after.rpartition(" ")
        values = {"host": host_id, "state": state, "limit": limit}
        good = is_uuid(id_)
        values |= {"time": time if good else None, "id": id_ if good else None}
        return await self._fetch_rows(Incident, _INCIDENTS, values)

    async def open_incidents(self, host_id: str) -> dict[str, int]:
        """Their number by subject."""
        rows = await self._fetch(
            "SELECT subject, count(*) FROM notification_incident_t"
            " WHERE host_id = %s AND ended_ts IS NULL GROUP BY subject",
            [host_id],
        )
        return dict(rows)

    async def remove_ended(self, keep_days: float) -> None:
        """Remove incidents of all tenants that ended long ago, with their messages."""
        await self._execute(
            "DELETE FROM notification_incident_t"
            " WHERE ended_ts < clock_timestamp() - make_interval(days => %s)",
            [int(keep_days)],
        )


def _sentences(concern: Concern) -> str:
    """Title and detail as JSON, with texts and values as `plain` leaves them."""
    sentences = {"title": (concern.title, TITLE), "detail": (concern.detail, DETAIL)}
    return encode(
        {
            member: Sentence(
                plain(sentence.text, limit),
                {name: plain(value, limit) for name, value in sentence.values.items()},
            )
            for member, (sentence, limit) in sentences.items()
        }
    ).decode()


def _columns(keys: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {"subjects": [subject for subject, _ in keys], "keys": [key for _, key in keys]}
