"""The page of costs: what is summed, its plots, its CSV, and what a visitor without scopes sees."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.console.plots import days_plot
from registry.costs.daily_costs import CostKey, CostSum
from tests.fixtures_database import HOST
from tests.gateway.console.visiting import console

pytestmark = pytest.mark.anyio

TODAY = datetime.now(UTC).date()
MODEL = CostKey(HOST, TODAY, "model", "ada", "some", "a/m", "USD")
BACKGROUND = MODEL._replace(caller="", day=TODAY - timedelta(days=3), currency="", toolset="")


async def test_costs_are_shown_by_dimension_and_exported(settings: Settings) -> None:
    costs = replace(settings.costs, enabled=True, flush_s=3600.0)
    async with console(settings, costs=costs) as (client, browser):
        status, text = await browser.get("costs")
        assert (status, "No costs on these days" in text) == (200, True)
        ledger = client.gateway.costs
        assert ledger is not None
        ledger._add(MODEL, CostSum(1, 1_200_000, 300, 500_000))
        ledger._add(BACKGROUND, CostSum(1, 5, 5))
        ledger._add(
            MODEL._replace(caller="=evil()", kind="answers", model="", currency=""),
            CostSum(1, 0, 7),
        )
        await ledger.flush()

        _, text = await browser.get("costs")
        for expected in ("ada", "Work in the background", "0.5000 USD", "Tokens of models without"):
            assert expected in text
        assert text.count('<svg viewBox="0 0 560') == 2  # tokens, and money
        _, text = await browser.get(f"costs?by=toolset&since={TODAY}&until={TODAY}")
        assert "All tools" not in text
        assert "<bdi>some</bdi>" in text
        assert (await browser.get("costs?by=none"))[0] == 200
        assert (await browser.get("costs?since=soon"))[0] == 400

        async with browser._http.get(f"{client.url}/console/costs/export?by=caller") as answer:
            assert answer.headers["content-type"].startswith("text/csv")
            assert "attachment" in answer.headers["content-disposition"]
            lines = (await answer.text()).splitlines()
        assert lines[0].startswith("caller,requests,")
        assert lines[1].startswith("ada,1,1200000,300,0,0,0,0.5")
        assert "'=evil(),0,0,0,0,0,7," in lines


def test_a_plot_of_days_has_every_day_and_round_axes() -> None:
    rows = {"2026-01-01": 3.0, "2026-01-03": 3_100_000.0}
    series = {"a": lambda row: row, "b": lambda _row: 0.0}
    plot = days_plot(rows, series, "2026-01-01", "2026-01-10", titles=("day", "tokens"))
    assert [tick.label for tick in plot.y_ticks] == ["0", "1M", "2M", "3M", "4M"]
    assert [tick.label for tick in plot.x_ticks] == ["01-01", "01-03", "01-05", "01-07", "01-09"]
    a, b = plot.lines
    assert [mark[2] for mark in a.marks[:3]] == [
        "a, 2026-01-01: 3", "a, 2026-01-02: 0", "a, 2026-01-03: 3,100,000",
    ]  # fmt: skip
    assert (len(a.marks), a.marks[1][1]) == (10, plot.bottom)
    assert abs(a.label_y - b.label_y) >= 12
    alone = days_plot({}, series, "2026-01-01", "2026-01-01", titles=("day", "tokens"))
    assert [tick.label for tick in alone.y_ticks][-1] == "1"
