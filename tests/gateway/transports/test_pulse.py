"""Signs of life."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from gateway.transports import client_connection as pulse
from gateway.transports.client_connection import TURNS, KeepAliveTimer


@dataclass(eq=False)
class Call:
    beats: int = 0

    def beat(self) -> None:
        self.beats += 1


class Loop:
    """Time stands still until a test turns it."""

    def __init__(self):
        self.timers = []

    def call_later(self, delay_s, callback):
        self.timers.append((delay_s, callback))
        return callback

    def turn(self, count=1):
        for _ in range(count):
            [(_, callback)] = self.timers
            self.timers.clear()
            callback()


@pytest.fixture
def loop(monkeypatch):
    loop = Loop()  # a real one would have to be waited for
    monkeypatch.setattr(pulse, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    return loop


def test_a_call_sends_keep_alives_repeatedly(loop):
    beating, call = KeepAliveTimer(15), Call()
    beating.enter(call)
    loop.turn(TURNS - 1)
    assert call.beats == 0
    loop.turn()
    assert call.beats == 1
    loop.turn(TURNS)
    assert call.beats == 2


def test_no_call_is_silent_beyond_the_interval(loop):
    beating, early, late = KeepAliveTimer(15), Call(), Call()
    beating.enter(early)
    assert [delay for delay, _ in loop.timers] == [5]
    loop.turn()
    beating.enter(late)  # at any time in this turn
    loop.turn(2)
    assert (early.beats, late.beats) == (1, 0)
    loop.turn()
    assert late.beats == 1


def test_a_call_that_has_ended_is_dead(loop):
    beating, call, other = KeepAliveTimer(15), Call(), Call()
    beating.enter(call)
    beating.enter(other)
    loop.turn()
    beating.leave(call)
    beating.leave(call)
    loop.turn(TURNS)
    assert (call.beats, other.beats) == (0, 1)


def test_there_is_one_timer_and_none_when_nothing_runs(loop):
    beating, calls = KeepAliveTimer(15), [Call() for _ in range(10)]
    for call in calls:
        beating.enter(call)
    assert len(loop.timers) == 1
    for call in calls:
        beating.leave(call)
    loop.turn()
    assert loop.timers == []
    beating.enter(calls[0])
    assert len(loop.timers) == 1
