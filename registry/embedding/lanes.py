"""Models in this process: which thread runs what, so that a query need not wait for a backfill."""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, Lock, create_task_group, to_thread

from registry.embedding.abc import EmbeddingFailed, Vectors
from registry.embedding.vectors import normalised, together

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
Text = TypeVar("Text", bound=Sized)  # a string, or its tokens: as the model takes it
Encode = Callable[[list[Text]], "NDArray[Any]"]
"""One run of a model: its vectors, one row for each text."""

FEW = 50  # characters more or less are no reason for another run
QUERIES = 2  # run at a time, beside the texts; more would only slow each other down


class Lanes:
    """Runs a model in threads. Texts and queries stand in two lines."""

    def __init__(self, threads: int) -> None:
        """`threads`: so many runs with texts at a time."""
        self._texts = CapacityLimiter(threads)
        self._queries = CapacityLimiter(QUERIES)
        self._turn = Lock()

    async def run(self, function: Callable[[], T], query: bool) -> T:
        """`function` in a thread."""
        return await to_thread.run_sync(function, limiter=self._lane(query))

    async def embed(
        self,
        encode: Encode[Text],
        texts: Sequence[Text],
        dimension: int,
        batch: int,
        query: bool,
        few: int = FEW,
    ) -> Vectors:
        """At most `batch` texts a run. A caller who is cancelled goes when the runs of the moment
        have ended.

        Callers with texts take turns: while one has all threads, another is at the database.
        """
        async with AsyncExitStack() as turn:
            if not query:
                await turn.enter_async_context(self._turn)
            return await self._embed(encode, texts, dimension, batch, query, few)

    def _lane(self, query: bool) -> CapacityLimiter:
        return self._queries if query else self._texts

    async def _embed(
        self,
        encode: Encode[Text],
        texts: Sequence[Text],
        dimension: int,
        batch: int,
        query: bool,
        few: int,
    ) -> Vectors:
        lane = self._lane(query)
        rows: dict[int, Any] = {}  # vectors, by the index of their text
        batches = list(_batches([len(text) for text in texts], batch, few))
        left = iter(batches)
        failures: list[EmbeddingFailed] = []

        async def run() -> None:
            for some in left:
                given = [texts[one] for one in some]
                try:
                    found = await self.run(partial(encode, given), query)
                    rows.update(zip(some, normalised(found, len(some), dimension), strict=True))
                except EmbeddingFailed as error:
                    failures.append(error)
                if failures:
                    return

        async with create_task_group() as group:
            for _ in range(min(int(lane.total_tokens), len(batches))):
                group.start_soon(run)
        if failures:
            raise failures[0]
        return together([rows[index] for index in range(len(texts))], dimension)


def _batches(lengths: list[int], most: int, few: int = FEW) -> Iterator[list[int]]:
    """Indexes of at most `most` texts of like length: they are padded to the longest of them."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == most or lengths[index] > 2 * lengths[batch[0]] + few):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
