"""Tables as durable queues, whose rows one worker at a time claims, renews and releases.

A claim changes the fence of its row and sets the end of its lease, after which others may claim it.
Each later write of the worker names that fence, so that a worker that was taken for dead changes
nothing. The clock is the database's; rows that another transaction has locked are skipped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import sql

from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import Fragment
from schemas.errors import ToolgateError


class LeaseLost(ToolgateError):
    """Another worker has claimed the row, or it was deleted."""


@dataclass(frozen=True, slots=True)
class Leases:
    """Statements of a table with the key (host_id, `id`), which they call r. Parameters of one row
    are `host`, `id` and `fence`, those of many come from `held_rows`; `lease` is in seconds."""

    table: LiteralString
    id: LiteralString
    held: LiteralString  # condition of r while it is leased
    fence: LiteralString = "fence"
    next_fence: LiteralString = "r.{fence} + 1"
    until: LiteralString = "lease_ts"

    def claim(
        self, changes: LiteralString, rows: sql.Composable, returning: sql.Composable
    ) -> bytes:
        """Statement that leases rows; `rows` is its WHERE, perhaps with a FROM."""
        return self._compose(
            "UPDATE {table} AS r SET {fence} = {next_fence}, {until} = {end}, {changes}"
            " {rows} RETURNING {returning}",
            changes=sql.SQL(changes),
            rows=rows,
            returning=returning,
        ).as_bytes()

    def claim_due(
        self,
        changes: LiteralString,
        condition: sql.Composable,
        order: LiteralString,
        returning: sql.Composable,
    ) -> bytes:
        """Statement that leases the first `limit` rows of the tenant `host` with a condition."""
        own = sql.SQL("host_id = %(host)s AND {condition}").format(condition=condition)
        due = pick(self.table, self.id, own, order).as_bytes()
        rows = self._compose("FROM due WHERE r.host_id = %(host)s AND r.{id} = due.id")
        return b"WITH due (id) AS MATERIALIZED (%b) " % due + self.claim(changes, rows, returning)

    def renew(self, returning: LiteralString) -> bytes:
        """Statement that prolongs the leases of those of many rows that are still held."""
        rows = self._compose("UPDATE {table} AS r SET {until} = {end}")
        return b"%b %b RETURNING %b" % (rows.text, self._many.text, sql.SQL(returning).as_bytes())

    def release(self, changes: LiteralString) -> bytes:
        """Statement that ends the leases of those of many rows that are still held."""
        rows = self._compose(
            "UPDATE {table} AS r SET {until} = NULL, {changes}", changes=sql.SQL(changes)
        )
        return b"%b %b" % (rows.text, self._many.text)

    @property
    def of_one(self) -> Fragment:
        """Condition of one row that its claim still holds."""
        return self._compose(
            "r.host_id = %(host)s AND r.{id} = %(id)s AND r.{fence} = %(fence)s AND {held}"
        )

    @property
    def _many(self) -> Fragment:
        # The limit is their number, and says to the planner that they are few: each is then found
        # by its key.
        return self._compose(
            "FROM (SELECT * FROM unnest(%(hosts)s::uuid[], %(ids)s::uuid[], %(fences)s::bigint[])"
            " LIMIT %(count)s) AS claim (host, id, fence)"
            " WHERE r.host_id = claim.host AND r.{id} = claim.id AND r.{fence} = claim.fence"
            " AND {held}"
        )

    def _compose(self, template: LiteralString, **parts: sql.Composable) -> Fragment:
        own = {name: sql.SQL(getattr(self, name)) for name in self.__slots__}
        own["end"] = sql.SQL("clock_timestamp() + make_interval(secs => %(lease)s)")
        step = own["next_fence"].format(fence=own["fence"])
        return Fragment.of(sql.SQL(template).format(**{**own, "next_fence": step, **parts}))


def held_rows(claims: Iterable[tuple[str, str, int]]) -> dict[str, Any]:
    """Parameters of many rows, by their tenants, ids and fences."""
    rows = list(claims)
    hosts, ids, fences = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    return {"hosts": hosts, "ids": ids, "fences": fences, "count": len(rows)}


def pick(
    table: LiteralString, columns: LiteralString, condition: sql.Composable, order: LiteralString
) -> sql.Composed:
    """Query of at most %(limit)s rows of r, which it locks. It belongs into a CTE, which is run
    once: a subquery is run again for each row by some plans, and then takes more."""
    template = sql.SQL(
        "SELECT {columns} FROM {table} AS r WHERE {condition} ORDER BY {order}"
        " LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
    )
    names = {"columns": sql.SQL(columns), "table": sql.SQL(table), "order": sql.SQL(order)}
    return template.format(**names, condition=condition)


@dataclass(frozen=True, slots=True)
class OldRows:
    """Rows r of tenants that are deleted some at a time."""

    table: LiteralString
    key: LiteralString  # columns that are unique within a tenant
    condition: sql.Composable
    order: LiteralString

    async def delete(self, pool: Pool, values: Mapping[str, Any]) -> int:
        """Delete at most `values["limit"]` of each tenant; returns their number."""
        table, key, order = (sql.SQL(name) for name in (self.table, self.key, self.order))
        tenants = sql.SQL(
            "SELECT DISTINCT host_id::text FROM (SELECT host_id FROM {} AS r"
            " WHERE {} ORDER BY {} LIMIT %(limit)s) AS old"
        ).format(table, self.condition, order)
        async with borrow(pool) as connection:
            hosts = [host async for (host,) in await connection.execute(tenants, values)]
        # The condition stands twice: the outer one tells which partitions are looked at.
        own = sql.SQL("r.host_id = %(host)s AND {}").format(self.condition)
        statement = sql.SQL(
            "WITH old AS MATERIALIZED ({}) DELETE FROM {} AS r WHERE {} AND ({key}) IN"
            " (SELECT {key} FROM old)"
        ).format(pick(self.table, self.key, own, self.order), table, own, key=key)
        deleted = 0
        for host in hosts:
            async with borrow(pool) as connection:
                deleted += (await connection.execute(statement, {**values, "host": host})).rowcount
        return deleted
