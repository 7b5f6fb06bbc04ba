"""The evaluation of the search in the console: from requests with their tools to plots."""

import re

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.console.plots import calibration_plot, recall_plot
from registry.evaluation.curves import calibration, calibration_pairs, curve
from registry.evaluation.request_sets import RelevantTools
from tests.gateway.console.visiting import Browser, console

pytestmark = pytest.mark.anyio

REQUESTS = """add a pet => createPet
remove a pet => deletePet

{"query": "one pet", "gold": ["getPet"]}
list the pets => nowhere"""


def relevant(*ids: str) -> RelevantTools:
    return RelevantTools(frozenset(ids), tuple(frozenset([one]) for one in ids))


def test_recall_grows_with_the_results_and_has_its_interval() -> None:
    found = [["a", "b"], ["x", "y", "c"], []]
    made = curve(
        "hybrid", found, [relevant("a"), relevant("c", "d"), relevant("e")], [1.0, 2.0, 3.0]
    )
    assert [one.recall for one in made.points[:4]] == [33.3, 33.3, 50.0, 50.0]
    assert all(one.low <= one.recall <= one.high for one in made.points)
    assert made.mrr == pytest.approx(100 * (1 + 1 / 3) / 3, abs=0.1)


def test_a_calibration_compares_predicted_with_observed_hits() -> None:
    fits = [0.95, 0.95, 0.1, None]
    bins = calibration(calibration_pairs(fits, [["x", "a"], ["x"], [], ["a"]], [relevant("a")] * 4))
    assert [(one.low, one.requests, one.told, one.found) for one in bins] == [
        (0.0, 1, 0.1, 0.0),
        (0.8, 2, 0.95, 0.5),
    ]
    assert all(one.found_low <= one.found <= one.found_high for one in bins)
    assert calibration_pairs([None], [["a"]], [relevant("a")]) == []


def test_axes_of_plots_begin_at_nothing_and_end_at_all() -> None:
    points = [{"k": k, "recall": 100.0, "low": 90.0, "high": 100.0} for k in range(1, 11)]
    curves = [{"mode": one, "points": points} for one in ("hybrid", "lexical")]
    plot = recall_plot(curves, "k", "recall")
    assert [one.label for one in plot.y_ticks] == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
    assert plot.y_ticks[0].at == plot.bottom
    assert plot.y_ticks[-1].at == plot.top
    places = [one.label_y for one in plot.lines]
    assert abs(places[0] - places[1]) >= 12  # labels of lines that meet stay apart
    told = {"told": 0.5, "found": 0.5, "found_low": 0.1, "found_high": 0.9, "requests": 3}
    (bar,) = calibration_plot([told], "x", "y").bars
    assert bar.high < bar.y < bar.low  # upwards on the page


async def test_own_requests_are_evaluated_and_plotted(settings: Settings) -> None:
    settings = replace(settings, search=replace(settings.search, usage_log=True))
    async with console(settings) as (_, browser):
        await browser.get("search")
        status, text = await browser.post("search", {"act": "requests", "requests": "no arrow"})
        assert (status, "Line 1 is not" in text) == (422, True)
        status, text = await browser.post("search", {"act": "usage"})
        assert (status, "no request was followed by a call" in text) == (422, True)
        status, text = await browser.post("search", {"act": "requests", "requests": REQUESTS})
        assert status == 200
        assert 'class="plot"' in text
        assert "Fewer than 30 requests" in text
        assert "nowhere" in text  # a tool that is not there
        assert re.findall(r"<tr><td>(\w+)</td>", text) == ["hybrid", "lexical"]  # no vectors
        assert "75.0 %" in text
        assert (await browser.get("search/nothing"))[0] == 404
        await one_request_is_searched_in_two_ways_side_by_side(browser)


async def one_request_is_searched_in_two_ways_side_by_side(browser: Browser) -> None:
    status, text = await browser.get("search/compare")
    assert (status, "<tbody>" in text) == (200, False)
    asked = "search/compare?q=add+a+pet&mode_a=lexical&mode_b=lexical"
    _, text = await browser.get(f"{asked}&source_b=pets")
    assert 'class="badge ">pets' in text
    for side in text.split("<tbody>")[1:]:
        first = side.split("</tr>")[0]
        assert "createPet" in first
        assert re.findall(r'<td class="num">(\d+)</td>', first) == ["1", "1"]  # here and there
    _, text = await browser.get(f"{asked}&source_b=nowhere")
    assert "No tool is like that" in text
    assert "missing" in text
