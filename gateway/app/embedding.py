"""Wiring of embeddings: the workers, and the embedder of search queries."""

import asyncio
import logging
from collections.abc import Iterator, Mapping

import anyio
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.settings import EmbeddingSettings
from gateway.interfaces import Events
from registry.database.postgres import AWAY, Database, DatabaseHandle
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import Embedders, ServingEmbedder, make_embedder
from registry.embedding.embedder_health import HealthCheckedEmbedder
from registry.embedding.search_kinds import KINDS, Kinds
from registry.embedding.target_models import register
from registry.embedding.worker_pool import After, WorkerPool, no_op

log = logging.getLogger("toolgate.embedding")


class Embeddings(Collector):
    """Embeddings of every purpose. Models load lazily, with the first text or query. A failure here
    does not stop the gateway."""

    def __init__(
        self,
        settings: EmbeddingSettings,
        handle: DatabaseHandle,
        after: After = no_op,
        *,
        events: Events,
        kinds: Kinds = KINDS,
    ) -> None:
        """`after` and `kinds` as in `WorkerPool`."""
        embedders = Embedders(settings, _watch_model)
        self._handle = handle
        self._of = {
            purpose: PurposeEmbeddings(
                settings, handle, embedders, purpose=purpose, after=after, kinds=kinds
            )
            for purpose in dict.fromkeys(kind.purpose for kind in kinds.values())
        }
        self._embedders = embedders
        events.draining.subscribe(self._stop)

    @property
    def state(self) -> str:
        """ "ok", "disabled", or "unavailable": some texts and queries get no vectors at the
        moment."""
        states = {model.state for model in self._of.values()}
        return next(model for model in ("unavailable", "ok", "disabled") if model in states)

    def embedder(self, purpose: str) -> Embedder | None:
        """The embedder of queries; None: `missing` has the reason."""
        return self._of[purpose].serving.embedder

    def missing(self, purpose: str) -> str | None:
        """Reason why there is no embedder of queries."""
        return self._of[purpose].serving.note

    async def run(self) -> None:
        """Run the workers until stopped or cancelled."""
        await self._handle.settled.wait()
        if (database := self._handle.opened) is None:
            return
        async with anyio.create_task_group() as group:
            for model in self._of.values():
                group.start_soon(model.run, database)

    def _stop(self) -> None:
        """Begin a graceful shutdown: workers finish their current batch."""
        for model in self._of.values():
            model.stop()

    async def close(self) -> None:
        for model in self._of.values():
            await model.serving.close()
        await self._embedders.close()

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "toolgate_embedding_tasks",
            "Texts that wait for their vectors.",
            labels=("purpose", "status"),
        )
        for purpose, model in self._of.items():
            for status, count in model.tasks.items():
                gauge.add_metric((purpose, status), count)
        yield gauge


class PurposeEmbeddings:
    """The workers and the embedder of queries of one purpose."""

    def __init__(
        self,
        settings: EmbeddingSettings,
        handle: DatabaseHandle,
        embedders: Embedders[HealthCheckedEmbedder],
        *,
        purpose: str,
        after: After,
        kinds: Kinds,
    ) -> None:
        self._settings = settings
        self._purpose = purpose
        self._after = after
        self._kinds = kinds
        self._pool: WorkerPool | None = None
        self._target, refused = _target_of(embedders, purpose)
        self.serving = ServingEmbedder(handle.pool, settings.of(purpose), self._target, purpose)
        if refused:
            self.serving.note = refused
        self._usable = not refused

    @property
    def state(self) -> str:
        """ "ok", "disabled", or "unavailable": texts and queries get no vectors at the moment."""
        if self._target is None:
            return "disabled" if self._usable else "unavailable"
        return "unavailable" if self._target.failing else "ok"

    @property
    def tasks(self) -> Mapping[str, int]:
        """Number of tasks by status, as last queried."""
        return self._pool.tasks if self._pool else {}

    async def run(self, database: Database) -> None:
        if not self._usable:
            return
        if self._target is None:
            await self._disable(database)
            return
        self._pool = WorkerPool(
            database,
            self._target,
            settings=self._settings,
            serving=self.serving,
            after=self._after,
            kinds=self._kinds,
        )
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._target.run)
            await self._pool.run()
            beside.cancel_scope.cancel()

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.stop()

    async def _disable(self, database: Database) -> None:
        while True:
            try:
                await register(database.pool, None, self._purpose)
            except AWAY:
                await asyncio.sleep(self._settings.poll_s)
            else:
                return


def _watch_model(settings: EmbeddingSettings) -> HealthCheckedEmbedder | None:
    embedder = make_embedder(settings)
    return None if embedder is None else HealthCheckedEmbedder(embedder)


def _target_of(
    embedders: Embedders[HealthCheckedEmbedder], purpose: str
) -> tuple[HealthCheckedEmbedder | None, str | None]:
    try:
        return embedders.of(purpose), None
    except EmbeddingFailed as error:
        log.error("embedding_unusable", extra={"purpose": purpose, "reason": str(error)})
        return None, str(error)
