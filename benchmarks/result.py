"""One run as a value: measurements, machine and tools; as caption and as JSON."""

from datetime import datetime
from pathlib import Path

import msgspec

from benchmarks.machine import Machine
from benchmarks.table import Row

RESULTS = Path(__file__).resolve().parent / "results"


class Result(msgspec.Struct, frozen=True):
    started: datetime
    seconds: float  # measured per scenario
    connections: int
    generator: str
    upstream: str
    tested_cores: tuple[int, ...]
    load_cores: tuple[int, ...]
    stolen: float  # share of the machine's time that its host gave to others
    machine: Machine
    rows: tuple[Row, ...]


def caption(result: Result) -> str:
    """Everything that a reader needs before believing a figure."""
    facts = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    where = f"{facts.cpu}, {facts.cores} cores, {facts.system}, {facts.python}; {versions}"
    load = f"load: {result.generator}, {result.connections} connections"
    how = f"upstream stub: {result.upstream}; {result.seconds:g} s per scenario, medians"
    tested, loading = _cores(result.tested_cores), _cores(result.load_cores)
    cores = f"tested process on {tested}, load and stub on {loading}{_shared(result)}"
    columns = "x floor: answers per second; per CPU s: the same per CPU second of either process"
    stolen = f"taken by the host: {result.stolen:.1%} of the time"
    return f"{where}\n{load}; {how}\n{cores}; {stolen}\n{columns}"


def write(result: Result, output: Path | None) -> Path:
    """Where it was written: `output`, or a file named after the start of the run."""
    path = output or RESULTS / f"{result.started:%Y%m%dT%H%M%SZ}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    return path


def _cores(cores: tuple[int, ...]) -> str:
    if not cores:
        return "any core (this system cannot pin)"
    return f"core {', '.join(str(core) for core in cores)}"


def _shared(result: Result) -> str:
    alike = result.tested_cores and result.tested_cores == result.load_cores
    return " (ONE CORE FOR BOTH: ratios are worth little)" if alike else ""
