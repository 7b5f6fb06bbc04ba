"""`toolgate backup`: a backup to a file, and those of the schedule."""

from collections.abc import Sequence
from pathlib import Path

import click

from config.settings import Settings
from gateway.admin.resources.backups import BackupReport, StoredBackup, backups_of, opened_database
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import time_text
from gateway.cli.databases import backup as to_file


class FileOrCommand(click.Group):
    """`toolgate backup FILE` beside `toolgate backup list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["file", *args]
        return super().parse_args(ctx, args)


@click.group(cls=FileOrCommand)
def backup() -> None:
    """Back up the database to a file, and list and verify backups of the schedule.

    \b
      toolgate backup FILE     the same as `toolgate backup file FILE`
    """


backup.add_command(to_file, "file")


@backup.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, *, as_json: bool) -> None:
    """List the backups in backups.to, the newest first."""
    stored = run(_all(settings))
    if as_json:
        print_json(stored)
        return
    print_rows(
        ("backup", "created", "bytes", "rows"),
        [
            (entry.name, time_text(entry.created), f"{entry.bytes:,}",
             f"{sum(entry.rows.values()):,}")
            for entry in stored
        ],
    )  # fmt: skip


@backup.command(name="run", short_help="Make a backup in backups.to now.")
@settings_option
def run_(settings: Settings) -> None:
    """Make a backup in backups.to now, and delete those beyond backups.keep."""
    stored_backup = run(_make(settings))
    rows = sum(stored_backup.rows.values())
    say(f"Wrote {stored_backup.name}: {stored_backup.bytes:,} bytes, {rows:,} rows.")


@backup.command(short_help="Verify a backup, or the newest one.")
@click.argument("name", required=False)
@click.option(
    "--restore", "restores", is_flag=True,
    help="Restore it into a new database of the same server, count its rows, and drop it.",
)  # fmt: skip
@json_option
@settings_option
def verify(settings: Settings, name: str | None, *, restores: bool, as_json: bool) -> None:
    """Verify the backup NAME in backups.to, or the newest one.

    Its size, its SHA-256 and its tables are compared with the manifest that was written with it;
    with --restore the rows of each table, too.
    """
    report = run(_verify(settings, name, restores=restores))
    if as_json:
        print_json(report)
    elif not report.problems:
        verb = "restored" if report.restored else "read"
        say(f"{report.name} is whole: {report.tables} tables, {report.rows:,} rows, {verb}.")
    if report.problems:
        fail(f"{report.name} is broken: {'; '.join(report.problems)}")


@backup.command(short_help="Copy a backup to a file.")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@settings_option
def fetch(settings: Settings, name: str, file: Path) -> None:
    """Copy the backup NAME to FILE, for `toolgate restore FILE`."""
    run(_fetch(settings, name, file))
    say(f"Wrote {file}.")


async def _all(settings: Settings) -> Sequence[StoredBackup]:
    return await backups_of(settings.backups).all()


async def _fetch(settings: Settings, name: str, file: Path) -> None:
    await backups_of(settings.backups).fetch(name, file)


async def _make(settings: Settings) -> StoredBackup:
    async with opened_database(settings) as database:
        return await backups_of(settings.backups).make(database)


async def _verify(settings: Settings, name: str | None, *, restores: bool) -> BackupReport:
    backups = backups_of(settings.backups)
    if name is None:
        stored = await backups.all()
        if not stored:
            fail(f"{settings.backups.to} has no backup")
        name = stored[0].name
    if not restores:
        return await backups.verify(name)
    async with opened_database(settings) as database:
        return await backups.verify(name, database)
