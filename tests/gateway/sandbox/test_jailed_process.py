"""Limits of the processes that stay."""

import anyio
import pytest

from gateway.sandbox.jailed_process import CodeLimits, JailedProcess, SessionEnded
from tests.polling import until

pytestmark = pytest.mark.anyio

LIMITS = CodeLimits(
    memory_bytes=2**28, cell_s=0.5, session_s=0.5, output_characters=100, frame_bytes=2**16
)
ENDLESS = {
    "seed": 0, "clock": 0, "output": 100, "files": [], "code": "while True: pass",
    "language": "python", "prelude": "", "limit": 1000,
}  # fmt: skip


async def test_cpu_time_of_a_slow_start_is_none_of_the_program() -> None:
    """The start of a process on a busy machine takes seconds; it was killed for them, and taken for
    one that has crashed, whose program is started again."""
    async with JailedProcess.open(LIMITS, "run_program.py") as process:
        await process.next_frame(process.cpu_s)
        await process.send(ENDLESS)
        with anyio.fail_after(60):
            await until(lambda: process.cpu_s > 1.7)  # as if the start had taken so long
            with pytest.raises(SessionEnded) as ended:
                await process.next_frame(process.cpu_s)
    assert ended.value.reason == "time"
