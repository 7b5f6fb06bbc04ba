"""Daily sums: processes add to the same rows, tenants are apart, old days go, people are erased."""

from datetime import UTC, date, datetime, timedelta

import anyio
import pytest

from registry.costs.daily_costs import OTHERS, CostKey, CostQuery, CostSum, DailyCosts, SummedCosts
from registry.database.postgres import Database
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

TODAY = datetime.now(UTC).date()
YESTERDAY = TODAY - timedelta(days=1)
STRANGERS = "00000000-0000-0000-0000-000000000002"
MODEL = CostKey(HOST, TODAY, "model", "ada", "some", "a/m", "USD")
WHOLE = CostQuery(first=TODAY - timedelta(days=1000), last=TODAY)


def usage(tokens_in: int, tokens_out: int, money: float = 0.0) -> CostSum:
    return CostSum(1, tokens_in, tokens_out, money)


def query(*by: str, caller: str | None = None, first: date = WHOLE.first) -> CostQuery:
    return CostQuery(first=first, last=TODAY, by=by, caller=caller, limit=100)  # type: ignore[arg-type]


async def whole(costs: DailyCosts, tenant: str = HOST) -> SummedCosts:
    [found] = await costs.sums(tenant, WHOLE)
    return found


@pytest.fixture
def costs(database: Database) -> DailyCosts:
    return DailyCosts(database.pool)


async def test_processes_add_to_the_same_sums(costs: DailyCosts) -> None:
    keys = [MODEL._replace(caller=f"caller {number}") for number in range(50)]
    async with anyio.create_task_group() as tasks:
        for order in (keys, keys[::-1]):
            tasks.start_soon(costs.add, {key: usage(10, 5, 2_500_000.4) for key in order})
    total = await whole(costs)
    assert (total.requests, total.tokens_in, total.tokens_out) == (100, 1000, 500)
    assert total.money == {"USD": 250_000_000}


async def test_sums_are_grouped_by_any_dimensions(costs: DailyCosts) -> None:
    answers = CostKey(HOST, YESTERDAY, "answers", "bob")
    await costs.add(
        {
            MODEL: usage(10, 5, 70),
            MODEL._replace(currency="EUR"): usage(1, 1, 30),
            MODEL._replace(model="b/free", currency=""): usage(2, 1),
            MODEL._replace(kind="definitions", model="", currency=""): usage(0, 1000),
            answers: usage(0, 40),
        }
    )
    by_caller = await costs.sums(HOST, query("caller"))
    assert [(row.caller, row.day) for row in by_caller] == [("ada", None), ("bob", None)]
    ada, bob = by_caller
    assert (ada.requests, ada.tokens_in, ada.tokens_out) == (3, 13, 7)
    assert (ada.definitions, ada.answers, ada.unpriced) == (1000, 0, 3)
    assert ada.money == {"EUR": 30, "USD": 70}
    assert (bob.answers, bob.money) == (40, {})
    rows = await costs.sums(HOST, query("model", "day"))
    assert [(row.day, row.model) for row in rows] == [
        (TODAY, ""), (TODAY, "a/m"), (TODAY, "b/free"), (YESTERDAY, ""),
    ]  # fmt: skip
    assert [row.caller for row in await costs.sums(HOST, query("caller", caller="bob"))] == ["bob"]
    assert len(await costs.sums(HOST, query("day", first=TODAY))) == 1


async def test_tenants_are_apart(costs: DailyCosts) -> None:
    await costs.add({MODEL: usage(1, 1), MODEL._replace(tenant=STRANGERS): usage(7, 7)})
    assert (await whole(costs)).tokens_in == 1
    assert (await whole(costs, STRANGERS)).tokens_in == 7


async def test_old_days_are_deleted(costs: DailyCosts) -> None:
    today = datetime.now(UTC).date()  # the module may be older than the day
    kept, old = (MODEL._replace(day=today - timedelta(days=days)) for days in (30, 31))
    await costs.add(
        {kept: usage(1, 0), old: usage(2, 0), old._replace(tenant=STRANGERS): usage(3, 0)}
    )
    await costs.prune(30)
    assert (await whole(costs)).tokens_in == 1
    assert await costs.sums(STRANGERS, query("day")) == []


async def test_an_erased_caller_leaves_anonymous_sums(costs: DailyCosts) -> None:
    others, theirs = MODEL._replace(caller=OTHERS), MODEL._replace(tenant=STRANGERS)
    await costs.add({MODEL: usage(1, 2, 3), others: usage(10, 20, 30), theirs: usage(5, 5)})
    await costs.erase(HOST, "ada")
    [row] = await costs.sums(HOST, query("caller"))
    assert (row.caller, row.tokens_in, row.money) == (OTHERS, 11, {"USD": 33})
    [row] = await costs.sums(STRANGERS, query("caller"))
    assert row.caller == "ada"
