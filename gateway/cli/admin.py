"""`toolgate admin`: operations of the admin API, called by name, here or at a running gateway."""

from collections.abc import Sequence
from typing import IO, Any

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.options import tenant_option
from gateway.cli.common.output import print_json, print_rows, remark
from gateway.cli.common.settings import settings_option
from gateway.cli.common.tool_arguments import read_object, read_pairs
from gateway.cli.operations import open_client
from gateway.cli.running.client import GatewayAnswer, gateway_options
from gateway.cli.running.jobs import finish, wait_for_job


@click.command()
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--args", "args_json", metavar="JSON", help="Arguments as one object.")
@click.option("--no-wait", is_flag=True, help="Print a job instead of waiting for it.")
@tenant_option
@gateway_options(key_required=False, local=True)
@settings_option
def admin(
    settings: Settings,
    *,
    name: str | None,
    arguments: tuple[str, ...],
    args_json: str | None,
    no_wait: bool,
    tenant: str | None,
    url: str | None,
    key_file: IO[str] | None,
) -> None:
    """Call the operation NAME of the admin API, or list the operations.

    Without --url and --key-file the operation runs here, on the database of the settings; those
    about a gateway that runs need one. The response is printed as JSON. Arguments are the
    parameters of the path and of the query, and the members of the body (or the whole body as
    `body`); if_match and if_none_match are the conditions of a change, and as_job=true runs a slow
    operation as a job. The command waits for the end of a job; Ctrl-C cancels it.

    \b
    Examples:
      toolgate admin
      toolgate admin listTools limit=5 --key-file ops.key
      toolgate admin putRule rule=no if_none_match='*' \\
        --args '{"effect": "deny", "tools": ["delete*"]}' --key-file ops.key
    """
    members = {} if args_json is None else read_object(args_json)
    texts = read_pairs(arguments)

    async def list_operations() -> Sequence[tuple[str, str, str]]:
        async with open_client(settings, url=url, key_file=key_file, tenant=tenant) as client:
            return await client.summaries()

    async def call(operation: str) -> tuple[GatewayAnswer, Any]:
        """The answer, and the job that it is after its end."""
        async with open_client(settings, url=url, key_file=key_file, tenant=tenant) as client:
            answer = await client.call(operation, members, texts)
            if not answer.is_job or no_wait:
                return answer, None
            return answer, await wait_for_job(client, answer.value["job"], cancels=True)

    if name is None:
        print_rows(("operation", "scope", "what it does"), run(list_operations()))
        return
    answer, job = run(call(name))
    if job is not None:
        finish(job)
    elif answer.value is not None:
        print_json(answer.value)
    if answer.etag:
        remark(f"To change it: if_match='{answer.etag}'")
