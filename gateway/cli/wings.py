"""`toolgate NAME`: a wing's operations, called at a running gateway, and its own commands.

An attribute of this module is a group of commands, made on demand.
"""

from typing import IO

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.output import print_json, print_rows
from gateway.cli.common.settings import settings_option
from gateway.cli.common.tables import print_arguments
from gateway.cli.common.tool_arguments import arguments_of, read_object, read_pairs
from gateway.cli.running.client import gateway_options, running_gateway
from gateway.cli.running.jobs import finish, wait_for_job
from gateway.wings import table
from gateway.wings.interface import Wing
from gateway.wings.table import load_wing
from schemas.errors import ToolgateError

LIST = "operations"
HELP = """{title}: its operations, called at a running gateway.

`toolgate {name} operations` lists them, and `toolgate {name} operations
OPERATION` the arguments of one. Arguments are NAME=VALUE, or one object with
--args; the response is printed as JSON.

\b
Example:
  toolgate {name} OPERATION name=value --key-file my.key
"""


def __getattr__(name: str) -> click.Command:
    if name not in table.WINGS:
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
        return name, _operation(self._wing, name), args[1:]


def _operations(wing: Wing) -> click.Command:
    @click.command(LIST, short_help="List the operations of the wing.")
    @click.argument("name", metavar="[OPERATION]", required=False)
    @gateway_options(key_required=False)
    @settings_option
    def operations(
        settings: Settings, *, name: str | None, key_file: IO[str] | None, url: str | None
    ) -> None:
        """List the operations of the wing, or the arguments of one."""
        gateway = running_gateway(settings, wing.root, url=url, key_file=key_file)
        if name is not None:
            print_arguments(arguments_of(run(gateway.input_schema(f"{wing.name}_{name}"))))
            return
        rows = [
            (operation.name.removeprefix(f"{wing.name}_"), operation.summary)
            for operation in run(gateway.operations()).values()
        ]
        print_rows(("operation", "what it does"), [row for row in rows if row[0] != "openapi"])

    return operations


def _operation(wing: Wing, name: str) -> click.Command:
    @click.command(name)
    @click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
    @click.option("--args", "args_json", metavar="JSON", help="Arguments as one object.")
    @click.option("--no-wait", is_flag=True, help="Print a job instead of waiting for it.")
    @gateway_options(key_required=False)
    @settings_option
    def operation(
        settings: Settings,
        *,
        arguments: tuple[str, ...],
        args_json: str | None,
        no_wait: bool,
        key_file: IO[str] | None,
        url: str | None,
    ) -> None:
        """Call the operation at a running gateway.

        `operations OPERATION` instead of it lists its arguments.

        as_job=true runs a slow operation as a job. The command waits for the job, and cancels it on
        Ctrl-C.
        """
        members = {} if args_json is None else read_object(args_json)
        gateway = running_gateway(settings, wing.root, url=url, key_file=key_file)
        answer = run(gateway.call(f"{wing.name}_{name}", members, read_pairs(arguments)))
        if answer.is_job and not no_wait:
            names = (f"{wing.name}_get_job", f"{wing.name}_cancel_job")
            finish(run(wait_for_job(gateway, answer.value["job"], cancels=True, names=names)))
        elif answer.value is not None:
            print_json(answer.value)

    return operation
