"""Tables as durable queues, whose rows one worker at a time claims, renews and releases.

A claim changes the fence of its row and sets the end of its lease, after which others may claim it.
Each later write of the worker names that fence, so that a worker that was taken for dead changes
nothing. The clock is the database's; rows that another transaction has locked are skipped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, Protocol, TypeVar

from psycopg import AsyncConnection, sql

from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import Fragment
from registry.database.tables import Tables, fetch_row
from schemas.errors import ToolgateError

Claim = tuple[str, str, int]
"""Tenant, id and fence of a row."""


class LeasedRow(Protocol):
    """A row that a worker claims. `claim` is None until it is stored."""

    @property
    def claim(self) -> Claim | None: ...


Row = TypeVar("Row", bound=LeasedRow)


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
        tenant_condition = sql.SQL("host_id = %(host)s AND {condition}").format(condition=condition)
        due = pick(self.table, self.id, tenant_condition, order).as_bytes()
        rows = self._compose("FROM due WHERE r.host_id = %(host)s AND r.{id} = due.id")
        return b"WITH due (id) AS MATERIALIZED (%b) " % due + self.claim(changes, rows, returning)

    def renew(self, returning: LiteralString) -> bytes:
        """Statement that prolongs the leases of those of many rows that are still held."""
        rows = self._compose("UPDATE {table} AS r SET {until} = {end}")
        return b"%b %b RETURNING %b" % (rows.text, self._many.text, self._compose(returning).text)

    def release(self, changes: LiteralString) -> bytes:
        """Statement that ends the leases of those of many rows that are still held."""
        rows = self._compose(
            "UPDATE {table} AS r SET {until} = NULL, {changes}", changes=sql.SQL(changes)
        )
        return b"%b %b" % (rows.text, self._many.text)

    def statements(
        self,
        row: Callable[..., Row],
        columns: sql.Composable,
        *,
        owner: LiteralString,
        due: sql.Composable,
        claim: LiteralString,
        release: LiteralString,
        rows: sql.Composable | None = None,
    ) -> "LeaseStatements[Row]":
        """Statements of rows with a condition `due`, and with columns of these names. `claim` and
        `release` are further changes; `rows` is the FROM of the rows that are due, where an index
        needs it."""
        owner_condition = self._compose(
            "WHERE r.host_id = %(host)s AND r.{id} = %(id)s AND ({due})", due=due
        )
        return LeaseStatements(
            row=row,
            due=self._look_at_due(
                owner, rows or self._compose("{table} AS r WHERE {due}", due=due)
            ),
            claim=self.claim(claim, owner_condition, columns),
            renew=self.renew("r.{id}::text, r.cancel"),
            release=self.release(release),
        )

    def _look_at_due(self, owner: LiteralString, rows: sql.Composable) -> bytes:
        # Tenants, and their owners, have as many turns behind them as rows that this process holds,
        # and none beyond their shares: a row that could not begin would hold up the others.
        return self._compose(
            "WITH held AS (SELECT * FROM"
            " unnest(%(hosts)s::uuid[], %(owners)s::text[], %(counts)s::int[])"
            " AS h(host_id, owner, rows)),"
            " due AS (SELECT r.host_id, r.{id} AS id, r.{owner} AS owner, r.created_ts,"
            " row_number() OVER (PARTITION BY r.host_id, r.{owner} ORDER BY r.created_ts)"
            " + coalesce((SELECT rows FROM held AS h"
            " WHERE h.host_id = r.host_id AND h.owner = r.{owner}), 0) AS turn FROM {rows}),"
            " next AS (SELECT *, row_number() OVER (PARTITION BY host_id ORDER BY turn, created_ts)"
            " + coalesce((SELECT sum(rows) FROM held AS h WHERE h.host_id = due.host_id), 0)"
            " AS tenant_turn FROM due WHERE turn <= %(of_owner)s)"
            " SELECT host_id::text, id::text, owner FROM next WHERE tenant_turn <= %(of_tenant)s"
            " ORDER BY tenant_turn, turn, created_ts LIMIT %(limit)s",
            owner=sql.SQL(owner),
            rows=rows,
        ).text

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
        fragments = {name: sql.SQL(getattr(self, name)) for name in self.__slots__}
        fragments["end"] = sql.SQL("clock_timestamp() + make_interval(secs => %(lease)s)")
        step = fragments["next_fence"].format(fence=fragments["fence"])
        return Fragment.of(sql.SQL(template).format(**{**fragments, "next_fence": step, **parts}))


@dataclass(frozen=True, slots=True)
class LeaseStatements(Generic[Row]):
    """Statements of a table; `row` makes a row of its columns. See `Leases`."""

    row: Callable[..., Row]
    due: bytes
    claim: bytes
    renew: bytes  # returns ids, and whether a row is to be cancelled
    release: bytes


class LeasedRows(Tables, Generic[Row]):
    """Rows of a table that this process claims, renews and releases. All methods raise
    `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, statements: LeaseStatements[Row], **values: Any) -> None:
        """`values`: parameters of claims and renewals, such as `lease`."""
        super().__init__(pool)
        self._statements = statements
        self._values = values

    async def due(
        self, limit: int, owners: Mapping[tuple[str, str], int], *, of_tenant: int, of_owner: int
    ) -> list[tuple[str, str, str]]:
        """Tenants, ids and owners of rows that no process works on, in the order of their turns.
        `owners`: how many this process holds, by tenant and owner; `of_tenant`, `of_owner`: how
        many it may hold."""
        values = {
            "hosts": [tenant for tenant, _ in owners],
            "owners": [owner for _, owner in owners],
            "counts": list(owners.values()),
            "of_tenant": of_tenant,
            "of_owner": of_owner,
            "limit": limit,
        }
        async with borrow(self._pool) as connection:
            rows = await connection.execute(self._statements.due, values)
            return [(tenant, id_, owner) async for tenant, id_, owner in rows]

    async def claim(self, host_id: str, id_: str) -> Row | None:
        """Take up a row that is due; None: it is not, or another process was faster."""
        async with borrow(self._pool) as connection:
            return await self._claim(connection, host_id, id_)

    async def _claim(self, connection: AsyncConnection, host_id: str, id_: str) -> Row | None:
        values = {"host": host_id, "id": id_, **self._values}
        return await fetch_row(connection, self._statements.row, self._statements.claim, values)

    async def renew(self, rows: Iterable[Row]) -> dict[str, bool]:
        """Renew leases: by the ids of the rows that are still ours, whether they are to be
        cancelled."""
        values = {**held_rows(row.claim for row in rows), **self._values}
        async with borrow(self._pool) as connection:
            renewed = await connection.execute(self._statements.renew, values)
            return {id_: cancel async for id_, cancel in renewed}

    async def release(self, row: Row) -> None:
        """Let another process take up the row at once."""
        await self._execute(self._statements.release, held_rows([row.claim]))

    async def _write(self, row: Row, statement: bytes, values: Mapping[str, Any]) -> None:
        """Change a row that this process holds. Raises LeaseLost."""
        if not await self._execute(statement, {**held_row(row), **values}):
            raise LeaseLost("another process has taken the run over")


def held_row(row: LeasedRow) -> dict[str, Any]:
    """Parameters of one row."""
    return dict(zip(("host", "id", "fence"), row.claim or (None, None, None), strict=True))


def held_rows(claims: Iterable[Claim | None]) -> dict[str, Any]:
    """Parameters of many rows, by their tenants, ids and fences."""
    rows = [claim for claim in claims if claim is not None]
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
        tenant_condition = sql.SQL("r.host_id = %(host)s AND {}").format(self.condition)
        statement = sql.SQL(
            "WITH old AS MATERIALIZED ({}) DELETE FROM {} AS r WHERE {} AND ({key}) IN"
            " (SELECT {key} FROM old)"
        ).format(
            pick(self.table, self.key, tenant_condition, self.order),
            table,
            tenant_condition,
            key=key,
        )
        deleted = 0
        for host in hosts:
            async with borrow(pool) as connection:
                deleted += (await connection.execute(statement, {**values, "host": host})).rowcount
        return deleted
