"""Who waits on this node for events of which stream."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

Wake = Callable[[], None]


class Watchers:
    """Thousands of watches, most of them of a stream of their own."""

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
        """Wake-ups may have been missed."""
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
