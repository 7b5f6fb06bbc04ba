"""Random sequences of what happens to a journal, against a model of it."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from config.settings import DatabaseSettings
from gateway.wings.events.invocation_journal import AcceptedInvocation, Conflict, Delivery, Journal
from gateway.wings.events.sweeper import SweepCounts
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.wings.events.conftest import empty_tables
from tests.wings.events.drafts import draft, end, handle, upkeep

EXAMPLES = int(os.environ.get("TOOLGATE_EVENTS_EXAMPLES", "15"))
ATTEMPTS = 3
KEYS = st.sampled_from([None, None, "a", "b"])


@dataclass
class Row:
    seq: int
    body: int
    key: str | None
    block: bool
    repeatable: bool
    priority: int
    due: int
    status: str = "PENDING"
    attempt: int = 0
    fence: int = 0
    leased: bool = True
    cancelling: bool = False
    failures: int = 0


@dataclass
class World:
    settings: DatabaseSettings
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)


WORLD: list[World] = []


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        [world] = WORLD
        empty_tables(world.settings)
        self.run = world.runner.run
        self.opened = Database.open(world.settings, wait=False, migrate=False)
        self.journal = Journal(self.run(self.opened.__aenter__()).pool)
        self.rows: dict[str, Row] = {}
        self.seen: list[Delivery] = []
        self.time = 0

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))

    def tick(self) -> int:
        self.time += 1
        return self.time

    def current(self, one: Delivery) -> Row | None:
        """The row of a delivery that counts."""
        row = self.rows[one.invocation_id]
        return row if row.status == "DISPATCHED" and row.fence == one.fence else None

    @rule(
        key=KEYS,
        block=st.booleans(),
        repeatable=st.booleans(),
        priority=st.sampled_from([0, 5, 9]),
        body=st.integers(0, 2),
    )
    def accept(self, key: Any, block: bool, repeatable: bool, priority: int, body: int) -> None:
        [made] = self.run(
            self.journal.accept(
                [
                    draft(
                        body,
                        correlation_id=f"c{len(self.rows)}",
                        order_key=key,
                        on_failure="block" if block else "skip",
                        repeatable=repeatable,
                        priority=priority,
                    )
                ]
            )
        )
        assert isinstance(made, AcceptedInvocation)
        assert made.is_new
        self.rows[made.invocation_id] = Row(
            len(self.rows), body, key, block, repeatable, priority, self.tick()
        )

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), body=st.integers(0, 2))
    def accept_again(self, data: Any, body: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.rows, key=lambda one: self.rows[one].seq)))
        row = self.rows[id_]
        [found] = self.run(
            self.journal.accept([draft(body, correlation_id=f"c{row.seq}", order_key=row.key)])
        )
        if body == row.body:
            assert found == AcceptedInvocation(id_, f"c{row.seq}")
        else:
            assert isinstance(found, Conflict)

    def _eligible(self) -> Iterator[str]:
        order = sorted(self.rows.items(), key=lambda one: (-one[1].priority, one[1].due))
        for id_, row in order:
            if row.status == "PENDING" and not self._is_held(row):
                yield id_

    def _is_held(self, row: Row) -> bool:
        beside = [one for one in self.rows.values() if one.key == row.key and one is not row]
        return row.key is not None and any(
            one.status == "DISPATCHED"
            or (one.seq < row.seq and one.status == "PENDING")
            or (one.seq < row.seq and one.status == "FAILED" and one.block)
            for one in beside
        )

    @rule(limit=st.integers(1, 4), leased=st.booleans())
    def claim(self, limit: int, leased: bool) -> None:
        expected = list(self._eligible())[:limit]
        taken = self.run(self.journal.claim(HOST, "w", limit=limit, lease_s=3600 if leased else -1))
        assert {one.invocation_id for one in taken} == set(expected)
        for one in taken:
            row = self.rows[one.invocation_id]
            row.status, row.attempt, row.fence = "DISPATCHED", row.attempt + 1, row.fence + 1
            row.leased = leased
            assert (one.attempt, one.fence) == (row.attempt, row.fence)
        self.seen += taken

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), how=st.sampled_from(["ack", "fail", "retry", "release", "extend"]))
    def report(self, data: Any, how: str) -> None:
        one = data.draw(st.sampled_from(self.seen[-6:]))
        row = self.current(one)
        if how == "extend":
            found = self.run(self.journal.extend([handle(one)], 3600))
            assert found == ({(one.invocation_id, one.fence): row.cancelling} if row else {})
            if row:
                row.leased = True
            return
        if how == "release":
            assert self.run(self.journal.release([handle(one)])) == (1 if row else 0)
            if row and row.cancelling:
                row.status, row.failures = "FAILED", row.failures + 1
            elif row:
                row.status, row.attempt, row.due = "PENDING", row.attempt - 1, self.tick()
            return
        failed = {"error": b"{}", "retry_s": 0 if how == "retry" else None}
        counted = self.run(self.journal.end([end(one, **({} if how == "ack" else failed))]))
        assert bool(counted) == (row is not None)
        if row:
            again = "FAILED" if row.cancelling else "PENDING"
            row.status = {"ack": "ACKED", "fail": "FAILED", "retry": again}[how]
            row.due = self.tick()
            row.failures += how != "ack"

    @rule()
    def sweep(self) -> None:
        swept = self.run(upkeep(self.journal).sweep())
        waiting = failed = 0
        now = self.tick()
        for row in self.rows.values():
            if row.status != "DISPATCHED" or row.leased:
                continue
            row.failures += 1
            if row.repeatable and row.attempt < ATTEMPTS and not row.cancelling:
                row.status, row.due, waiting = "PENDING", now, waiting + 1
            else:
                row.status, failed = "FAILED", failed + 1
        counts = swept.get(HOST, SweepCounts(0, 0, 0, 0))
        assert (counts.waiting, counts.failed) == (waiting, failed)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.rows, key=lambda one: self.rows[one].seq)))
        row = self.rows[id_]
        ended, asked = self.run(self.journal.cancel(HOST, [id_]))
        assert (ended, asked) == (row.status == "PENDING", row.status == "DISPATCHED")
        if ended:
            row.status = "FAILED"
        row.cancelling |= bool(asked)

    @rule()
    def redrive(self) -> None:
        ids = self.run(self.journal.redrive(HOST, None))
        assert set(ids) == {id_ for id_, row in self.rows.items() if row.status == "FAILED"}
        now = self.tick()
        for id_ in ids:
            row = self.rows[id_]
            row.status, row.attempt, row.due, row.cancelling = "PENDING", 0, now, False

    @rule()
    def move(self) -> None:
        self.run(upkeep(self.journal).move_ended(-1))

    @invariant()
    def rows_are_as_expected(self) -> None:
        for id_, row in self.rows.items():
            stored = self.run(self.journal.get(HOST, id_))
            assert stored is not None
            assert (stored.status, stored.attempt, stored.fence, stored.cancelling) == (
                row.status,
                row.attempt,
                row.fence,
                row.cancelling,
            )

    @invariant()
    def attempts_are_kept(self) -> None:
        for id_, row in self.rows.items():
            assert len(self.run(self.journal.attempts(HOST, id_))) == row.failures


@pytest.fixture
def world(events_database: DatabaseSettings) -> Iterator[None]:
    with asyncio.Runner() as runner:
        WORLD.append(World(events_database, runner))
        yield
        WORLD.clear()


@pytest.mark.usefixtures("world")
def test_the_journal_matches_its_state_model() -> None:
    """The journal matches its state model (V04)."""
    run(
        JournalMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
