"""Health check of an embedder."""

from collections.abc import Sequence

import anyio

from registry.embedding.embedder import Embedder, EmbeddingFailed, Vectors

ASK_S, ASK_LONGEST_S = 5.0, 300.0  # initial and longest pause between probes of a failing one
TEXT = "toolgate"  # text of a probe


class HealthCheckedEmbedder:
    """Health-checked embedder: forwards to another, and remembers whether its last call
    succeeded."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.model, self.dimension = embedder.model, embedder.dimension
        self._failed = anyio.Event()
        self.failing = False

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        try:
            vectors = await self._embedder.embed(texts, query=query)
        except EmbeddingFailed as error:
            if error.retryable:  # otherwise the text is at fault
                self.failing = True
                self._failed.set()
            raise
        self.failing = False
        return vectors

    async def close(self) -> None:
        await self._embedder.close()

    async def run(self) -> None:
        """Probe a failing embedder with backoff, so that its recovery is noticed without a query;
        until cancelled."""
        while True:
            await self._failed.wait()
            self._failed = anyio.Event()
            pause_s = ASK_S
            while self.failing:
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, ASK_LONGEST_S)
                await self._ask()

    async def _ask(self) -> None:
        try:
            await self.embed([TEXT], query=True)
        except EmbeddingFailed as error:
            self.failing = error.retryable
