"""Calls of a tenant over the last hours, summed by source and by tool, from the audit log.

A summary reads a bounded number of the newest records, whatever the log has.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from psycopg import sql
from psycopg.rows import dict_row, tuple_row

from gateway.audit.queries import COLUMNS, RecordedEntry, recorded_entry
from registry.database.postgres import Pool, borrow
from schemas.errors import ApprovalRequired, ConnectionRequired

NOT_CALLS = ("admin", "cli", "job")  # fronts of records that are no calls
NO_FAILURES = ("ok", "cancelled", str(ApprovalRequired.code), str(ConnectionRequired.code))
RANKED_TOOLS = 5  # tools of a ranking

# The newest records of the window, by audit_host_ix; then the calls among them.
_LATEST = sql.SQL("""
    WITH latest AS MATERIALIZED (
        SELECT * FROM audit_t
         WHERE host_id = %(host)s AND recorded_ts >= %(since)s
         ORDER BY recorded_ts DESC, chain_id DESC, sequence DESC
         LIMIT %(records)s
    ), made AS (
        SELECT *, coalesce(decision, '') = 'deny' AS denied,
               coalesce(decision, '') <> 'deny' AND NOT outcome = ANY(%(good)s) AS failed
          FROM latest
         WHERE (source IS NOT NULL OR subject IS NOT NULL AND outcome <> 'ok')
               AND NOT front = ANY(%(fronts)s)
    )
""")
_SUMS = sql.SQL("""
    , summed AS (
        SELECT coalesce(source, '') AS source, coalesce(subject, '') AS subject,
               count(*) AS calls, count(*) FILTER (WHERE failed) AS errors,
               count(*) FILTER (WHERE denied) AS denied,
               coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY latency_us), 0) AS p95_us,
               max(recorded_ts) FILTER (WHERE outcome = 'ok') AS last_ok,
               min(recorded_ts) AS first, grouping(source, subject) AS level
          FROM made GROUP BY GROUPING SETS ((), (source), (source, subject))
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY level ORDER BY p95_us DESC) AS slow,
               row_number() OVER (PARTITION BY level ORDER BY errors DESC) AS bad
          FROM summed WHERE level = 3 OR source <> ''
    )
    SELECT source, subject, calls, errors, denied, p95_us, last_ok, first, level
      FROM ranked WHERE level > 0 OR slow <= %(ranked)s OR bad <= %(ranked)s
""")
_FAILURES = sql.SQL("""
    SELECT {} FROM made WHERE failed OR denied
     ORDER BY recorded_ts DESC, chain_id DESC, sequence DESC LIMIT %(failures)s
""")
_ALL, _OF_SOURCE, _OF_TOOL = 3, 1, 0  # of grouping(source, subject)


class CallCounts(Struct, frozen=True):
    """Calls of a source, or of one of its tools. `denied` ones are no errors. `p95_ms`: 95 of 100
    took at most so long."""

    source: str
    tool: str  # "": all of the source
    calls: int
    errors: int
    denied: int
    p95_ms: float
    last_ok: datetime | None


class SummedCalls(Struct, frozen=True):
    """The calls since a time: by source, the slowest tools, and those that fail most."""

    since: datetime  # of the first call that is counted
    calls: int
    errors: int
    denied: int
    sources: tuple[CallCounts, ...]
    slowest: tuple[CallCounts, ...]
    failing: tuple[CallCounts, ...]


async def sum_calls(
    pool: Pool, host_id: str, since: datetime, *, records: int, failures: int
) -> tuple[SummedCalls, Sequence[RecordedEntry]]:
    """The sums, and the newest calls that failed or were denied."""
    values = {
        "host": host_id, "since": since, "records": records, "fronts": [*NOT_CALLS],
        "good": [*NO_FAILURES], "failures": failures, "ranked": RANKED_TOOLS,
    }  # fmt: skip
    async with borrow(pool) as connection:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_LATEST + _SUMS, values)
            rows = await cursor.fetchall()
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_LATEST + _FAILURES.format(COLUMNS), values)
            entries = [recorded_entry(row) async for row in cursor]
    return _summary(rows, since), entries


def _summary(rows: Sequence[tuple[Any, ...]], since: datetime) -> SummedCalls:
    by_level: dict[int, list[CallCounts]] = {_ALL: [], _OF_SOURCE: [], _OF_TOOL: []}
    first = since
    for source, subject, calls, errors, denied, p95_us, last_ok, earliest, level in rows:
        counts = CallCounts(source, subject, calls, errors, denied, p95_us / 1000, last_ok)
        by_level[level].append(counts)
        first = earliest if level == _ALL and earliest else first
    (whole,) = by_level[_ALL]
    tools = by_level[_OF_TOOL]
    failing = sorted((tool for tool in tools if tool.errors), key=lambda tool: -tool.errors)
    return SummedCalls(
        first,
        whole.calls,
        whole.errors,
        whole.denied,
        tuple(sorted(by_level[_OF_SOURCE], key=lambda source: -source.calls)),
        tuple(sorted(tools, key=lambda tool: -tool.p95_ms)[:RANKED_TOOLS]),
        tuple(failing[:RANKED_TOOLS]),
    )
