"""Load shedding: refuses new work before memory runs out, or while the event loop lags.

A task samples memory and lag a few times per second; requests read the last sample. Work resumes
only when the load is clearly lower (hysteresis), so that the state does not flap.

Freed memory is not always returned to the system: glibc keeps it for the next allocation. So the
heap is trimmed before any request is refused, and again while calls are refused. What remains when
no call runs is the gateway's own baseline; refusing calls would not lower it, so work resumes above
that.
"""

import asyncio
import ctypes
import gc
import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from config.access import LimitsSettings
from schemas.errors import Overloaded

log = logging.getLogger("toolgate.limits")

LOOK_EVERY_S = 0.25
SHARE = 0.8  # of the machine's memory, without a limit in the settings
RELIEF = 0.95  # of the memory limit, below which work resumes
RECLAIM_EVERY = 8  # samples, while memory is full: collecting and trimming take some milliseconds
VAIN_RECLAIMS = 3  # consecutive reclaims without effect while no call ran
GAIN = 0.02  # of the memory: less counts as no effect
CGROUPS = ("memory.max", "memory/memory.limit_in_bytes")  # version 2, version 1
CGROUP = Path("/sys/fs/cgroup")
STATM = Path("/proc/self/statm")

MEMORY_FULL = "The gateway has too little memory left; try again later"
EVENT_LOOP_LAGS = "The gateway cannot keep up at the moment; try again later"


class Shedding:
    def __init__(
        self,
        limits: LimitsSettings,
        on_refused: Callable[[str], None] = lambda _limit: None,
        used: Callable[[], int] | None = None,
        running: Callable[[], int] = lambda: 0,
    ) -> None:
        """Load shedding within `limits`. `on_refused` is called with the name of the limit; `used`
        returns the resident bytes of the process, `running` the number of running calls."""
        self._on_refused = on_refused
        self._running = running
        self.reconfigure(limits)
        self._used = used or resident_bytes
        self._full = self._late = False
        self.lag_s = 0.0  # at the last sample
        self.memory_bytes = 0
        self._reason = ""  # why new work is refused; "" when it is accepted

    def reconfigure(self, limits: LimitsSettings) -> None:
        self._limit = memory_limit(limits)
        self._settling = _Settling()
        self._floor = 0  # baseline bytes while no call runs, if above the limit
        self._lag_limit_s = limits.loop_lag_s

    def refusal(self) -> Overloaded | None:
        """The fault for a new request, or None when work is accepted."""
        if not self._reason:
            return None
        self._on_refused("memory_bytes" if self._full else "loop_lag_s")
        return Overloaded(self._reason)

    async def run(self) -> None:
        """Sample until cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            due += LOOK_EVERY_S
            await asyncio.sleep(due - clock())
            now = clock()
            self.look(max(0.0, now - due))
            due = now

    def look(self, lag_s: float) -> None:
        """Take a sample; the event loop is `lag_s` late."""
        self._look_at_lag(lag_s)
        self._look_at_memory()
        reason = MEMORY_FULL if self._full else EVENT_LOOP_LAGS if self._late else ""
        if bool(reason) != bool(self._reason):
            extra = {"lag_s": round(lag_s, 2), "memory_bytes": self.memory_bytes}
            log.warning("shedding_started" if reason else "shedding_ended", extra=extra)
        self._reason = reason

    def _look_at_lag(self, lag_s: float) -> None:
        """Two consecutive lags count: one is a hiccup."""
        both_above = min(self.lag_s, lag_s) > self._lag_limit_s
        both_below = max(self.lag_s, lag_s) < self._lag_limit_s / 2
        self._late = (self._late or both_above) and not both_below
        self.lag_s = lag_s

    def _look_at_memory(self) -> None:
        self.memory_bytes = self._used()
        if not self._limit:
            return
        if self.memory_bytes < self._limit * RELIEF:
            self._floor, self._full = 0, False
        elif self._full:
            self._look_again()
        elif self.memory_bytes > self._most():
            self._reclaim()
            self._full = self.memory_bytes > self._most()
            self._settling = _Settling()

    def _most(self) -> int:
        """Bytes above which work is refused."""
        return max(self._limit, self._floor + int(self._limit * (1 - RELIEF)))

    def _look_again(self) -> None:
        """Resume work when memory was reclaimed, or when no more can be."""
        settling = self._settling
        settling.looks += 1
        if settling.looks % RECLAIM_EVERY:
            return
        self._reclaim()
        settling.note(self.memory_bytes, self._running())
        if settling.times >= VAIN_RECLAIMS:
            self._floor = self.memory_bytes
        self._full = self.memory_bytes >= self._limit * RELIEF and settling.times < VAIN_RECLAIMS

    def _reclaim(self) -> None:
        """Collect reference cycles, and return freed memory to the system."""
        gc.collect()
        trim()
        self.memory_bytes = self._used()


class _Settling:
    """Detects the baseline: memory that remains while calls are refused and none runs."""

    def __init__(self) -> None:
        self.looks = 0
        self.times = 0  # consecutive
        self.bytes = 0

    def note(self, memory_bytes: int, running: int) -> None:
        """Record the memory left after a reclaim while `running` calls ran."""
        gained = memory_bytes < self.bytes * (1 - GAIN)
        self.times = 0 if running or gained or not self.bytes else self.times + 1
        self.bytes = memory_bytes


def memory_limit(limits: LimitsSettings) -> int:
    """Memory limit of the process in bytes; 0: unknown."""
    return limits.memory_bytes or int(SHARE * (machine_bytes() or 0))


def trim() -> None:
    """Return freed memory to the system, where the C library can (glibc)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Resident memory of the process; its peak where the system does not report it."""
    try:
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def machine_bytes(cgroup: Path = CGROUP) -> int | None:
    """Memory limit of the process's control group, else of the machine; None: unknown."""
    return min(_memory_limits(cgroup), default=None)


def _memory_limits(cgroup: Path) -> Iterator[int]:
    for name in CGROUPS:
        try:
            yield int((cgroup / name).read_text())
        except (OSError, ValueError):  # "max"
            continue
    try:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return
