"""A clock of the event loop that a test moves on, so that timeouts expire without waiting."""

import asyncio


class LoopClock:
    """The clock of the running event loop. Timers set before `advance` fire earlier by as much."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ahead_s, real = 0.0, loop.time
        loop.time = lambda: real() + self._ahead_s  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds
