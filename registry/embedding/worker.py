"""One embedding worker: claims texts from the queue, embeds them, stores the vectors."""

import logging
import os
import random
import secrets
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio import CancelScope
from psycopg import AsyncConnection

from config.settings import EmbeddingSettings
from config.value_types import VECTOR_DIMENSION
from registry.database.postgres import AWAY, Pool, borrow
from registry.embedding.embedder import Embedder, EmbeddingFailed, Vectors
from registry.embedding.queue import CAREFULLY, EmbeddingFailure, Queue, Task
from registry.embedding.search_kinds import KINDS, Key, Kinds, SourceText, columns
from registry.embedding.vectors import check_vectors

log = logging.getLogger("toolgate.embedding")

BATCHES = 4  # batches of the model claimed at first
BATCHES_LIMIT = 16  # more texts per statement, which also group better by length
QUICK_S, SLOW_S = 0.4, 0.8  # a fast worker claims more, a slow one fewer: what is queued meanwhile
# waits for the claims in hand
DOWN = 3  # consecutive failures, before any success: the model is at fault, not the texts
FINAL_RETRY_S = 3600.0  # retry of transient failures that count as failed after too many attempts
RELEASE_S = 5.0  # time limit of a release, so that an unreachable database does not delay shutdown


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """The retry backoff, as in the settings."""

    retries: int
    backoff_s: float
    backoff_max_s: float

    def failure(self, task: Task, error: EmbeddingFailed) -> EmbeddingFailure:
        if not error.retryable:
            return EmbeddingFailure(str(error), None, final=True)
        if task.attempt_count > self.retries:
            return EmbeddingFailure(str(error), FINAL_RETRY_S, final=True)
        after_s = self.pause_s(task.attempt_count) * random.uniform(0.5, 1)  # noqa: S311 - jitter
        return EmbeddingFailure(str(error), max(after_s, error.retry_after_s or 0.0), final=False)

    def pause_s(self, attempts: int) -> float:
        return min(self.backoff_s * 2.0 ** min(attempts - 1, 30), self.backoff_max_s)


