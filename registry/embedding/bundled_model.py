"""The model that comes with the product: a MiniLM as int8 ONNX, run on the CPU.

It was trained on English. Texts in other languages get vectors too, but their neighbours mean
little; tools are found by words there. A text is truncated at 64 tokens, some 50 words; a query at
128. Each text is a run of its own: the graph scales its integers to the largest number of a run, so
a vector would vary with its neighbours (eight in a run save 15 % of the time, at cosines of .98).
"""

import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.model_threads import QUERIES, Lanes
from registry.embedding.onnx_sessions import make_session
from registry.embedding.texts import readable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

FOLDER = Path(__file__).with_name("model")
BATCH = 8  # texts that a thread encodes before another caller's turn
_READ = 32  # characters for each token; most tokens are shorter than 6
_LOAD_FAILURE = "The bundled embedding model cannot be loaded"


class Provenance(Struct, frozen=True):
    """The fields of provenance.json beside the model that are needed to run it."""

    label: str
    dimension: int
    max_tokens: int  # of a text
    max_query_tokens: int = 128
    reads: tuple[str, ...] = ()  # labels of older models whose vectors its queries find as well


class BundledEmbedder:
    """`Embedder` on onnxruntime. The model is loaded with the first text, in a thread."""

    def __init__(
        self, batch_size: int, threads: int, folder: Path = FOLDER, *, label: str = ""
    ) -> None:
        """A model that is not loaded yet. Raises EmbeddingFailed if there is none in `folder`.

        `label`: an older model, whose vectors are searched while new ones are made. The queries are
        of this model even so, where provenance.json says that it reads those vectors.
        """
        self._folder = folder
        self._facts = _provenance(folder)
        self.model = label if label in self._facts.reads else self._facts.label
        self.dimension = self._facts.dimension
        self._batch = min(batch_size, BATCH)
        self._lanes = Lanes(threads)
        self._loaded: _Model | None = None

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        return await self._lanes.embed(
            self._encode,
            await self._tokenise(texts, query),
            dimension=self.dimension,
            batch=self._batch_of(len(texts)) if query else self._batch,
            query=query,
        )

    async def close(self) -> None:
        self._loaded = None

    def _batch_of(self, sentences: int) -> int:
        """Batch size for the sentences of a query: two batches run concurrently, each on a core, so
        that a long query takes half as long."""
        return max(1, min(self._batch, -(-sentences // QUERIES)))

    async def _tokenise(self, texts: Sequence[str], query: bool) -> list[list[int]]:
        limit = self._facts.max_query_tokens if query else self._facts.max_tokens
        if query and len(texts) <= self._batch and self._loaded is not None:
            return self._tokens(texts, limit)  # starting a thread would take longer
        tokens: list[list[int]] = []
        for at in range(0, len(texts), self._batch):  # small batches: the threads may be busy
            batch = texts[at : at + self._batch]
            tokens += await self._lanes.run(partial(self._tokens, batch, limit), query)
        return tokens

    def _tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        return self._model().tokens(texts, limit)

    def _encode(self, tokens: list[list[int]]) -> "NDArray[Any]":
        return self._model().run(tokens)

    def _model(self) -> "_Model":
        with _LOADING:
            if self._loaded is None:
                self._loaded = _LOADED_MODELS.get(self._folder) or _Model(self._folder)
                _LOADED_MODELS[self._folder] = self._loaded
            return self._loaded


class _Model:
    """Tokenizer and session; thread-safe."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = _tokenizer(folder)
            # A sixth faster: its kernel is several times slower than the two that it fuses.
            slow = ("SkipLayerNormFusion",)
            self._session = make_session(folder / "model.onnx", disabled_optimizers=slow)
        except Exception as error:  # the two libraries' exceptions share no other base
            raise EmbeddingFailed(f"{_LOAD_FAILURE}: {error}", retryable=False) from error

    def run(self, tokens: list[list[int]]) -> "NDArray[Any]":
        import numpy as np  # here and below: a tenth of a second and 15 MB each

        try:
            vectors = [self._run(np.array([ids], dtype=np.int64)) for ids in tokens]
        except Exception as error:  # as above
            raise EmbeddingFailed(
                f"The bundled embedding model failed: {error}", retryable=False
            ) from error
        return np.concatenate(vectors)

    def _run(self, ids: "NDArray[Any]") -> "NDArray[Any]":
        """The vector of a text, shape (1, dimension)."""
        import numpy as np

        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        return np.asarray(self._session.run(["embedding"], inputs)[0])

    def tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """The first `limit` tokens of each text."""
        readable_texts = [readable(text, _READ * limit) for text in texts]
        # `encode` holds the interpreter's lock, for half a millisecond where a text is long
        encodings = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(readable_texts)]
        return [
            encoding if len(encoding) <= limit else [*encoding[: limit - 1], encoding[-1]]
            for encoding in encodings
        ]


_LOADING = threading.Lock()
_LOADED_MODELS: WeakValueDictionary[Path, _Model] = WeakValueDictionary()  # one, whatever the label


def _tokenizer(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    # It would start threads of its own, and warn at every fork from then on.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _provenance(folder: Path) -> Provenance:
    try:
        data = (folder / "provenance.json").read_bytes()
        return msgspec.json.decode(data, type=Provenance)
    except (OSError, msgspec.DecodeError) as error:
        raise EmbeddingFailed(f"{_LOAD_FAILURE}: {error}", retryable=False) from error
