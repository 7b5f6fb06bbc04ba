"""From the settings to the registry, and what becomes of a command whose database does not work."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg

from config.settings import Settings
from gateway.cli.access.acts import Act, record
from gateway.cli.common.failure import NO_DATABASE, TERMINATED, fail
from registry.database.embedded import DatabaseError
from registry.database.errors import failure
from registry.database.postgres import Database
from registry.sources.store import ToolStore
from schemas.errors import ToolgateError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registry:
    """What a command needs of an open database."""

    database: Database
    store: ToolStore
    host_id: str


@asynccontextmanager
async def open_registry(
    settings: Settings, act: Act | None = None, *, migrate: bool = True
) -> AsyncIterator[Registry]:
    """`act`: what is done with it, for the audit log."""
    async with Database.open(settings.database, wait=False, migrate=migrate) as database:
        outcome = "failed"
        try:
            yield Registry(database, ToolStore(database.pool), settings.tenant.host_id)
            outcome = "ok"
        finally:
            if act is not None:
                await record(database.pool, settings, act, outcome)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what fails on purpose becomes a message and an exit code."""
    # It warns of what is reported below, and of queries that end with the command.
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
    """Let SIGTERM end `work` as Ctrl-C does, or an embedded database would go on alone."""
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if task and signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work
