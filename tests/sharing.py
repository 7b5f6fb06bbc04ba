"""Turns at the connections of a pool that a caller has taken."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from registry.database.postgres import Pool, borrow
from registry.database.shared_pool import Caller, borrow_for


@asynccontextmanager
async def hold_turns(pool: Pool, caller: Caller) -> AsyncIterator[None]:
    """All that the caller may have are taken within; others still find connections."""
    end, held = anyio.Event(), 0
    most = max(2, pool.max_size * 3 // 4)

    async def hold() -> None:
        nonlocal held
        with borrow_for(caller):
            async with borrow(pool):
                held += 1
                await end.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(most):
            tasks.start_soon(hold)
        with anyio.fail_after(20):
            while held < most:  # noqa: ASYNC110 - connections of a real pool
                await anyio.sleep(0.01)
        try:
            yield
        finally:
            end.set()
