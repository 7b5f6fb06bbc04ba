"""`toolgate tools list`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.options import json_option, source_option
from gateway.cli.common.output import print_json, print_rows, remark
from gateway.cli.common.settings import how_to_get_tools
from gateway.cli.common.text import first_line
from gateway.cli.operations import Connect, check_source, client_option

COLUMNS = ("name", "source", "what it does")
COST_COLUMNS = ("tokens", *COLUMNS)
BY_HAND = "-"  # in the column of sources

Json = Mapping[str, Any]


@click.command(name="list")
@source_option
@click.option("--tokens", is_flag=True, help="Show the tokens of each tool, most expensive first.")
@click.option("--profile", metavar="NAME", help="Show the tokens for clients of this profile.")
@click.option("--disabled", is_flag=True, help="List the disabled tools instead.")
@json_option
@client_option("tools:ToolOperations")
def list_(
    settings: Settings,
    connect: Connect,
    source: str | None,
    tokens: bool,
    profile: str | None,
    disabled: bool,
    as_json: bool,
) -> None:
    """List the tools by name.

    \b
    Examples:
      toolgate tools list --source pets
      toolgate tools list --tokens --profile cursor

    A pipe gets one line for each: name, source, description (or the reason why the tool is held
    back). --tokens adds the tokens (characters / 4) of its entry in a list; * marks shortened
    entries.
    """
    among = {} if source is None else {"source": source}
    if tokens or profile:
        chosen = {} if profile is None else {"profile": profile}
        _print_costs(run(_tools(connect, "listCosts", {**among, **chosen})), as_json)
        return
    state = {"state": "disabled"} if disabled else {}
    tools = run(_tools(connect, "listTools", {**among, **state}))
    tools = [tool for tool in tools if disabled or tool["state"] != "disabled"]
    if as_json:
        print_json(tools)
        return
    print_tools(tools)
    held_count = sum(tool["state"] == "held" for tool in tools)
    if disabled:
        remark("To enable one: toolgate tools enable NAME" if tools else "")
    elif tools:
        remark(f"{len(tools)} tools. Details of one: toolgate tools show NAME")
    else:
        remark(how_to_get_tools(settings))
    if held_count:
        remark(f"{held_count} of them wait to be accepted: toolgate tools accept --all --diff")


async def _tools(connect: Connect, operation: str, among: Json) -> list[dict[str, Any]]:
    async with connect() as client:
        tools = await client.items(operation, among)
        if not tools:
            await check_source(client, among.get("source"))
        return tools


def print_tools(tools: Sequence[Json]) -> None:
    print_rows(COLUMNS, [(tool["name"], tool["source"] or BY_HAND, _about(tool)) for tool in tools])


def _about(tool: Json) -> str:
    if tool.get("held_reason"):
        return f"held back: {tool['held_reason']}"
    return first_line(tool["title"] or tool["description"])


def _print_costs(tools: Sequence[Json], as_json: bool) -> None:
    """Print the most expensive tools first, omitted ones last."""
    order = sorted(tools, key=lambda tool: (-(tool["tokens"] or 0), tool["tool"]))
    if as_json:
        print_json(order)
        return
    print_rows(COST_COLUMNS, [_cost_row(tool) for tool in order])
    costs = [tool["tokens"] for tool in tools if tool["tokens"] is not None]
    shortened = sum(tool["shortened"] for tool in tools)
    if tools:
        remark(
            f"{len(costs)} tools, {sum(costs)} tokens (characters / 4) as profile "
            f"{tools[0]['profile']} lists them; {shortened} shortened, "
            f"{len(tools) - len(costs)} left out."
        )


def _cost_row(tool: Json) -> tuple[str, str, str, str]:
    if tool["tokens"] is None:
        return "", tool["tool"], tool["source"], f"left out: {tool['left_out']}"
    name = tool["tool"]
    if tool["name"] != name:
        name = f"{tool['name']} ({name})"
    cost = f"{tool['tokens']}{'*' if tool['shortened'] else ''}"
    return cost, name, tool["source"], first_line(tool["title"] or tool["description"])
