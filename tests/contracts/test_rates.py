"""Rates that nodes count in leases of one real counter."""

import anyio
import pytest

from gateway.state.rate_windows import SHARE, LeasedRates
from tests.contracts.backends import Pair

pytestmark = pytest.mark.anyio

HOUR_S = 3600
LIMIT = 400


async def test_nodes_share_a_limit_and_hardly_ask(nodes: Pair) -> None:
    allowed: list[bool] = []

    async def use(rates: LeasedRates) -> None:
        for _ in range(LIMIT // 4):
            wait_s = rates.take(("k",), LIMIT, HOUR_S)
            if wait_s is None:
                wait_s = await rates.acquire(("k",), LIMIT, HOUR_S)
            allowed.append(wait_s == 0)

    async with anyio.create_task_group() as tasks:
        for stores in (nodes.a, nodes.b):
            rates = LeasedRates(stores.counter, None)
            for _ in range(4):
                tasks.start_soon(use, rates)
    assert len(allowed) == 2 * LIMIT
    assert LIMIT - 2 * LIMIT // SHARE <= sum(allowed) <= LIMIT
