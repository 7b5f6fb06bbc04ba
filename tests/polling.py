"""Polling for a condition that no event announces, as in a database or in another process."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

import anyio

DEADLINE_S = 60  # a loaded machine is slow, not wrong
POLL_S = 0.01


async def until(ask: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Poll `ask`, which may be asynchronous, until its answer is true, and return the answer.

    `anyio.wait_all_tasks_blocked` is no substitute while a database is followed: it samples every
    0.1 s, as psycopg wakes the task that waits for notifications, and may always find it awake.
    """
    with anyio.fail_after(DEADLINE_S):
        while True:
            answer = ask()
            if found := await answer if isawaitable(answer) else answer:
                return found
            await anyio.sleep(POLL_S)
