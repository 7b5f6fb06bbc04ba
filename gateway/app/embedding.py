"""Wiring of embeddings: the workers, and the embedder of search queries."""

import asyncio
import logging
from collections.abc import Iterator

import anyio
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from psycopg import OperationalError
from psycopg_pool import PoolTimeout

from config.settings import EmbeddingSettings
from gateway.events import Events
from registry.database.postgres import Database, DatabaseHandle
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.crew import After, Crew, nothing
from registry.embedding.models import register
from registry.embedding.providers import ServingEmbedder, make_embedder
from registry.embedding.watched import Watched

log = logging.getLogger("toolgate.embedding")


class Embeddings(Collector):
    """Loads lazily, with the first text or query. Failures here stop no gateway."""

    def __init__(
        self,
        settings: EmbeddingSettings,
        handle: DatabaseHandle,
        after: After = nothing,
        *,
        events: Events,
    ) -> None:
        """`after` as in `Crew`."""
        self._settings = settings
        self._handle = handle
        self._after = after
        self._crew: Crew | None = None
        self._target, refused = _made(settings)
        self.serving = ServingEmbedder(handle.pool, settings, self._target)
        if refused:
            self.serving.note = refused
        self._usable = not refused
        events.draining.subscribe(self._stop)

    @property
    def state(self) -> str:
        """ "ok", "disabled", or "unavailable": texts and queries get no vectors at the moment."""
        if self._target is None:
            return "disabled" if self._usable else "unavailable"
        return "unavailable" if self._target.failing else "ok"

    def embedder(self) -> Embedder | None:
        """Embedder of queries; None: `missing` has the reason."""
        return self.serving.embedder

    def missing(self) -> str | None:
        """Why there is no embedder of queries."""
        return self.serving.note

    async def run(self) -> None:
        """Run the workers until stopped or cancelled."""
        await self._handle.settled.wait()
        database = self._handle.opened
        if database is None or not self._usable:
            return
        if self._target is None:
            await self._disable(database)
            return
        self._crew = Crew(
            database, self._target, settings=self._settings, serving=self.serving, after=self._after
        )
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._target.run)
            await self._crew.run()
            beside.cancel_scope.cancel()

    def _stop(self) -> None:
        """Begin a graceful shutdown: workers finish their current batch."""
        if self._crew is not None:
            self._crew.stop()

    async def close(self) -> None:
        await self.serving.close()
        if self._target is not None:
            await self._target.close()

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "toolgate_embedding_tasks", "Texts that wait for their vectors.", labels=("status",)
        )
        for status, count in (self._crew.tasks if self._crew else {}).items():
            gauge.add_metric((status,), count)
        yield gauge

    async def _disable(self, database: Database) -> None:
        while True:
            try:
                await register(database.pool, None)
            except (OperationalError, PoolTimeout):
                await asyncio.sleep(self._settings.poll_s)
            else:
                return


def _made(settings: EmbeddingSettings) -> tuple[Watched | None, str | None]:
    try:
        embedder = make_embedder(settings)
        return (None if embedder is None else Watched(embedder)), None
    except EmbeddingFailed as error:
        log.error("embedding_unusable", extra={"reason": str(error)})
        return None, str(error)
