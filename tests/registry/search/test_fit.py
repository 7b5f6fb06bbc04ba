"""How well the best tool fits: what the calibrated probability depends on, and who is warned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.search.calibration import COEFFICIENTS, WORDS_MOST, features, fit
from registry.search.fusion import Candidate, enough

MODEL = next(iter(COEFFICIENTS))
SOME = st.floats(0, 1)


def candidate(cosine: float | None, words: float, tools: int = 100) -> Candidate:
    return Candidate("id", "name", 1.0, words * enough(tools), cosine)


def test_the_best_of_each_counts() -> None:
    found = [candidate(0.2, 0.9), candidate(None, 0.1), candidate(0.7, 0.0)]
    cosine, words, size = features(found, 100)
    assert (cosine, words, size) == (0.7, pytest.approx(0.9), pytest.approx(4.615, abs=0.001))
    assert features([candidate(0.5, 9.0)], 100)[1] == WORDS_MOST


def test_nothing_is_no_fit() -> None:
    assert features([], 0) == (0.0, 0.0, 0.0)
    nothing = fit([], 100, MODEL)
    assert nothing is not None
    assert nothing < 0.01


def test_a_model_that_was_not_calibrated_has_none() -> None:
    assert fit([candidate(0.9, 1.0)], 100, "openai/text-embedding-3-small") is None


@given(SOME, SOME, SOME, SOME)
def test_more_of_the_request_never_fits_worse(
    cosine: float, words: float, nearer: float, worded: float
) -> None:
    before = fit([candidate(cosine, words)], 100, MODEL)
    after = fit([candidate(max(cosine, nearer), max(words, worded))], 100, MODEL)
    assert before is not None
    assert after is not None
    assert 0 <= before <= after <= 1


def test_among_more_tools_the_same_cosine_is_less_evidence() -> None:
    few, many = (fit([candidate(0.4, 0.0)], tools, MODEL) for tools in (10, 10_000))
    assert few is not None
    assert many is not None
    assert few > many
