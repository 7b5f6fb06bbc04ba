"""Python function calls and memory of one warm request, against the budget in `costs.yaml`."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from benchmarks.ways import BATCHES, Way, measure

pytestmark = pytest.mark.anyio

BUDGET = Path(__file__).with_name("costs.yaml")
LIST = "`python -m benchmarks.ways --list` names the functions"

Costs = Mapping[str, Mapping[str, int]]


def costs(ways: Mapping[str, Way]) -> Costs:
    """The costs of each kind of request; of a batch, those of one more member."""
    found = {name: {"calls": way.calls, "bytes": way.bytes} for name, way in ways.items()}
    few, many = (found[f"batch of {size}"] for size in BATCHES)
    added = BATCHES[1] - BATCHES[0]
    return {**found, "batch member": {kind: (many[kind] - few[kind]) // added for kind in few}}


def exceeded_costs(found: Costs, budget: Costs) -> list[str]:
    """What a kind of request costs above its budget."""
    return [
        f"{name}: {found[name][kind]} {kind}, the budget is {row[kind]}"
        for name, row in budget.items()
        for kind in ("calls", "bytes")
        if found[name][kind] > row.get(kind, math.inf)
    ]


async def test_no_request_costs_more_than_its_budget() -> None:
    budget = yaml.safe_load(BUDGET.read_text())
    found = costs(await measure())
    above = exceeded_costs(found, budget)
    assert not above, f"{'; '.join(above)}. {LIST}; a rise needs its reason in {BUDGET.name}"
    for name, row in budget.items():
        if found[name]["calls"] < row["calls"]:
            print(f"{name} takes {found[name]['calls']} calls: lower its budget in {BUDGET.name}")


async def test_a_request_that_costs_more_is_noticed() -> None:
    ways = {f"batch of {n}": Way((("m", "f"),) * (10 + 7 * n), 50 * n) for n in BATCHES}
    found = costs(ways)
    assert found["batch member"] == {"calls": 7, "bytes": 50}
    assert exceeded_costs(found, {"batch member": {"calls": 7, "bytes": 50}}) == []
    assert exceeded_costs(found, {"batch member": {"calls": 6, "bytes": 49}}) == [
        "batch member: 7 calls, the budget is 6",
        "batch member: 50 bytes, the budget is 49",
    ]
