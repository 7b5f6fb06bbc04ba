"""`run_code` and `run_code_writing`: programs over tools.

Two tools, so that clients and rules can allow the one that reads without the other. What a program
may do inside is the same as what its caller may: see `run_calls`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Annotated, Literal, TypeVar

import anyio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from config.code import CodeSettings
from gateway.http_client.deadline import Deadline
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import (
    ProblemDetails,
    conflict,
    invalid,
    not_found,
    unavailable,
)
from gateway.sandbox.jailed_process import CodeLimits, SessionEnded
from gateway.sandbox.program import (
    AnswerAsk,
    Program,
    ProgramEnd,
    ProgramLanguage,
    ProgramLimits,
    javascript_engine,
)
from gateway.wings.code.journal import Journal, NotRepeatable, PendingCall
from gateway.wings.code.paused_runs import PausedRun, PausedRuns
from gateway.wings.code.run_calls import CallView, RunCalls
from gateway.wings.interface import WingParts
from registry.access.approvals import Approvals
from schemas.tool import Annotations

log = logging.getLogger("toolgate.code")

T = TypeVar("T")

READ, WRITE = "code:read", "code:write"
CLOCK = 946_684_800.0  # the time inside, 2000-01-01: the same in each run
FRAME_BYTES = 2 << 20  # of the arguments of a call, and of a result
ASKED_BYTES = 16 << 20  # of the arguments of all calls of a run
CALLS_SHOWN = 100
DETAILS = """Write Python (standard library only) that calls tools as functions:
tools.NAME(argument=value), tools.call("exact-name", {...}), together:
tools.all([tools.NAME(id=i) for i in ids]), page by page: tools.pages(tools.NAME, limit=20, ...);
await works, too. tools.search("text") finds tools, tools.describe("NAME") shows their arguments
and results. Calls return the structured answer, else text, and raise ToolError (Denied, Invalid,
NotFound, RateLimited, ...). A call that a person has to approve pauses the run; call this tool with
`run` once it is approved. The last expression, `return` or result(x) is the result; printed text is
shown, shortened. Return only what you need. For a single call, call the tool itself."""
JAVASCRIPT = """With language "javascript" the same returns promises: await
tools.NAME({argument: value}), tools.pages(tools.NAME, {argument: value}, {limit: 20})."""


class RunProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program, or the id of a paused run that goes on."""

    code: Annotated[str, Meta(description="the program")] = ""
    run: Annotated[str, Meta(description="a paused run that is to go on, instead of code")] = ""
    language: ProgramLanguage = "python"
    time_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="most seconds, less than the gateway's limit"),
    ] = None
    calls: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="most calls, less than the gateway's limit"),
    ] = None


class ProgramView(Struct, frozen=True):
    """The end of a program, or its pause. `calls`: those that it made, in their order; `left_out`
    are more, which only read where there is a choice. `error`: what nothing caught, below the lines
    that led to it. Where calls are `pending`, people have to approve them first; then `run` goes
    on."""

    state: Literal["completed", "failed", "paused"]
    result: Raw | UnsetType = UNSET
    output: str = ""
    error: str = ""
    calls: tuple[CallView, ...] = ()
    left_out: int = 0
    run: str = ""
    pending: tuple[PendingCall, ...] = ()


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
            asks=settings.calls,
            asked_bytes=ASKED_BYTES,
        )
        self._size = settings.ready
        self._ready: list[tuple[Program, AsyncExitStack]] = []
        self._taken = anyio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Program]:
        """A process. Raises SessionEnded."""
        self._taken.set()
        async with AsyncExitStack() as stack:
            while self._ready:
                program, waiting = self._ready.pop(0)
                await stack.enter_async_context(waiting)
                if program.is_alive:
                    yield program
                    return
            yield await stack.enter_async_context(Program.open(self._limits))

    async def begin(self) -> bool:
        """Whether this machine can confine programs: the first processes are ready."""
        try:
            await self._fill(max(self._size, 1))
        except SessionEnded as ended:
            log.warning("code_not_listed", extra={"reason": str(ended)})
            return False
        return True

    async def run(self) -> None:
        """Keep processes ready."""
        while True:
            self._taken = anyio.Event()
            with suppress(SessionEnded):  # the next run starts one itself, and says why not
                await self._fill(self._size)
            await self._taken.wait()

    async def _fill(self, size: int) -> None:
        """Raises SessionEnded."""
        while len(self._ready) < size:
            stack = AsyncExitStack()
            program = await stack.enter_async_context(Program.open(self._limits))
            self._ready.append((program, stack))

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for _, stack in self._ready:
                await stack.aclose()
            self._ready.clear()


