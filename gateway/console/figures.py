"""Figures of the workers of a machine over the last hour: calls, errors, durations, streams.

The console samples the counters of the metrics while it is on. Nothing is added to a request.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import time

import anyio
import msgspec
from msgspec import Struct

from gateway.middleware.message_metrics import Metrics
from gateway.telemetry.histograms import BUCKETS_S

CALLS = frozenset({"tools/call", "other"})
SAMPLES = 720  # samples
OWN = -1  # stands for the number of this worker


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters at a time, in seconds since the epoch."""

    at: float
    calls: int
    errors: Mapping[str, int]  # by outcome
    buckets: tuple[int, ...]
    sessions: int
    streams: int


@dataclass(frozen=True, slots=True)
class Point:
    """Differences between two samples."""

    at: float
    calls_s: float
    errors_s: float
    p50_ms: float | None  # None: there was no call
    p95_ms: float | None
    p99_ms: float | None
    sessions: int
    streams: int


class WorkerCounts(Struct, frozen=True, array_like=True):
    """Counters of one worker since its start, and what is open there now."""

    calls: int
    errors: dict[str, int]  # by outcome
    buckets: tuple[int, ...]
    sessions: int
    streams: int

    def since(self, old: "WorkerCounts | None") -> "WorkerCounts":
        """Counts since `old`; all of them where the worker has begun anew."""
        if old is None or old.calls > self.calls:
            return self
        return WorkerCounts(
            self.calls - old.calls,
            {name: count - old.errors.get(name, 0) for name, count in self.errors.items()},
            tuple(new - count for new, count in zip(self.buckets, old.buckets, strict=True)),
            self.sessions,
            self.streams,
        )


_counts = msgspec.json.Decoder(WorkerCounts)

Others = Callable[[], Awaitable[Mapping[int, bytes | None]]]
"""The counts of the other workers of this machine by their number, encoded; None: no answer."""


class Figures:
    def __init__(
        self,
        metrics: Metrics,
        sessions: Callable[[], int],
        streams: Callable[[], int],
        *,
        every_s: float,
        others: Others | None = None,
    ) -> None:
        """Figures of this process, and of the `others` of its machine."""
        self._metrics = metrics
        self._sessions = sessions
        self._streams = streams
        self._every_s = every_s
        self._others = others
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._seen: dict[int, WorkerCounts] = {}  # by number of the worker; OWN is this one
        self.workers = 1  # that the newest sample is of

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self.sample()
            await anyio.sleep(self._every_s)

    def own_counts(self) -> bytes:
        """The counts of this worker, for the others."""
        return msgspec.json.encode(self._own())

    async def sample(self) -> None:
        by_worker = {OWN: self._own()}
        if self._others is not None:
            for slot, answer in (await self._others()).items():
                if answer:
                    by_worker[slot] = _counts.decode(answer)
        self.workers = len(by_worker)
        before = self._samples[-1] if self._samples else None
        calls = before.calls if before else 0
        errors = dict(before.errors) if before else {}
        buckets = before.buckets if before else (0,) * (len(BUCKETS_S) + 1)
        for slot, counts in by_worker.items():
            new = counts.since(self._seen.get(slot))
            self._seen[slot] = counts
            calls += new.calls
            errors = {
                name: errors.get(name, 0) + new.errors.get(name, 0)
                for name in {**errors, **new.errors}
            }
            buckets = tuple(a + b for a, b in zip(buckets, new.buckets, strict=True))
        self._samples.append(
            Sample(
                time(),
                calls,
                errors,
                buckets,
                sum(counts_of_worker.sessions for counts_of_worker in by_worker.values()),
                sum(counts_of_worker.streams for counts_of_worker in by_worker.values()),
            )
        )

    def _own(self) -> WorkerCounts:
        calls, errors = 0, dict[str, int]()
        buckets = [0] * (len(BUCKETS_S) + 1)
        for total in self._metrics.totals():
            if total.method not in CALLS:
                continue
            calls += total.count
            if total.outcome != "ok":
                errors[total.outcome] = errors.get(total.outcome, 0) + total.count
            buckets = [a + b for a, b in zip(buckets, total.buckets, strict=True)]
        return WorkerCounts(calls, errors, tuple(buckets), self._sessions(), self._streams())

    def points(self) -> list[Point]:
        """Oldest first."""
        samples = list(self._samples)
        return [_point(old, new) for old, new in pairwise(samples)]

    def now(self) -> Point | None:
        """The rates of about the last minute; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        new = self._samples[-1]
        old = next(sample for sample in self._samples if new.at - sample.at < 60)
        return _point(old if old is not new else self._samples[-2], new)

    def errors(self) -> Mapping[str, int]:
        """Errors by outcome, since the first sample."""
        if not self._samples:
            return {}
        first, last = self._samples[0].errors, self._samples[-1].errors
        since = {name: count - first.get(name, 0) for name, count in last.items()}
        return {name: count for name, count in since.items() if count}


def _point(old: Sample, new: Sample) -> Point:
    seconds = max(new.at - old.at, 0.001)
    counts = [b - a for a, b in zip(old.buckets, new.buckets, strict=True)]
    errors = sum(new.errors.values()) - sum(old.errors.values())
    return Point(
        new.at,
        (new.calls - old.calls) / seconds,
        errors / seconds,
        p50_ms=quantile(counts, 0.5),
        p95_ms=quantile(counts, 0.95),
        p99_ms=quantile(counts, 0.99),
        sessions=new.sessions,
        streams=new.streams,
    )


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The quantile in milliseconds, interpolated within its bucket as Prometheus does."""
    total = sum(counts)
    if not total:
        return None
    running, sums = 0, []
    for count in counts:
        running += count
        sums.append(running)
    at = bisect_left(sums, share * total)
    if at >= len(BUCKETS_S):
        return BUCKETS_S[-1] * 1000
    low, high = (BUCKETS_S[at - 1] if at else 0.0), BUCKETS_S[at]
    before = sums[at - 1] if at else 0
    within = (share * total - before) / max(counts[at], 1)
    return (low + (high - low) * within) * 1000
