"""Sibling workers of one machine: the answers that cover all of them (/metrics, /ready), and events
of one worker that the others should know (a source that fails).

Each listens on a Unix socket in a directory that only their user may enter. A question is one line,
a word and perhaps its subject; the answer is everything until the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio import BrokenResourceError, DelimiterNotFound, EndOfStream, IncompleteRead
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LINE_BYTES = 1000
END_LINE = b"\n"
TIMEOUT_S = 2.0  # after which a worker without an answer counts as away
STATUS_S = 0.5  # the same for its status: probes of /ready wait for it
# The other worker has stopped, or the question is unknown to this version.
NO_ANSWER = (OSError, TimeoutError, BrokenResourceError, EndOfStream, IncompleteRead, KeyError)
NO_QUESTION = (DelimiterNotFound, UnicodeDecodeError)

Answers: TypeAlias = Mapping[str, Callable[[str], bytes]]
"""What a worker answers, by the question's first word; the rest of the line is passed."""


class WorkerPeers:
    def __init__(self, directory: Path, slot: int, count: int) -> None:
        """The worker in `slot`, from 0 to below `count`."""
        self.slot = slot
        self._directory = directory
        self._count = count
        self._telling: set[asyncio.Task[object]] = set()

    def resize(self, count: int) -> None:
        """Set the number of workers, as the supervisor does with new settings."""
        self._count = count

    @asynccontextmanager
    async def answering(self, answers: Answers) -> AsyncIterator[None]:
        """Context in which the questions of the other workers are answered."""

        async def answer(stream: SocketStream) -> None:
            async with stream:
                with suppress(*NO_ANSWER, *NO_QUESTION), anyio.fail_after(TIMEOUT_S):
                    line = await BufferedByteReceiveStream(stream).receive_until(b"\n", LINE_BYTES)
                    word, _, subject = line.decode().partition(" ")
                    await stream.send(answers[word](subject) or END_LINE)

        async with (
            await anyio.create_unix_listener(self._path(self.slot)) as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, answer)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def ask(self, question: str, timeout_s: float = TIMEOUT_S) -> dict[int, bytes | None]:
        """Query the other workers, all at once; returns their answers by number, None without an
        answer."""
        others = [slot for slot in range(self._count) if slot != self.slot]
        answers = await asyncio.gather(*(self._ask(slot, question, timeout_s) for slot in others))
        return dict(zip(others, answers, strict=True))

    def tell(self, word: str, subject: str) -> None:
        """Pass on what this worker has found out, without waiting for the others."""
        task = asyncio.get_running_loop().create_task(self.ask(f"{word} {subject}"))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _ask(self, slot: int, question: str, timeout_s: float) -> bytes | None:
        try:
            with anyio.fail_after(timeout_s):
                async with await anyio.connect_unix(self._path(slot)) as stream:
                    await stream.send(f"{question}\n".encode())
                    return b"".join([part async for part in stream])
        except NO_ANSWER:
            return None

    def _path(self, slot: int) -> Path:
        return self._directory / f"worker-{slot}.sock"


class WorkerMetrics(Collector):
    """The metrics of several workers, with the label `worker`.

    They are not summed: when a worker is replaced, a sum would drop, and Prometheus would count the
    other workers' part of it a second time.
    """

    def __init__(self, expositions: Mapping[int, bytes | None]) -> None:
        """The metrics in `expositions`, as OpenMetrics, by number of the worker."""
        self._expositions = {slot: text for slot, text in expositions.items() if text}

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for slot, exposition in self._expositions.items():
            for family in text_string_to_metric_families(exposition.decode()):
                merged = Metric(family.name, family.documentation, family.type)
                merged = families.setdefault(family.name, merged)
                for sample in family.samples:
                    labels = {**sample.labels, "worker": str(slot)}
                    merged.add_sample(sample.name, labels, sample.value, exemplar=sample.exemplar)
        return iter(families.values())


def registry_of_all(expositions: Mapping[int, bytes | None]) -> CollectorRegistry:
    """A registry with the metrics of all workers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(WorkerMetrics(expositions))
    return registry
