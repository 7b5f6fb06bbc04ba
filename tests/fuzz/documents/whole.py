"""Whole descriptions with damage: they must not take much longer than without."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.description import describe
from tests.fuzz.documents.excerpts import whole
from tests.fuzz.documents.mutants import encode_mutant, mutate

FACTOR = 3.0
SLACK_S = 0.2  # of processor time: what a small one may vary by
OPERATIONS = 1000  # of the description that stands in for real ones
TIMEOUT_S = 300.0
TRIES = 2  # neighbours on the machine cost processor time as well


def find_slow_mutants(
    directory: Path, descriptions: Path | None, seed: int, count: int
) -> list[str]:
    """Which of `count` mutants took too long, in words."""
    found: list[str] = []
    if count:
        files = whole(descriptions) or [_own(directory)]
        for number in range(count):
            path = files[number % len(files)]
            found += _compare_times(directory, path, Random(f"{seed} {number}"), number)
    return found


def _compare_times(directory: Path, path: Path, r: Random, number: int) -> Sequence[str]:
    document = msgspec.json.decode(path.read_bytes())
    for _ in range(r.choice((1, 2, 5, 20))):
        document = mutate(document, r)
    damaged = directory / f"whole-{number}.json"
    damaged.write_bytes(encode_mutant(document))
    for _ in range(TRIES):
        before, after = measure_import(path), measure_import(damaged)
        if after <= before * FACTOR + SLACK_S:
            damaged.unlink()
            return ()
    return [f"{damaged}: {after:.1f} s of processor time, {path.name} itself {before:.1f} s"]


def measure_import(path: Path) -> float:
    """Processor seconds of its import in a process of its own; refused is read, too."""
    code = (
        "import sys, json; from pathlib import Path; from random import Random;"
        "from tests.fuzz.documents.check import check;"
        "print(json.dumps(check(Path(sys.argv[1]), Random(1)).cpu_s))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    return float(json.loads(done.stdout)) if done.returncode == 0 else float("inf")


def _own(directory: Path) -> Path:
    path = directory / "own.json"
    path.write_bytes(describe(OPERATIONS, "http://127.0.0.1:9"))
    return path
