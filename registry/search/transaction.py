"""The statements of a search on a connection: in a transaction, or each by itself."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from psycopg import AsyncCursor, IsolationLevel
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import TupleRow

from registry.database.postgres import Pool, autocommit, borrow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class HalfVector:
    """A vector as pgvector reads it: two 16-bit numbers, the first the dimension, then 32-bit
    floats."""

    data: bytes

    @classmethod
    def of(cls, row: "NDArray[np.float32]") -> "HalfVector":
        return cls(len(row).to_bytes(2) + b"\0\0" + row.astype(">f4").tobytes())


class VectorDumper(Dumper):
    """Dumper of vectors without a type: the statement casts to `::vector`, as its oid varies by
    database."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        data: bytes = obj.data
        return data


Planner: TypeAlias = Mapping[str, str]
"""How a statement is to be planned."""

# No statement is large enough for JIT compilation, and parallel workers are not worth their start.
PLANNER = b"""
    SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
        set_config('max_parallel_workers_per_gather', '0', true),
        set_config('work_mem', '32MB', true),
        set_config('hnsw.iterative_scan', 'relaxed_order', true),
        set_config('enable_indexscan', %(indexscan)s, true),
        set_config('enable_mergejoin', %(indexscan)s, true),
        set_config('enable_nestloop', %(nestloop)s, true),
        set_config('plan_cache_mode', %(plans)s, true)
"""
# Planned once for each connection: planning takes half as long as running.
LOOKUPS: Planner = {"indexscan": "on", "nestloop": "on", "plans": "force_generic_plan"}
# Where many rows are compared they are read in physical order, and joined at once: in the order of
# their ids, or looked up one by one, it takes twice as long. Few may be left of them where filters
# apply.
SCANS: Planner = {"indexscan": "off", "nestloop": "off", "plans": "auto"}
NARROWED_SCANS: Planner = {"indexscan": "off", "nestloop": "on", "plans": "auto"}


class Transaction:
    def __init__(self, cursor: AsyncCursor[TupleRow]) -> None:
        self._cursor = cursor
        self._planner: Planner = {}

    async def rows(
        self, planner: Planner, statement: bytes, values: Mapping[str, Any]
    ) -> list[TupleRow]:
        """The rows of `statement`, planned with these settings."""
        if planner != self._planner:
            await self.plan(planner)
            self._planner = planner
        await self._cursor.execute(statement, values, prepare=True)
        return await self._cursor.fetchall()

    async def plan(self, planner: Planner) -> None:
        """Set how the following statements are planned."""
        await self._cursor.execute(PLANNER, planner)


class SeparateReads(Transaction):
    """Each statement in a transaction of its own, sent with its settings in one round trip.

    The connection is in autocommit mode, where the statements of a pipeline are one transaction
    without BEGIN and COMMIT. As the isolation level is READ COMMITTED, each statement sees what it
    would see in one transaction of all.
    """

    async def rows(
        self, planner: Planner, statement: bytes, values: Mapping[str, Any]
    ) -> list[TupleRow]:
        async with self._cursor.connection.pipeline():
            await self.plan(planner)
            await self._cursor.execute(statement, values, prepare=True)
        return await self._cursor.fetchall()


AnyTransaction = TypeVar("AnyTransaction", bound=Transaction)
Work: TypeAlias = Callable[[Transaction], Awaitable[A]]


@asynccontextmanager
async def transaction(
    pool: Pool,
    make: Callable[[AsyncCursor[TupleRow]], AnyTransaction],
    isolation: IsolationLevel | None = None,
) -> AsyncIterator[AnyTransaction]:
    async with borrow(pool, isolation) as connection, connection.cursor() as cursor:
        cursor.adapters.register_dumper(HalfVector, VectorDumper)
        yield make(cursor)


@asynccontextmanager
async def separate_reads(pool: Pool) -> AsyncIterator[SeparateReads]:
    async with autocommit(pool) as connection, connection.cursor() as cursor:
        cursor.adapters.register_dumper(HalfVector, VectorDumper)
        yield SeparateReads(cursor)


async def read(pool: Pool, work: Work[A]) -> A:
    """The result of `work`, which only reads."""
    async with separate_reads(pool) as opened:
        return await work(opened)
