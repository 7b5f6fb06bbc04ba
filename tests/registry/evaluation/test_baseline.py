"""What is compared with: words, vectors, and their ranks fused."""

import numpy as np

from registry.evaluation.baseline import Baseline

TEXTS = ["weather forecast", "send an email", "send a letter letter", "weather of the stars"]


def test_words_alone_rank_by_bm25() -> None:
    baseline = Baseline(TEXTS, None)
    assert baseline.search("forecast the weather", None)[0] == 0
    assert baseline.search("a letter", None)[0] == 2
    assert baseline.search("Nothing here", None) == []


def test_bm25_of_a_catalog_is_as_computed_by_hand() -> None:
    """Four documents of 2, 3, 4 and 4 words: "weather" stands in two of them once."""
    baseline = Baseline(TEXTS, None)
    places, weights = baseline._postings["weather"]
    idf = np.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    expected = [idf * 2.5 / (1 + 1.5 * (0.25 + 0.75 * length / 3.25)) for length in (2, 4)]
    assert list(places) == [0, 3]
    np.testing.assert_allclose(weights, expected)


def test_ranks_of_words_and_vectors_are_fused() -> None:
    """The second is second by words and first by meaning; nothing else is high in both."""
    vectors = np.eye(4, dtype=np.float32)
    meaning = np.array([0.1, 0.9, 0.3, 0.2], np.float32)
    found = Baseline(TEXTS, vectors).search("send a letter", meaning)
    assert found[:2] == [2, 1] or found[:2] == [1, 2]
    assert found == Baseline(TEXTS, vectors).search("send a letter", meaning)
    assert sorted(found) == [0, 1, 2, 3]


def test_a_repeated_word_counts_once() -> None:
    baseline = Baseline(TEXTS, None)
    assert baseline.search("letter " * 100 + "weather weather", None) == baseline.search(
        "letter weather", None
    )
