"""The journal of invocations beside one-row INSERTs, on an embedded database with default settings.

Everything runs in one process, so ratios count; durable commits, one connection per caller.
"""

import asyncio
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import anyio
from msgspec import Raw
from msgspec.structs import replace
from psycopg import AsyncConnection

from benchmarks.guarded import redis_beside
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import installation
from config.events import EventsSettings
from config.load import load as load_settings
from gateway.wings.events.delivery_execution import Pause
from gateway.wings.events.dispatch import Dispatch
from gateway.wings.events.invocation_journal import (
    AcceptedInvocation,
    Delivery,
    Draft,
    End,
    Journal,
)
from gateway.wings.events.operator_hook import Hooks
from gateway.wings.events.redis_engine import RedisEngine
from gateway.wings.events.sweeper import JournalSweeper
from gateway.wings.events.task_questions import TaskQuestions
from gateway.wings.events.wakeups import WORK, WakeupChannel
from gateway.wings.events.wing import WING
from registry.database.group_commit import GroupCommit
from registry.database.migrate import REGISTRY
from registry.database.postgres import Database, borrow

OWN, OTHER = (f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))
CALLERS = 64
LARGE, QUICK_LARGE = 1_000_000, 20_000  # the backlog of a tenant
WAITING, QUICK_WAITING = 100_000, 5_000
STARTS, QUICK_STARTS = 200, 20
BACKLOG = """
INSERT INTO invocation_t (host_id, invocation_id, topic, skill_name, correlation_id, request_hash,
    arguments, principal_id, principal, repeatable, max_attempts, due_ts)
SELECT %s, gen_random_uuid(), 'agent-commands', 'report', gen_random_uuid()::text, '', '{}', 'ada',
    '{}', true, 3, now() + %s * interval '1 hour' FROM generate_series(1, %s)
"""
FLOOR = "CREATE TABLE floor_t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body json)"


Wakes = tuple[Callable[[str], None], tuple[Callable[[], Coroutine[Any, Any, None]], ...]]
"""What tells workers of an accepted invocation, by its id, and the tasks that this needs."""


def measure_events(rig: Rig, quick: bool) -> list[Row]:
    with installation(rig, "events", {}) as site:
        settings = load_settings(str(site.settings), {})
        return asyncio.run(_measured(settings.database, settings.events, rig, quick))


async def _measured(database: object, settings: EventsSettings, rig: Rig, quick: bool) -> list[Row]:
    assert WING.migrations is not None
    components = (REGISTRY, WING.migrations)
    async with Database.open(database, components=components) as opened:  # type: ignore[arg-type]
        journal = Journal(opened.pool)
        seconds = rig.slice_s
        floor = await _floor(opened, seconds)
        rows = [Row("one-row INSERT", floor, "/s")]
        rig.say("events: accepting")
        rows += await _accepting(journal, opened, floor, seconds)
        rig.say("events: claiming")
        rows.append(await _claiming(journal, opened, floor, seconds))
        rig.say("events: starting")
        starts = QUICK_STARTS if quick else STARTS
        times = await _starting(opened, settings, starts, partial(_by_notify, opened))
        rows += _started("PostgreSQL", times, 15.0)
        try:
            with redis_beside(rig) as url:
                times = await _starting(opened, settings, starts, partial(_by_redis, url))
            rows += _started("Redis", times, 8.0)
        except Unavailable as reason:
            rows.append(missing("accept to start, idle, Redis, p95", "ms", str(reason)))
        rig.say("events: backlog")
        rows += await _backlog(
            opened, journal, QUICK_WAITING if quick else WAITING, QUICK_LARGE if quick else LARGE
        )
        return rows


async def _rate(step: Callable[[], Awaitable[int]], seconds: float) -> float:
    """What `step` counts, a second."""
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        done += await step()
    return done / (time.perf_counter() - begin)


