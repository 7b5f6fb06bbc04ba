"""The lines below the help of `toolgate` without a command: what is here, and what comes next."""

import os
from collections.abc import Iterator

import click

from config.load import settings_file
from config.settings import Settings
from gateway.cli.common.database import has_database, open_present_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.output import say
from gateway.cli.common.settings import read_settings
from gateway.cli.doctor.local_checks import is_toolgate


def print_first_look(config_file: str | None) -> None:
    """Print the help, the state of this place, and commands that suit it."""
    say(click.get_current_context().get_help() + "\n\nHere:")
    settings = read_settings(config_file)
    file = settings_file(config_file, os.environ)
    say(f"  settings: {file or 'the defaults (toolgate init writes a file)'}")
    for line in _state(settings):
        say(f"  {line}")


def _state(settings: Settings) -> Iterator[str]:
    address = f"{settings.server.host}:{settings.server.port}"
    if is_toolgate(settings.server):
        yield f"gateway:  serves at {address}"
        yield f"tools:    {_tools(settings)}"
        yield "next:     toolgate tools list, toolgate clients setup, toolgate top"
    elif has_database(settings):
        yield f"gateway:  none at {address}"
        yield "next:     toolgate serve, or toolgate doctor if it does not start"
    else:
        yield f"gateway:  none at {address}, and no database yet"
        yield "next:     toolgate import openapi FILE --name NAME, then toolgate serve"


def _tools(settings: Settings) -> str:
    """The number of tools in the database of a gateway that runs."""

    async def count() -> int:
        async with open_present_registry(settings) as registry:
            return await registry.store.count(registry.host_id)

    return f"{run(count()):,}"
