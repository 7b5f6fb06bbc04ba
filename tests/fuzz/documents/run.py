"""Workers, watched: what they find, and what hangs or kills them."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.documents.excerpts import gather_excerpts

SILENCE_S = 60.0  # of one mutant; a busy machine stays far below it
ALIKE = 2  # findings at the same place that are kept
ENOUGH = 200  # deaths of workers after which there is no point in going on


@dataclass
class Outcome:
    done: int = 0
    refused: int = 0  # as a whole
    tools: int = 0
    findings: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, finding: dict[str, Any]) -> None:
        self.places[finding["where"]] += 1
        if self.places[finding["where"]] <= ALIKE:
            again = f"make mutants ARGS='--seed {seed} --mutant {finding['number']}'"
            kept = (
                f"; {finding['bytes']:,} bytes that do it: {finding['kept']}"
                if "kept" in finding
                else ""
            )
            self.findings.append(f"{finding['where']}: {finding['wrong']}\n  again: {again}{kept}")


def prepare(directory: Path, descriptions: Path | None, seed: int) -> None:
    """Write the excerpts that the mutants are made of: the same for the same seed."""
    home = directory / "excerpts"
    home.mkdir()
    for name, data in gather_excerpts(descriptions, Random(seed)):
        (home / name).write_bytes(data)


async def fuzz(
    directory: Path, seed: int, numbers: Sequence[int], done: Callable[[], object] = lambda: None
) -> Outcome:
    """Mutants `numbers`, a range, over all processors."""
    outcome = Outcome()
    workers = max(1, min(os.cpu_count() or 1, len(numbers)))
    first, last = numbers[0], numbers[-1] + 1
    async with asyncio.TaskGroup() as group:
        for lane in range(workers):
            group.create_task(_lane(directory, seed, (first + lane, last, workers), outcome, done))
    return outcome


async def _lane(
    directory: Path,
    seed: int,
    numbers: tuple[int, int, int],
    outcome: Outcome,
    done: Callable[[], object],
) -> None:
    """Every `step`th mutant; a worker that dies is followed by another one."""
    first, last, step = numbers
    for _ in range(ENOUGH):
        if first >= last:
            return
        reached, why = await _worker(directory, seed, (first, last, step), outcome, done)
        if why:
            outcome.add(seed, {"number": reached, "where": f"worker {why}", "wrong": why})
        first = reached + step


async def _worker(
    directory: Path,
    seed: int,
    numbers: tuple[int, int, int],
    outcome: Outcome,
    done: Callable[[], object],
) -> tuple[int, str]:
    """The last mutant that was begun, and why no more were; "" when there were no more."""
    arguments = [str(directory), str(seed), *map(str, numbers)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fuzz.documents.worker", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    reached = numbers[0]
    try:
        while line := await asyncio.wait_for(process.stdout.readline(), SILENCE_S):
            told = json.loads(line)
            if "begin" in told:
                reached = told["begin"]
                outcome.done += 1
                done()
            elif "tools" in told:
                outcome.refused += told["tools"] < 0
                outcome.tools += max(0, told["tools"])
            else:
                outcome.add(seed, told)
    except TimeoutError:
        process.kill()
        return reached, f"hangs for {SILENCE_S:.0f} s"
    complaint = (await process.stderr.read()).decode(errors="replace").strip()
    code = await process.wait()
    return reached, f"died ({code}): {complaint[-300:]}" if code else ""
