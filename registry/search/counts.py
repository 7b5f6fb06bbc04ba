"""How many documents filters let through."""

from collections.abc import Callable

BELIEVED_S = 60.0
KEPT = 256


class Counts:
    """Those of tenants that are too large to count each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[object, ...], tuple[float, int]] = {}

    def get(self, key: tuple[object, ...]) -> int | None:
        moment, count = self._known.get(key, (float("-inf"), 0))
        return count if self._clock() - moment < BELIEVED_S else None

    def put(self, key: tuple[object, ...], count: int) -> int:
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[key] = (self._clock(), count)
        return count
