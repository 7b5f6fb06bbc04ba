"""The one seam to whatever makes vectors of texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from schemas.errors import ToolgateError

if TYPE_CHECKING:  # a tenth of a second at run time, which commands without vectors are spared
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "NDArray[np.float32]"  # shape (texts, dimension), rows of length 1 (L2)


class EmbeddingFailed(ToolgateError):
    """No vectors came. The message names no address, key or text.

    `retryable`: the same texts may do later, after `retry_after_s` where the service said so.
    """

    def __init__(
        self, message: str, *, retryable: bool, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Embedder(Protocol):
    """A model, wherever it runs. Vectors of two embedders can be compared if `model` is equal."""

    model: str  # stored with the vectors: "<provider>/<model>", at most 128 characters
    dimension: int

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """A vector for each text, in their order; shape (0, dimension) for none.

        `query`: the texts are asked with, not found; somebody waits for them. Raises
        EmbeddingFailed: for all texts, whichever of them is to blame.
        """
        ...

    async def close(self) -> None:
        """Give back connections and memory. It may be called twice; `embed` opens it again."""
        ...
