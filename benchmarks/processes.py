"""Child processes: pinned to their cores, polled until ready, stopped by their pid."""

import os
import resource
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.request import HttpRequest, Unavailable

STOP_TIMEOUT_S = 15.0
READY_POLL_S = 0.01
OPEN_FILES = 65536  # where the system sets no limit


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where. On a machine with one core both are the same, and the table says so."""

    tested: frozenset[int]
    load: frozenset[int]


def split_cores() -> Cores:
    if not hasattr(os, "sched_getaffinity"):
        return Cores(frozenset(), frozenset())
    available = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(available[:1]), frozenset(available[1:] or available))


def pin(pid: int, cores: frozenset[int]) -> None:
    """No-op where the system cannot pin (macOS); `pid` 0 is this process."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, cores)


def allowed_files() -> int:
    """Raise the limit of open files as far as it goes; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    return max(soft, limit)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    started: float  # time.perf_counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cpu_s(self) -> float:
        """CPU seconds used so far."""
        times = self._cpu_times
        return float(times.user + times.system)

    @property
    def cpu_with_children_s(self) -> float:
        """The same, with those of its children that have ended."""
        times = self._cpu_times
        return self.cpu_s + float(times.children_user + times.children_system)

    @property
    def _cpu_times(self) -> Any:
        try:
            return psutil.Process(self.process.pid).cpu_times()
        except psutil.NoSuchProcess as gone:
            raise Unavailable(f"{self.name} is gone: {self.tail}") from gone

    @property
    def rss_mb(self) -> float:
        """Resident memory of the process alone, megabytes (10**6)."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def await_ready(self, path: str, timeout_s: float = 60.0) -> float:
        """Poll `GET path` until it answers 200; seconds since the start of the process."""
        request = HttpRequest(self.port, path, method="GET")
        while time.perf_counter() - self.started < timeout_s:
            if self.process.poll() is not None:
                raise Unavailable(f"{self.name} ended with {self.process.returncode}: {self.tail}")
            if _answers(request):
                return time.perf_counter() - self.started
            time.sleep(READY_POLL_S)
        raise Unavailable(f"{self.name} was not ready after {timeout_s:.0f} s: {self.tail}")

    @property
    def tail(self) -> str:
        lines = self.log.read_text("utf-8", "replace").split("\n")
        return " | ".join(line for line in lines if line.strip())[-400:]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(
    name: str,
    arguments: Sequence[str],
    directory: Path,
    cores: frozenset[int],
    environment: Mapping[str, str] | None = None,
    port: int = 0,
) -> Child:
    """Output goes to `directory/name.log`. A session of its own: Ctrl-C reaches only us."""
    log = directory / f"{name}.log"
    started = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**clean_environment(), **(environment or {})},
            start_new_session=True,
        )
    pin(process.pid, cores)
    return Child(name, port, process, log, started)


def clean_environment() -> dict[str, str]:
    """Ours without the settings of a gateway: what is measured is what the files here say."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TOOLGATE_")}


def _answers(request: HttpRequest) -> bool:
    try:
        return request.send(timeout_s=5.0).status == 200
    except OSError:
        return False
