"""The rows of the quality benchmark, of made-up results."""

from pathlib import Path

import pytest

from benchmarks.quality import OWN, TUNED, chosen, rows
from benchmarks.request import Unavailable
from benchmarks.table import missed
from registry.evaluation.quality_metrics import SetResult, measure
from registry.evaluation.request_sets import RelevantTools


def result(name: str, found: dict[str, str]) -> SetResult:
    wanted = [RelevantTools(frozenset("a"), (frozenset("a"),))] * 2
    quality = measure(name, {mode: [[*order]] * 2 for mode, order in found.items()}, wanted)
    return SetResult(
        quality, 3, 2, {}, [4.0], {"hybrid": [5.0], "dense": [2.0]}, {}, {}, "bundled/some"
    )


def test_a_set_has_a_row_for_each_mode() -> None:
    [hybrid, plain] = rows([result("mine", {"hybrid": "a", "bm25+rrf": "xa"})], "")
    assert (hybrid.scenario, hybrid.value) == ("mine: NDCG@10, hybrid", 100)
    assert hybrid.note == (
        "[100.0, 100.0], completeness 100.0; p95 encoding 4.0 + SQL 5.0 ms; 2 requests to 3 tools"
    )
    assert (plain.value, plain.targets) == (pytest.approx(63.09, abs=0.01), ())
    assert "p95" not in plain.note


def test_the_mean_of_the_tuned_sets_has_the_targets() -> None:
    every = [result(name, {"hybrid": "xa", "dense": "a"}) for name in sorted(TUNED)]
    *_, hybrid, dense = rows(every, "")
    assert (hybrid.scenario, dense.scenario) == (
        "mean of 4: NDCG@10, hybrid", "mean of 4: NDCG@10, dense",
    )  # fmt: skip
    assert missed(hybrid) == ["63.1 %"]
    assert missed(dense) == []
    assert not any("mean" in row.scenario for row in rows(every[1:], ""))


def test_without_a_directory_our_own_set_is_measured(tmp_path: Path) -> None:
    assert chosen(None) == [OWN]
    with pytest.raises(Unavailable, match="holds no tool set"):
        chosen(tmp_path)