class CodeOperations:
    def __init__(self, parts: WingParts, pool: ProgramPool) -> None:
        self._parts = parts
        self._settings: CodeSettings = parts.settings
        self._pool = pool
        settings = self._settings
        self.paused = PausedRuns(parts.pool, keep_s=settings.paused_s, most=settings.paused_runs)
        self._running: Counter[tuple[str, str]] = Counter()

    @property
    def operations(self) -> Sequence[Operation]:
        reading = Operation(
            "code_run", "POST", "/run",
            "Run a program that calls tools which read, instead of many calls, a loop or a join.",
            READ, partial(self._run, writes=False), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=True, open_world_hint=True), waits=True,
            problems=(409, 429), tool="run_code", details=self._details,
        )  # fmt: skip
        if self._settings.writes == "never":
            return (reading,)
        writing = Operation(
            "code_run_writing", "POST", "/run-writing",
            "Run a program as run_code does, which may also call tools that change something.",
            WRITE, partial(self._run, writes=True), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            waits=True, problems=(409, 429), tool="run_code_writing",
        )  # fmt: skip
        return (reading, writing)

    @property
    def _languages(self) -> Sequence[ProgramLanguage]:
        """Languages of the settings that can be run here."""
        listed = self._settings.languages
        return [name for name in listed if name != "javascript" or javascript_engine() is not None]

    @property
    def _details(self) -> str:
        parts = {"python": DETAILS, "javascript": JAVASCRIPT}
        return "\n".join(parts[language] for language in self._languages)

    async def _run(self, asked: OperationInput, *, writes: bool) -> ProgramView:
        body, settings, context = asked.body, self._settings, asked.context
        if context is None:
            raise invalid("Expected a caller.")
        if context.run is not None and context.run.code:
            raise invalid("A program cannot run a program.")
        if bool(body.code) == bool(body.run):
            raise invalid("Expected the code of a program, or the id of a paused run.")
        if len(body.code.encode()) > settings.source_bytes:
            text = f"code: expected at most {settings.source_bytes} bytes (code.source_bytes)"
            raise invalid(text)
        if body.language not in (languages := self._languages):
            raise invalid(
                f"language: expected {' or '.join(languages)} (code.languages); javascript needs "
                "the package quickjs-ng, as `pip install toolgate[javascript]` installs it"
            )
        most = min(body.calls or settings.calls, settings.calls)
        run = PausedRun(body.code, writes, most, (), (), (), language=body.language)
        with self._turn(asked.principal.key):
            if body.run:
                run = await self._claim(asked, body.run, writes=writes)
            calls = RunCalls(
                self._parts, context, asked.job, writes=writes, most=run.calls_limit,
                language=run.language,
            )  # fmt: skip
            calls.go_on(run.calls, run.sources, await self._read_denied(asked.tenant, run.pending))
            journal = Journal(run.answers, settings.journal_bytes)
            end = await self._execute(body, run, journal.over(calls.answer), journal)
            if end is None:
                return await self._pause(asked, run, journal, calls)
            if body.run:
                await self.paused.remove(asked.tenant, body.run)
        return ProgramView(
            end.end, end.encoded_result, end.output, end.error, *shorten_calls(calls.calls)
        )  # fmt: skip

    async def _claim(self, asked: OperationInput, run_id: str, *, writes: bool) -> PausedRun:
        """Take a paused run. Raises ProblemDetails."""
        run = await self.paused.claim(asked.tenant, asked.principal.id, run_id)
        if run == "running":
            text = "The run goes on already, or was interrupted: it may have made further calls."
            raise conflict(text)
        if run == "absent" or run.writes != writes:
            raise not_found("paused run", run_id)
        return run

    async def _read_denied(
        self, tenant: str, pending: Sequence[PendingCall]
    ) -> Sequence[PendingCall]:
        """The calls that people have rejected."""
        approvals, denied = Approvals(self._parts.pool, tenant), []
        for call in pending:
            approval = await approvals.get(call.approval)
            if approval is not None and approval.state == "denied":
                denied.append(call)
        return denied

    async def _pause(
        self, asked: OperationInput, run: PausedRun, journal: Journal, calls: RunCalls
    ) -> ProgramView:
        made = [call for call in calls.calls if not call.held]
        record = replace(
            run, answers=journal.answers, calls=made, sources=calls.sources, pending=journal.held
        )
        stored = await self.paused.store(
            asked.tenant, asked.principal.id, record, asked.body.run or None
        )
        if stored is None:
            text = f"{self._settings.paused_runs} runs wait for approvals (code.paused_runs)"
            error = f"the run needs approvals, and cannot wait for them: {text}"
            return ProgramView("failed", UNSET, "", error, *shorten_calls(made))
        shown, more = shorten_calls(made)
        return ProgramView(
            "paused", calls=shown, left_out=more, run=stored, pending=tuple(journal.held)
        )

    async def _execute(
        self, body: RunProgram, run: PausedRun, answer: AnswerAsk, journal: Journal
    ) -> ProgramEnd | None:
        """None: it waits for approvals. Raises ProblemDetails where no program can be run."""
        wall_s = min(body.time_s or self._settings.wall_s, self._settings.wall_s)
        try:
            with Deadline(wall_s):
                async with self._pool.open() as program:
                    running = program.run(
                        run.code, answer, seed=0, clock=CLOCK, language=run.language
                    )
                    return await first_of(running, journal.pause())
        except TimeoutError:
            return ProgramEnd("failed", "", error=f"the program took more than {wall_s:g} s")
        except NotRepeatable as error:
            return ProgramEnd("failed", "", error=f"the program cannot go on: {error}")
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


def shorten_calls(calls: Sequence[CallView]) -> tuple[tuple[CallView, ...], int]:
    """The calls that are shown, and how many more there are."""
    shown = sorted(calls, key=lambda call: not call.writes)[:CALLS_SHOWN]
    return tuple(sorted(shown, key=lambda call: call.seq)), len(calls) - len(shown)


async def first_of(running: Awaitable[T], pausing: Awaitable[None]) -> T | None:
    """The result of `running`, if it ends first; else None. The other task is cancelled."""
    tasks = asyncio.ensure_future(running), asyncio.ensure_future(pausing)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
