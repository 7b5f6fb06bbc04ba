"""How many documents filters let through."""

from collections.abc import Callable

from schemas.memo import Memo

BELIEVED_S = 60.0
KEPT = 256


class DocumentCounts:
    """Those of tenants that are too large to count each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: Memo[tuple[object, ...], tuple[float, int]] = Memo(KEPT)

    def get(self, key: tuple[object, ...]) -> int | None:
        moment, count = self._known.get(key, (float("-inf"), 0))
        return count if self._clock() - moment < BELIEVED_S else None

    def put(self, key: tuple[object, ...], count: int) -> int:
        self._known.put(key, (self._clock(), count))
        return count