class Worker:
    """Embedding worker of one model, until stopped. Any number of workers, on any node, share a
    queue."""

    def __init__(
        self,
        pool: Pool,
        embedder: Embedder,
        settings: EmbeddingSettings,
        kinds: Kinds = KINDS,
    ) -> None:
        self.name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._pool = pool
        self._embedder = embedder
        self._queue = Queue(pool, self.name, embedder.model, list(kinds))
        self._texts_of = {name: kind.read_texts for name, kind in kinds.items()}
        self._batch = settings.batch_size
        self._claim_size = self._batch * BATCHES
        self._lease_s = settings.lease_s
        self._poll_s = settings.poll_s
        self._quiet_s = settings.debounce_s
        self._burst_s = settings.debounce_max_s
        self._retrying = RetryBackoff(settings.retries, settings.backoff_s, settings.backoff_max_s)
        self._failing = 0  # consecutive batches without any vector
        self._wake = anyio.Event()
        self._stopping = anyio.Event()
        self.done = 0  # vectors stored

    def wake(self) -> None:
        """Signal that there may be tasks."""
        self._wake.set()

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping.set()
        self.wake()

    async def run(self) -> None:
        """Process tasks, and wait for new ones, until stopped or cancelled."""
        while not self._stopping.is_set():
            self._wake = anyio.Event()
            try:
                count = await self.step()
            except AWAY as error:
                log.warning("embedding_queue_unavailable", extra={"reason": type(error).__name__})
                count = 0
            except Exception:
                log.exception("embedding_worker_crashed")
                count = 0
            if count and self._failing:
                await self._pause(self._retrying.pause_s(self._failing), wakes=False)
            elif not count:
                await self._pause(self._poll_s, wakes=True)
                await self._see_burst_through()

    async def step(self) -> int:
        """Claim and process a batch; returns the number of its tasks. Raises the errors of
        `Queue`."""
        tasks = await self._queue.claim(self._claim_size, self._lease_s)
        open_tasks, began = dict.fromkeys(tasks), anyio.current_time()
        try:
            for batch in _batches(tasks):
                await self._see_through(batch)
                for task in batch:
                    del open_tasks[task]
        except (*AWAY, anyio.get_cancelled_exc_class()):
            # After any other error the lease has to expire: then they are tried one by one.
            with CancelScope(shield=True, deadline=anyio.current_time() + RELEASE_S):
                await self._release(list(open_tasks))
            raise
        if 2 * len(tasks) > self._claim_size:
            self._adapt(anyio.current_time() - began)
        return len(tasks)

    def _adapt(self, seconds: float) -> None:
        """Adapt the size of the next claim, so that other work need not wait and leases last;
        `seconds`: the time that this one took."""
        if seconds < QUICK_S:
            self._claim_size = min(2 * self._claim_size, self._batch * BATCHES_LIMIT)
        elif seconds > min(SLOW_S, self._lease_s / 4):
            self._claim_size = max(self._claim_size // 2, self._batch)

    async def _release(self, tasks: Sequence[Task]) -> None:
        try:
            await self._queue.release(tasks)
        except AWAY:  # their lease will expire
            log.warning("embedding_tasks_not_released", extra={"count": len(tasks)})

    async def _see_through(self, tasks: Sequence[Task]) -> None:
        killers = [task for task in tasks if task.abandoned and task.attempt_count > self._limit]
        if killers:  # poison tasks: after that many dead workers, no worker is to retry
            died = EmbeddingFailure("every worker that took it died", None, final=True)
            await self._queue.fail(dict.fromkeys(killers, died))
        texts = await self._texts([task for task in tasks if task not in killers])
        blank = [task for task, text in texts.items() if not text.strip()]
        if blank:
            await self._queue.blank(blank)
        await self._embed({task: text for task, text in texts.items() if text.strip()})

    @property
    def _limit(self) -> int:
        return self._retrying.retries + 1

    async def _texts(self, tasks: Sequence[Task]) -> dict[Task, str]:
        """The texts of tasks that are still to be done; the other tasks are finished or dropped."""
        by_kind: defaultdict[str, dict[Key, Task]] = defaultdict(dict)
        for task in tasks:
            by_kind[task.entity_type][task.host_id, task.entity_id] = task
        texts: dict[Task, str] = {}
        deleted: list[Task] = []
        for kind, task_by_key in by_kind.items():
            loaded = await self._load(kind, task_by_key)
            for key, task in task_by_key.items():
                if key not in loaded:
                    deleted.append(task)
                elif loaded[key].source_hash == task.source_hash:
                    texts[task] = loaded[key].text
        if deleted:
            await self._queue.drop(deleted)
        return texts

    async def _load(self, kind: str, tasks: Mapping[Key, Task]) -> Mapping[Key, SourceText]:
        async with self._looking_up() as connection:
            loaded = await self._texts_of[kind](connection, list(tasks))
        changed = [
            key for key, text in loaded.items() if text.source_hash != tasks[key].source_hash
        ]
        if changed:
            await self._requeue(kind, changed, loaded)
            await self._queue.drop([tasks[key] for key in changed])
        return loaded

    async def _requeue(
        self, kind: str, keys: Sequence[Key], texts: Mapping[Key, SourceText]
    ) -> None:
        """Queue changed texts again; their writers have done so already, unless a release hashes
        other texts."""
        async with self._looking_up() as connection:
            await connection.execute(
                "SELECT embedding_queue(%s, %s::uuid[], %s::uuid[], %s)",
                [kind, *columns(keys), [texts[key].source_hash for key in keys]],
            )

    @asynccontextmanager
    async def _looking_up(self) -> AsyncIterator[AsyncConnection]:
        async with borrow(self._pool) as connection:
            await connection.execute(CAREFULLY)
            yield connection

    async def _embed(self, texts: Mapping[Task, str]) -> None:
        if not texts:
            return
        try:
            vectors = await self._vectors(list(texts.values()))
        except EmbeddingFailed as error:
            if len(texts) > 1 and (not error.retryable or _any_abandoned(texts)):
                await self._embed_singly(texts)
            else:
                await self._fail(texts, error)
            return
        self._failing = 0
        self.done += await self._queue.finish(list(texts), vectors)

    async def _embed_singly(self, texts: Mapping[Task, str]) -> None:
        """Embed one by one: a single text makes the whole batch fail."""
        failures: dict[Task, EmbeddingFailed] = {}
        succeeded = False
        for task, text in texts.items():
            try:
                vectors = await self._vectors([text])
            except EmbeddingFailed as error:
                failures[task] = error
                if error.retryable and not succeeded and len(failures) == DOWN:
                    await self._fail(texts, error)
                    return
                continue
            succeeded = True
            self.done += await self._queue.finish([task], vectors)
        for task, failed in failures.items():
            log.warning("embedding_failed", extra={"entity": task.entity_id, "reason": str(failed)})
            await self._queue.fail({task: self._retrying.failure(task, failed)})
        self._failing = 0

    async def _fail(self, texts: Mapping[Task, str], error: EmbeddingFailed) -> None:
        """Fail all of them at once; after a transient error this worker backs off."""
        self._failing = self._failing + 1 if error.retryable else 0
        log.warning("embedding_failed", extra={"count": len(texts), "reason": str(error)})
        await self._queue.fail({task: self._retrying.failure(task, error) for task in texts})

    async def _vectors(self, texts: list[str]) -> Vectors:
        try:
            vectors = await self._embedder.embed(texts)
        except EmbeddingFailed:
            raise
        except Exception as error:  # of a model, or its library: the worker continues
            log.exception("embedder_crashed")
            raise EmbeddingFailed(
                f"the embedding model crashed: {type(error).__name__}", retryable=False
            ) from error
        return check_vectors(vectors, len(texts), VECTOR_DIMENSION)

    async def _see_burst_through(self) -> None:
        """Debounce: wait until no text has come within `debounce_s`, at most `debounce_max_s`.
        Calls that store texts have the cores until then, and none of them wakes this task."""
        with anyio.move_on_after(self._burst_s):
            while self._wake.is_set() and not self._stopping.is_set():
                self._wake = anyio.Event()
                with anyio.move_on_after(self._quiet_s):
                    await self._stopping.wait()

    async def _pause(self, seconds: float, *, wakes: bool) -> None:
        """Sleep until a wake-up, or for this long; without `wakes` only a stop interrupts it."""
        with anyio.move_on_after(seconds):
            await self._wake.wait()
            while not (wakes or self._stopping.is_set()):
                self._wake = anyio.Event()
                await self._wake.wait()


def _batches(tasks: Sequence[Task]) -> list[list[Task]]:
    """Batches of one kind each, in the order of the tasks. A task that workers have died with goes
    alone, so that it takes no other text with it."""
    together: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if not task.abandoned:
            together[task.entity_type].append(task)
    return [*([task] for task in tasks if task.abandoned), *together.values()]


def _any_abandoned(tasks: Mapping[Task, str]) -> bool:
    return any(task.attempt_count > 1 for task in tasks)
