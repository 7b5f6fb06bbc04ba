"""Load of either shape on one request, by whichever generator is installed."""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import generator, wrk
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.request import HttpRequest, Unavailable

CONNECTIONS = 32
DRIFT = 0.1  # answers of another size than in the warm-up are other answers: errors in a 200


@dataclass(frozen=True, slots=True)
class Subject:
    """A process under load, and what it is asked."""

    child: Child
    request: HttpRequest
    needle: bytes  # what a right answer contains


@dataclass(frozen=True, slots=True)
class Load:
    wrk: str | None  # path of the program; None: our own generator
    directory: Path

    @property
    def name(self) -> str:
        return "wrk" if self.wrk else "own generator (sockets + httptools, one process)"

    def warm_up(self, subject: Subject, seconds: float) -> Report:
        """Load with every answer looked into. Raises Unavailable with the first wrong one."""
        return self._run(subject, seconds, subject.needle)

    def saturate(self, subject: Subject, seconds: float, like: Report) -> Report:
        """As many requests as are taken, on all connections; `like` is the warm-up's report."""
        begin, cpu_s = time.perf_counter(), subject.child.cpu_s
        report = self._run(subject, seconds)
        busy = (subject.child.cpu_s - cpu_s) / (time.perf_counter() - begin)
        errors = report.errors if _alike(report, like) else report.requests
        return msgspec.structs.replace(report, busy=busy, errors=errors)

    def pace(self, subject: Subject, seconds: float, rate: float) -> Report:
        """`rate` requests/s at random moments; latency counts from when each was due."""
        return generator.measure(subject.request, subject.needle, CONNECTIONS, seconds, rate)

    def _run(self, subject: Subject, seconds: float, needle: bytes | None = None) -> Report:
        report = (
            wrk.measure(self.wrk, subject.request, CONNECTIONS, seconds, self.directory, needle)
            if self.wrk
            else generator.measure(subject.request, subject.needle, CONNECTIONS, seconds)
        )
        if not report.requests:
            raise Unavailable(f"{subject.child.name} answered nothing in {seconds:g} s")
        return report


def _alike(report: Report, like: Report) -> bool:
    return abs(report.bytes - like.bytes) <= DRIFT * like.bytes
