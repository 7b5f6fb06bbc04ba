"""Python function calls of one warm request, against the budget in `costs.yaml`."""

from pathlib import Path

import pytest
import yaml

from benchmarks.ways import BATCHES, Way, measure

pytestmark = pytest.mark.anyio

BUDGET = Path(__file__).with_name("costs.yaml")
LIST = "`python -m benchmarks.ways --list` names the functions"


def costs(ways: dict[str, Way]) -> dict[str, int]:
    """The calls of each kind of request; of a batch, those of one more member."""
    few, many = BATCHES
    calls = {name: way.calls for name, way in ways.items()}
    member = (calls[f"batch of {many}"] - calls[f"batch of {few}"]) // (many - few)
    return {**calls, "batch member": member}


async def test_no_request_costs_more_than_its_budget() -> None:
    budget = yaml.safe_load(BUDGET.read_text())
    found = costs(await measure())
    risen = [
        f"{name}: {found[name]} calls, the budget is {row['calls']}"
        for name, row in budget.items()
        if found[name] > row["calls"]
    ]
    assert not risen, f"{'; '.join(risen)}. {LIST}; a rise needs its reason in {BUDGET.name}"
    for name, row in budget.items():
        if found[name] < row["calls"]:
            print(f"{name} takes {found[name]} calls: lower its budget in {BUDGET.name}")


async def test_a_request_that_calls_more_functions_is_noticed() -> None:
    ways = {f"batch of {size}": Way((("m", "f"),) * (10 + 7 * size)) for size in BATCHES}
    assert costs(ways)["batch member"] == 7
