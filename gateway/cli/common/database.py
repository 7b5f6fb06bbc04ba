"""Opens the registry for commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg
from msgspec import Struct

from config.settings import Settings
from gateway.app.components import components_of
from gateway.audit.command_trail import CommandTrail, open_trail
from gateway.cli.common.audited_commands import AuditedCommand
from gateway.cli.common.lazy import import_later
from gateway.cli.common.output import err
from registry.database.embedded_server import (
    DatabaseError,
    directory_of,
    has_cluster,
    running_instances,
)
from registry.database.postgres import Database, failure
from schemas.errors import ToolgateError

if TYPE_CHECKING:
    from registry.sources.tool_store import ToolStore

make_store = import_later("registry.sources.tool_store:ToolStore")  # with all that writes imports


class Registry(Struct, frozen=True):
    """Dependencies of commands on an open database."""

    database: Database
    host_id: str
    trail: CommandTrail

    @property
    def store(self) -> "ToolStore":
        store: ToolStore = make_store(self.database.pool)
        return store


@asynccontextmanager
async def open_registry(
    settings: Settings, act: AuditedCommand | None = None, *, migrate: bool = True
) -> AsyncIterator[Registry]:
    """`act`: the change to record in the audit log."""
    _note_instances(settings)
    opened = Database.open(
        settings.database, wait=False, migrate=migrate, components=components_of(settings)
    )
    async with opened as database, open_trail(database.pool, settings) as trail:
        outcome = "failed"
        try:
            yield Registry(database, settings.tenant.host_id, trail)
            outcome = "ok"
        finally:
            if act is not None:
                await trail.add(act.entry(settings, outcome))


def has_database(settings: Settings) -> bool:
    """Whether there is one; an embedded database that was never used is not."""
    return has_cluster(settings.database)


@asynccontextmanager
async def open_present_registry(settings: Settings) -> AsyncIterator[Registry]:
    """The registry as it is, without migrations. Raises ToolgateError where it cannot be read."""
    try:
        async with open_registry(settings, migrate=False) as registry:
            yield registry
    except psycopg.Error as error:
        raise ToolgateError(failure(error)) from error


def _note_instances(settings: Settings) -> None:
    """Name the databases that run while the one that a command opens does not: a person who looks
    for the tools of a gateway that runs may mean another one."""
    for name in running_instances(settings.database):
        err.print(
            f"This is the database in {directory_of(settings.database)}, which no gateway uses. "
            f"That of the instance {name!r} is in use: TOOLGATE_DATABASE__INSTANCE={name} chooses "
            "it, and so does -c with its settings file.",
            style="dim",
        )


def database_problem(error: Exception) -> str | None:
    """The reason why a command failed at the database, and its remedy. None: another error."""
    if isinstance(error, psycopg.Error):
        return failure(error)
    return str(error) if isinstance(error, DatabaseError) else None
