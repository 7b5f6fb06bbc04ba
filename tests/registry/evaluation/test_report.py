"""How results are told, and what must be reached."""

import pytest

from registry.evaluation.quality_metrics import (
    SetMetrics,
    SetResult,
    Threshold,
    mean_of,
    measure,
    missed_thresholds,
)
from registry.evaluation.report import as_json, markdown, remarks, tables
from registry.evaluation.request_sets import RelevantTools

WANTED = [RelevantTools(frozenset(one), (frozenset(one),)) for one in "abcd"]
FOUND = {
    "hybrid": [["a"], ["b"], ["c"], ["x", "d"]],  # NDCG 1, 1, 1, 0.63
    "lexical": [["a"], ["x"], [], []],
}
QUALITY = measure("mine", FOUND, WANTED)
RESULT = SetResult(
    quality=QUALITY,
    tools=5,
    requests=4,
    unknown={f"gone{number}": ["r1"] for number in range(7)},
    encode_ms=[1.0, 3.0],
    search_ms={"hybrid": [2.0] * 4, "lexical": [1.0] * 4},
    paths={"hybrid": {"exact": 4}, "lexical": {"lexical": 4}},
    notes={"hybrid": {"3 tools have no vectors yet": 4}},
    model="bundled/some",
)


def test_tables_have_a_row_for_each_mode_and_pair() -> None:
    quality, differences, times = tables([RESULT])
    assert quality[1][:2] == ("set", "mode")
    assert [row[:2] for row in quality[2]] == [("mine", "hybrid"), ("mine", "lexical")]
    assert quality[2][0][2] == "75.0"
    assert quality[2][0][5].startswith("90.8 [")
    assert differences[2][0][:3] == ("mine", "hybrid - lexical", "+65.8")
    assert times[2] == [
        ("mine", "encode", "2.0", "2.9", "3.0"),
        ("mine", "hybrid SQL", "2.0", "2.0", "2.0"),
        ("mine", "lexical SQL", "1.0", "1.0", "1.0"),
    ]
    assert all(len(row) == len(columns) for _, columns, rows in tables([RESULT]) for row in rows)


def test_several_sets_have_their_mean() -> None:
    quality, differences, _ = tables([RESULT, RESULT])
    assert [row[0] for row in quality[2]] == ["mine"] * 4 + ["mean of 2"] * 2
    assert differences[2][-1][0] == "mean of 2"


@pytest.mark.parametrize(
    ("requests", "said"), [(4, "too few requests"), (29, "too few requests"), (30, "certain")]
)
def test_differences_over_few_requests_are_not_certain(requests: int, said: str) -> None:
    _, differences, _ = tables([_with(_measure_found(requests))])
    assert differences[2] == [
        ("mine", "hybrid - lexical", "+100.0", "[+100.0, +100.0]", said),
    ]


def test_one_request_has_no_interval() -> None:
    result = _with(_measure_found(1))
    quality, differences, _ = tables([result])
    assert [row[5] for row in quality[2]] == ["100.0", "0.0"]
    assert differences[2][0][2:] == ("+100.0", "-", "too few requests")
    [one] = as_json([result])["sets"]
    assert one["modes"]["hybrid"]["ndcg@10"] == {"mean": 100}


def test_the_mean_of_sets_is_of_the_modes_that_all_have() -> None:
    words = measure("words", {"lexical": FOUND["lexical"]}, WANTED)
    assert mean_of([QUALITY, words]).modes == ("lexical",)
    mean = mean_of([words, QUALITY]).interval("lexical", "recall@1").mean
    assert mean == pytest.approx(QUALITY.interval("lexical", "recall@1").mean)


def test_one_mode_has_nothing_to_be_compared_with() -> None:
    alone = measure("mine", {"lexical": FOUND["lexical"]}, WANTED)
    titles = [title for title, _, _ in tables([_with(alone)])]
    assert titles == ["Found, per cent", "Milliseconds"]


def test_remarks_name_handicaps_of_an_evaluation() -> None:
    said = list(remarks([RESULT]))
    assert said[0] == "mine: 4 requests to 5 tools, bundled/some"
    assert said[1] == (
        "mine: 7 wanted tools are not there and count as missed, in 1 requests: "
        "gone0, gone1, gone2, gone3, gone4 and 2 more"
    )
    assert said[2] == "mine: hybrid, 4 times: 3 tools have no vectors yet"


def test_markdown_keeps_its_columns() -> None:
    assert markdown("T", ("a", "b"), [("1|2", "3")]) == (
        "**T**\n\n| a | b |\n| --- | --- |\n| 1\\|2 | 3 |\n"
    )


def test_json_has_intervals_of_all_measures() -> None:
    [one] = as_json([RESULT])["sets"]
    assert one["modes"]["lexical"]["recall@1"]["mean"] == 25
    assert one["differences"]["hybrid - lexical"]["recall@10"]["mean"] == 75
    assert one["latency_ms"]["encode"] == {
        "p50": 2.0,
        "p95": pytest.approx(2.9),
        "p99": pytest.approx(2.98),
    }
    assert "mean" not in as_json([RESULT])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ndcg@10=90", []),
        ("ndcg@10=90.9", ["ndcg@10 of hybrid on mine is 90.8, less than 90.9"]),
        ("lexical:recall@5=30", ["recall@5 of lexical on mine is 25.0, less than 30"]),
        (" hybrid:recall@5 =100", []),
    ],
)
def test_missed_thresholds_are_reported(text: str, said: list[str]) -> None:
    assert missed_thresholds([Threshold.parse(text)], QUALITY) == said


@pytest.mark.parametrize("text", ["ndcg=60", "=60", "ndcg@10", "ndcg@10=much", "ndcg@10=101", "x"])
def test_an_invalid_threshold_names_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"there are recall@1|a number|is no number"):
        Threshold.parse(text)


def _measure_found(requests: int) -> SetMetrics:
    """Hybrid finds what is wanted, lexical finds nothing."""
    found = {"hybrid": [["a"]] * requests, "lexical": [[]] * requests}
    return measure("mine", found, WANTED[:1] * requests)


def _with(quality: object) -> SetResult:
    return SetResult(quality, 5, 4, {}, [], {"lexical": [1.0]}, {}, {}, None)  # type: ignore[arg-type]
