"""Loads the settings of commands."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from config.load import load
from config.logging import configure
from config.settings import LoggingSettings, Settings
from config.yaml_document import SettingsError
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import CONFIG_FILE, config_option

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


def how_to_get_tools(settings: Settings) -> str:
    """Hint for commands that find no tools."""
    if any(source.is_imported for source in settings.sources.values()):
        return "Nothing is imported yet; `toolgate serve` imports the sources of the settings."
    return "Nothing is imported yet. Try: toolgate import openapi YOUR-API.yaml --name api"
