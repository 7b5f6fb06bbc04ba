"""What nodes tell each other."""

import anyio
import pytest

from gateway.state.memory import MemoryLog
from gateway.state.node_bus import STREAM, Bus
from schemas.errors import Unavailable
from tests.polling import until

pytestmark = pytest.mark.anyio


class Flaky(MemoryLog):
    """A log that may be away."""

    away = False

    async def append(self, stream, data):
        self._check()
        return await super().append(stream, data)

    async def read(self, stream, after, limit=1000):
        self._check()
        return await super().read(stream, after, limit)

    def _check(self):
        if self.away:
            raise Unavailable("away")


class Ears:
    def __init__(self, bus, *kinds, own=False):
        self.heard = []
        for kind in kinds:
            bus.on(kind, self.hear, own)

    async def hear(self, said):
        self.heard.append((said["node"], said["kind"], said.get("text")))


@pytest.fixture
async def log(anyio_backend):
    return Flaky(5, 300, 1_000_000)


@pytest.fixture
async def running(anyio_backend):
    async with anyio.create_task_group() as tasks:

        async def start(*buses):
            for bus in buses:
                tasks.start_soon(bus.run)
            with anyio.fail_after(30):
                for bus in buses:
                    await bus.following.wait()

        yield start
        tasks.cancel_scope.cancel()


async def test_nodes_hear_each_other_and_not_themselves(log, running):
    a, b, c = (Bus(log, True, name) for name in "abc")
    ears = [Ears(bus, "hello") for bus in (a, b, c)]
    await running(a, b, c)
    await a.broadcast("hello", text="1")
    await a.broadcast("nobody listens to this")
    await b.broadcast("hello", text="2")
    one, two = ("a", "hello", "1"), ("b", "hello", "2")
    await until(lambda: [len(one.heard) for one in ears] == [1, 1, 2])
    assert [one.heard for one in ears] == [[two], [one], [one, two]]


async def test_a_node_may_hear_its_own_messages_in_order(log, running):
    a, b = Bus(log, True, "a"), Bus(log, True, "b")
    ears = [Ears(bus, "hello", own=True) for bus in (a, b)]
    await running(a, b)
    await b.broadcast("hello")
    await a.broadcast("hello")
    await until(lambda: [len(one.heard) for one in ears] == [2, 2])
    assert ears[0].heard == ears[1].heard == [("b", "hello", None), ("a", "hello", None)]


async def test_a_node_hears_no_messages_from_before_its_start(log, running):
    a, b = Bus(log, True, "a"), Bus(log, True, "b")
    ears = Ears(b, "hello")
    await a.broadcast("hello", text="early")
    await running(b)
    await a.broadcast("hello", text="late")
    await until(lambda: ears.heard)
    assert ears.heard == [("a", "hello", "late")]


async def test_unsent_messages_are_not_sent_later(log, running):
    a, b = Bus(log, True, "a"), Bus(log, True, "b")
    ears = Ears(b, "hello")
    await running(b)
    log.away = True
    assert await a.broadcast("hello", text="lost") is False
    log.away = False
    assert await a.broadcast("hello", text="told") is True
    await until(lambda: ears.heard)
    assert ears.heard == [("a", "hello", "told")]


async def test_a_node_that_missed_too_much_looks_again(log, running, monkeypatch):
    monkeypatch.setattr("gateway.state.node_bus.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("gateway.state.node_bus.RETRY_S", 0.01)
    a, b = Bus(log, True, "a"), Bus(log, True, "b")
    ears, missed = Ears(b, "hello"), []
    b.on_missed(lambda: missed.append(True))
    await running(b)
    await a.broadcast("hello", text="heard")
    await until(lambda: ears.heard)
    before = log.read

    async def away(*_):
        raise Unavailable("away")

    log.read = away
    for _ in range(10):  # more than the log keeps
        await a.broadcast("hello")
    log.read = before
    await until(lambda: missed)
    await anyio.wait_all_tasks_blocked()  # it follows again
    await a.broadcast("hello", text="again")
    await until(lambda: ("a", "hello", "again") in ears.heard)
    assert len(ears.heard) == 2


@pytest.mark.parametrize("failure", [Unavailable("away"), ValueError("a bug")])
async def test_a_failing_handler_does_not_stop_later_messages(log, running, failure):
    a, b = Bus(log, True, "a"), Bus(log, True, "b")
    ears = Ears(b, "hello")

    async def fail(_said):
        raise failure

    b.on("bad", fail)
    await running(b)
    await a.broadcast("bad")
    await a.broadcast("hello")
    await until(lambda: ears.heard)


async def test_a_node_that_is_alone_says_nothing(log):
    alone = Bus(log, False, "a")
    with anyio.fail_after(30):
        await alone.run()  # there is nothing to hear, either
    assert await alone.broadcast("hello") is False
    assert await log.last(STREAM) == ""


def test_nodes_have_names_of_their_own(log):
    assert Bus(log, True).node != Bus(log, True).node
