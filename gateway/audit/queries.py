"""Queries of the audit log: pages of records, callers with legacy payloads."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from gateway.audit.records import AuditEntry, Line, canonical, entry_of, link_hash, with_hash
from registry.database.postgres import Pool, borrow
from schemas.mcp.revisions import HYBRID

PAGE = 1000  # rows that a cursor fetches at a time
ACTIONS = 20  # that a report names of one caller
COLUMNS = sql.SQL(", ").join(
    map(sql.Identifier, ("chain_id", "sequence", *AuditEntry.__struct_fields__, "hash", "erased"))
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_NAMES = ("principal", "subject", "decision", "outcome", "since", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Filters of audit records; None matches any value."""

    principal: str | None = None
    subject: str | None = None  # the tool, prompt or resource
    decision: str | None = None  # allow, deny, approve
    outcome: str | None = None  # ok, tool_error, cancelled, crashed, or the code of an error
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    after: str | None = None  # the `next` of the previous page
    limit: int = 50
    oldest_first: bool = False


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """A record with its position in its chain."""

    chain_id: str
    sequence: int
    entry: AuditEntry
    hash: bytes
    erased: bytes = b""  # hash over what an erasure left; the other one is of the whole record

    @property
    def text(self) -> bytes:
        return canonical(self.chain_id, self.sequence, self.entry)

    def line(self) -> bytes:
        """The exported line; its hash is over the preceding text, see `records`."""
        line = with_hash(Line(self.sequence, self.entry.recorded_ts, self.hash, self.text))
        return (
            line
            if not self.erased
            else b'%s,"erased":"%s"}' % (line[:-1], self.erased.hex().encode())
        )

    def is_intact(self, key: bytes, before: bytes) -> bool:
        """Whether it is as it was written behind the record with the hash `before`, or as an
        erasure has left it: then its place in the chain is that of its own hash."""
        if self.erased:
            return link_hash(key, self.hash, self.text) == self.erased
        return link_hash(key, before, self.text) == self.hash


@dataclass(frozen=True, slots=True)
class AuditPage:
    records: list[RecordedEntry]
    next: str | None  # None: last page


async def search(pool: Pool, host_id: str, query: AuditQuery) -> AuditPage:
    """Records of a tenant, by default the newest first. Raises ValueError for an invalid
    `after`."""
    conditions, values = _conditions(host_id, query)
    beyond, direction = (">", "ASC") if query.oldest_first else ("<", "DESC")
    if query.after is not None:
        place = "(recorded_ts, chain_id, sequence) {} (%(ts)s, %(chain)s, %(sequence)s)"
        conditions.append(sql.SQL(place).format(sql.SQL(beyond)))
        values |= _position(query.after)
    statement = sql.SQL(
        "SELECT {} FROM audit_t WHERE {} "
        "ORDER BY recorded_ts {way}, chain_id {way}, sequence {way} LIMIT %(limit)s"
    ).format(COLUMNS, sql.SQL(" AND ").join(conditions), way=sql.SQL(direction))
    async with borrow(pool) as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, {**values, "limit": query.limit + 1})
        entries = [recorded_entry(row) async for row in cursor]
    records = entries[: query.limit]
    return AuditPage(records, _after(records[-1]) if len(entries) > query.limit else None)


class LegacyClient(Struct, frozen=True):
    """A caller that sent legacy payloads, from one address."""

    principal: str
    client: str  # address
    requests: int
    first_ts: datetime
    last_ts: datetime
    actions: tuple[str, ...]  # some of them, as host/service/action/version


