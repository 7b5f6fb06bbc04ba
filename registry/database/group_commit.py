"""Group commit: items of concurrent callers are written in one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import psycopg
from psycopg_pool import PoolTimeout

from schemas.errors import Unavailable

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class GroupCommit(Generic[Item, Outcome]):
    """Writes items that come at the same time in one transaction: those that come while one is
    written go into the next."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]], most: int
    ) -> None:
        """`most`: items of one transaction."""
        self._write = write
        self._most = most
        self._waiting: list[tuple[Item, _Written[Outcome]]] = []
        self._wake = anyio.Event()

    async def put(self, item: Item) -> Outcome:
        """The outcome of the item, once it is committed. Raises what `write` raises."""
        written: _Written[Outcome] = _Written()
        self._waiting.append((item, written))
        self._wake.set()
        await written.done.wait()
        if written.error is not None:
            raise written.error
        return written.outcomes[0]

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            if not self._waiting:
                self._wake = anyio.Event()
            await self._write_batch(batch)

    async def _write_batch(self, batch: "list[tuple[Item, _Written[Outcome]]]") -> None:
        try:
            outcomes = await self._write([item for item, _ in batch])
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if len(batch) == 1:
                batch[0][1].fail(error)
                return
            for pending in batch:  # the fault is that of one of them
                await self._write_batch([pending])
        except (psycopg.Error, PoolTimeout, OSError) as error:
            away = Unavailable("The database does not answer; nothing was stored")
            away.__cause__ = error
            for _, written in batch:
                written.fail(away)
        else:
            for (_, written), outcome in zip(batch, outcomes, strict=True):
                written.outcomes.append(outcome)
                written.done.set()


class _Written(Generic[Outcome]):
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.outcomes: list[Outcome] = []
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()
