"""`toolgate NAME`: a wing's operations, called at a running gateway, and its own commands.

An attribute of this module is the group of the wing of that name, made on demand.
"""

import sys
from typing import Any

import click

from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.output import print_json, print_rows
from gateway.cli.running.admin import asked, gateway_address, received
from gateway.cli.tools.arguments import json_or_text, read_object, read_pairs
from gateway.wings.abc import Wing
from gateway.wings.table import WINGS, load_wing
from schemas.errors import ToolgateError
from schemas.jsonrpc import decode_json

LIST = "operations"
HELP = """{title}: its operations, called at a running gateway.

`toolgate {name} operations` lists them. Arguments are NAME=VALUE, or one object
with --args; the answer is printed as JSON.

\b
Example:
  toolgate {name} OPERATION name=value --token - < token.txt
"""


def __getattr__(name: str) -> click.Command:
    if name not in WINGS:
        raise AttributeError(name)
    try:
        return WingGroup(load_wing(name))
    except ToolgateError as error:
        fail(str(error), USAGE)


class WingGroup(LazyGroup):
    """The commands of a wing: its own, and one for each of its operations."""

    def __init__(self, wing: Wing) -> None:
        text = HELP.format(title=wing.title or wing.name, name=wing.name)
        commands = {**wing.commands, LIST: ("", "List the operations.")}
        super().__init__(wing.name, lazy=commands, help=text)
        self._wing = wing

    def load(self, name: str) -> click.Command:
        return _operations(self._wing) if name == LIST else super().load(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name == "help" or name.startswith("-"):
            return super().resolve_command(ctx, args)
        return name, _operation(f"{self._wing.name}_{name}", name), args[1:]


def _gateway_options(command: Any) -> Any:
    url = click.option(
        "--url", metavar="URL", help="The gateway [default: as the settings have it]."
    )
    token = click.option("--token", metavar="TEXT", help="A bearer token; - reads it.")
    return token(url(command))


def _operations(wing: Wing) -> click.Command:
    @click.command(LIST)
    @_gateway_options
    @settings_option
    def operations(settings: Settings, token: str | None, url: str | None) -> None:
        """List the operations of the wing."""
        address = f"{gateway_address(settings, url)}{wing.root}/openapi.json"
        said, status = run(received("GET", address, _secret(token)))
        if status != 200:
            fail(f"{address} has no description of the operations (HTTP status {status})")
        paths = decode_json(said)["paths"].values()
        found = [one for methods in paths for one in methods.values()]
        rows = [(one["operationId"].removeprefix(f"{wing.name}_"), one["summary"]) for one in found]
        print_rows(("OPERATION", "WHAT IT DOES"), [row for row in rows if row[0] != "openapi"])

    return operations


def _operation(method: str, name: str) -> click.Command:
    @click.command(name)
    @click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
    @click.option("--args", "args_json", metavar="JSON", help="Arguments as one object.")
    @_gateway_options
    @settings_option
    def operation(
        settings: Settings,
        arguments: tuple[str, ...],
        args_json: str | None,
        token: str | None,
        url: str | None,
    ) -> None:
        """Call the operation at a running gateway."""
        given = {} if args_json is None else read_object(args_json)
        pairs = {key: json_or_text(text) for key, text in read_pairs(arguments).items()}
        address = f"{gateway_address(settings, url)}{settings.rpc.path}"
        print_json(run(asked(address, _secret(token), method, {**given, **pairs})))

    return operation


def _secret(token: str | None) -> str | None:
    return sys.stdin.read().strip() if token == "-" else token  # noqa: S105 - stdin
