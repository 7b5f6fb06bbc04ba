"""Vectors, before they may be stored."""

import math

import numpy as np
import pytest

from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.vectors import normalise, together, with_whole


@pytest.mark.parametrize("scale", [1.0, 1e-300, 5e-324, 1e300], ids=str)
def test_normalised_rows_have_length_1(scale: float) -> None:
    found = normalise([[3 * scale, 4 * scale], [0.0, -scale]], 2, 2)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert found[1].tolist() == [0, -1]


def test_unequal_directions_stay_apart() -> None:
    assert np.allclose(normalise([[3.0, 4.0]], 1, 2), [[0.6, 0.8]])


@pytest.mark.parametrize(
    ("rows", "texts", "message"),
    [
        ([[1.0, 0.0]], 2, "1 vectors for 2 texts"),
        ([[1.0, 0.0]], 0, "1 vectors for 0 texts"),
        ([[1.0, 0.0], [1.0]], 2, "a vector of 1 numbers where 2 were expected"),
        ([[1.0, 0.0, 0.0]], 1, "a vector of 3 numbers where 2 were expected"),
        ([[]], 1, "a vector of 0 numbers where 2 were expected"),
        ([[math.nan, 0.0]], 1, "NaN or infinity"),
        ([[1.0, 0.0], [0.0, -math.inf]], 2, "NaN or infinity"),
        ([[1.0, 0.0], [0.0, -0.0]], 2, "a vector of zeros only"),
    ],
)
def test_incomparable_vectors_are_refused(
    rows: list[list[float]], texts: int, message: str
) -> None:
    with pytest.raises(EmbeddingFailed, match=message) as caught:
        normalise(rows, texts, 2)
    assert not caught.value.retryable


def test_no_texts_have_no_vectors() -> None:
    assert normalise([], 0, 384).shape == together([], 384).shape == (0, 384)


def test_a_text_points_where_its_sentences_do_each_with_its_weight() -> None:
    sentences = np.array([[1, 0], [0, 1]], dtype=np.float32)
    found = with_whole(sentences, [3, 4])
    assert found.dtype == np.float32
    assert np.allclose(found, [[0.6, 0.8], [1, 0], [0, 1]])


def test_of_sentences_that_cancel_each_other_the_first_one_counts() -> None:
    sentences = np.array([[1, 0], [-1, 0]], dtype=np.float32)
    assert with_whole(sentences, [5, 5])[0].tolist() == [1, 0]
