"""Processes that are ready for programs, so that a run waits for none to start."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio

from config.code import CodeSettings
from gateway.sandbox.jailed_process import CodeLimits, SessionEnded
from gateway.sandbox.program_process import Program, ProgramLimits

log = logging.getLogger("toolgate.code")

# Of the arguments of a call, and of the result of a program, as JSON. A model reads a hundredth of
# it, and what programs pass from call to call is seldom a tenth; errors name it.
FRAME_BYTES = 2 << 20
ARGUMENTS_BYTES = 16 << 20  # of the arguments of all calls of a run


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
            asked_bytes=ARGUMENTS_BYTES,
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
