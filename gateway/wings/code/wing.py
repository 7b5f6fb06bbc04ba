"""Programs over tools as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString

from config.code import CodeSettings
from gateway.operations.resource_view import ResourceView
from gateway.sandbox.jailed_process import SessionEnded
from gateway.wings.code.operations import CodeOperations, languages_of
from gateway.wings.code.program_pool import ProgramPool
from gateway.wings.interface import Checks, Finding, Wing, WingContributions, WingParts
from registry.database.migrate import Component
from registry.database.person_rows import HeldRows

PERSONAL_ROWS: tuple[tuple[str, LiteralString], ...] = (
    ("runs of programs", "code_run_t"),
    ("learned schemas of results", "code_shape_t"),
)
OF_PERSON: LiteralString = "r.host_id = %(host)s AND r.principal = %(person)s"


@asynccontextmanager
async def open_code(parts: WingParts) -> AsyncIterator[WingContributions]:
    pool = ProgramPool(parts.settings)
    programs = CodeOperations(parts, pool)
    runner = programs.runner
    try:
        yield WingContributions(
            operations=programs.operations,
            pages=PAGES,
            tasks=[pool.run, runner.run],
            listed=await pool.begin(),
            complete_results=runner.learned.complete if parts.settings.learned_results else None,
            erasers=[
                HeldRows(place=place, table=table, pool=lambda: parts.pool, condition=OF_PERSON)
                for place, table in PERSONAL_ROWS
            ],
        )
    finally:
        await pool.close()


async def check_sandbox(
    settings: CodeSettings, _tenant: str, _pool: object
) -> AsyncIterator[Finding]:
    try:
        async with ProgramPool(settings).open():
            pass
        languages = " and ".join(languages_of(settings))
        yield Finding("ok", f"programs can be run, in {languages}")
    except SessionEnded as ended:
        yield Finding("failed", f"programs cannot be run here: {ended}")


PAGES = (
    ResourceView(
        title="Runs of programs",
        path="code",
        lists="code_list_runs",
        columns=(
            ("run", "Run", "code"),
            ("tool", "Tool", "code"),
            ("state", "State", "badge"),
            ("calls", "Calls", "number"),
            ("pending", "Waiting", "number"),
            ("started", "Started", "time"),
        ),
        empty="Programs that wait for approvals, or go on behind a pause or a failure.",
    ),
)
CHECKS: Checks = check_sandbox
MIGRATIONS = Component("code", importlib.resources.files("gateway.wings.code").joinpath("sql"))
WING = Wing(
    name="code",
    title="Code",
    open=open_code,
    migrations=MIGRATIONS,
    checks=CHECKS,
    commands={
        "run": ("gateway.cli.code:run_file", "Run a program over tools."),
        "runs": ("gateway.cli.code:list_runs", "List your runs of programs."),
    },
    no_job_tools="run_code shows and cancels its runs, whose ids are those of the jobs",
)
