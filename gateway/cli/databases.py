"""`toolgate migrate`, and `toolgate backup` and `toolgate restore` of the embedded database."""

from collections.abc import Sequence
from pathlib import Path

import click

from config.settings import Settings
from gateway.app.components import components_of
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import time_text
from gateway.wings.table import wing_components
from registry.database.backup import back_up
from registry.database.backup import restore as restored
from registry.database.migrate import MigrationState, status
from registry.database.migrate import migrate as apply


@click.command(short_help="Write a backup of the embedded database.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@settings_option
def backup(settings: Settings, *, file: Path, force: bool) -> None:
    """Write a backup of the embedded database to FILE, while gateways serve.

    The backup is one consistent snapshot of everything in the database: sources, tools,
    embeddings, keys, policy, the audit log, and the data of wings. Settings, key files
    and secrets.key are not part of it: without that key stored credentials cannot be
    read. The file is for its owner only.

    \b
    Example:
      toolgate backup /backups/toolgate.backup
    """
    if not file.absolute().parent.is_dir():
        fail(f"{file.parent}: there is no such directory")
    if file.exists() and not force:
        fail(f"{file} exists already; use --force to overwrite it")
    size = run(back_up(settings.database, file.absolute()))
    say(f"Wrote {file}: {size:,} bytes.")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settings_option
def restore(settings: Settings, *, file: Path) -> None:
    """Restore the backup in FILE into an empty embedded database.

    All of it is restored, or nothing. Then the migrations of this release are applied.
    A database that has tables is refused: name a new directory in database.data_dir.
    """
    run(restored(settings.database, file.absolute()))
    applied, _ = run(_migrate(settings, only_status=False))
    say(f"Restored {file}. Migrations applied: {', '.join(applied) or 'none were pending'}.")


@click.command()
@click.option(
    "--status", "only_status", is_flag=True, help="Show the state of migrations; apply none."
)
@click.option(
    "--check", "must_be_done", is_flag=True, help="Like --status; fail if any is pending."
)
@json_option
@settings_option
def migrate(settings: Settings, *, only_status: bool, must_be_done: bool, as_json: bool) -> None:
    """Apply pending migrations to the database.

    Migrations of a wing are applied if the settings enable it. Other commands, `serve` included,
    apply migrations themselves; this command is for installations where only an administrator has
    the right to change tables.

    A gateway of the release before goes on working with the tables of this one: migrations add,
    and only a later release removes. So an update migrates first, and then replaces the gateways
    one by one; a downgrade is the older release on the newer tables.
    """
    applied, states = run(_migrate(settings, only_status or must_be_done))
    pending = sum(state.applied is None for state in states)
    if as_json:
        print_json({"applied": applied, "migrations": states})
    else:
        _print_migrations(states, None if only_status or must_be_done else applied)
    if must_be_done and pending:
        fail(f"{pending} migrations are pending: run `toolgate migrate`")


def _print_migrations(states: Sequence[MigrationState], migrations: Sequence[str] | None) -> None:
    """The table of migrations. `migrations`: those applied now; None: none was to be applied."""
    print_rows(
        ("component", "migration", "applied"),
        [(state.component, state.name, _when(state)) for state in states],
    )
    if migrations is not None:
        say(f"Applied now: {', '.join(migrations) or 'nothing, the database is up to date'}.")


def _when(state: MigrationState) -> str:
    return time_text(state.applied) if state.applied else "pending"


async def _migrate(settings: Settings, only_status: bool) -> tuple[list[str], list[MigrationState]]:
    async with (
        open_registry(settings, migrate=False) as registry,
        registry.database.connect() as connection,
    ):
        components = (*components_of(settings), *wing_components(settings))
        applied = [] if only_status else await apply(connection, components)
        return applied, await status(connection, components)
