"""Sessions of Python in the sandbox: cells of code that share variables, and ask the host.

What the process of a session may do is what `Answer` lets it ask for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sandbox.jailed_process import CodeLimits, JailedProcess, convert_frame
from schemas.errors import ToolgateError

NOTE = 5000  # characters of a result beside its output: what was left out, and an error

Answer = Callable[[str, Sequence[Any]], Awaitable[Any]]
"""Answers what a cell asks for, by name and arguments. Raises AskRefused."""


class AskRefused(ToolgateError):
    """Refusal of a cell's request; the text is for its code."""


class CellResult(Struct, frozen=True):
    """The end of a cell. `final` has its final answer, if it gave one."""

    output: str
    failed: bool = False
    partial: str = ""  # its answer so far
    final: tuple[Any, ...] = ()


class _Asked(Struct, frozen=True, forbid_unknown_fields=True):
    ask: str
    arguments: tuple[Any, ...]


class CodeSession:
    def __init__(self, process: JailedProcess, limits: CodeLimits) -> None:
        self._process = process
        self._limits = limits

    @classmethod
    @asynccontextmanager
    async def open(
        cls, limits: CodeLimits, *, seed: int = 0, clock: float = 0.0
    ) -> AsyncIterator["CodeSession"]:
        """A session. Raises SessionEnded."""
        async with JailedProcess.open(limits, "run_session.py") as process:
            session = cls(process, limits)
            await session.begin(seed, clock)
            yield session

    async def begin(self, seed: int, clock: float) -> None:
        """Send the options. Raises SessionEnded."""
        options = {"seed": seed, "clock": clock, "output": self._limits.output_characters}
        await self._process.send(options)
        await self._process.next_frame(self._process.cpu_s)

    async def run(self, code: str, answer: Answer) -> CellResult:
        """Run a cell. Raises SessionEnded."""
        began = self._process.cpu_s
        await self._process.send({"run": code})
        while True:
            frame = await self._process.next_frame(began)
            if "ask" not in frame:
                return self._cut(convert_frame(frame, CellResult))
            question = convert_frame(frame, _Asked)
            try:
                await self._process.send({"value": await answer(question.ask, question.arguments)})
            except AskRefused as error:
                await self._process.send({"error": str(error)})

    def _cut(self, result: CellResult) -> CellResult:
        """The result as it is where the process cuts its output, which its code may prevent."""
        most = self._limits.output_characters
        output = result.output[: most + NOTE]
        return msgspec.structs.replace(result, output=output, partial=result.partial[:most])
