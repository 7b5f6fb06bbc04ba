"""Signals: each is one kind of event, with its listeners.

The parts of a process get them when they are made, to publish or to subscribe. Listeners are called
by the publisher, in the order in which they subscribed.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVarTuple

log = logging.getLogger("toolgate.signals")

Values = TypeVarTuple("Values")


class Signal(Generic[*Values]):
    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[*Values], None]] = []

    def subscribe(self, listener: Callable[[*Values], None]) -> None:
        self._listeners.append(listener)

    def publish(self, *values: *Values) -> None:
        for listener in self._listeners:
            listener(*values)


class AsyncSignal(Generic[*Values]):
    """A signal whose publisher awaits each listener before the next. An error of one does not keep
    the event from the others; the first error is then the publisher's, and others are logged."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[*Values], Awaitable[None]]] = []

    def subscribe(self, listener: Callable[[*Values], Awaitable[None]]) -> None:
        self._listeners.append(listener)

    async def publish(self, *values: *Values) -> None:
        errors: list[Exception] = []
        for listener in self._listeners:
            try:
                await listener(*values)
            except Exception as error:
                errors.append(error)
        for later in errors[1:]:
            log.error("listener_failed", exc_info=later)
        if errors:
            raise errors[0]
