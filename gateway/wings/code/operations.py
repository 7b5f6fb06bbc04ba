"""`run_code` and `run_code_writing`: programs over tools.

Two tools, so that clients and rules can allow the one that reads without the other. What a program
may do inside is the same as what its caller may: see `run_calls`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Literal

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from config.code import CodeSettings
from gateway.http_client.deadline import Deadline
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import ProblemDetails, invalid, unavailable
from gateway.sandbox.jailed_process import CodeLimits, SessionEnded
from gateway.sandbox.program import Program, ProgramEnd, ProgramLimits
from gateway.wings.code.run_calls import CallView, RunCalls
from gateway.wings.interface import WingParts
from schemas.tool import Annotations

READ, WRITE = "code:read", "code:write"
CLOCK = 946_684_800.0  # the time inside, 2000-01-01: the same in each run
FRAME_BYTES = 8 << 20  # of the arguments of a call, and of a result
CALLS_SHOWN = 100
DETAILS = """Write Python (standard library only). Call tools as functions:
tools.NAME(argument=value), tools.call("exact-name", {...}), or run several together:
tools.all([tools.NAME(id=i) for i in ids]); await and asyncio.gather work, too.
tools.pages(tools.NAME, limit=20, ...) follows pages. tools.search("text") finds tools,
tools.describe("NAME") shows their arguments and results.
Calls return the structured answer (dict or list), else text, and raise ToolError (Denied, Invalid,
NotFound, RateLimited, ApprovalNeeded, ConnectionNeeded, LimitReached).
The last expression, `return` or result(x) is the result; print() is shown, shortened. Return only
what you need. For a single call, call the tool itself."""


class RunProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program."""

    code: Annotated[str, Meta(min_length=1, description="the program")]
    language: Literal["python"] = "python"
    time_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="most seconds, less than the gateway's limit"),
    ] = None
    calls: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="most calls, less than the gateway's limit"),
    ] = None


class ProgramView(Struct, frozen=True):
    """The end of a program. `calls`: those that it made, in the order of their ends; `left_out`
    are more. `error`: what nothing caught, below the lines that led to it."""

    state: Literal["completed", "failed"]
    result: Raw | UnsetType = UNSET
    output: str = ""
    error: str = ""
    calls: tuple[CallView, ...] = ()
    left_out: int = 0


class ProgramPool:
    """Processes that are ready for a program. Each serves one."""

    def __init__(self, settings: CodeSettings) -> None:
        self._limits = ProgramLimits(
            code=CodeLimits(
                memory_bytes=settings.memory_bytes,
                cell_s=settings.cpu_s,
                session_s=settings.cpu_s,
                output_characters=settings.output_characters,
                frame_bytes=FRAME_BYTES,
            ),
            parallel=settings.parallel,
            asks=settings.calls,
        )
        self._size = settings.ready
        self._ready: list[tuple[Program, AsyncExitStack]] = []
        self._taken = anyio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Program]:
        """A process. Raises SessionEnded."""
        async with AsyncExitStack() as stack:
            while self._ready:
                program, waiting = self._ready.pop(0)
                self._taken.set()
                await stack.enter_async_context(waiting)
                if program.is_alive:
                    yield program
                    return
            yield await stack.enter_async_context(Program.open(self._limits))

    async def run(self) -> None:
        """Keep processes ready."""
        try:
            while True:
                while len(self._ready) < self._size:
                    stack = AsyncExitStack()
                    program = await stack.enter_async_context(Program.open(self._limits))
                    self._ready.append((program, stack))
                self._taken = anyio.Event()
                await self._taken.wait()
        finally:
            with anyio.CancelScope(shield=True):
                for _, stack in self._ready:
                    await stack.aclose()
                self._ready.clear()


class CodeOperations:
    def __init__(self, parts: WingParts, pool: ProgramPool) -> None:
        self._parts = parts
        self._settings: CodeSettings = parts.settings
        self._pool = pool
        self._running: Counter[tuple[str, str]] = Counter()

    @property
    def operations(self) -> Sequence[Operation]:
        reading = Operation(
            "code_run", "POST", "/run",
            "Run a program that calls tools which read, instead of many calls, a loop or a join.",
            READ, partial(self._run, writes=False), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=True, open_world_hint=True), waits=True,
            problems=(429,), tool="run_code", details=DETAILS,
        )  # fmt: skip
        if self._settings.writes == "never":
            return (reading,)
        writing = Operation(
            "code_run_writing", "POST", "/run-writing",
            "Run a program as run_code does, which may also call tools that change something.",
            WRITE, partial(self._run, writes=True), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            waits=True, problems=(429,), tool="run_code_writing", details=DETAILS,
        )  # fmt: skip
        return (reading, writing)

    async def _run(self, asked: OperationInput, *, writes: bool) -> ProgramView:
        body, settings, context = asked.body, self._settings, asked.context
        if context is None:
            raise invalid("Expected a caller.")
        if context.run is not None and context.run.code:
            raise invalid("A program cannot run a program.")
        if len(body.code.encode()) > settings.source_bytes:
            text = f"code: expected at most {settings.source_bytes} bytes (code.source_bytes)"
            raise invalid(text)
        most = min(body.calls or settings.calls, settings.calls)
        calls = RunCalls(self._parts, context, asked.job, writes=writes, most=most)
        with self._turn(asked.principal.key):
            end = await self._execute(body, calls)
        made = tuple(calls.calls[:CALLS_SHOWN])
        return ProgramView(
            end.end, end.encoded_result, end.output, end.error, made,
            len(calls.calls) - len(made),
        )  # fmt: skip

    async def _execute(self, body: RunProgram, calls: RunCalls) -> ProgramEnd:
        """Raises ProblemDetails where no program can be run."""
        wall_s = min(body.time_s or self._settings.wall_s, self._settings.wall_s)
        try:
            with Deadline(wall_s):
                async with self._pool.open() as program:
                    return await program.run(body.code, calls.answer, seed=0, clock=CLOCK)
        except TimeoutError:
            return ProgramEnd("failed", "", error=f"the program took more than {wall_s:g} s")
        except SessionEnded as ended:
            if ended.reason == "refused":
                raise unavailable(f"Programs cannot be run here: {ended}.") from ended
            return ProgramEnd("failed", "", error=f"the program was ended: {ended}")

    @contextmanager
    def _turn(self, key: tuple[str, str]) -> Iterator[None]:
        """A place among the runs of this process. Raises ProblemDetails."""
        settings = self._settings
        for running, most, setting in (
            (self._running[key], settings.runs_per_principal, "runs_per_principal"),
            (self._running.total(), settings.runs, "runs"),
        ):
            if running >= most:
                text = f"{most} programs run already (code.{setting}); try again later."
                raise ProblemDetails(429, "too-many-requests", text)
        self._running[key] += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
