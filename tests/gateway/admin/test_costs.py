"""Sums of costs over the admin API: groups, days, own costs alone, and CSV."""

import csv
import io
from datetime import UTC, date, datetime, timedelta

import pytest

from registry.costs.daily_costs import CostKey, CostSum, DailyCosts
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.gateway.admin.client import Admin, bearer

pytestmark = pytest.mark.anyio

TODAY = datetime.now(UTC).date()
MODEL = CostKey(HOST, TODAY, "model", "ada", "some", "a/m", "USD")
EARLIER = MODEL._replace(day=TODAY - timedelta(days=2), currency="EUR")
LISTS = CostKey(HOST, TODAY, "definitions", "=cmd()")
FREE = MODEL._replace(caller="bob", model="b/free", currency="")


@pytest.fixture
async def daily_costs(database: Database) -> None:
    await DailyCosts(database.pool).add(
        {
            MODEL: CostSum(2, 1000, 500, 1_250_000),
            EARLIER: CostSum(1, 10, 5, 2_000),
            LISTS: CostSum(1, 0, 9000),
            FREE: CostSum(3, 40, 20),
        }
    )


@pytest.mark.usefixtures("daily_costs")
async def test_costs_are_summed_by_day_and_other_dimensions(api: Admin) -> None:
    report = (await api("GET", "/costs/sums")).json
    first, last = (date.fromisoformat(report[day]) for day in ("first", "last"))
    assert last - first == timedelta(days=29)
    assert last in {TODAY, datetime.now(UTC).date()}  # the module may be older than the day
    assert (report["all_callers"], report["recording"], report["more"]) == (True, False, False)
    today, earlier = report["rows"]
    assert (today["day"], today["caller"]) == (TODAY.isoformat(), None)
    assert (today["requests"], today["input_tokens"], today["output_tokens"]) == (5, 1040, 520)
    assert (today["definition_tokens"], today["unpriced_tokens"]) == (9000, 60)
    assert (today["money"], earlier["money"]) == ({"USD": 1.25}, {"EUR": 0.002})
    assert report["total"]["money"] == {"EUR": 0.002, "USD": 1.25}

    report = (await api("GET", "/costs/sums?by=model,caller&limit=2")).json
    rows = [(row["caller"], row["model"], row["day"]) for row in report["rows"]]
    assert (rows, report["more"]) == ([("=cmd()", "", None), ("ada", "a/m", None)], True)

    since = f"{TODAY - timedelta(days=1)}T23:59:59Z"
    report = (await api("GET", f"/costs/sums?since={since}&until={TODAY}T00:00:00Z")).json
    assert report["total"]["money"] == {"USD": 1.25}
    for query in ("by=tool", "by=day,", "by=day,day,day,day,day", "limit=0", "format=xml"):
        assert (await api("GET", f"/costs/sums?{query}")).status == 400
    answer = await api("GET", f"/costs/sums?since={TODAY}T02:00:00Z&until={TODAY}T01:00:00Z")
    assert answer.status == 422


@pytest.mark.usefixtures("daily_costs")
async def test_callers_without_the_scope_get_their_own_costs(api: Admin) -> None:
    for scope, all_callers in (("", False), ("admin:keys:read", False), ("admin:audit:read", True)):
        who = bearer("bob", scope)
        report = (await api.raw("GET", "/costs/sums?by=caller", None, who)).json
        callers = {row["caller"] for row in report["rows"]}
        assert report["all_callers"] is all_callers
        assert callers == ({"ada", "bob", "=cmd()"} if all_callers else {"bob"})
        assert report["total"]["requests"] == (6 if all_callers else 3)


@pytest.mark.usefixtures("daily_costs")
async def test_costs_are_written_as_csv_without_formulas(api: Admin) -> None:
    report = (await api("GET", "/costs/sums?by=caller,day&format=csv")).json
    assert report["rows"] == []
    first, *others = csv.DictReader(io.StringIO(report["csv"]))
    assert (first["caller"], first["definition_tokens"]) == ("'=cmd()", "9000")
    assert [(row["caller"], row["money_USD"], row["money_EUR"]) for row in others] == [
        ("ada", "1.25", ""), ("bob", "", ""), ("ada", "", "0.002"),
    ]  # fmt: skip
    assert list(first)[:2] == ["day", "caller"]


async def test_days_at_the_ends_of_the_calendar_are_read(api: Admin) -> None:
    for query in (
        "since=9999-12-31T23:59:59-14:00&until=9999-12-31T23:59:59-14:00",
        "until=0001-01-01T00:00:00%2B14:00",
    ):
        answer = await api("GET", f"/costs/sums?{query}")
        assert (answer.status, answer.json["rows"]) == (200, [])
