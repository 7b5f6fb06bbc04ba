"""Programs in the sandbox: a process runs one, which asks the host, several times at once.

What it may do is what `AnswerAsk` lets it ask for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Literal

import anyio
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.sandbox.jailed_process import CodeLimits, JailedProcess, SessionEnded, convert_frame
from gateway.sandbox.javascript import ENGINE
from gateway.sandbox.script_runner import DIRECTORY
from schemas.errors import ToolgateError

ProgramLanguage = Literal["python", "javascript"]

MISUSE = 1000  # asks beyond their limit, behind which a program is ended
NOTE = 5000  # characters beside the output: what was left out
ERROR = 4000  # characters of the error of a program


class AskRefused(ToolgateError):
    """Failure of an ask, for the program. `members` are those of its error there, see
    `run_program.py`: `kind`, `message` and others."""

    def __init__(self, kind: str, message: str, **members: Any) -> None:
        super().__init__(message)
        self.members = {"kind": kind, "message": message, **members}


NO_ANSWER = object()
"""Instead of an answer: the program does not get one, and waits."""

AnswerAsk = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Answers an ask, by what it wants and its members, among which `ask` is its number. All asks are
answered at the same time. Raises AskRefused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    code: CodeLimits
    asked_bytes: int  # of all asks: as values, they take some 25 times that until they are answered
    asks: int


class ProgramEnd(Struct, frozen=True):
    """The end of a program. `error` is that which nothing caught, below the lines that led to
    it."""

    end: Literal["completed", "failed"]
    output: str
    result: Any = UNSET
    error: str = ""

    @property
    def encoded_result(self) -> Raw | UnsetType:
        return UNSET if self.result is UNSET else Raw(msgspec.json.encode(self.result))


@cache
def javascript_engine() -> str | None:
    """The file of QuickJS, from the extra `javascript`, which is loaded inside the jail only; None
    where it is not installed. Its module may be that of another package of the same name."""
    try:
        files = distribution("quickjs-ng").files or ()
    except PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.match("_quickjs.*")), None)


@cache
def _prelude() -> str:
    return (DIRECTORY / "program.js").read_text()


class _Ask(Struct, frozen=True):
    ask: int
    do: str


class Program:
    def __init__(self, process: JailedProcess, limits: ProgramLimits) -> None:
        self._process = process
        self._limits = limits

    @classmethod
    @asynccontextmanager
    async def open(cls, limits: ProgramLimits) -> AsyncIterator["Program"]:
        """A process that is ready for a program. Raises SessionEnded."""
        engine = javascript_engine()
        files = {} if engine is None else {ENGINE: engine}
        async with JailedProcess.open(limits.code, "run_program.py", files) as process:
            await process.next_frame(process.cpu_s)
            yield cls(process, limits)

    @property
    def is_alive(self) -> bool:
        try:
            return self._process.cpu_s >= 0
        except SessionEnded:
            return False

    async def run(
        self,
        code: str,
        answer: AnswerAsk,
        *,
        seed: int,
        clock: float,
        language: ProgramLanguage = "python",
        files: Sequence[str] = (),
    ) -> ProgramEnd:
        """Run the program. `files`: URIs, which it has as a list. Raises SessionEnded."""
        process, limits = self._process, self._limits
        began, asks = process.cpu_s, 0
        output = limits.code.output_characters
        options = {"seed": seed, "clock": clock, "output": output, "files": files, "code": code}
        options["limit"] = limits.code.frame_bytes
        prelude = _prelude() if language == "javascript" else ""
        await process.send({**options, "language": language, "prelude": prelude})
        try:
            async with anyio.create_task_group() as group:
                frame = await process.next_frame(began)
                while "end" not in frame:
                    asks += 1
                    if process.received_bytes > limits.asked_bytes:
                        text = f"the program asked for more than {limits.asked_bytes} bytes"
                        raise SessionEnded("protocol", text)
                    if asks > limits.asks + MISUSE:
                        text = "the program goes on asking beyond its limit"
                        raise SessionEnded("protocol", text)
                    ask = convert_frame(frame, _Ask)
                    if ask.ask != asks:  # else its answer could be taken for that of another
                        text = f"the program sent request {ask.ask}, expected {asks}"
                        raise SessionEnded("protocol", text)
                    group.start_soon(self._answer, ask, frame, answer)
                    frame = await process.next_frame(began)
                group.cancel_scope.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return _end(frame, output)

    async def _answer(self, ask: _Ask, frame: dict[str, Any], answer: AnswerAsk) -> None:
        try:
            value = await answer(ask.do, frame)
            if value is NO_ANSWER:
                return
            reply = {"id": ask.ask, "value": value}
        except AskRefused as refused:
            reply = {"id": ask.ask, "error": refused.members}
        with suppress(SessionEnded):  # whoever reads its frames sees that it has ended
            await self._process.send(reply)


def _end(frame: dict[str, Any], characters: int) -> ProgramEnd:
    """The end as it is where the process cuts its output, which its code may prevent."""
    end = convert_frame(frame, ProgramEnd)
    output, error = end.output[: characters + NOTE], end.error[:ERROR]
    return msgspec.structs.replace(end, output=output, error=error)
