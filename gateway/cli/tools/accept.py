"""`toolgate tools accept`: accept the current definitions of tools of other MCP servers."""

import difflib
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import ask, yes_option
from gateway.cli.common.output import out, remark, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import harmless
from gateway.cli.local import open_operations
from gateway.cli.operations import hinting
from gateway.cli.running.client import GatewayAnswer

Json = dict[str, Any]
STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--source", metavar="NAME", help="Accept all held tools of this source.")
@click.option("--all", "everything", is_flag=True, help="Accept all held tools.")
@click.option("--diff", is_flag=True, help="Show the changes first, and ask for confirmation.")
@yes_option
@settings_option
def accept(
    settings: Settings,
    names: tuple[str, ...],
    source: str | None,
    everything: bool,
    diff: bool,
    yes: bool,
) -> None:
    """Accept tools that were held back. They belong to a pinned source, and are new or have a
    changed definition. A running gateway serves them at once.

    Models trust the description of a tool like your own instructions: review it with --diff.

    \b
    Examples:
      toolgate tools accept --source crm --diff
      toolgate tools accept find_customer
      toolgate tools accept --all --yes
    """
    if sum((bool(names), source is not None, everything)) != 1:
        fail("expected names of tools, or --source NAME, or --all", USAGE)
    held_tools = run(_held_tools(settings, names, source))
    if not held_tools:
        say("No tool waits to be accepted.")
        return
    if diff:
        for tool in held_tools:
            _print_diff(tool.value)
        if not yes:
            first = held_tools[0].value["name"]
            ask("accept", first if len(held_tools) == 1 else f"these {len(held_tools)} tools")
    run(_accept(settings, held_tools))


def _print_diff(tool: Json) -> None:
    about = f"  of {tool['source']}: {tool['held_reason']}"
    out.print(Text(tool["name"], "bold").append(about, "not bold"))
    before = _lines(tool["accepted"]) if tool["accepted"] else []
    changes = difflib.unified_diff(before, _lines(tool["waiting"]), "accepted", "now", lineterm="")
    for line in changes:
        out.print(Text(harmless(line), STYLES.get(line[:1], "")))
    remark("")


def _lines(document: Json) -> list[str]:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return text.decode().splitlines()


async def _held_tools(
    settings: Settings, names: Sequence[str], source: str | None
) -> list[GatewayAnswer]:
    """The held tools, with the tags of the definitions that are reviewed."""
    async with open_operations(settings) as operations:
        query: Json = {"state": "held"}
        if source is not None:
            get_source = partial(operations.call, "getSource", {"source": source})
            await hinting(operations, {"source": source}, get_source)
            query["source"] = source
        waiting = [tool["name"] for tool in await operations.items("listTools", query)]
        for name in names:
            get_tool = partial(operations.call, "getTool", {"tool": name})
            await hinting(operations, {"tool": name}, get_tool)
        waiting_names = [name for name in names or waiting if name in waiting]
        return [
            await operations.call("getTool", {"tool": name})
            for name in dict.fromkeys(waiting_names)
        ]


async def _accept(settings: Settings, held_tools: Sequence[GatewayAnswer]) -> None:
    async with open_operations(settings) as operations:
        for tool in held_tools:
            name = tool.value["name"]
            await operations.call("acceptTool", {"tool": name, "if_match": tool.etag})
            say(f"Accepted {name}.")
