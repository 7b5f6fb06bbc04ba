"""Which embedder queries go to: the one that made the vectors that are searched."""

from collections.abc import Callable

from config.settings import EmbeddingSettings
from registry.database.postgres import Pool, borrowed
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.models import Models, models
from registry.embedding.providers import embedder_for

DISABLED = "Embeddings are disabled (embedding.provider)."
NONE_YET = "There are no vectors yet."


class ServingEmbedder:
    """As of the last `refresh`. While `embedder` is None, `note` says why in a sentence."""

    def __init__(
        self, pool: Callable[[], Pool | None], settings: EmbeddingSettings, target: Embedder | None
    ) -> None:
        """`target`: what the settings want; its model is loaded once, for texts and queries."""
        self._pool = pool
        self._settings = settings
        self._target = target
        self.models = Models(None, None)
        self.embedder: Embedder | None = None
        self.label: str | None = None
        self.note: str | None = NONE_YET if target else DISABLED

    async def refresh(self) -> None:
        """Look which model serves. Raises `psycopg.OperationalError`."""
        pool = self._pool()
        if pool is None:
            return
        async with borrowed(pool) as connection:
            self.models = await models(connection)
        label = self.models.serving
        if label != self.label or self._target is None:
            await self._take(label)

    async def close(self) -> None:
        """Close the embedder, unless it is the target's, which whoever made it closes."""
        if self.embedder is not None and self.embedder is not self._target:
            await self.embedder.close()
        self.embedder = None

    async def _take(self, label: str | None) -> None:
        embedder, note = self._of(label)
        await self.close()
        self.embedder, self.label, self.note = embedder, label, note

    def _of(self, label: str | None) -> tuple[Embedder | None, str | None]:
        if self._target is None:
            return None, DISABLED
        if label is None:
            return None, NONE_YET
        if label == self._target.model:
            return self._target, None
        try:
            embedder = embedder_for(self._settings, label)
        except EmbeddingFailed as error:
            return None, str(error)
        if embedder is None:
            return None, f"The vectors are of {label}, which these settings cannot ask."
        return embedder, None
