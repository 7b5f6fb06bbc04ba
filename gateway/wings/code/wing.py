"""Programs over tools as a wing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from config.code import CodeSettings
from gateway.sandbox.jailed_process import SessionEnded
from gateway.wings.code.operations import CodeOperations, ProgramPool
from gateway.wings.interface import Checks, Finding, Wing, WingContributions, WingParts


@asynccontextmanager
async def open_code(parts: WingParts) -> AsyncIterator[WingContributions]:
    pool = ProgramPool(parts.settings)
    yield WingContributions(operations=CodeOperations(parts, pool).operations, tasks=[pool.run])


async def check_sandbox(
    settings: CodeSettings, _tenant: str, _pool: object
) -> AsyncIterator[Finding]:
    try:
        async with ProgramPool(settings).open():
            yield Finding("ok", "programs can be run")
    except SessionEnded as ended:
        yield Finding("failed", f"programs cannot be run here: {ended}")


CHECKS: Checks = check_sandbox
WING = Wing(
    name="code",
    title="Code",
    open=open_code,
    checks=CHECKS,
    commands={"run": ("gateway.cli.code:run_file", "Run a program over tools.")},
)
