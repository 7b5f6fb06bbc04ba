"""CPU cores that this process may use."""

import math
import os
from pathlib import Path

QUOTA = Path(
    "/sys/fs/cgroup/cpu.max"
)  # of cgroup v2: "QUOTA PERIOD" in microseconds, or "max PERIOD"


def usable_cores(quota: Path = QUOTA) -> int:
    """The cores in the CPU affinity, at most the container's quota, rounded up; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)  # missing on macOS
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min(cores, _core_quota(quota))))


def _core_quota(quota: Path) -> float:
    try:
        granted, period = quota.read_text().split()
        return math.inf if granted == "max" else math.ceil(int(granted) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
