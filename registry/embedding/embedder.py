"""The interface of embedding models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from schemas.errors import ToolgateError

if TYPE_CHECKING:  # import cost: 0.1 s at run time, not paid by commands without vectors
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"  # shape (texts, dimension), rows of length 1 (L2)


class EmbeddingFailed(ToolgateError):
    """Embedding failed. The message contains no address, key or text.

    `retryable`: a retry of the same texts may succeed, after `retry_after_s` where the service sent
    one.
    """

    def __init__(
        self, message: str, *, retryable: bool, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Embedder(Protocol):
    """An embedding model, local or remote. Vectors of two embedders are comparable if `model` is
    equal."""

    model: str  # stored with the vectors: "<provider>/<model>", at most 128 characters
    dimension: int

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """A vector for each text, in order; shape (0, dimension) for no texts.

        `query`: the texts are search queries rather than documents; a caller waits for them. Raises
        EmbeddingFailed for the whole batch, even if a single text is at fault.
        """
        ...

    async def close(self) -> None:
        """Release connections and memory. Idempotent; `embed` opens it again."""
        ...
