"""`toolgate tools approve`: approve the current definitions of tools of other MCP servers."""

import difflib
from collections.abc import Sequence

import click
import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import Registry, open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.options import ask, yes_option
from gateway.cli.common.output import harmless, out, remark, say
from registry.sources.pins import Document, HeldTool, Pins

STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--source", metavar="NAME", help="Approve all held tools of this source.")
@click.option("--all", "everything", is_flag=True, help="Approve all held tools.")
@click.option("--diff", is_flag=True, help="Show the changes first, and ask for confirmation.")
@yes_option
@settings_option
def approve(
    settings: Settings,
    names: tuple[str, ...],
    source: str | None,
    everything: bool,
    diff: bool,
    yes: bool,
) -> None:
    """Approve tools that were held back. They belong to a pinned source, and are new or have a
    changed definition. A running gateway serves them at once.

    Models trust the description of a tool like your own instructions: review it with --diff.

    \b
    Examples:
      toolgate tools approve --source crm --diff
      toolgate tools approve find_customer
      toolgate tools approve --all --yes
    """
    if sum((bool(names), source is not None, everything)) != 1:
        fail("expected names of tools, or --source NAME, or --all", USAGE)
    held = run(_held_tools(settings, names, source))
    if not held:
        say("No tool waits for approval.")
        return
    if diff:
        for tool in held:
            _print_diff(tool)
        if not yes:
            ask("approve", held[0].name if len(held) == 1 else f"these {len(held)} tools")
    approved = run(_approve(settings, held))
    for name in approved:
        say(f"Approved {name}.")
    if len(approved) < len(held):
        fail("the others changed in the meantime: look at them again")


def _print_diff(tool: HeldTool) -> None:
    out.print(Text(tool.name, "bold").append(f"  of {tool.source}: {tool.reason}", "not bold"))
    before = _lines(tool.pin) if tool.pin else []
    changes = difflib.unified_diff(before, _lines(tool.held), "approved", "now", lineterm="")
    for line in changes:
        out.print(Text(harmless(line), STYLES.get(line[:1], "")))
    remark("")


def _lines(document: Document) -> list[str]:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return text.decode().splitlines()


async def _held_tools(
    settings: Settings, names: Sequence[str], source: str | None
) -> list[HeldTool]:
    async with open_registry(settings) as registry:
        if source is not None:
            await _check_source(registry, source)
        held = await Pins(registry.database.pool).list_held(registry.host_id)
        if not names:
            return [tool for tool in held if source in {None, tool.source}]
        waiting = {tool.name: tool for tool in held}
        served = {tool.name for tool in await registry.store.tools(registry.host_id)}
    for name in names:
        if name not in waiting and name not in served:
            no_such("tool", name, [*waiting, *served])
    return [waiting[name] for name in dict.fromkeys(names) if name in waiting]


async def _check_source(registry: Registry, name: str) -> None:
    known = [source.name for source in await registry.store.sources(registry.host_id)]
    if name not in known:
        no_such("source", name, known)


async def _approve(settings: Settings, held: Sequence[HeldTool]) -> list[str]:
    async with open_registry(
        settings, Act("approveTool", ", ".join(tool.name for tool in held))
    ) as registry:
        return await Pins(registry.database.pool).approve(registry.host_id, held)
