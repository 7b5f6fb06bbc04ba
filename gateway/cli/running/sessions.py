"""`toolgate status` and `toolgate sessions`: state of a running gateway."""

from typing import Any

import click

from gateway.cli.common.database import run
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import one_line, print_json, print_rows, remark, say
from gateway.cli.running.client import RunningGateway, gateway_option

COMMANDS = {
    "list": ("gateway.cli.running.sessions:list_", "List open sessions."),
    "end": ("gateway.cli.running.sessions:end", "End a session."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def sessions() -> None:
    """List and end sessions of clients at a running gateway."""


@click.command()
@gateway_option
@json_option
def status(gateway: RunningGateway, *, as_json: bool) -> None:
    """Show the status of a running gateway.

    \b
    Examples:
      toolgate keys create ops --scope admin:read > ops.key
      toolgate status --key-file ops.key
    """
    status_view = run(gateway.call("getStatus", {})).value
    if as_json:
        print_json(status_view)
        return
    sources = status_view.pop("sources", {})
    print_rows(("what", "value"), [(name, _cell(value)) for name, value in status_view.items()])
    print_rows(("source", "state"), [(name, _cell(value)) for name, value in sources.items()])


@click.command(name="list")
@click.option("--principal", metavar="ID", help="List the sessions of this principal only.")
@gateway_option
@json_option
def list_(gateway: RunningGateway, *, principal: str | None, as_json: bool) -> None:
    """List open sessions of all gateways that share their state.

    A pipe gets one line for each: id, principal, client, revision, toolset. The id is for `sessions
    end` only; it is not the session id of MCP.
    """
    sessions = run(gateway.items("listSessions", {"principal": principal} if principal else {}))
    if as_json:
        print_json(sessions)
        return
    columns = ("id", "principal", "client", "revision", "toolset")
    print_rows(
        columns, [tuple(_cell(session.get(name)) for name in columns) for session in sessions]
    )
    if not sessions:
        remark("No sessions are open.")


@click.command()
@click.argument("session")
@yes_option
@gateway_option
def end(gateway: RunningGateway, *, session: str, yes: bool) -> None:
    """End SESSION, an id of `sessions list`, at all gateways."""
    if not yes:
        ask("end", f"the session {session}")
    run(gateway.call("endSession", {"session": session}))
    say(f"Ended {session}.")


def _cell(value: Any) -> str:
    return "-" if value is None else one_line(str(value))