async def _floor(database: Database, seconds: float) -> float:
    async with database.connect() as connection:
        await connection.execute(FLOOR)

        async def insert() -> int:
            await connection.execute("INSERT INTO floor_t (body) VALUES (%s)", ['{"number":1}'])
            return 1

        return await _rate(insert, seconds)


def draft(host_id: str = OWN) -> Draft:
    return Draft(
        host_id=host_id,
        skill_name="report",
        arguments=Raw(b'{"number":1}'),
        principal_id="ada",
        principal=Raw(b'{"principal":{"id":"ada","tenant":"%s"}}' % host_id.encode()),
        repeatable=True,
        max_attempts=3,
    )


async def _accepting(
    journal: Journal, database: Database, floor: float, seconds: float
) -> list[Row]:
    notices = WakeupChannel(database, lambda _notice: None)
    commits = GroupCommit(journal.accept, most=100)

    async def one() -> int:
        await commits.put(draft())
        notices.say(WORK + OWN)
        return 1

    async def many() -> int:
        async with anyio.create_task_group() as group:
            for _ in range(CALLERS):
                group.start_soon(one)
        return CALLERS

    async def batch() -> int:
        return len(await journal.accept([draft() for _ in range(100)]))

    async with anyio.create_task_group() as group:
        group.start_soon(commits.run)
        group.start_soon(notices.send)
        one_per_s, many_per_s = await _rate(one, seconds), await _rate(many, seconds)
        group.cancel_scope.cancel()
    batched = await _rate(batch, seconds)
    return [
        _ratio("accept, one caller, committed, with NOTIFY", one_per_s, floor, 0.5),
        _ratio(f"accept, {CALLERS} callers", many_per_s, floor, 3.0),
        _ratio("accept, 100 a statement", batched, floor, 0.9),
    ]


async def _claiming(journal: Journal, database: Database, floor: float, seconds: float) -> Row:
    """What is accepted meanwhile is not counted, nor the time that takes."""
    done, spent = 0, 0.0
    await _filled(journal)
    async with database.connect() as connection:
        await connection.execute("ANALYZE invocation_t")  # as autovacuum does within a minute
    while spent < seconds:
        begin = time.perf_counter()
        deliveries = await journal.claim(OWN, "bench", limit=20, lease_s=60)
        ends = [delivery.end(result=b"{}") for delivery in deliveries]
        done += len(await journal.end(ends))
        spent += time.perf_counter() - begin
        if len(deliveries) < 20:
            await _filled(journal)
    return _ratio("claim 20 and ack", done / spent, floor, 3.0)


async def _filled(journal: Journal) -> None:
    for _ in range(10):
        await journal.accept([draft() for _ in range(100)])


class _Clocked:
    """An execution that tells when it began."""

    def __init__(self) -> None:
        self.begun: dict[str, anyio.Event] = {}

    async def outcome(self, delivery: Delivery) -> End | Pause:
        if (waiting := self.begun.get(delivery.correlation_id)) is not None:
            waiting.set()
        return delivery.end(result=b"{}")


def _by_notify(database: Database, dispatch: Dispatch) -> Wakes:
    heard, said = (
        WakeupChannel(database, dispatch.hear),
        WakeupChannel(database, lambda _notice: None),
    )
    return lambda _id: said.say(WORK + OWN), (heard.listen, said.send)


async def _read_installation() -> str:
    return "benchmark"


def _by_redis(url: str, dispatch: Dispatch) -> Wakes:
    front = RedisEngine(
        url, "front", work=lambda _host: None, room=lambda: 0, installation=_read_installation
    )
    worker = RedisEngine(
        url,
        "worker",
        work=lambda host: dispatch.hear(WORK + host),
        room=lambda: dispatch.room,
        installation=_read_installation,
    )
    return lambda id_: front.announce(OWN, id_), (front.send, worker.read)


