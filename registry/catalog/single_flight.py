"""Work of which one run at a time is enough."""

import asyncio
from collections.abc import Awaitable, Callable


class Turns:
    """Who asks while a run is on waits for the next one, together with all others who do: a run
    may have begun before what they want it to see."""

    def __init__(self) -> None:
        self._running = asyncio.Lock()
        self._asked = 0
        self._served = 0  # all that were asked up to here

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Return when a run is over that began after this call."""
        self._asked += 1
        mine = self._asked
        async with self._running:
            if self._served >= mine:
                return
            began = self._asked
            try:
                await work()
            except Exception:  # who waits learns nothing from failing the same way again
                self._served = began
                raise
            self._served = began
