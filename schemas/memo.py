"""Memoisation: a cache of bounded size."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Cache of at most `limit` entries; evicts the oldest (LRU where read by `use`).
    Thread-safe."""

    __slots__ = ("_known", "_limit", "_lock", "get")

    def __init__(self, limit: int) -> None:
        # not a dict: finding its first key slows down as entries are deleted from its front
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self._limit = limit
        self.get = self._known.get  # the dict's own, for speed: used by every call

    def __len__(self) -> int:
        return len(self._known)

    def values(self) -> list[V]:
        """The cached values, oldest first."""
        with self._lock:
            return list(self._known.values())

    def put(self, key: K, value: V) -> V:
        """Store `value` as the newest entry."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        return value

    def use(self, key: K) -> V | None:
        """Get a value, and make its entry the newest."""
        try:
            self._known.move_to_end(key)
        except KeyError:  # no check before: another thread may change the cache in between
            return None
        return self.get(key)
