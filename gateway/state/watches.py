"""Watches: listeners by resource, and wake-ups by stream.

Knows no upstream: `connect` is called for the first listener of a resource, and after the last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from gateway.context import Outbox
from schemas.errors import Fault

Wake = Callable[[], None]


class Watchers:
    """Wake-up callbacks by stream; made for thousands of streams with one watch each."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Wake]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._wakes.values()))

    def watch(self, stream: str, wake: Wake) -> AbstractContextManager[None]:
        return _Waiting(self._wakes, stream, wake)

    def wake(self, stream: str) -> None:
        for wake in tuple(self._wakes.get(stream, ())):
            wake()

    def wake_all(self) -> None:
        """Wake all: wake-ups may have been missed."""
        for stream in tuple(self._wakes):
            self.wake(stream)


class _Waiting(AbstractContextManager[None]):
    __slots__ = ("_stream", "_wake", "_wakes")

    def __init__(self, wakes: dict[str, list[Wake]], stream: str, wake: Wake) -> None:
        self._wakes = wakes
        self._stream = stream
        self._wake = wake

    def __enter__(self) -> None:
        self._wakes.setdefault(self._stream, []).append(self._wake)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        waiting = self._wakes[self._stream]
        waiting.remove(self._wake)
        if not waiting:
            del self._wakes[self._stream]


log = logging.getLogger("toolgate.watches")

Place = tuple[str, str | None]
"""A tenant, and one of its toolsets: one URI may be another server's resource in each."""

Connect = Callable[[Place, str, bool], Awaitable[None]]
"""Begin (or, with False, end) to hear of a resource by its URI. Raises Fault when its server
refuses."""


class Listener(Protocol):
    outbox: Outbox


class _Watch:
    __slots__ = ("connected", "listeners", "turn", "users")

    def __init__(self) -> None:
        self.listeners: dict[Listener, bytes] = {}
        self.turn = asyncio.Lock()  # an upstream gets one change after the other
        self.connected = False
        self.users = 0  # tasks that hold or await `turn`


class Watches:
    """The listeners of a resource, by the URI that clients use in a place."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._watches: dict[tuple[Place, str], _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def add(self, place: Place, uri: str, listener: Listener, message: bytes) -> None:
        """Put `message` whenever the resource changes. Raises Fault when its server refuses."""
        watch = self._watches.setdefault((place, uri), _Watch())
        watch.users += 1
        watch.listeners[listener] = message
        try:
            async with watch.turn:
                if not watch.connected and watch.listeners:
                    await self._connect(place, uri, True)
                    watch.connected = True
        except BaseException:
            watch.listeners.pop(listener, None)
            raise
        finally:
            watch.users -= 1
            self._forget(place, uri, watch)

    async def remove(self, place: Place, uri: str, listener: Listener) -> None:
        self.drop(place, uri, listener)
        await self.settle(place, uri)

    def drop(self, place: Place, uri: str, listener: Listener) -> None:
        """Remove the listener; `settle` then unsubscribes upstream if it was the last."""
        watch = self._watches.get((place, uri))
        if watch is not None:
            watch.listeners.pop(listener, None)

    async def settle(self, place: Place, uri: str) -> None:
        """End a watch that has no listeners."""
        watch = self._watches.get((place, uri))
        if watch is None:
            return
        watch.users += 1
        try:
            async with watch.turn:
                if watch.connected and not watch.listeners:
                    watch.connected = False
                    await self._connect(place, uri, False)
        except Fault as fault:  # no listeners: later updates are dropped
            log.info("unwatch_failed", extra={"tenant": place[0], "reason": fault.message[:300]})
        finally:
            watch.users -= 1
            self._forget(place, uri, watch)

    def updated(self, place: Place, uri: str) -> None:
        watch = self._watches.get((place, uri))
        if watch is not None:
            for listener, message in watch.listeners.items():
                listener.outbox.put_once(message)

    def _forget(self, place: Place, uri: str, watch: _Watch) -> None:
        if not watch.users and not watch.listeners:
            self._watches.pop((place, uri), None)
