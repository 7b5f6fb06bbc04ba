"""Parser of server-sent events. Pure.

Source: WHATWG HTML, section 9.2.
"""

from msgspec import Struct

from gateway.http_client.http1 import TooLarge

PAUSE_S = 1.0  # when the server sends no `retry`
SHORTEST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 30.0
LONGEST_ID = 1024  # it has to fit into a header


class ServerEvent(Struct, frozen=True):
    data: bytes
    name: str = "message"


class SseParser:
    """Parser of server-sent events, fed in chunks. Events without data are not returned: they only
    set an id (2025-11-25, resumability: priming events)."""

    def __init__(self, limit_bytes: int) -> None:
        self.last_id = ""  # of the last complete event
        self.retry_s: float | None = None
        self._limit_bytes = limit_bytes
        self._begun = False
        self._after_cr = False  # a line feed at the start of the next chunk belongs to this CR
        self._rest: list[bytes] = []  # the incomplete last line
        self._pending_bytes = 0
        self._data: list[bytes] = []
        self._name = ""
        self._id: str | None = None
        self._blank = True  # no line since the last event

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes. Raises TooLarge for one that does not end."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._pending_bytes += len(chunk)
        events = []
        lines = self._lines(chunk)
        for line in lines:
            if line:
                self._field(line)
                self._blank = False
            elif not self._blank and (event := self._dispatch()) is not None:
                events.append(event)
        if lines and self._blank:
            self._pending_bytes = sum(map(len, self._rest))
        if self._pending_bytes > self._limit_bytes:
            raise TooLarge(self._limit_bytes)
        return events

    def end(self) -> list[ServerEvent]:
        """Discard an incomplete event; the next chunk begins a new stream."""
        self._begun, self._after_cr = False, False
        self._rest.clear()
        self._reset()
        return []

    def pause_s(self, rounds: int) -> float:
        """Seconds to wait before reconnecting, with exponential backoff after `rounds` attempts
        without a new event."""
        said_s = PAUSE_S if self.retry_s is None else self.retry_s
        return min(max(said_s, SHORTEST_PAUSE_S) * 2.0 ** min(rounds, 20), LONGEST_PAUSE_S)

    def _lines(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest.append(chunk)  # joined once: an event may come in thousands of pieces
            return []
        self._after_cr = chunk.endswith(b"\r")
        text = b"".join([*self._rest, chunk])
        self._rest.clear()
        if not self._begun:
            self._begun, text = True, text.removeprefix(b"\xef\xbb\xbf")
        lines = text.splitlines()
        if not text.endswith((b"\n", b"\r")):
            self._rest.append(lines.pop())
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value and len(value) <= LONGEST_ID:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self.retry_s = int(value) / 1000

    def _dispatch(self) -> ServerEvent | None:
        if self._id is not None:
            self.last_id = self._id
        data, name = b"\n".join(self._data), self._name or "message"
        self._reset()
        return ServerEvent(data, name) if data else None

    def _reset(self) -> None:
        self._data, self._name, self._id = [], "", None
        self._blank = True
        self._pending_bytes = 0
