"""`toolgate tools search`."""

from typing import Any

import click

from config.settings import Settings
from gateway.cli.commands import RESOURCES
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import warn
from gateway.cli.common.operation_parameters import given_members, members_of_call, option
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark
from gateway.cli.common.settings import how_to_get_tools
from gateway.cli.common.text import one_line
from gateway.cli.operations import Connect, check_source, client_option, declared_operations
from gateway.cli.tools.command import print_tools

RESOURCE = "search:SearchOperations"
OPERATION = declared_operations((RESOURCES + RESOURCE,))["searchTools"]
MEMBERS = {
    name: member
    for name, member in members_of_call(OPERATION).items()
    if name not in {"query", "limit"}
}
NO_VECTORS = "There are no vectors yet."
TO_MAKE_VECTORS = "`toolgate embed backfill` makes them, and so does `toolgate serve`."


@click.command(name="search")
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="Most hits."
)
@json_option
@client_option(RESOURCE, "tools:ToolOperations")
def search_(
    settings: Settings,
    connect: Connect,
    query: tuple[str, ...],
    limit: int,
    as_json: bool,
    **values: Any,
) -> None:
    """Search tools by the meaning and the words of QUERY, best first.

    \b
    Examples:
      toolgate tools search file a bug report
      toolgate tools search --source github --limit 20 release
      toolgate tools search --words create iss

    Clients get the same search by the tool search_tools. Standard error has a note if vectors are
    missing or the model is unavailable.
    """
    arguments = {"query": " ".join(query), "limit": limit, **given_members(MEMBERS, values)}
    result, is_empty = run(_search(connect, arguments))
    note = result["note"]
    if note and not is_empty:
        more = f" {TO_MAKE_VECTORS}" if note.endswith(NO_VECTORS) else ""
        warn(one_line(note) + more)
    if as_json:
        print_json(result["hits"])
        return
    print_tools(result["hits"])
    if not result["hits"]:
        remark(how_to_get_tools(settings) if is_empty else "Nothing found; try other words.")


search_.params += [option(member) for member in MEMBERS.values()]


async def _search(connect: Connect, arguments: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The search result, and whether there are no tools at all."""
    async with connect() as client:
        result: dict[str, Any] = (await client.call("searchTools", arguments)).value
        if result["hits"]:
            return result, False
        await check_source(client, arguments.get("source"))
        return result, not await client.items("listTools", {"state": "served"}, 1)
