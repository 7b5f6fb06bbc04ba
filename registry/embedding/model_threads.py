"""Scheduling of a model's runs on threads: queries have their own, so that a backfill does not
delay them."""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CapacityLimiter, Lock, create_task_group, to_thread

from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.vectors import normalise, together

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
Text = TypeVar("Text", bound=Sized)  # a string, or its tokens, depending on the model
Encode = Callable[[list[Text]], "NDArray[Any]"]
"""One run of a model: its vectors, one row for each text."""

SLACK = 50  # smaller differences in length do not start another batch
QUERIES = 2  # concurrent runs, beside those of texts; more would only slow each other down


class Lanes:
    """Runs a model in threads, with separate queues for texts and queries."""

    def __init__(self, threads: int) -> None:
        """Lanes with `threads` concurrent runs of texts."""
        self._texts = CapacityLimiter(threads)
        self._queries = CapacityLimiter(QUERIES)
        self._turn = Lock()

    async def run(self, function: Callable[[], T], query: bool) -> T:
        """Run `function` in a thread."""
        return await to_thread.run_sync(function, limiter=self._lane(query))

    async def embed(
        self,
        encode: Encode[Text],
        texts: Sequence[Text],
        *,
        dimension: int,
        batch: int,
        query: bool,
    ) -> Vectors:
        """Embed in batches of at most `batch` texts. A cancelled caller returns when the current
        runs have ended.

        Callers with texts take turns: while one has all threads, another is at the database.
        """
        async with AsyncExitStack() as turn:
            if not query:
                await turn.enter_async_context(self._turn)
            return await self._embed(encode, texts, dimension=dimension, batch=batch, query=query)

    def _lane(self, query: bool) -> CapacityLimiter:
        return self._queries if query else self._texts

    async def _embed(
        self,
        encode: Encode[Text],
        texts: Sequence[Text],
        *,
        dimension: int,
        batch: int,
        query: bool,
    ) -> Vectors:
        lane = self._lane(query)
        rows: dict[int, Any] = {}  # vectors, by the index of their text
        batches = list(_batches([len(text) for text in texts], batch))
        batches_to_do = iter(batches)
        failures: list[EmbeddingFailed] = []

        async def run() -> None:
            for numbers in batches_to_do:
                batch = [texts[number] for number in numbers]
                try:
                    vectors_of_part = await self.run(partial(encode, batch), query)
                    rows.update(
                        zip(
                            numbers,
                            normalise(vectors_of_part, len(numbers), dimension),
                            strict=True,
                        )
                    )
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


def _batches(lengths: list[int], limit: int, slack: int = SLACK) -> Iterator[list[int]]:
    """Batches of indexes, at most `limit` texts of similar length: they are padded to the
    longest."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == limit or lengths[index] > 2 * lengths[batch[0]] + slack):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
