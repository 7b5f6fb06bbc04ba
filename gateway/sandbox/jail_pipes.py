"""Shared parts of the programs inside the jail, which import it there: pipes to the host, printed
output, and a process that is the same each time."""

import builtins
import datetime
import io
import json
import os
import random
import threading
import time
from typing import Any

PIECE = 1 << 16  # characters that are counted at a time


class Pipes:
    """Frames over two file descriptors: the length in 4 bytes, big-endian, and JSON."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self.lock = threading.RLock()

    def read(self) -> Any:
        return json.loads(self.read_bytes())

    def read_bytes(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def send(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        data = len(data).to_bytes(4, "big") + data
        with self.lock:
            while data:
                data = data[os.write(self._target, data) :]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self._source, size - len(data))
            if not part:
                os._exit(0)
            data += part
        return bytes(data)


def excess(name: str, text: str, limit: int) -> str:
    """The error of a text of JSON that is longer than a frame, in bytes; else ""."""
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))  # no second copy
    size = sum(len(piece.encode("utf-8", "replace")) for piece in pieces)
    return f"{name} has {size} bytes of JSON, expected at most {limit}" if size > limit else ""


class Output(io.TextIOBase):
    """Printed output: its beginning and its end."""

    encoding = "utf-8"

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._half = limit // 2
        self._head = self._tail = ""
        self._dropped = 0

    def write(self, text: str) -> int:
        room = self._half - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        self._dropped += max(len(tail) - self._half, 0)
        self._tail = tail[-self._half :]
        return len(text)

    @property
    def text(self) -> str:
        cut = f"\n[{self._dropped} characters left out]\n" if self._dropped else ""
        return self._head + cut + self._tail


def take_pipes() -> tuple[int, int]:
    """The descriptors of the host's pipes, which standard input and output no longer are: a program
    that floods these, or its errors, costs the host nothing."""
    source, target, nothing = os.dup(0), os.dup(1), os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    return source, target


def freeze(seed: int, clock: float) -> None:
    """Make random numbers and times the same in each process, so that its code can be repeated."""
    random.seed(seed)  # not for secrets: so that a run can be repeated
    os.urandom = random.randbytes  # noqa: S311 - as above
    vars(random)["_urandom"] = random.randbytes  # noqa: S311 - of SystemRandom and `secrets`

    class FrozenDatetime(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(clock, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(clock, datetime.UTC).replace(tzinfo=None)

    datetime.datetime = FrozenDatetime  # type: ignore[misc]
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, lambda: clock)
        setattr(time, f"{name}_ns", lambda: int(clock * 1e9))
    for name in ("gmtime", "localtime", "ctime"):
        convert = getattr(time, name)
        setattr(time, name, lambda s=None, *, _c=convert: _c(clock if s is None else s))
    write, moment = time.strftime, time.gmtime()
    time.strftime = lambda form, at=moment: write(form, at)
    time.clock_gettime = lambda _clock: clock
    builtins.input = lambda *_: ""
