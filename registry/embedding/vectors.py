"""Vectors: validated as a model returned them, and as parameters in PostgreSQL's binary format.
Pure.

As text they would take longer than everything else done with a vector, except making it.

numpy is loaded with the first text, which saves a tenth of a second at start.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from config.value_types import VECTOR_DIMENSION
from registry.embedding.embedder import EmbeddingFailed, Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REAL = 700  # oids, of pg_type.dat
_REALS = 1021
_HEAD = struct.Struct("!iiIii")  # dimensions, whether there are nulls, type, length, lower bound

LEAST_LENGTH = 1e-6  # length of the mean of vectors that cancel each other


@dataclass(frozen=True, slots=True)
class Float4Array:
    """A query parameter, for cursors that have `RealsDumper` registered."""

    numbers: "NDArray[np.float32]"  # shape (n,), n > 0


class RealsDumper(Dumper):
    format = Format.BINARY
    oid = _REALS

    def dump(self, obj: Any) -> bytes:
        import numpy as np

        count = len(obj.numbers)
        body = np.empty(count, dtype=[("size", ">i4"), ("number", ">f4")])
        body["size"] = 4
        body["number"] = obj.numbers
        return _HEAD.pack(1, 0, _REAL, count, 1) + body.tobytes()


if TYPE_CHECKING:
    from numpy.typing import NDArray


def half_vector(vector: sql.Composable) -> sql.Composed:
    """The SQL expression `vector` in half precision, as HNSW indexes have it."""
    return sql.SQL("{vector}::halfvec({dimension})").format(
        vector=vector, dimension=sql.Literal(VECTOR_DIMENSION)
    )


def normalise(
    rows: "Sequence[Sequence[float]] | NDArray[Any]", texts: int, dimension: int
) -> Vectors:
    """`rows` scaled to length 1, in float32, shape (texts, dimension).

    Raises EmbeddingFailed for another number of rows or of numbers in one, for NaN and infinity,
    and for a row of zeros, which has no direction.
    """
    import numpy as np

    if len(rows) != texts:
        raise _vectors_error(f"{len(rows)} vectors for {texts} texts")
    lengths = {len(row) for row in rows} - {dimension}
    if lengths:
        raise _vectors_error(f"a vector of {min(lengths)} numbers where {dimension} were expected")
    matrix: NDArray[np.float64] = np.array(rows, dtype=np.float64).reshape(texts, dimension)
    if not np.isfinite(matrix).all():
        raise _vectors_error("a vector with NaN or infinity in it")
    peaks = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    if not peaks.all():
        raise _vectors_error("a vector of zeros only")
    matrix /= peaks  # the squares of float64 values need not fit in one
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix.astype(np.float32)


def together(rows: Sequence[Any], dimension: int) -> Vectors:
    """The vectors stacked, one a row; shape (0, dimension) for none."""
    import numpy as np

    return np.array(rows, dtype=np.float32).reshape(len(rows), dimension)


def with_whole(sentences: Vectors, weights: Sequence[float]) -> Vectors:
    """The vectors of a text's sentences, preceded by that of the whole text: their weighted mean.
    Shape (sentences + 1, dimension)."""
    import numpy as np

    average = np.average(sentences, axis=0, weights=weights)
    length = float(np.linalg.norm(average))
    # where sentences cancel each other the first one counts
    first = average / length if length > LEAST_LENGTH else sentences[0]
    return np.vstack([first, sentences]).astype(np.float32)


def check_vectors(vectors: Vectors, texts: int, dimension: int) -> Vectors:
    """`vectors`, validated. Raises EmbeddingFailed unless there is one vector of length 1 for each
    text."""
    import numpy as np

    if vectors.shape != (texts, dimension):
        came = " x ".join(map(str, vectors.shape))
        raise _vectors_error(f"{came} numbers where {texts} x {dimension} were expected")
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.allclose(lengths, 1, atol=1e-3):  # also where one is NaN
        raise _vectors_error("a vector that is not of length 1")
    return vectors


def _vectors_error(came: str) -> EmbeddingFailed:
    return EmbeddingFailed(f"The embedding model gave {came}.", retryable=False)
