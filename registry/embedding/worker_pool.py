"""Embedding workers of one process, their wake-ups, and the maintenance between batches.

Starting them registers their model: of processes with different settings the last one decides, and
the workers of the others are idle.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio import CancelScope

from config.settings import EmbeddingSettings
from registry.database.postgres import AWAY, Database, Notice, borrow
from registry.embedding.backfills import queue_missing
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import ServingEmbedder
from registry.embedding.search_kinds import KINDS, Kinds, of_purpose
from registry.embedding.status import tasks
from registry.embedding.target_models import CHANNEL, check_kinds, purge, register, settle
from registry.embedding.worker import Worker

log = logging.getLogger("toolgate.embedding")

GRACE_S = 5.0  # other gateways need a moment to notice the change of model

After = Callable[[Database], Awaitable[object]]
"""What is to be done at the start, and whenever the queue has been emptied."""


async def no_op(_database: Database) -> None:
    pass


class WorkerPool:
    """Pool of workers that keeps `serving` up to date, and the queue of one purpose short."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        *,
        settings: EmbeddingSettings,
        serving: ServingEmbedder,
        after: After = no_op,
        kinds: Kinds = KINDS,
    ) -> None:
        """A pool for the purpose of `serving` and those of `kinds` that have it."""
        self._database = database
        self._embedder = embedder
        self._serving = serving
        self._poll_s = settings.poll_s
        self._longest_pause_s = settings.backoff_max_s
        self._after = after
        self.kinds = of_purpose(kinds, serving.purpose)
        self._workers = [
            Worker(database.pool, embedder, settings, self.kinds) for _ in range(settings.workers)
        ]
        self._registered = False
        self._refusal = ""  # the last reason that registering its model failed
        self._register_at = 0.0  # time of the next attempt, on the loop's clock
        self._open = 1  # known tasks; initially assumed to exist
        self._announced = False  # the log has announced that there are tasks
        self._noticed = anyio.Event()
        self._stopped = anyio.Event()
        self._working = CancelScope()
        self.tasks: dict[str, int] = {}  # by status, as last queried

    @property
    def purpose(self) -> str:
        return self._serving.purpose

    @property
    def stored_count(self) -> int:
        """Vectors that its workers have stored."""
        return sum(worker.done for worker in self._workers)

    @property
    def is_displaced(self) -> bool:
        """Whether another process has registered another model since: this pool is idle."""
        own_model = self._embedder.model
        return self._registered and self._serving.models.target not in (None, own_model)

    async def elsewhere(self) -> int:
        """Number of texts claimed by workers outside this pool."""
        async with borrow(self._database.pool) as connection:
            result = await connection.execute(
                "SELECT FROM embedding_task_t WHERE status = 'running' AND worker <> ALL(%s)"
                " AND entity_type = ANY(%s)",
                [[worker.name for worker in self._workers], list(self.kinds)],
            )
            return result.rowcount

    async def run(self) -> None:
        """Run until stopped or cancelled."""
        async with anyio.create_task_group() as background:
            background.start_soon(self._database.listen, CHANNEL, self._on_notice)
            background.start_soon(self._maintain)
            with self._working:
                async with anyio.create_task_group() as working:
                    for worker in self._workers:
                        working.start_soon(worker.run)
                    await self._stopped.wait()
            background.cancel_scope.cancel()

    def stop(self) -> None:
        """Stop gracefully: each worker finishes its current batch."""
        self._stopped.set()
        for worker in self._workers:
            worker.stop()

    def cancel(self) -> None:
        """Stop at once; claimed tasks are released into the queue."""
        self.stop()
        self._working.cancel()

    async def _on_notice(self, notice: Notice) -> None:
        if notice:  # "model", or a gap in the notices
            self._noticed.set()
        for worker in self._workers:
            worker.wake()

    async def _maintain(self) -> None:
        while True:
            self._noticed = anyio.Event()
            try:
                await self._look()
            except AWAY as error:
                log.warning("embedding_queue_unavailable", extra={"reason": type(error).__name__})
            except Exception:
                log.exception("embedding_maintenance_crashed")
            with anyio.move_on_after(self._poll_s):
                await self._noticed.wait()

    async def _look(self) -> None:
        pool, displaced = self._database.pool, self.is_displaced
        await self._serving.refresh()
        if not self._registered:
            await self._register()
        if not self._registered:
            return
        if self.is_displaced and not displaced:
            facts = {"own_model": self._embedder.model, "model": self._serving.models.target}
            log.warning("embedding_model_replaced", extra=facts)
        self.tasks = await tasks(pool, self.kinds)
        before, self._open = self._open, self.tasks["pending"] + self.tasks["running"]
        if bool(self._open) != self._announced:
            self._announced = bool(self._open)
            event = "texts_being_embedded" if self._open else "texts_embedded"
            log.info(event, extra={"waiting": self._open, "done": self.stored_count})
        if self._open:
            return
        if before:
            await self._after(self._database)
        await self._hand_over()

    async def _register(self) -> None:
        """Register its model as the target. While that is refused, the previous model serves."""
        if anyio.current_time() < self._register_at:
            return
        try:
            await check_kinds(self._database.pool, self.kinds)
            await register(self._database.pool, self._embedder, self.purpose)
        except EmbeddingFailed as error:
            if not error.retryable:
                self._register_at = anyio.current_time() + self._longest_pause_s
            if self._refusal != str(error):
                self._refusal = str(error)
                log.error("embedding_model_refused", extra={"reason": self._refusal})
            return
        await self._serving.refresh()
        self._registered = True
        await queue_missing(self._database.pool, self.kinds)

    async def _hand_over(self) -> None:
        """Hand over to this pool's model, when it can serve; then purge the previous one."""
        models, pool = self._serving.models, self._database.pool
        if self.is_displaced:
            return
        if models.serving != models.target:
            await queue_missing(pool, self.kinds)
            async with borrow(pool) as connection:
                if not await settle(connection, self.purpose, self.kinds):
                    return
            await self._serving.refresh()
            await self._after(self._database)
            await anyio.sleep(GRACE_S)
        await purge(pool)
