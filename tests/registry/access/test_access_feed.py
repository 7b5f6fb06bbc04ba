"""What gateways read again of who may do what."""

from typing import Any, cast

import anyio
import pytest

from registry.access.access_feed import AccessFeed

pytestmark = pytest.mark.anyio

POOL = cast("Any", None)


async def test_a_stale_read_does_not_replace_newer_rules() -> None:
    """A rule that was written while the one before was on its way here counts."""
    stored, known, reading = ["old"], [], anyio.Event()

    async def load(_pool: Any) -> None:
        found = stored[-1]
        if not reading.is_set():
            reading.set()
            await anyio.wait_all_tasks_blocked()  # the answer of the database takes its time
        known.append(found)

    feed = AccessFeed({"policy": load}, 60)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.load, POOL)
            await reading.wait()
            stored.append("new")
            tasks.start_soon(feed.load, POOL)
    assert known == ["old", "new"]
