"""`toolgate database move` and `toolgate database reopen`: another server for the same data."""

import os
from functools import partial
from pathlib import Path

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict
from rich.progress import Progress, TaskID

from config.file_edit import UneditableFile, edit_file
from config.load import PREFIX, settings_file
from config.settings import Settings
from config.yaml_document import REFERENCE, InterpolationError, interpolate
from gateway.app.database_move import move_database, reopen_database
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail, warn
from gateway.cli.common.options import CONFIG_FILE, json_option
from gateway.cli.common.output import err, note, print_json, print_rows, say
from gateway.cli.common.progress import progress_bar
from gateway.cli.common.settings import settings_option

URL_VARIABLES = (f"{PREFIX}DATABASE__URL", f"{PREFIX}DATABASE")


@click.group()
def database() -> None:
    """Move the database to another server."""


@database.command(short_help="Move everything to another PostgreSQL.")
@click.option(
    "--to",
    "target",
    metavar="URL",
    required=True,
    help="An empty database: postgresql://USER@HOST/NAME. Write a password as a reference to a "
    "variable or file: --to '${MANAGED_URL}', or leave it to ~/.pgpass.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="Time for gateways that were stopped to finish their calls [default: server.drain_s].",
)
@click.option("--dry-run", is_flag=True, help="Check both databases, and change nothing.")
@json_option
@settings_option
def move(
    settings: Settings, *, target: str, wait_s: float | None, dry_run: bool, as_json: bool
) -> None:
    """Move everything in the database to another PostgreSQL, and point the settings to it.

    \b
      toolgate database move --to '${MANAGED_URL}' --dry-run
      toolgate database move --to '${MANAGED_URL}'

    Stop gateways and workers first, because what they would write during the copy would be lost;
    the command waits for those that still finish calls, and refuses while others are connected.
    The copy is one transaction. Then the rows of every table are counted and the audit log is
    verified on both sides, and `database.url` is written to the settings file, as given here.

    The old database stays as it is, but closed: nothing opens it by accident. A move that was
    interrupted continues when the command runs again.
    """
    url = _read_target(target)
    wait = settings.server.drain_s if wait_s is None else wait_s
    with progress_bar() as bar:
        task = bar.add_task("Copying", total=None, visible=False)
        plan = run(
            move_database(
                settings,
                url,
                wait,
                waiting=_Waiting(),
                copied=partial(_advance, bar, task),
                warn=warn,
                dry_run=dry_run,
            )
        )
    rows = sum(plan.tables.values())
    if as_json:
        print_json(plan)
    else:
        if dry_run:
            print_rows(("table", "rows"), [(name, f"{n:,}") for name, n in plan.tables.items()])
        say(
            f"{'Would move' if dry_run else 'Moved'} {len(plan.tables)} tables with {rows:,} rows "
            f"({plan.size_bytes:,} bytes) from {plan.source} to {plan.target}."
        )
    if not dry_run:
        _point_settings(target, as_json)


@database.command(name="reopen")
@settings_option
def reopen_(settings: Settings) -> None:
    """Let a database be used again that a move has closed.

    For a move that is given up. What was written to the other database since is not here.
    """
    was_closed = run(reopen_database(settings))
    say("The database can be used again." if was_closed else "The database was not closed.")


def _read_target(text: str) -> str:
    try:
        url, _ = interpolate(text, os.environ, Path.cwd())
        conninfo_to_dict(url)
    except InterpolationError as error:
        fail(f"--to: {error}", USAGE)
    except psycopg.ProgrammingError:
        fail("--to: expected a URL such as postgresql://USER@HOST/NAME", USAGE)
    if not url.startswith(("postgresql://", "postgres://")):
        fail("--to: expected a URL such as postgresql://USER@HOST/NAME", USAGE)
    if _has_password(text):
        fail(
            "--to: the list of processes shows a password in an argument to everyone: put the URL "
            "into a variable, and write --to '${MANAGED_URL}'",
            USAGE,
        )
    return url


def _has_password(text: str) -> bool:
    """Whether an address has a password that is not a reference."""
    try:
        named = conninfo_to_dict(REFERENCE.sub("", text))
    except psycopg.ProgrammingError:  # references are more than its parts
        return False
    return bool(named.get("password") or named.get("sslpassword"))


def _advance(bar: Progress, task: TaskID, table: str, total: int) -> None:
    bar.update(task, description=f"Copying {table}", total=total, visible=True)
    bar.advance(task)


class _Waiting:
    """Prints the sessions that a move waits for, when they change."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, sessions: str) -> None:
        if sessions != self._last:
            note(f"Waiting for the sessions of {sessions} to end.")
        self._last = sessions


def _point_settings(target: str, as_json: bool) -> None:
    """Write the address into the settings file, or tell where to write it. With --json the text
    goes to standard error."""
    tell = err.print if as_json else say
    named = click.get_current_context().meta.get(CONFIG_FILE)
    variable = next((name for name in URL_VARIABLES if os.environ.get(name)), None)
    if variable is not None:
        tell(f"Set the variable {variable}, which overrides the settings file, to {target}")
        return
    file = settings_file(named, os.environ)
    line = f'database: {{url: "{target}"}}'
    if file is None:
        tell(f"There is no settings file. Give gateways and commands this one: {line}")
        return
    try:
        edit_file(file, "database", "url", target)
    except (OSError, UneditableFile) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        tell(f"Write this to {file}, which could not be changed ({reason}): {line}")
    else:
        tell(f"Wrote database.url to {file}. Start the gateways again.")
