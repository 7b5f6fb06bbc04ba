"""Costs: tokens and money by caller, toolset, model or day, and a plot of the days."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.plots import Plot, days_plot, short_number
from gateway.console.routes import PageRoute

DAYS_PLOTTED = 400  # days, the newest
TITLES: Mapping[str, str] = {
    "caller": "Caller",
    "toolset": "Toolset",
    "model": "Model",
    "day": "Day",
}
NAMES_OF_NOTHING: Mapping[str, str] = {
    "caller": "Work in the background",
    "toolset": "All tools",
    "model": "No model",
}
"""What a row without a name is of, by what costs are summed by."""


async def costs(visit: PageRequest) -> Response:
    by = _dimension(visit)
    by_day = {**_days(visit), "by": "day", "limit": DAYS_PLOTTED}
    query = by_day if by == "day" else {**_days(visit), "by": by}
    answer = await visit.operations.run("sumCosts", query=query)
    if not answer.ok:
        return visit.problem_page(answer)
    report = answer.value
    days = answer if by == "day" else await visit.operations.run("sumCosts", query=by_day)
    return visit.page(
        "costs.html",
        report=report,
        by=by,
        titles=TITLES,
        unnamed=NAMES_OF_NOTHING,
        money=_money(report["total"]),
        row_money=_money,
        short_number=short_number,
        plots=_plots(visit, days.value["rows"], report) if days.ok else (),
        given={name: visit.query.get(name, "") for name in ("by", "since", "until")},
    )


async def export_costs(visit: PageRequest) -> Response:
    """The sums as CSV."""
    query = {**_days(visit), "by": _dimension(visit), "format": "csv"}
    answer = await visit.operations.run("sumCosts", query=query)
    if not answer.ok:
        return visit.problem_page(answer)
    headers = {"content-disposition": 'attachment; filename="costs.csv"'}
    return Response(answer.value["csv"], 200, headers, "text/csv")


def _dimension(visit: PageRequest) -> str:
    """The dimension that the form sums by."""
    by = visit.query.get("by", "")
    return by if by in TITLES else "caller"


def _days(visit: PageRequest) -> dict[str, str]:
    """The days of the form, as times."""
    days = {name: visit.query.get(name, "") for name in ("since", "until")}
    return {name: f"{day}T00:00:00Z" for name, day in days.items() if day}


def _money(row: Mapping[str, Any]) -> str:
    """Amounts of each currency; "": there is none."""
    return " · ".join(
        f"{amount:,.{2 if amount >= 1 else 4}f} {currency}"
        for currency, amount in row["money"].items()
    )


def _plots(
    visit: PageRequest, rows: list[Mapping[str, Any]], report: Mapping[str, Any]
) -> list[tuple[str, Plot]]:
    """Tokens by day, and money by day where a model has a price."""
    texts, by_day = visit.texts, {row["day"]: row for row in rows}
    if not by_day:
        return []
    tokens = {
        texts("Models"): lambda row: row["input_tokens"] + row["output_tokens"],
        texts("Lists"): lambda row: row["definition_tokens"],
        texts("Results"): lambda row: row["answer_tokens"],
    }
    first, last = max(report["first"], min(by_day)), report["last"]
    title = texts("Tokens by day")
    plots = [(title, days_plot(by_day, tokens, first, last, titles=(texts("Day"), title)))]
    currencies = list(report["total"]["money"])
    if currencies:
        money = {
            currency: lambda row, name=currency: row["money"].get(name, 0.0)
            for currency in currencies[:3]
        }
        title = texts("Money by day")
        plots.append((title, days_plot(by_day, money, first, last, titles=(texts("Day"), title))))
    return plots


ROUTES = (PageRoute("/costs", costs), PageRoute("/costs/export", export_costs))
