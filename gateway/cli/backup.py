"""`toolgate backup` and `toolgate restore` of the embedded database."""

from pathlib import Path

import click

from config.settings import Settings
from gateway.app.components import components_of
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import fail
from gateway.cli.common.output import say
from gateway.wings.table import wing_components
from registry.database.backup import back_up
from registry.database.backup import restore as restored
from registry.database.migrate import migrate


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@settings_option
def backup(settings: Settings, *, file: Path, force: bool) -> None:
    """Write a backup of the embedded database to FILE, while gateways serve.

    The backup is one consistent snapshot of everything in the database: sources, tools,
    embeddings, keys, policy, the audit log, and the data of wings. Settings, key files
    and secrets.key are not part of it: without that key stored credentials cannot be
    read. The file is for its owner only.
    """
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
    applied = run(_migrate(settings))
    say(f"Restored {file}. Migrations applied: {', '.join(applied) or 'none were pending'}.")


async def _migrate(settings: Settings) -> list[str]:
    async with (
        open_registry(settings, migrate=False) as registry,
        registry.database.connect() as connection,
    ):
        return await migrate(connection, (*components_of(settings), *wing_components(settings)))
