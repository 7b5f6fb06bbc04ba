"""Processes that read what is not trusted, with limits of time and memory."""

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import cast

import anyio
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, IncompleteRead, to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec.structs import replace

from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.chunking.chunks_by_kind import DEFAULT_CHUNKING
from gateway.wings.documents.reading.media_types import PARSED_TYPES, media_type
from gateway.wings.documents.reading.reader_messages import (
    LENGTH_BYTES,
    NETWORK,
    NO_NETWORK,
    Answer,
    ArchiveReading,
    ChunkerTrial,
    EndOfAnswers,
    FileReading,
    GitFetch,
    NotRead,
    ReadDocument,
    Request,
    WorkerReady,
)
from gateway.wings.documents.reading.reading_limits import (
    DEFAULT_LIMITS,
    ReadingLimits,
    ReadingRefused,
)
from gateway.wings.documents.reading.wasm_limits import (
    DEFAULT_WASM_LIMITS,
    ChunkerReport,
    WasmLimits,
)
from registry.database.fair_limiter import FairLimiter

_COMMAND = (sys.executable, "-I", "-m", "gateway.wings.documents.reading.reader_process")
_ENVIRONMENT = ("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")  # nothing secret
_PROCESS_ERRORS = (BrokenResourceError, ClosedResourceError, EndOfStream, IncompleteRead, OSError)
_SHORT_BYTES = 1024  # of an answer without contents
_REPORT_BYTES = 2**20
_START_S = 60.0
_USES = 500  # files that one process reads
_decoder = msgspec.msgpack.Decoder(Answer)


@dataclass(frozen=True, slots=True)
class Turn:
    """Owner of a reading's turn: tenants that share processes take turns, and owners in them."""

    tenant: str
    owner: str


NOBODY = Turn("", "")


class _Died(Exception):
    """The process has ended: it crashed, or needed more memory than it may."""


