"""`toolgate tools show`: details of one tool."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json, say
from gateway.cli.common.tables import print_arguments
from gateway.cli.common.text import time_text
from gateway.cli.common.tool_arguments import arguments_of, example
from gateway.cli.operations import Connect, client_option

DETAILS = ("domain", "namespace", "tier", "personas", "cost")

Json = Mapping[str, Any]

CALLERS = {"direct": "clients", "code": "programs"}


@click.command()
@click.argument("name")
@json_option
@client_option("tools:ToolOperations")
def show(_settings: Settings, connect: Connect, name: str, as_json: bool) -> None:
    """Show the tool NAME: description, arguments, target of calls, embedding.

    \b
    Examples:
      toolgate tools show listPets
      toolgate tools show lightapi.net/rule/deleteRule/0.1.0

    NAME can also be the id of a hybrid action, host/service/action/version, or a former name of the
    tool. The option --json prints all details, with the input schema that models see.
    """
    tool, costs = run(_tool(connect, name))
    if as_json:
        print_json(tool)
        return
    arguments = arguments_of(tool["input_schema"])
    of = f"of {tool['source']}" if tool["source"] else "manual"
    out.print(Text(tool["name"], "bold").append(f"  {of}", "not bold"))
    if tool["aliases"]:
        say(f"Former names that still call it: {', '.join(tool['aliases'])}")
    say(tool["description"])
    say("")
    for line in (tool["target"], *map(_cost, costs), *_details(tool), _embedding(tool)):
        say(line or "of a kind that this release cannot call")
    say("")
    print_arguments(arguments)
    if tool["state"] == "held":
        remedy = f"toolgate tools accept {tool['name']} --diff"
        say(f"\nHeld back: {tool['held_reason']}. Now: {remedy}", "red")
    else:
        say(f"\nTry: {example(tool['name'], arguments)}")


def _cost(entry: Json) -> str:
    """Token costs of a tool, in one line."""
    if entry["tokens"] is None:
        return f"Left out of lists: {entry['left_out']}"
    more = ", shortened" if entry["shortened"] else ""
    return f"{entry['tokens']} tokens (characters / 4) in a list{more}"


def _details(tool: Json) -> Iterator[str]:
    """The origin of its description, its manual metadata, and who may call it."""
    if tool["callers"] != ["direct"]:
        ways = " and ".join(CALLERS[way] for way in tool["callers"])
        yield f"called by {ways or 'nobody'}"
    if tool["overridden"]:
        since = f" since {time_text(tool['override_time'])}" if tool["override_time"] else ""
        yield f"description edited{since} by {tool['override_user']}; imports keep it"
    elif tool["manual"] and tool["source"]:
        yield f"manual tool; its calls use the source {tool['source']}"
    details = [f"{name} {tool[name]}" for name in DETAILS if tool[name]]
    if tool["lifecycle"] != "active":
        details.append(tool["lifecycle"])
    if tool["weight"] != 1:
        details.append(f"weight {tool['weight']:g}")
    lists = {name: ", ".join(map(str, tool[name])) for name in ("keywords", "tags")}
    details += [f"{name} {text}" for name, text in lists.items() if text]
    if details:
        yield "; ".join(details)


def _embedding(tool: Json) -> str:
    embedding = tool["embedding"]
    model = f", {embedding['model']}" if embedding["model"] else ""
    when = f", {time_text(embedding['embedded'])}" if embedding["embedded"] else ""
    error = f": {embedding['error']}" if embedding["error"] else ""
    return f"embedding {embedding['status']}{model}{when}{error}"


async def _tool(connect: Connect, name: str) -> tuple[Json, Sequence[Json]]:
    """The tool, and its entry in the list of the settings' profile, if it is served."""
    async with connect() as client:
        called = await client.items("listTools", {"called": name})
        # a former name, where no tool has the name itself
        called.sort(key=lambda tool: (tool["name"] != name, tool["state"] == "disabled"))
        if not called:
            tools = await client.items("listTools", {})
            no_such("tool", name, [tool_name for tool in tools for tool_name in _names(tool)])
        if called[0]["state"] == "disabled":
            fail(f"{name} is disabled; to enable it: toolgate tools enable {name}")
        tool = (await client.call("getTool", {"tool": called[0]["name"]})).value
        costs = await client.items("listCosts", {"source": tool["source"]})
        return tool, [entry for entry in costs if entry["tool"] == tool["name"]]


def _names(tool: Json) -> Iterator[str]:
    """The names that a call may have for a tool."""
    yield tool["name"]
    if tool["service"]:
        yield tool["service"]
