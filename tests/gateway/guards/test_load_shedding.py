"""When new work is refused, and when it is taken again."""

import logging

import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.guards import load_shedding
from gateway.guards.front_door import FrontDoor
from gateway.guards.load_shedding import RECLAIM_EVERY, Shedding, machine_bytes, resident_bytes
from tests.gateway.asgi import Wire, http

pytestmark = pytest.mark.anyio

LIMITS = replace(load(None, {}).limits, memory_bytes=1000, loop_lag_s=2.0)


class Looked:
    """A look at a process that takes what the test says."""

    def __init__(self, **limits):
        self.used = self.running = 0
        self.refused = []
        self.shedding = Shedding(
            replace(LIMITS, **limits),
            self.refused.append,
            lambda: self.used,
            lambda: self.running,
        )

    def at(self, used=0, lag_s=0.0):
        self.used = used
        self.shedding.look(lag_s)
        return self.shedding.refusal()


def test_memory_is_refused_above_the_limit_until_there_is_clearly_less(caplog):
    looked = Looked()
    assert looked.at(1000) is None
    fault = looked.at(1001)
    assert (fault.status, fault.retry_after) == (503, 1)
    assert "too little memory" in fault.message
    assert looked.at(960) is not None
    assert looked.at(949) is None
    assert looked.at(1000) is None
    assert looked.refused == ["memory_bytes"] * 2
    assert [record.message for record in caplog.records] == ["shedding_started", "shedding_ended"]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_rubbish_is_collected_before_anybody_is_refused(monkeypatch):
    looked = Looked()
    monkeypatch.setattr(load_shedding.gc, "collect", lambda: setattr(looked, "used", 10))
    assert looked.at(2000) is None


def test_memory_that_was_freed_is_given_back_before_anybody_is_refused(monkeypatch):
    looked = Looked()
    monkeypatch.setattr(load_shedding, "trim", lambda: setattr(looked, "used", 10))
    assert looked.at(2000) is None


def test_trimming_gives_memory_back_to_the_system():
    pieces = [bytes(100_000) for _ in range(1000)]  # too small for a mapping each
    full = resident_bytes()
    kept = pieces[-1]  # what is last holds the heap where it is
    pieces.clear()
    load_shedding.trim()
    assert resident_bytes() < full - (50 << 20)
    assert kept


def test_memory_that_comes_back_later_ends_the_refusals(monkeypatch):
    looked = Looked()
    assert looked.at(2000) is not None
    monkeypatch.setattr(load_shedding, "trim", lambda: setattr(looked, "used", 900))
    assert [looked.at(2000) is None for _ in range(RECLAIM_EVERY)] == [False] * 7 + [True]


def looks_until_served(looked, used, most=100):
    return next((look for look in range(most) if looked.at(used) is None), None)


@pytest.fixture
def nothing_to_reclaim(monkeypatch):
    """Collecting and trimming take a tenth of a second each in a process of this size."""
    monkeypatch.setattr(load_shedding, "trim", lambda: None)
    monkeypatch.setattr(load_shedding.gc, "collect", lambda: None)


@pytest.mark.usefixtures("nothing_to_reclaim")
def test_memory_that_stays_used_does_not_shed_for_ever():
    looked = Looked()
    assert looked.at(2000) is not None
    assert looks_until_served(looked, 1500) is not None
    assert looked.at(1549) is None  # what stays, and a twentieth of the limit
    assert looked.at(1551) is not None
    assert looks_until_served(looked, 1200) is not None
    assert looked.at(1251) is not None
    assert looked.at(900) is None  # with less than the limit, it is the limit again
    assert looked.at(1001) is not None


@pytest.mark.usefixtures("nothing_to_reclaim")
def test_while_calls_run_their_memory_is_waited_for():
    looked = Looked()
    looked.running = 1
    assert looked.at(2000) is not None
    assert looks_until_served(looked, 1500) is None
    looked.running = 0
    assert looks_until_served(looked, 1500) is not None


def test_a_loop_lagging_twice_sheds_until_recovered():
    looked = Looked()
    assert looked.at(lag_s=3) is None
    assert looked.at(lag_s=1) is None
    assert looked.at(lag_s=3) is None
    assert "cannot keep up" in looked.at(lag_s=3).message
    assert looked.at(lag_s=0.1) is not None
    assert looked.at(lag_s=1.5) is not None
    assert looked.at(lag_s=0.1) is not None
    assert looked.at(lag_s=0.1) is None
    assert set(looked.refused) == {"loop_lag_s"}


def test_the_default_limit_is_four_fifths_of_the_memory(monkeypatch):
    monkeypatch.setattr(load_shedding, "machine_bytes", lambda: 1000)
    looked = Looked(memory_bytes=0)
    assert looked.at(800) is None
    assert looked.at(801) is not None
    monkeypatch.setattr(load_shedding, "machine_bytes", lambda: None)
    assert Looked(memory_bytes=0).at(1 << 60) is None


@pytest.mark.parametrize(
    ("files", "bytes_"),
    [
        ({"memory.max": "5000\n"}, 5000),
        ({"memory/memory.limit_in_bytes": "6000\n"}, 6000),
        ({"memory.max": "max\n"}, None),
        ({}, None),
    ],
    ids=["v2", "v1", "no limit", "no group"],
)
def test_a_control_group_has_less_than_the_machine(tmp_path, files, bytes_):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = machine_bytes(tmp_path)
    assert found == bytes_ if bytes_ else found > 1 << 20


def test_a_process_reads_its_resident_memory():
    assert 1 << 20 < resident_bytes() < machine_bytes()


async def test_the_task_looks_by_itself(monkeypatch):
    monkeypatch.setattr(load_shedding, "LOOK_EVERY_S", 0.001)
    looked = Looked()
    looked.used = 2000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(looked.shedding.run)
        with anyio.fail_after(30):
            while looked.shedding.refusal() is None:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert looked.shedding.memory_bytes == 2000


async def test_health_answers_while_calls_are_refused():
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["path"])

    looked = Looked()
    door = FrontDoor(app, {"/mcp": app}, lambda: True, looked.shedding.refusal)
    looked.at(2000)
    wire = Wire()
    await door(http(path="/mcp"), wire.receive, wire.send)
    assert (wire.status, wire.headers["retry-after"]) == (503, "1")
    assert wire.json["error"]["code"] == 1503
    await door(http(path="/health"), wire.receive, wire.send)
    looked.at(0)
    await door(http(path="/mcp"), wire.receive, wire.send)
    assert seen == ["/health", "/mcp"]