class _Worker:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._input = cast("ByteSendStream", process.stdin)
        self._output = BufferedByteReceiveStream(cast("ByteReceiveStream", process.stdout))
        self.uses = 0
        self.network = True  # whether it has that of the gateway

    @classmethod
    async def start(
        cls, memory_bytes: int, folder: str = "", *, network: bool = False
    ) -> "_Worker":
        """A process; `folder` is where it puts files. Raises ReadingRefused."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        process = await anyio.open_process(
            [*_COMMAND, str(memory_bytes), NETWORK if network else NO_NETWORK],
            stderr=DEVNULL,
            cwd="/",
            env={
                "OPENBLAS_NUM_THREADS": "1",
                "LANG": "C.UTF-8",
                **environment,
                **({"TMPDIR": folder} if folder else {}),
            },
            start_new_session=True,
        )
        worker = cls(process)
        try:
            with anyio.fail_after(_START_S):
                ready = await worker.receive()
            worker.network = isinstance(ready, WorkerReady) and ready.network
        except BaseException as error:
            await worker.end()
            if isinstance(error, _Died | TimeoutError):
                raise ReadingRefused("the process that reads files does not start") from error
            raise
        return worker

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def send(self, request: Request) -> None:
        """Raises _Died."""
        data = msgspec.msgpack.encode(request)
        try:
            await self._input.send(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        except _PROCESS_ERRORS as error:
            raise _Died from error
        self.uses += 1

    async def receive(self, limit_bytes: int = _SHORT_BYTES) -> Answer:
        """Raises _Died, also for a longer answer."""
        try:
            length = int.from_bytes(await self._output.receive_exactly(LENGTH_BYTES), "big")
            if length > limit_bytes:
                raise _Died
            answer: Answer = _decoder.decode(await self._output.receive_exactly(length))
        except (*_PROCESS_ERRORS, msgspec.MsgspecError) as error:
            raise _Died from error
        return answer

    async def end(self) -> None:
        """Kill the process."""
        with anyio.CancelScope(shield=True):
            if self.alive:
                self._process.kill()
            await self._process.aclose()


class ReadingWorkers:
    """Processes that read files, a bounded number at a time; those that are idle wait for more."""

    def __init__(
        self,
        processes: int,
        limits: ReadingLimits = DEFAULT_LIMITS,
        wasm: WasmLimits = DEFAULT_WASM_LIMITS,
    ) -> None:
        self._processes = processes
        self._slots = FairLimiter(processes, reserve=True)
        # their files take slots meanwhile
        self._containers = FairLimiter(processes, reserve=True)
        self._idle: list[_Worker] = []
        self._limits = limits
        self._wasm_limits = wasm

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end()

    async def read(
        self,
        path: str,
        data: bytes,
        chunking: ChunkingOptions = DEFAULT_CHUNKING,
        *,
        turn: Turn = NOBODY,
        chunker: bytes = b"",
    ) -> ReadDocument:
        """The text and the chunks of a file. Text that its chunker does not cut in time is cut as
        plain text. `chunker`: a module of WebAssembly that cuts a text. Raises ReadingRefused."""
        task = FileReading(
            path, data, chunking, self._limits, chunker=chunker, wasm=self._wasm_limits
        )
        parsed = not chunker and media_type(path, data) in PARSED_TYPES
        limit_s = self._limits.parse_s if parsed else self._limits.cut_s
        try:
            return await self._read(task, turn, limit_s)
        except (_Died, TimeoutError) as error:
            if parsed:
                late = isinstance(error, TimeoutError)
                reason = f"did not end within {limit_s:g} s" if late else _DEATH
                raise ReadingRefused(f"its parser {reason}") from error
        try:
            task = replace(task, plain=True, chunker=b"")
            answer = await self._read(task, turn, self._limits.parse_s)
        except (_Died, TimeoutError) as error:
            raise ReadingRefused(f"it cannot be cut within {self._limits.parse_s:g} s") from error
        by = "chunker" if chunker else "parser"
        note = f"it was cut as plain text, until it is read again: its {by} failed or took too long"
        return replace(answer, note=note, degraded=True)

    async def try_module(
        self,
        module: bytes,
        samples: Sequence[tuple[str, str]],
        chunking: ChunkingOptions,
        *,
        turn: Turn = NOBODY,
    ) -> ChunkerReport:
        """The report about a module of WebAssembly. Raises ReadingRefused."""
        task = ChunkerTrial(module, tuple(samples), chunking, self._limits, self._wasm_limits)
        try:
            report = await self._ask(task, turn, self._limits.parse_s, _REPORT_BYTES)
        except (_Died, TimeoutError) as error:
            raise ReadingRefused(
                f"its trial did not end within {task.limits.parse_s:g} s"
            ) from error
        return cast("ChunkerReport", report)

    async def _read(self, task: FileReading, turn: Turn, limit_s: float) -> ReadDocument:
        limit_bytes = self._limits.frame_bytes(len(task.data))
        return cast("ReadDocument", await self._ask(task, turn, limit_s, limit_bytes))

    async def _ask(
        self, task: FileReading | ChunkerTrial, turn: Turn, limit_s: float, limit_bytes: int
    ) -> Answer:
        """The one answer to a request. Raises ReadingRefused, _Died and TimeoutError."""
        async with self._slots.turn(turn.tenant, turn.owner):
            worker = await self._worker()
            done = False
            try:
                with anyio.fail_after(limit_s):
                    await worker.send(task)
                    answer = await worker.receive(limit_bytes)
                    if not isinstance(answer, NotRead):
                        await worker.receive()
                done = True
            finally:
                if done and worker.uses < _USES and len(self._idle) < self._processes:
                    self._idle.append(worker)
                else:
                    await worker.end()
        if isinstance(answer, NotRead):
            raise ReadingRefused(answer.reason)
        return answer

    async def is_isolated(self) -> bool:
        """Whether processes that read files are without network. Raises ReadingRefused."""
        worker = await self._worker()
        self._idle.append(worker)
        return not worker.network

    async def _worker(self) -> _Worker:
        """An idle process, or a new one. Raises ReadingRefused."""
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await worker.end()
        return await _Worker.start(self._limits.memory_bytes)

    @asynccontextmanager
    async def files(
        self, task: ArchiveReading | GitFetch, limit_s: float, *, turn: Turn = NOBODY
    ) -> AsyncIterator[AsyncIterator[Answer]]:
        """The files of an archive or a repository, each within `limit_s` of the one before, in a
        process and a folder of their own. Iteration raises ReadingRefused."""
        memory = self._limits.memory_bytes + 4 * self._limits.container_bytes
        async with self._containers.turn(turn.tenant, turn.owner), _folder() as folder:
            network = isinstance(task, GitFetch)
            worker = await _Worker.start(memory, folder, network=network)
            try:
                yield _answers(worker, task, limit_s, self._limits.frame_bytes())
            finally:
                await worker.end()


@asynccontextmanager
async def _folder() -> AsyncIterator[str]:
    """A folder for one process, which is killed and so removes nothing itself."""
    path = await to_thread.run_sync(tempfile.mkdtemp, None, "toolgate-reading-")
    try:
        yield path
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(shutil.rmtree, path, True)


_DEATH = "crashed, or needed more memory than it may"


async def _answers(
    worker: _Worker, task: ArchiveReading | GitFetch, limit_s: float, limit_bytes: int
) -> AsyncIterator[Answer]:
    try:
        await worker.send(task)
        while True:
            with anyio.fail_after(limit_s):
                answer = await worker.receive(limit_bytes)
            if isinstance(answer, EndOfAnswers):
                return
            if isinstance(answer, NotRead):
                raise ReadingRefused(answer.reason)
            yield answer
    except _Died as error:
        raise ReadingRefused(f"the process that reads it {_DEATH}") from error
    except TimeoutError as error:
        raise ReadingRefused(
            f"the process that reads it did not answer within {limit_s:g} s"
        ) from error
