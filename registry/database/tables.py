"""Statements over one pool, whose rows are values of classes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import QueryNoTemplate as Query
from psycopg.rows import TupleRow, kwargs_row

from registry.database.postgres import Pool, borrow

T = TypeVar("T")
Values = Sequence[Any] | Mapping[str, Any]


async def fetch_rows(
    connection: AsyncConnection, kind: Callable[..., T], statement: Query, values: Values
) -> list[T]:
    """The rows of a query as values of a class, by the names of their columns."""
    cursor = connection.cursor(row_factory=kwargs_row(kind))
    await cursor.execute(statement, values)
    return await cursor.fetchall()


async def fetch_row(
    connection: AsyncConnection, kind: Callable[..., T], statement: Query, values: Values
) -> T | None:
    rows = await fetch_rows(connection, kind, statement, values)
    return rows[0] if rows else None


class Tables:
    """Base of stores: each method runs one statement, in a transaction of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def _fetch_rows(
        self, kind: Callable[..., T], statement: Query, values: Values
    ) -> list[T]:
        async with borrow(self._pool) as connection:
            return await fetch_rows(connection, kind, statement, values)

    async def _fetch_row(
        self, kind: Callable[..., T], statement: Query, values: Values
    ) -> T | None:
        async with borrow(self._pool) as connection:
            return await fetch_row(connection, kind, statement, values)

    async def _fetch(self, statement: Query, values: Values | None = None) -> list[TupleRow]:
        async with borrow(self._pool) as connection:
            return await (await connection.execute(statement, values)).fetchall()

    async def _fetch_first(self, statement: Query, values: Values | None = None) -> TupleRow | None:
        async with borrow(self._pool) as connection:
            return await (await connection.execute(statement, values)).fetchone()

    async def _execute(self, statement: Query, values: Values | None = None) -> int:
        """The number of rows that a statement has changed."""
        async with borrow(self._pool) as connection:
            return (await connection.execute(statement, values)).rowcount
