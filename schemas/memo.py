"""What was worked out before, as much of it as there is room for."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """At most `most` entries: with one more the oldest goes. Threads may share it."""

    __slots__ = ("_known", "_lock", "_most", "get")

    def __init__(self, most: int) -> None:
        # no dict: the more went from its beginning, the longer it takes to find the next to go
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self._most = most
        self.get = self._known.get  # as a dict's, and as fast: it is asked with every call

    def __len__(self) -> int:
        return len(self._known)

    def values(self) -> list[V]:
        """Oldest first."""
        with self._lock:
            return list(self._known.values())

    def put(self, key: K, value: V) -> V:
        """Remember `value`, which is the newest."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return value

    def use(self, key: K) -> V | None:
        """What `get` says; it counts as the newest from now on."""
        try:
            self._known.move_to_end(key)
        except KeyError:  # not asked before: another thread may put something in between
            return None
        return self.get(key)
