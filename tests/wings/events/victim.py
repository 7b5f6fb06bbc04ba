"""A process that runs invocations and kills itself at a step that the command line names:

    python -m tests.wings.events.victim URL STEP COUNT ENGINE

A call adds a row to `effect_t`. The process ends by itself when nothing is open.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import anyio
from msgspec.structs import replace

from config.events import EventKafka
from config.load import load
from gateway.wings.events.delivery_execution import Execution, Pause
from gateway.wings.events.dispatch import Dispatch
from gateway.wings.events.invocation_journal import Delivery, End, Journal
from gateway.wings.events.kafka_engine import KafkaEngine
from gateway.wings.events.operator_hook import Hooks
from gateway.wings.events.redis_engine import RedisEngine
from gateway.wings.events.sweeper import JournalSweeper
from gateway.wings.events.task_questions import TaskQuestions
from gateway.wings.events.wakeups import WORK, WakeupChannel
from registry.database.postgres import RESYNC, Database, borrow
from tests.fixtures_database import HOST

STEPS = ("claimed", "before", "effect", "ending", "ended")


class Death:
    """Kills this process when a step has been reached so many times."""

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._left = count

    def at(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Effects(Execution):
    """Calls that have an effect, and nothing else."""

    def __init__(self, database: Database, death: Death) -> None:
        self._database = database
        self._death = death

    async def outcome(self, delivery: Delivery) -> End | Pause:
        self._death.at("before")
        async with borrow(self._database.pool) as connection:
            await connection.execute("INSERT INTO effect_t VALUES (%s)", [delivery.invocation_id])
        self._death.at("effect")
        return delivery.end(result=b"1")


class Dying(Journal):
    """A journal whose user may die on either side of each commit."""

    def __init__(self, database: Database, death: Death) -> None:
        super().__init__(database.pool)
        self._death = death

    async def claim(self, *args: object, **more: object) -> list[Delivery]:
        taken = await super().claim(*args, **more)  # type: ignore[arg-type]
        if taken:
            self._death.at("claimed")
        return taken

    async def end(self, ends: Sequence[End]) -> set[tuple[str, int]]:
        self._death.at("ending")
        counted = await super().end(ends)
        self._death.at("ended")
        return counted


async def main(url: str, step: str, count: int, engine: str) -> None:
    """`engine`: the URL of a Redis, the address of a Kafka, or nothing."""
    defaults = load(None, {})
    settings = replace(
        defaults.events, poll_s=0.05, sweep_s=0.1, lease_s=0.7, drain_s=0.1, concurrency=4
    )
    death = Death(step, count)
    async with Database.open(replace(defaults.database, url=url), migrate=False) as database:
        journal = Dying(database, death)
        dispatch = Dispatch(
            journal,
            JournalSweeper(database.pool),
            Effects(database, death),
            settings,
            worker=str(os.getpid()),
            hooks=Hooks(""),
            questions=TaskQuestions(
                database.pool, settings, say=lambda _notice: None, freed=lambda: None
            ),
            say=lambda _notice: None,
            ended=lambda _ids: None,
        )
        notices = WakeupChannel(database, dispatch.hear)
        async with anyio.create_task_group() as group:
            group.start_soon(dispatch.run)
            group.start_soon(notices.listen)
            if engine:
                group.start_soon(_engine(engine, dispatch, defaults.events.kafka).read)
            while await journal.open_usage(HOST, 1):  # noqa: ASYNC110 - by other processes, too
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()


async def _read_installation() -> str:
    return "installation of all victims"


def _engine(address: str, dispatch: Dispatch, kafka: EventKafka) -> RedisEngine | KafkaEngine:
    def work(host_id: str) -> None:
        dispatch.hear(WORK + host_id if host_id else RESYNC)

    if "/" in address:
        return RedisEngine(
            address,
            str(os.getpid()),
            work=work,
            room=lambda: dispatch.room,
            installation=_read_installation,
        )
    return KafkaEngine(
        replace(kafka, servers=(address,)), attempts=1, work=work, take=_accept_request
    )


async def _accept_request(_headers: Mapping[str, str], _body: bytes) -> tuple[int, str]:
    return 202, ""


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
