"""Models of the sentence-transformers library, an optional dependency: it requires torch."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from config.settings import EmbeddingSettings
from config.telemetry import disable_telemetry
from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.model_threads import Lanes
from registry.embedding.target_models import directory, label
from registry.embedding.texts import readable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

INSTALL = "pip install 'toolgate[sentence-transformers]'"
NOT_INSTALLED = (
    "The library sentence-transformers is not installed, or cannot be loaded here: "
    f"{INSTALL}, or choose another embedding.provider."
)


class SentenceTransformers:
    """`Embedder` on that library. The model is loaded, or downloaded, with the first text."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        """A model that is not loaded yet. Raises EmbeddingFailed if the settings name no model, or
        a directory without one."""
        if not settings.model:
            raise EmbeddingFailed(
                "embedding.model is empty: this provider needs the name of a model there, or a "
                "directory.",
                retryable=False,
            )
        self._name, folder = _model_location(settings.model)
        self._prefix = settings.query_prefix
        self._batch = settings.batch_size
        self._lanes = Lanes(threads=1)  # torch has threads of its own
        self._lock = threading.Lock()
        self._loaded: SentenceTransformer | None = None
        self.model = _label(settings.provider, settings.model, folder)
        self.dimension = settings.dimension

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        prefix = self._prefix if query else ""
        inputs = [prefix + readable(text) for text in texts]
        return await self._lanes.embed(
            self._encode, inputs, dimension=self.dimension, batch=self._batch, query=query
        )

    async def close(self) -> None:
        self._loaded = None

    def _encode(self, texts: list[str]) -> NDArray[Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._name)
            model = self._loaded
        try:
            vectors = model.encode(texts, batch_size=len(texts), show_progress_bar=False)
        except Exception as error:  # of torch, or of a model's own code
            raise EmbeddingFailed(
                f"The embedding model {self._name} failed: {type(error).__name__}.",
                retryable=False,
            ) from error
        return np.asarray(vectors)


def _load(name: str) -> "SentenceTransformer":
    disable_telemetry()
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise EmbeddingFailed(NOT_INSTALLED, retryable=False) from error
    try:
        return SentenceTransformer(name)
    except Exception as error:  # also any exception of the model hub's HTTP client
        raise EmbeddingFailed(
            f"The embedding model {name} cannot be loaded ({type(error).__name__}): it has to be a "
            "directory, or the name of a model that is here or can be downloaded.",
            retryable=False,
        ) from error


def _model_location(model: str) -> tuple[str, Path | None]:
    """The name or path for the library to load, and the directory if it is one."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder), folder
    if folder.is_absolute() or model.startswith((".", "~")):
        raise EmbeddingFailed(f"embedding.model: there is no directory {model}.", retryable=False)
    return model, None


def _label(provider: str, model: str, folder: Path | None) -> str:
    if folder is None:
        return label(provider, model)
    try:
        return directory(provider, folder)
    except OSError as error:
        raise EmbeddingFailed(
            f"embedding.model: {model} cannot be read: {error.strerror}.", retryable=False
        ) from error