async def legacy_clients(
    pool: Pool, host_id: str, since: datetime, limit: int
) -> list[LegacyClient]:
    """The callers of a tenant that sent legacy payloads, those with the most requests first."""
    statement = """
        SELECT coalesce(principal, ''), coalesce(client, ''), count(*) AS requests,
               min(recorded_ts), max(recorded_ts),
               (array_agg(DISTINCT method ORDER BY method))[1:%(actions)s]
          FROM audit_t
         WHERE host_id = %(host)s AND recorded_ts >= %(since)s AND front = %(front)s
         GROUP BY 1, 2
         ORDER BY requests DESC, 1, 2
         LIMIT %(limit)s
    """
    values = {"host": host_id, "since": since, "limit": limit}
    async with borrow(pool) as connection:
        cursor = await connection.execute(
            statement, {**values, "front": HYBRID.name, "actions": ACTIONS}
        )
        return [_legacy_client(row) async for row in cursor]


async def rows_of(
    connection: AsyncConnection, statement: sql.Composed, values: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Rows by a server-side cursor: one page in memory. Close it where iteration may end early."""
    async with connection.cursor("audit_rows", row_factory=dict_row) as cursor:
        cursor.itersize = PAGE
        await cursor.execute(statement, values)
        async for row in cursor:
            yield row


def recorded_entry(row: Mapping[str, Any]) -> RecordedEntry:
    """The record of a row. Raises ValueError for a row that no gateway wrote."""
    hashes = bytes(row["hash"]), bytes(row["erased"] or b"")
    return RecordedEntry(str(row["chain_id"]), row["sequence"], entry_of(row), *hashes)


def hashes_before(chain: sql.Composable, sequence: sql.Composable) -> sql.Composed:
    """Query for the hash of a record, or of the last one that retention has removed."""
    return sql.SQL(
        "SELECT hash FROM audit_t WHERE chain_id = {chain} AND sequence = {sequence} UNION ALL"
        " SELECT removed_hash FROM audit_chain_t"
        " WHERE chain_id = {chain} AND removed_sequence = {sequence}"
    ).format(chain=chain, sequence=sequence)


async def is_valid(connection: AsyncConnection, key: bytes, row: Mapping[str, Any]) -> bool:
    """Whether the record of a row is intact, behind the one before it or behind those that
    retention has removed."""
    try:
        record = recorded_entry(row)
    except ValueError:
        return False
    rows = await connection.execute(
        hashes_before(sql.Literal(row["chain_id"]), sql.Literal(record.sequence - 1))
    )
    return any(record.is_intact(key, bytes(before)) for (before,) in await rows.fetchall())


def _legacy_client(row: tuple[Any, ...]) -> LegacyClient:
    principal, client, requests, first, last, actions = row
    return LegacyClient(principal, client, requests, first, last, tuple(actions))


def _conditions(host_id: str, query: AuditQuery) -> tuple[list[sql.Composable], dict[str, Any]]:
    conditions: list[sql.Composable] = [sql.SQL("host_id = %(host)s")]
    filters: dict[LiteralString, Any] = {
        "principal = %(principal)s": query.principal,
        "subject = %(subject)s": query.subject,
        "decision = %(decision)s": query.decision,
        "outcome = %(outcome)s": query.outcome,
        "recorded_ts >= %(since)s": query.since,
        "recorded_ts < %(until)s": query.until,
    }
    conditions += [sql.SQL(condition) for condition, value in filters.items() if value is not None]
    values = {name: getattr(query, name) for name in _NAMES}
    return conditions, {"host": host_id, **values}


def _after(last: RecordedEntry) -> str:
    moment = (last.entry.recorded_ts - _EPOCH) // timedelta(microseconds=1)
    return f"{moment}.{last.sequence}.{last.chain_id}"


def _position(after: str) -> dict[str, Any]:
    moment, sequence, chain_id = after.split(".")
    place = int(sequence)
    if not 0 <= place < 2**63:
        raise ValueError("no such place")
    try:
        ts = _EPOCH + timedelta(microseconds=int(moment))
    except OverflowError as error:
        raise ValueError("no such time") from error
    return {"ts": ts, "sequence": place, "chain": UUID(chain_id)}
