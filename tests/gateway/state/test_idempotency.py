"""Commands that are done once, against a real PostgreSQL."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from config.settings import DatabaseSettings as Settings
from gateway.context import Principal
from gateway.interfaces import RepeatableCommand
from gateway.state.idempotency import Idempotency, IdempotencyKeys, KeyScope
from registry.database.postgres import Database
from schemas.hybrid import StatusFault
from schemas.tool import TextContent, ToolResult
from tests.fixtures_database import HOST
from tests.sharing import hold_turns

pytestmark = pytest.mark.anyio

EXPIRE = "UPDATE command_idempotency_t SET expires_ts = current_timestamp - '1s'::interval"
ADA = Principal("ada", HOST)
RESULT = ToolResult((TextContent('{"a": 1.00}'),), Raw(b'{"a": 1.00}'), meta={"x": 1})


def command(key: str = "k", body: bytes = b"{}", **changes: Any) -> RepeatableCommand:
    return RepeatableCommand(
        **{"principal": ADA, "service": "a/b/c/1", "key": key, "body": body, **changes}
    )


@dataclass
class Work:
    """What a command does: counts, waits for `release` if it is to, gives `result`."""

    result: ToolResult = RESULT
    waits: bool = False
    count: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> ToolResult:
        self.count += 1
        self.begun.set()
        if self.waits:
            await self.release.wait()
        return self.result


@pytest.fixture
def once(database: Database) -> Idempotency:
    return Idempotency(lambda: database.pool, ttl_s=3600)


@pytest.fixture
async def work(anyio_backend: str) -> Work:
    return Work()


async def refusal_of(once: Idempotency, of: RepeatableCommand, work: Work) -> tuple[int, str]:
    with pytest.raises(StatusFault) as caught:
        await once.once(of, work)
    return caught.value.status, caught.value.message


async def sql(database: Database, statement: str) -> list[Any]:
    async with database.connect() as connection:
        rows = await connection.execute(statement.encode())
        return await rows.fetchall() if rows.description else []


@pytest.mark.parametrize(
    "result",
    [
        RESULT,
        ToolResult(()),
        ToolResult((TextContent("OK"),)),
        ToolResult((TextContent("x"),), Raw(b'{"status":409,"body":"no"}'), is_error=True),
        ToolResult((TextContent("é\u0000😀"),), Raw(b"9007199254740993")),
    ],
)
async def test_the_same_command_gets_the_same_result_and_is_done_once(
    once: Idempotency, result: ToolResult
) -> None:
    work = Work(result)
    assert [await once.once(command(), work) for _ in range(3)] == [result] * 3
    assert work.count == 1


@pytest.mark.parametrize("key", ["k", "x" * 128, "é", " ", "'; --", "%s"])
async def test_a_key_is_any_text(once: Idempotency, work: Work, key: str) -> None:
    assert await once.once(command(key), work) == await once.once(command(key), work)
    assert work.count == 1


async def test_a_key_belongs_to_one_request(once: Idempotency, work: Work) -> None:
    await once.once(command(), work)
    status, text = await refusal_of(once, command(body=b'{"a":1}'), work)
    assert status == 409
    assert "a different request" in text
    assert work.count == 1


@pytest.mark.parametrize(
    "other",
    [
        {"principal": Principal("grace", HOST)},
        {"principal": Principal("ada", "8f9be57b-6a43-4c0d-9f3a-6a7c52d3c0aa")},
        {"service": "a/b/d/1"},
        {"key": "K"},
    ],
    ids=str,
)
async def test_keys_are_not_shared_between_principals_and_services(
    once: Idempotency, work: Work, other: dict[str, Any]
) -> None:
    await once.once(command(), work)
    await once.once(command(body=b"other", **other), work)
    assert work.count == 2


async def test_a_twin_of_a_command_that_runs_is_refused(once: Idempotency) -> None:
    work = Work(waits=True)
    with anyio.fail_after(30):
        first = asyncio.create_task(once.once(command(), work))
        await work.begun.wait()
        status, text = await refusal_of(once, command(), work)
        assert (status, "still running" in text) == (409, True)
        work.release.set()
        assert await first == await once.once(command(), work) == RESULT
    assert work.count == 1


async def test_of_many_twins_at_once_one_runs(database: Database, once: Idempotency) -> None:
    another_node = Idempotency(lambda: database.pool, ttl_s=3600)
    work = Work(waits=True)
    nodes = (once, another_node) * 4
    with anyio.fail_after(30):
        twins = [asyncio.create_task(node.once(command(), work)) for node in nodes]
        refusals, pending = [], set(twins)
        while len(pending) > 1:
            ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            refusals += [twin.exception() for twin in ended]
        work.release.set()
        assert await pending.pop() == RESULT
    assert [getattr(refusal, "status", None) for refusal in refusals] == [409] * 7
    assert work.count == 1


async def test_a_command_whose_node_died_is_not_done_again(
    database: Database, once: Idempotency, work: Work
) -> None:
    await once.once(command(), work)
    await sql(database, "UPDATE command_idempotency_t SET state = 'running', response = NULL")
    status, text = await refusal_of(once, command(), work)
    assert (status, "outcome is unknown" in text) == (409, True)
    assert work.count == 1


async def test_an_expired_key_may_be_used_again_for_anything(
    database: Database, once: Idempotency, work: Work
) -> None:
    await once.once(command(), work)
    await sql(
        database, "UPDATE command_idempotency_t SET expires_ts = current_timestamp - '1s'::interval"
    )
    work.result = ToolResult(())
    assert await once.once(command(body=b"another"), work) == ToolResult(())
    assert await once.once(command(body=b"another"), work) == ToolResult(())
    assert work.count == 2
    assert (await refusal_of(once, command(), work))[0] == 409


async def test_results_are_kept_as_long_as_the_settings_say(database: Database, work: Work) -> None:
    await Idempotency(lambda: database.pool, ttl_s=90).once(command(), work)
    [(kept,)] = await sql(
        database,
        "SELECT extract(epoch FROM expires_ts - created_ts)::int FROM command_idempotency_t",
    )
    assert kept == 90


async def test_only_expired_keys_are_purged(
    database: Database, once: Idempotency, work: Work
) -> None:
    for key in ("old", "new"):
        await once.once(command(key), work)
    await sql(database, f"{EXPIRE} WHERE idempotency_key = 'old'")
    await once.purge()
    assert await sql(database, "SELECT idempotency_key FROM command_idempotency_t") == [("new",)]


async def test_without_a_database_nothing_is_done(work: Work) -> None:
    status, text = await refusal_of(Idempotency(lambda: None, ttl_s=1), command(), work)
    assert status == 503
    assert "was not run" in text
    assert work.count == 0


async def test_an_unreachable_database_refuses_the_command(
    database_settings: Settings, work: Work
) -> None:
    unreachable = replace(
        database_settings, url="postgresql://localhost:1/none", connect_timeout_s=0.2
    )
    pool = Database(unreachable).pool
    async with pool:
        found = await refusal_of(Idempotency(lambda: pool, ttl_s=1), command(), work)
    assert (found[0], work.count) == (503, 0)
    assert "localhost" not in found[1]


async def test_a_result_that_cannot_be_recorded_is_given_all_the_same(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    pools: list[Any] = [database.pool]
    once = Idempotency(lambda: pools[-1], ttl_s=1)

    async def vanishing() -> ToolResult:
        pools.append(None)
        return RESULT

    assert await once.once(command(), vanishing) == RESULT
    assert [record.message for record in caplog.records] == ["command_not_recorded"]
    pools.pop()
    assert (await refusal_of(once, command(), Work()))[0] == 409


async def test_keys_of_one_caller_wait_for_its_own_turns(database_settings: Settings) -> None:
    async with Database.open(replace(database_settings, pool_max=4), wait=False) as database:
        keys = IdempotencyKeys(lambda: database.pool, 60)
        mine, theirs = (KeyScope(HOST, name, "a", "k") for name in ("ada", "bob"))
        async with hold_turns(database.pool, (HOST, "ada")):
            assert await keys.claim(theirs, b"{}") is None
            with anyio.move_on_after(0.3) as waited:
                await keys.claim(mine, b"{}")
            assert waited.cancelled_caught
        assert await keys.claim(mine, b"{}") is None


async def test_commands_that_get_no_turn_are_refused_with_the_reason(
    database_settings: Settings, work: Work
) -> None:
    settings = replace(database_settings, pool_max=4, connect_timeout_s=0.3)
    async with Database.open(settings, wait=False) as database:
        once = Idempotency(lambda: database.pool, ttl_s=60)
        caller = command().principal
        async with hold_turns(database.pool, caller.key):
            status, text = await refusal_of(once, command(), work)
    assert (status, work.count) == (503, 0)
    assert "Too many requests of this caller wait for the database" in text
    assert "was not run" in text
