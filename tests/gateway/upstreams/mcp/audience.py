"""Who hears what becomes of servers, and remembers."""

import asyncio
from collections.abc import Callable


class Audience:
    """Implements `ChangeSubscriber`."""

    def __init__(self) -> None:
        self.read: list[str] = []  # sources whose lists changed
        self.changed: list[str] = []  # URIs
        self.turns = 0  # that a server came or went
        self.fails: Callable[[], None] = lambda: None  # at the next thing that it hears
        self._stirred = asyncio.Event()

    async def lists_changed(self, source: str) -> None:
        self.read.append(source)
        self._stir()

    def resource_changed(self, source: str, uri: str) -> None:
        self.changed.append(uri)
        self._stir()

    def reachability_changed(self, source: str) -> None:
        self.turns += 1
        self._stir()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._stirred.clear()
            await self._stirred.wait()

    def _stir(self) -> None:
        self._stirred.set()
        self.fails()
