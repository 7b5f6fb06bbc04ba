"""Client of very many event streams in one process: plain sockets, one selector, no parsing."""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence

from benchmarks.request import Unavailable

WAVE = 100  # streams that are opened at a time; a server's queue of connections is limited
READ_BYTES = 1 << 16
QUIET_S = 0.25  # longer than the gateway gathers changes


class Crowd:
    """Streams of one server; closed on leaving the context."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def __len__(self) -> int:
        return len(self._selector.get_map())

    def open(self, requests: Sequence[bytes], ready: bytes, timeout_s: float) -> None:
        """A stream for each of `requests`; it is open once `ready` has come."""
        for first in range(0, len(requests), WAVE):
            wave = [self._connect(request) for request in requests[first : first + WAVE]]
            self.await_all(ready, timeout_s, wave)

    def await_all(
        self, needle: bytes, timeout_s: float, wave: Sequence[socket.socket] | None = None
    ) -> float:
        """When the last of them, or of `wave`, got `needle` (`time.perf_counter()`)."""
        waiting = {key.fd for key in self._selector.get_map().values()}
        if wave is not None:
            waiting &= {stream.fileno() for stream in wave}
        stream_count, tails = len(waiting), dict[int, bytes]()
        until = time.perf_counter() + timeout_s
        while waiting and time.perf_counter() < until:
            for number, data in self._hear(until):
                received = tails.get(number, b"") + data
                tails[number] = received[-len(needle) :]
                if needle in received:
                    waiting.discard(number)
        if waiting:
            raise Unavailable(
                f"{len(waiting):,} of {stream_count:,} streams got nothing: {needle!r}"
            )
        return time.perf_counter()

    def settle(self, needle: bytes) -> None:
        """Let `needle` come until it has not for a while."""
        until = time.perf_counter() + QUIET_S
        while time.perf_counter() < until:
            if any(needle in data for _, data in self._hear(until)):
                until = time.perf_counter() + QUIET_S

    def _connect(self, request: bytes) -> socket.socket:
        stream = socket.create_connection(("127.0.0.1", self._port))
        stream.sendall(request)
        stream.setblocking(False)
        self._selector.register(stream, selectors.EVENT_READ)
        return stream

    def _hear(self, until: float) -> Iterator[tuple[int, bytes]]:
        """What there is to read now, of each stream once; waits for the first."""
        for key, _ in self._selector.select(max(0.0, until - time.perf_counter())):
            data = key.fileobj.recv(READ_BYTES)  # type: ignore[union-attr]
            if not data:
                raise Unavailable("the gateway closed a stream")
            yield key.fd, data
