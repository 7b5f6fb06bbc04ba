"""`toolgate doctor`: problems of this installation, and their remedies."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import click
from rich.table import Table
from rich.text import Text

from config.load import load, settings_file
from config.logging import configure
from config.settings import LoggingSettings, Settings
from config.yaml_document import SettingsError
from gateway.app.access_for_commands import stored_in
from gateway.app.components import has_jobs
from gateway.cli.common.checks import MARKS, STYLES, Check, collect
from gateway.cli.common.database import open_present_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.mcp_connections import open_lister
from gateway.cli.common.options import config_option, json_option
from gateway.cli.common.output import out, print_json, print_rows
from gateway.cli.common.settings import named_file
from gateway.cli.common.text import harmless
from gateway.cli.common.unmatched_patterns import (
    idle_in_settings,
    idle_patterns,
    rules_not_evaluated,
)
from gateway.cli.doctor.environment import database, import_checks, missing_resources, wings
from gateway.cli.doctor.identity import identity
from gateway.cli.doctor.local_checks import (
    credentials,
    files,
    functions,
    hooks,
    port,
    python,
    scripts,
    sealing,
    shadows,
    unused_scripts,
    workers,
)
from gateway.cli.doctor.registry import (
    approvers,
    backups,
    costs,
    embeddings,
    held_back,
    hook_runs,
    jobs,
    python_services,
    schedules,
    serving,
    shared_state,
    source_checks,
    toolsets,
)
from gateway.cli.doctor.route import steps_of
from schemas.errors import ToolgateError
from schemas.mcp.revisions import V2025_11_25

COMMANDS = {
    "login": ("gateway.cli.doctor.login:login", "Walk the way of a login as a client does."),
    "source": ("gateway.cli.doctor.source:source", "Walk the way to an account at a source."),
}


class DoctorGroup(LazyGroup):
    """A word that is no command is the name of a source."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_source = not args[0].startswith("-") and args[0] not in (*COMMANDS, "help")
        return super().resolve_command(ctx, ["source", *args] if is_source else args)


@click.group(cls=DoctorGroup, lazy=COMMANDS, invoke_without_command=True)
@click.option(
    "--route",
    metavar="METHOD",
    help="Instead of checks, print the steps that a message of this method, as tools/call, takes "
    "through the gateway with these settings, and the file of each.",
)
@click.option(
    "--revision",
    metavar="DATE",
    help="With --route: the revision of MCP. [default: 2025-11-25]",
)
@config_option
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    config_file: str | None,
    route: str | None,
    revision: str | None,
    as_json: bool,
) -> None:
    """Check the installation, the settings, the database and the sources.

    With the name of a source, walk the way to an account there: see `toolgate doctor source`.

    Exit code 1 when something fails; warnings alone do not.
    """
    if ctx.invoked_subcommand is not None:
        named_file(config_file)
        return
    if route is not None:
        _print_route(named_file(config_file), route, revision or V2025_11_25.name, as_json)
        return
    if revision is not None:
        fail("--revision belongs to a route: name its method with --route", USAGE)
    checks = list(_checks(named_file(config_file)))
    if as_json:
        print_json(checks)
    else:
        _print(checks)
    if any(check.status == "failed" for check in checks):
        ctx.exit(FAILED)


def _print_route(config_file: str | None, method: str, revision: str, as_json: bool) -> None:
    steps = steps_of(load(config_file, os.environ), method, revision)
    if as_json:
        print_json([step._asdict() for step in steps])
    else:
        print_rows(("stage", "step", "file"), steps)


def _checks(config_file: str | None) -> Iterator[Check]:
    yield python()
    yield from shadows()
    yield files()
    try:
        settings = load(config_file, os.environ)
    except SettingsError as error:
        yield from (Check("settings", "failed", str(problem)) for problem in error.problems)
        return
    file = settings_file(config_file, os.environ)
    yield Check("settings", "ok", str(file) if file else "defaults, without a settings file")
    yield port(settings.server)
    yield from sealing(settings.state)
    yield from workers(settings)
    yield from serving(settings)
    yield from run(collect(identity(settings)))
    yield from python_services(settings.sources)
    yield from run(collect(missing_resources(settings)))
    yield from functions(settings.functions)
    yield from hooks(settings)
    yield from run(scripts(settings.scripts))
    configure(LoggingSettings(level="error", format=settings.logging.format, access=False))
    yield from run(_registry(settings))


async def _registry(settings: Settings) -> list[Check]:
    checks: list[Check] = []
    try:
        async with open_present_registry(settings) as registry:
            checks += [check async for check in database(registry.database, settings)]
            if any(check.status != "ok" for check in checks):
                return [*checks, *[check async for check in _of_settings(settings)]]
            checks += [check async for check in wings(settings, registry.database.pool)]
            sources = await registry.store.sources(registry.host_id)
            checks += import_checks(settings, sources)
            stored = await stored_in(settings, registry.database.pool)
            async with open_lister(settings, stored) as lister:
                for source in sources:
                    checks += [check async for check in source_checks(source, settings, lister)]
            tools = await registry.store.tools(registry.host_id)
            checks += credentials(settings, tools, stored)
            checks += unused_scripts(settings.scripts, tools)
            if settings.toolsets:
                checks += [check async for check in toolsets(settings, tools, sources)]
            checks += costs(settings, tools)
            checks += [check async for check in rules_not_evaluated(settings, registry)]
            checks += [check async for check in idle_patterns(settings, registry)]
            checks += [check async for check in shared_state(registry.database)]
            checks += [check async for check in approvers(settings, registry)]
            checks += [check async for check in embeddings(settings, registry)]
            checks += [check async for check in held_back(registry)]
            checks += [check async for check in hook_runs(settings, registry)]
            checks += [check async for check in backups(settings)]
            if has_jobs(settings):
                checks.append(await jobs(registry.database, settings.jobs))
                pool = registry.database.pool
                checks += [check async for check in schedules(pool, registry.host_id)]
    except ToolgateError as error:
        checks.append(Check("database", "failed", str(error)))
    return checks


async def _of_settings(settings: Settings) -> AsyncIterator[Check]:
    """Checks of wings and patterns without tables, as before the first start."""
    async for check in wings(settings):
        yield check
    for place in idle_in_settings(settings):
        yield Check("patterns", "warning", str(place))


def _print(checks: list[Check]) -> None:
    if not out.is_terminal:
        print_rows(("", "", ""), [(check.status, check.name, check.detail) for check in checks])
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    for check in checks:
        style = STYLES[check.status]
        table.add_row(Text(MARKS[check.status], style), check.name, harmless(check.detail))
    out.print(table, soft_wrap=False)
    counts = Counter(check.status for check in checks)
    out.print(f"{counts['ok']} ok, {counts['warning']} to look at, {counts['failed']} failed")
