"""`toolgate migrate`: migrate the database to this release."""

import click

from config.settings import Settings
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.components import components_of
from gateway.wings.table import wing_components
from registry.database.migrate import MigrationState, status
from registry.database.migrate import migrate as apply


@click.command()
@click.option("--status", "only_status", is_flag=True, help="Show what is applied; change nothing.")
@json_option
@settings_option
def migrate(settings: Settings, only_status: bool, as_json: bool) -> None:
    """Bring the database to this release: apply the migrations that it lacks.

    Those of wings are applied if the settings switch them on. Other commands, `serve` included, do
    it by themselves; this one is for those who give the right to change tables to an administrator
    only.
    """
    applied, states = run(_migrate(settings, only_status))
    if as_json:
        print_json({"applied": applied, "migrations": states})
        return
    print_rows(
        ("component", "migration", "applied"),
        [(state.component, state.name, _when(state)) for state in states],
    )
    if not only_status:
        say(f"Applied now: {', '.join(applied) or 'nothing, all was there'}.")


def _when(state: MigrationState) -> str:
    return state.applied.isoformat(" ", "seconds") if state.applied else "pending"


async def _migrate(settings: Settings, only_status: bool) -> tuple[list[str], list[MigrationState]]:
    async with (
        open_registry(settings, migrate=False) as registry,
        registry.database.connect() as connection,
    ):
        components = (*components_of(settings), *wing_components(settings))
        applied = [] if only_status else await apply(connection, components)
        return applied, await status(connection, components)
