"""`toolgate admin`: operations of a running gateway's admin API, called by name."""

import click

from gateway.cli.common.arguments import read_object, read_pairs
from gateway.cli.common.database import run
from gateway.cli.common.output import print_json, print_rows, remark
from gateway.cli.running.client import RunningGateway, gateway_option
from gateway.cli.running.jobs import finish, wait_for_job


@click.command()
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--args", "args_json", metavar="JSON", help="Arguments as one object.")
@click.option("--no-wait", is_flag=True, help="Print a job instead of waiting for it.")
@gateway_option
def admin(
    gateway: RunningGateway,
    *,
    name: str | None,
    arguments: tuple[str, ...],
    args_json: str | None,
    no_wait: bool,
) -> None:
    """Call the operation NAME of a running gateway's admin API, or list the operations.

    The response is printed as JSON. Arguments are the parameters of the path and of the query, and
    the members of the body (or the whole body as `body`); if_match and if_none_match are the
    conditions of a change, and as_job=true runs a slow operation as a job. The command waits for
    the end of a job; Ctrl-C cancels it.

    \b
    Examples:
      toolgate admin --key-file ops.key
      toolgate admin listTools limit=5 --key-file ops.key
      toolgate admin putRule rule=no if_none_match='*' \\
        --args '{"effect": "deny", "tools": ["delete*"]}' --key-file ops.key
    """
    if name is None:
        rows = run(gateway.operations()).values()
        print_rows(
            ("operation", "scope", "what it does"),
            [(row.name, row.scope or "-", row.summary) for row in rows],
        )
        return
    given = {} if args_json is None else read_object(args_json)
    answer = run(gateway.call(name, given, read_pairs(arguments)))
    if answer.is_job and not no_wait:
        finish(run(wait_for_job(gateway, answer.value["job"], cancels=True)))
    elif answer.value is not None:
        print_json(answer.value)
    if answer.etag:
        remark(f"To change it: if_match='{answer.etag}'")
