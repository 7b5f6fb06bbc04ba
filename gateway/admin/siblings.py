"""The workers of one machine, for the answers that speak for all of them: /metrics and /ready.

Each listens on a Unix socket in a directory that only their user may enter. A question is one line,
the answer is everything until the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

TIMEOUT_S = 2.0  # until a worker that does not answer counts as away
ANSWER_BYTES = 1 << 24

Answers: TypeAlias = Mapping[str, Callable[[], bytes]]
"""What a worker answers, by question."""


class Siblings:
    def __init__(self, directory: Path, slot: int, count: int) -> None:
        """`slot`: the number of this worker, from 0 to below `count`."""
        self.slot = slot
        self._directory = directory
        self._count = count

    @asynccontextmanager
    async def answering(self, answers: Answers) -> AsyncIterator[None]:
        """Answer the questions of the other workers inside."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(TIMEOUT_S):
                    question = (await reader.readline()).decode().strip()
                    if question in answers:
                        writer.write(answers[question]())
                        await writer.drain()
            writer.close()

        path = self._path(self.slot)
        path.unlink(missing_ok=True)  # of a worker that was killed
        server = await asyncio.start_unix_server(answer, path)
        try:
            yield
        finally:
            server.close()

    async def ask(self, question: str) -> dict[int, bytes | None]:
        """The answers of the other workers by number; None: it does not answer."""
        others = [slot for slot in range(self._count) if slot != self.slot]
        answers = await asyncio.gather(*(self._ask(slot, question) for slot in others))
        return dict(zip(others, answers, strict=True))

    async def _ask(self, slot: int, question: str) -> bytes | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._path(slot))
                try:
                    writer.write(f"{question}\n".encode())
                    return await reader.read(ANSWER_BYTES) if not reader.at_eof() else None
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    def _path(self, slot: int) -> Path:
        return self._directory / f"worker-{slot}.sock"


class WorkerMetrics(Collector):
    """The metrics of several workers, with the label `worker`.

    They are not summed: when a worker is replaced, a sum would drop, and Prometheus would count the
    other workers' part of it a second time.
    """

    def __init__(self, expositions: Mapping[int, bytes | None]) -> None:
        """`expositions`: in the text format of Prometheus, by number of the worker."""
        self._expositions = {slot: text for slot, text in expositions.items() if text}

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for slot, exposition in self._expositions.items():
            for family in text_string_to_metric_families(exposition.decode()):
                whole = Metric(family.name, family.documentation, family.type)
                whole = families.setdefault(family.name, whole)
                for one in family.samples:
                    whole.add_sample(one.name, {**one.labels, "worker": str(slot)}, one.value)
        return iter(families.values())


def exposition_of_all(expositions: Mapping[int, bytes | None]) -> bytes:
    """One exposition with the metrics of all workers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(WorkerMetrics(expositions))
    return generate_latest(registry)
