"""Workers that are killed at each step of the journal, two at a time: nothing is lost, nothing ends
twice, and what is not repeatable has one effect at most.

TOOLGATE_EVENTS_KILLS is the number of processes that are killed at each step.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from signal import SIGKILL

import pytest

from config.settings import DatabaseSettings
from gateway.wings.events.invocation_journal import AcceptedInvocation, Filter, Journal
from registry.database.postgres import Database, borrow
from tests.fixtures_database import HOST
from tests.fixtures_redis import RedisServer
from tests.wings.events.conftest import empty_tables
from tests.wings.events.drafts import draft
from tests.wings.events.victim import STEPS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(14_400)]

KILLS = int(os.environ.get("TOOLGATE_EVENTS_KILLS", "1"))
INVOCATIONS = 10  # for two processes
WAIT_S = 900


@pytest.fixture
async def journal(events_database: DatabaseSettings) -> AsyncIterator[Journal]:
    empty_tables(events_database)
    async with Database.open(events_database, wait=False, migrate=False) as database:
        async with borrow(database.pool) as connection:
            await connection.execute("CREATE TABLE IF NOT EXISTS effect_t (invocation_id uuid)")
            await connection.execute("TRUNCATE effect_t")
        yield Journal(database.pool)


async def victim(url: str, step: str, count: int, engine: str) -> int:
    """The exit code of a process that dies at a step."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.wings.events.victim"), url, step, str(count), engine
    )
    async with asyncio.timeout(WAIT_S):
        return await process.wait()


@pytest.fixture(params=["postgres", "redis", "kafka"])
def engine(request: pytest.FixtureRequest) -> str:
    """The address of what wakes workers; "": the database does."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url
    return str(request.getfixturevalue("kafka")) if request.param == "kafka" else ""


async def test_kills_lose_nothing(
    journal: Journal, events_database: DatabaseSettings, engine: str
) -> None:
    """Kills lose nothing (V07)."""
    url = events_database.url
    steps = STEPS if KILLS > 1 or not engine else STEPS[::3]  # the journal's, whatever wakes
    planned = [(step, 1 + number % 2) for step in steps for number in range(KILLS)]
    repeatable: dict[str, bool] = {}
    died: Counter[str] = Counter()
    for _round in range(4 * len(planned)):
        if not planned:
            break
        both, planned = planned[:2], planned[2:]
        repeatable |= await more(journal)
        codes = await asyncio.gather(*(victim(url, *one, engine) for one in both))
        assert set(codes) <= {0, -SIGKILL}
        died.update(step for (step, _), code in zip(both, codes, strict=True) if code)
        # One that found too little left by the other dies later.
        planned += [one for one, code in zip(both, codes, strict=True) if not code]
    assert died == dict.fromkeys(steps, KILLS)
    assert await victim(url, "never", 1, engine) == 0
    rows = await journal.page(HOST, Filter(), before=None, limit=10_000)
    assert {row.invocation_id for row in rows} == set(repeatable)
    assert {row.status for row in rows} <= {"ACKED", "FAILED"}
    async with borrow(journal._pool) as connection:
        found = await connection.execute("SELECT invocation_id::text FROM effect_t")
        effects = Counter([id_ async for (id_,) in found])
    for row in rows:
        failures = await journal.attempts(HOST, row.invocation_id)
        assert row.attempt == len(failures) + (row.status == "ACKED")
        if repeatable[row.invocation_id]:
            assert row.status == "ACKED"
        else:
            assert effects[row.invocation_id] <= 1
            assert row.attempt == 1
        if row.status == "ACKED":
            assert effects[row.invocation_id] >= 1


async def more(journal: Journal) -> dict[str, bool]:
    """Accepted invocations, by id whether they are repeatable: every second one is, and two of
    them have a key."""
    drafts = [
        draft(
            number,
            repeatable=number % 2 == 0,
            max_attempts=1000,
            order_key="a" if number % 5 == 0 else None,
        )
        for number in range(INVOCATIONS)
    ]
    accepted = await journal.accept(drafts)
    return {
        one.invocation_id: asked.repeatable
        for one, asked in zip(accepted, drafts, strict=True)
        if isinstance(one, AcceptedInvocation)
    }
