"""Runs the coroutines of commands."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from threading import current_thread, main_thread
from typing import Any, TypeVar

import click

from gateway.cli.common.failure import NO_DATABASE, TERMINATED, fail
from gateway.cli.common.lazy import import_later
from schemas.errors import ToolgateError

T = TypeVar("T")

# psycopg takes half of the start of a command, and those of a running gateway need none
database_problem = import_later("gateway.cli.common.database:database_problem")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; expected errors become a message and an exit code."""
    # psycopg warns of errors reported below, and of queries that end with the command.
    logging.getLogger("psycopg").setLevel("ERROR")
    try:
        return asyncio.run(_stoppable(work))
    except click.ClickException:
        raise
    except Exception as error:
        if message := database_problem(error):
            fail(message, NO_DATABASE)
        if isinstance(error, ToolgateError):
            fail(str(error))
        raise
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
