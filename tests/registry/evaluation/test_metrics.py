"""The measures of one answer, against values from hand and against their definitions."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.evaluation.quality_metrics import METRICS, ndcg, recall, reciprocal_rank, scores

TOOLS = [f"t{number}" for number in range(14)]


@pytest.mark.parametrize(
    ("found", "gold", "expected"),
    [
        pytest.param(["a", "b"], {"a"}, 1.0, id="first"),
        pytest.param(["b", "a"], {"a"}, 0.6309, id="second"),  # 1 / log2(3)
        pytest.param(["b", "c", "a"], {"a"}, 0.5, id="third"),  # 1 / log2(4)
        pytest.param(["x", "a", "y", "b"], {"a", "b"}, 0.6509, id="second and fourth of two"),
        pytest.param(["a", "b"], {"a", "b", "c"}, 0.7654, id="two of three"),
        pytest.param([*TOOLS[:10], "a"], {"a"}, 0.0, id="eleventh"),
        pytest.param([], {"a"}, 0.0, id="nothing"),
    ],
)
def test_ndcg_of_an_answer(found: list[str], gold: set[str], expected: float) -> None:
    assert ndcg(found, gold) == pytest.approx(expected, abs=5e-5)


def test_the_ideal_has_no_more_hits_than_fit() -> None:
    assert ndcg(TOOLS[:10], set(TOOLS)) == 1


@pytest.mark.parametrize(
    ("found", "slots", "expected"),
    [
        pytest.param("ab", [{"a"}, {"b"}], (0.5, 1.0), id="both"),
        pytest.param("xa", [{"a"}, {"b"}], (0.0, 0.5), id="one of two"),
        pytest.param("ax", [{"a", "b"}], (1.0, 1.0), id="an alternative will do"),
        pytest.param("ab", [{"a", "b"}, {"c"}], (0.5, 0.5), id="two of one slot are one"),
    ],
)
def test_recall_counts_required_tools(
    found: str, slots: list[set[str]], expected: tuple[float, float]
) -> None:
    assert (recall(found, slots, 1), recall(found, slots, 2)) == expected


def test_an_answer_has_a_number_for_each_measure() -> None:
    of_two = scores(["x", "a", *TOOLS[:8]], {"a", "b"}, [{"a"}, {"b"}])
    named = dict(zip(METRICS, of_two, strict=True))
    assert named == {
        "recall@1": 0,
        "recall@5": 0.5,
        "recall@10": 0.5,
        "ndcg@10": pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3))),
        "completeness@10": 0,
        "mrr@10": 0.5,
    }


answers = st.lists(st.sampled_from(TOOLS), max_size=12, unique=True)
golds = st.sets(st.sampled_from(TOOLS), min_size=1)


@settings(deadline=None)
@given(answers, golds)
def test_measures_keep_their_bounds_and_order(found: list[str], gold: set[str]) -> None:
    slots = [{one} for one in gold]
    named = dict(zip(METRICS, scores(found, gold, slots), strict=True))
    assert all(0 <= value <= 1 for value in named.values())
    assert named["recall@1"] <= named["recall@5"] <= named["recall@10"]
    assert named["completeness@10"] == (gold <= set(found[:10]))
    assert (named["ndcg@10"] == 0) == (named["recall@10"] == 0) == (named["mrr@10"] == 0)


@settings(deadline=None)
@given(answers, golds, st.integers(0, 10))
def test_a_hit_that_moves_up_never_costs(found: list[str], gold: set[str], at: int) -> None:
    if at == 0 or at >= len(found) or found[at] not in gold:
        return
    better = [*found[: at - 1], found[at], found[at - 1], *found[at + 1 :]]
    assert ndcg(better, gold) >= ndcg(found, gold)
    assert reciprocal_rank(better, gold) >= reciprocal_rank(found, gold)
