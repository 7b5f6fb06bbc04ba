"""`toolgate import a2a`: an agent that speaks Agent2Agent becomes a tool."""

from pathlib import Path

import click

from config.decode import absolute
from config.settings import Settings
from config.value_types import HostAndPort, HttpUrl
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.settings import settings_option
from gateway.cli.imports.report import ReportingCommand
from gateway.cli.imports.shared import (
    ImportChoice,
    ImportCommand,
    SettingType,
    import_and_report,
    import_options,
    name_option,
)
from schemas.source import A2aOptions
from schemas.urls import is_below


@click.command(cls=ReportingCommand, short_help="Import an agent (A2A) as a tool.")
@click.argument("url", type=SettingType("url", HttpUrl))
@name_option
@click.option(
    "--signed", metavar="KEYS", help="File with a JWK set: a key of it must have signed the card."
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    type=SettingType("host", HostAndPort),
    help="Further host that the agent may be called at, with a port if needed; repeatable.",
)
@click.option("--per-skill", is_flag=True, help="Add a tool for each skill of the agent.")
@import_options
@settings_option
def a2a(
    settings: Settings,
    url: str,
    name: str,
    signed: str | None,
    allowed_hosts: tuple[str, ...],
    per_skill: bool,
    choice: ImportChoice,
) -> None:
    """Import the agent at URL, or whose card URL is, as one tool of the name NAME.

    The card is read from /.well-known/agent-card.json below URL. Calls go to the first of its
    interfaces that is known here: JSON-RPC or HTTP+JSON, A2A 1.0 or 0.3. The card is pinned: where
    it changes, the tool is held back until it is accepted (toolgate tools accept).

    \b
    Examples:
      toolgate import a2a https://agents.example.com/travel --name travel
      toolgate import a2a https://agents.example.com/travel --name travel \\
          --allow-host travel.example.net --signed travel-keys.json
    """
    if is_below(url, settings.server.public_url):
        fail(f"expected an agent elsewhere, found one of this gateway: {url}", USAGE)
    keys = absolute(signed, Path.cwd()) if signed else None
    options = A2aOptions(allowed_hosts, keys, per_skill=per_skill)
    command = ImportCommand(name=name, location=url, kind="a2a", options=options)
    import_and_report(settings, command, choice)
