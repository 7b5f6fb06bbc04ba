"""Hardware and software of the measurement, for the table's header and the JSON."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import nginx, wrk


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int  # used in the run
    system: str
    python: str
    versions: dict[str, str]  # tool -> version, "absent" when it is


def describe(cores: int, peers: Mapping[str, str]) -> Machine:
    """`cores` used; 0 where the system cannot pin. `peers`: their versions."""
    return Machine(
        cpu=_cpu(),
        cores=cores or os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={
            "wrk": _version(wrk.BINARY, 1),
            "nginx": _version(nginx.BINARY, -1).removeprefix("nginx/"),
            **peers,
        },
    )


@dataclass(frozen=True, slots=True)
class Steal:
    """Time that the host of a virtual machine gave to others: why two runs can differ."""

    stolen: int  # clock ticks
    total: int

    def share_since(self, before: "Steal") -> float:
        return (self.stolen - before.stolen) / max(1, self.total - before.total)


def steal() -> Steal:
    """Zero where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return Steal(0, 0)
    ticks = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return Steal(ticks[7], sum(ticks))


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(program: str | None, word: int) -> str:
    """Word number `word` of the first line that `program -v` prints."""
    if program is None:
        return "absent"
    done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}".split("\n", 1)[0].split()[word]
