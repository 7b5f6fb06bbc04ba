"""Loads the settings and opens the registry for commands."""

import asyncio
import functools
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any, TypeVar

import click
import psycopg
from msgspec.structs import replace

from config.load import load
from config.logging import configure
from config.settings import LoggingSettings, Settings
from config.yaml_document import SettingsError
from gateway.app.components import components_of
from gateway.audit.command_trail import CommandTrail, open_trail
from gateway.cli.common.audited_commands import AuditedCommand
from gateway.cli.common.failure import NO_DATABASE, TERMINATED, USAGE, fail
from gateway.cli.common.options import CONFIG_FILE, config_option
from gateway.cli.common.output import err
from registry.database.embedded_server import (
    DatabaseError,
    directory_of,
    has_cluster,
    running_instances,
)
from registry.database.postgres import Database, failure
from registry.sources.tool_store import ToolStore
from schemas.errors import ToolgateError

F = TypeVar("F", bound=Callable[..., Any])


def settings_option(command: F) -> F:
    """Add `--config FILE` and pass the `Settings` as the first argument."""

    @config_option
    @functools.wraps(command)
    def read_and_call(config_file: str | None, **kwargs: Any) -> Any:
        settings = read_settings(named_file(config_file))
        configure(_quieter(settings.logging))
        return command(settings, **kwargs)

    return read_and_call  # type: ignore[return-value]  # click keeps the signature out of the types


def named_file(config_file: str | None) -> str | None:
    """The file given by --config, before the command (`toolgate -c FILE ...`) or after it."""
    meta = click.get_current_context().meta
    named: str | None = config_file or meta.get(CONFIG_FILE)
    meta[CONFIG_FILE] = named
    return named


def read_settings(config_file: str | None) -> Settings:
    try:
        return load(config_file, os.environ)
    except SettingsError as error:
        fail(str(error), USAGE)


def _quieter(logging: LoggingSettings) -> LoggingSettings:
    """Log settings for commands: they print their own results, so only errors are logged."""
    return replace(logging, level="error") if logging.level in {"info", "warning"} else logging


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registry:
    """Dependencies of commands on an open database."""

    database: Database
    store: ToolStore
    host_id: str
    trail: CommandTrail


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
            yield Registry(database, ToolStore(database.pool), settings.tenant.host_id, trail)
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


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; expected errors become a message and an exit code."""
    # psycopg warns of errors reported below, and of queries that end with the command.
    logging.getLogger("psycopg").setLevel("ERROR")
    try:
        return asyncio.run(_stoppable(work))
    except DatabaseError as error:
        fail(str(error), NO_DATABASE)
    except psycopg.Error as error:
        fail(failure(error), NO_DATABASE)
    except ToolgateError as error:
        fail(str(error))
    except asyncio.CancelledError:
        fail("terminated", TERMINATED)


async def _stoppable(work: Coroutine[Any, Any, T]) -> T:
    """Cancel `work` on SIGTERM as on Ctrl-C; else an embedded database would be orphaned."""
    task = asyncio.current_task()
    if task and current_thread() is main_thread():  # no other may handle signals
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored, as under nohup
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work