async def _starting(
    database: Database, settings: EventsSettings, count: int, wakes: Callable[[Dispatch], Wakes]
) -> list[float]:
    """Milliseconds from before an accept to the start of its call, sorted. Between two processes,
    as far as the database can tell: nothing else wakes the worker."""
    await _emptied(database)
    clocked, journal = _Clocked(), Journal(database.pool)
    dispatch = _dispatch(database, clocked, settings)
    accepted, tasks = wakes(dispatch)
    times: list[float] = []
    async with anyio.create_task_group() as group:
        for task in (*tasks, dispatch.run):
            group.start_soon(task)
        await anyio.sleep(1)
        for number in range(count):
            begun = clocked.begun[f"c{number}"] = anyio.Event()
            begin = time.perf_counter()
            [stored] = await journal.accept([replace(draft(), correlation_id=f"c{number}")])
            assert isinstance(stored, AcceptedInvocation)
            accepted(stored.invocation_id)
            with anyio.fail_after(60):
                await begun.wait()
            times.append((time.perf_counter() - begin) * 1000)
            await anyio.sleep(0.06)  # idle: beyond the pause of notices
        group.cancel_scope.cancel()
    return sorted(times)


def _started(by: str, times: list[float], most_ms: float) -> list[Row]:
    p95 = statistics.quantiles(times, n=20)[-1]
    return [
        Row(f"accept to start, idle, {by}, p50", statistics.median(times), "ms"),
        Row(f"accept to start, idle, {by}, p95", p95, "ms", targets=(Target("value", most_ms),)),
    ]


async def _backlog(database: Database, journal: Journal, waiting: int, large: int) -> list[Row]:
    await _emptied(database)
    async with borrow(database.pool) as connection:
        await _add(connection, OWN, waiting, later=True)
    await journal.accept([draft() for _ in range(20)])
    tracemalloc.start()
    begin = time.perf_counter()
    await journal.claim(OWN, "bench", limit=20, lease_s=60)
    ms = (time.perf_counter() - begin) * 1000
    bytes_each = tracemalloc.get_traced_memory()[0] / waiting
    tracemalloc.stop()
    rows = [
        Row(f"claim 20 beside {waiting:,} that wait", ms, "ms"),
        Row(f"memory for each of {waiting:,}", bytes_each, "B", targets=(Target("value", 200.0),)),
    ]
    async with borrow(database.pool) as connection:
        await _add(connection, OWN, large, later=False)
    async with database.connect() as connection:
        await connection.execute("ANALYZE invocation_t")
    await journal.accept([draft(OTHER)])
    begin = time.perf_counter()
    tenants = await journal.tenants()
    claims = [await journal.claim(tenant, "bench", limit=1, lease_s=60) for tenant in tenants]
    ms = (time.perf_counter() - begin) * 1000
    assert len(claims) == 2
    text = f"first invocation of a tenant beside {large:,} of another"
    return [*rows, Row(text, ms, "ms", targets=(Target("value", 100.0),))]


async def _add(connection: AsyncConnection, host: str, count: int, *, later: bool) -> None:
    await connection.execute(BACKLOG, [host, 1 if later else 0, count])


async def _emptied(database: Database) -> None:
    async with database.connect() as connection:
        await connection.execute("TRUNCATE invocation_t, invocation_done_t, outbox_t")


def _dispatch(database: Database, execution: _Clocked, settings: EventsSettings) -> Dispatch:
    return Dispatch(
        Journal(database.pool),
        JournalSweeper(database.pool),
        execution,  # type: ignore[arg-type]
        settings,
        worker="bench",
        hooks=Hooks(""),
        questions=TaskQuestions(
            database.pool, settings, say=lambda _notice: None, freed=lambda: None
        ),
        say=lambda _notice: None,
        ended=lambda _ids: None,
    )


def _ratio(scenario: str, value: float, floor: float, least: float) -> Row:
    targets = (Target("floor", least),)
    return Row(scenario, value, "/s", x_floor=value / floor, targets=targets)
