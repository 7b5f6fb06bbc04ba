"""Sends cases, some at a time, and gathers what is wrong with the answers."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.fuzz.cases import Case, make
from tests.fuzz.judge import Answer, complaints
from tests.fuzz.rig import Target
from tests.fuzz.wire import Connection, Dropped

CONCURRENCY = 16
ENOUGH = 1000  # findings after which there is no point in going on
ALIKE = 3  # findings with the same complaint that are kept
SHOWN = 1500  # bytes of a body


@dataclass(frozen=True, slots=True)
class Finding:
    case: Case
    complaints: Sequence[str]
    answer: Answer | None

    def __str__(self) -> str:
        case, answer = self.case, self.answer
        lines = [
            f"{case.gateway} {case.front}: {'; '.join(self.complaints)}",
            f"  again:  make fuzz ARGS='--seed {case.seed} --case {case.number}'",
            f"  asked:  {case.method.decode()} {_cut(case.target)}",
            *(f"          {_cut(name)}: {_cut(value)}" for name, value in case.headers),
            f"          {_cut(case.body)}",
        ]
        if answer is not None:
            lines.append(f"  answer: {answer.status} {answer.media_type} {_cut(answer.body)}")
        return "\n".join(lines)


@dataclass
class Run:
    """A range of cases on its way."""

    seed: int
    numbers: Iterator[int]
    targets: Mapping[str, Target]
    done: Callable[[], object] = lambda: None  # called after each case
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # by the complaint

    async def all(self, concurrency: int = CONCURRENCY) -> list[Finding]:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._work())
        return self.findings

    async def _work(self) -> None:
        lanes = {name: Connection(target.port) for name, target in self.targets.items()}
        for number in self.numbers:
            if self.counts.total() >= ENOUGH:
                break
            await self._one(make(self.seed, number), lanes)
            self.done()
        for lane in lanes.values():
            lane.close()

    async def _one(self, case: Case, lanes: Mapping[str, Connection]) -> None:
        answer = None
        try:
            answer = await lanes[case.gateway].send(case.request(self.targets[case.gateway].known))
            found = complaints(case, answer)
        except (Dropped, TimeoutError) as error:
            found = [f"no answer: {error!r}"]
        self.counts.update(found)
        if any(self.counts[complaint] <= ALIKE for complaint in found):
            self.findings.append(Finding(case, found, answer))


class Crashes(logging.Handler):
    """What the gateways log about bugs of their own, wherever the client is told so."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.records) < ALIKE:
            self.records.append(self.format(record)[-3000:])


def _cut(text: bytes) -> str:
    shown = repr(text[:SHOWN])[1:]
    return shown if len(text) <= SHOWN else f"{shown}... ({len(text):,} bytes)"
