"""`toolgate a2a card`: the card of an agent, at a running gateway."""

from typing import IO

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.output import print_json
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import gateway_options, running_gateway

ROOT = "/a2a-api/v1"


@click.command(name="card")
@click.argument("name")
@gateway_options(key_required=False)
@settings_option
def print_card(settings: Settings, *, name: str, key_file: IO[str] | None, url: str | None) -> None:
    """Print your card of an agent.

    It lists the tools that you may use by the agent NAME; the card for everybody is at its
    address, and names none.

    \b
    Example:
      toolgate a2a card desk
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    print_json(run(gateway.call("a2a_get_card", {"agent": name})).value)
