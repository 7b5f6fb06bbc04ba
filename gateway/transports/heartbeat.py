"""Signs of life for calls that take long. One timer for all of them: a timer each would cost every
call more than the rest of its way out."""

import asyncio
from typing import Protocol

TURNS = 3


class Living(Protocol):
    def beat(self) -> None:
        """Show that there is still somebody."""


class Pulse:
    def __init__(self, every_s: float) -> None:
        """Nobody inside is silent for longer than `every_s`, nor shown to live before two thirds
        of that are over."""
        self._turn_s = every_s / TURNS
        self._waiting: tuple[set[Living], ...] = tuple(set() for _ in range(TURNS))
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, one: Living) -> None:
        self._waiting[0].add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._turn)

    def leave(self, one: Living) -> None:
        for waiting in self._waiting:
            waiting.discard(one)

    def _turn(self) -> None:
        *younger, due = self._waiting
        self._waiting = (due, *younger)
        for one in tuple(due):
            one.beat()
        self._timer = None
        if any(self._waiting):
            self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._turn)
