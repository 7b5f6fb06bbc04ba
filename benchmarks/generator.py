"""Our own load generator: one process, plain sockets, responses parsed in C by httptools.

Two shapes of load. Saturating (closed loop): every connection always has a request in flight (as
wrk). Poisson (open loop): requests are due at random moments of a fixed mean rate whether or not
earlier ones were answered, and latency counts from that moment, which avoids coordinated
omission. `select` is used because its timeout has microseconds; epoll's has milliseconds.

Run as a program: a Job as JSON on standard input, a Report as JSON on standard output.
"""

import itertools
import random
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import httptools
import msgspec
from msgspec import Struct

from benchmarks.report import Report
from benchmarks.request import HttpRequest, Unavailable

READ_BYTES = 1 << 18
PATIENCE_S = 10.0  # how long answers may be outstanding once nothing new falls due
SEED = 20260728


class Job(Struct, frozen=True):
    port: int
    payloads: list[bytes]  # sent in turn
    needle: bytes  # what every answer must contain
    connections: int
    seconds: float
    rate: float | None  # requests/s; None saturates


class Pace(Protocol):
    def take(self, now: float) -> float | None:
        """The moment at which a request fell due, each once; None while none is due."""

    def wait(self, now: float) -> float | None:
        """Seconds until the next one falls due; None when there will be no other."""


@dataclass(slots=True)
class Saturating:
    until: float

    def take(self, now: float) -> float | None:
        return now if now < self.until else None

    def wait(self, now: float) -> float | None:
        return self.until - now if now < self.until else None


@dataclass(slots=True)
class Poisson:
    rate: float
    until: float
    due: float
    source: random.Random = field(default_factory=lambda: random.Random(SEED))

    def take(self, now: float) -> float | None:
        if self.due > now or self.due >= self.until:
            return None
        due, self.due = self.due, self.due + self.source.expovariate(self.rate)
        return due

    def wait(self, now: float) -> float | None:
        return max(0.0, self.due - now) if self.due < self.until else None


class Lane:
    """One keep-alive connection with at most one request under way."""

    def __init__(self, job: Job) -> None:
        self.socket = socket.create_connection(("127.0.0.1", job.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.needle = job.needle
        self.due = 0.0
        self.size = 0
        self.right = False
        self._begin()

    def fileno(self) -> int:
        return self.socket.fileno()

    def on_body(self, data: bytes) -> None:
        self.right = self.right or self.needle in data

    def on_message_complete(self) -> None:
        self.done = True

    def send(self, payload: bytes, due: float) -> None:
        self.due = due
        self._begin()
        self.socket.sendall(payload)

    def receive(self) -> bool:
        """Read once; whether the answer is complete."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise Unavailable("the server closed a connection under load")
        self.size += len(data)
        self.parser.feed_data(data)
        return self.done

    @property
    def good(self) -> bool:
        return self.right and bool(self.parser.get_status_code() == 200)

    def _begin(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.done = self.right = False


@dataclass(slots=True)
class Tally:
    latencies: list[float] = field(default_factory=list)
    errors: int = 0

    def count(self, lane: Lane) -> None:
        if lane.good:
            self.latencies.append(time.perf_counter() - lane.due)
        else:
            self.errors += 1


def fire(lanes: list[Lane], pace: Pace, payloads: Iterator[bytes]) -> Tally:
    """Send what falls due on idle lanes, in turn, until nothing is due and all is answered."""
    tally, idle, busy = Tally(), deque(lanes), set[Lane]()
    while True:
        now = time.perf_counter()
        while idle and (due := pace.take(now)) is not None:
            lane = idle.popleft()
            lane.send(next(payloads), due)
            busy.add(lane)
        wait = pace.wait(now)
        if wait is None and not busy:
            return tally
        timeout = PATIENCE_S if wait is None or not idle else wait
        ready = select.select(busy, (), (), timeout)[0]
        if not ready and timeout == PATIENCE_S:
            raise Unavailable(f"no answer within {PATIENCE_S:.0f} s under load")
        for lane in ready:
            if lane.receive():
                tally.count(lane)
                busy.discard(lane)
                idle.append(lane)


def perform(job: Job) -> Report:
    lanes = [Lane(job) for _ in range(job.connections)]
    begin, cpu_s = time.perf_counter(), time.process_time()
    until = begin + job.seconds
    pace = Poisson(job.rate, until, begin) if job.rate else Saturating(until)
    tally = fire(lanes, pace, itertools.cycle(job.payloads))
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_s
    for lane in lanes:
        lane.socket.close()
    report = summarise(tally, seconds, sum(lane.size for lane in lanes))
    return msgspec.structs.replace(report, load_busy=cpu_s / seconds)


def summarise(tally: Tally, seconds: float, received: int) -> Report:
    """`received` bytes in all; latencies in seconds."""
    ordered = sorted(tally.latencies) or [0.0]
    p50, p99, top = (
        1000 * ordered[min(len(ordered) - 1, int(len(ordered) * q))] for q in (0.5, 0.99, 1.0)
    )
    answers = len(tally.latencies) + tally.errors
    size = received / max(1, answers)
    return Report(len(tally.latencies), seconds, tally.errors, size, p50, p99, top)


def measure(
    request: HttpRequest,
    needle: bytes,
    connections: int,
    seconds: float,
    rate: float | None = None,
) -> Report:
    """Run in a process of its own, so that its work is nobody else's pause."""
    job = Job(request.port, request.encode(), needle, connections, seconds, rate)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.generator"],
        input=msgspec.json.encode(job),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(done.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1])
    return msgspec.json.decode(done.stdout, type=Report)


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.json.encode(perform(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    )
