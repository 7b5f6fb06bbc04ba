"""`toolgate tools`: what the gateway offers, looked at from the shell."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.cli.arguments import Argument, arguments_of, example
from gateway.cli.costs import cost_of, print_costs
from gateway.cli.database import Registry, open_registry, run
from gateway.cli.failure import no_such
from gateway.cli.lazy import LazyGroup
from gateway.cli.options import json_option
from gateway.cli.output import first_line, out, print_json, print_rows, remark, say
from gateway.cli.settings import settings_option
from registry.pins import Pins
from registry.search import Hit, search
from registry.services import by_service
from registry.sources import configured
from schemas.binding import (
    Binding,
    GatewayBinding,
    GraphQLBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
)
from schemas.source import Source
from schemas.tool import Tool

COMMANDS = {
    "list": ("gateway.cli.tools:list_", "List the tools."),
    "search": ("gateway.cli.tools:search_", "Find tools by words."),
    "show": ("gateway.cli.tools:show", "Show a tool and its arguments."),
    "approve": ("gateway.cli.approve:approve", "Let tools be served that are held back."),
    "call": ("gateway.cli.call:call", "Call a tool and print its answer."),
}
COLUMNS = ("name", "source", "what it does")
NONE_HELD: Mapping[str, str] = {}

source_option = click.option("--source", metavar="NAME", help="Only the tools of this source.")


@click.group(cls=LazyGroup, lazy=COMMANDS)
def tools() -> None:
    """List, show, search, approve and call tools."""


@click.command(name="list")
@source_option
@click.option("--tokens", is_flag=True, help="With what each costs a model, the most first.")
@click.option("--profile", metavar="NAME", help="The same, as clients of this profile see them.")
@json_option
@settings_option
def list_(
    settings: Settings, source: str | None, tokens: bool, profile: str | None, as_json: bool
) -> None:
    """List the tools by name.

    In a pipe one line each: name, source, what it does. Of one that is held back until it is
    approved the line says so instead. With --tokens the tokens (characters / 4) that its entry in
    a list has stand in front; * marks those that are shortened there.
    """
    found, held = run(_tools(settings, source))
    if tokens or profile:
        print_costs(settings, [one for one in found if one.name not in held], profile, as_json)
        return
    if as_json:
        print_json([_summary(one) | _waiting(one, held) for one in found])
        return
    _print_tools(found, held)
    if found:
        remark(f"{len(found)} tools. About one of them: toolgate tools show NAME")
    else:
        remark(_how_to_get_tools(settings))
    if held:
        remark(f"{len(held)} of them wait for approval: toolgate tools approve --all --diff")


@click.command(name="search")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True)
@source_option
@json_option
@settings_option
def search_(
    settings: Settings, query: tuple[str, ...], limit: int, source: str | None, as_json: bool
) -> None:
    """Find tools by the words of QUERY (PostgreSQL full text), best first.

    \b
    Examples:
      toolgate tools search create an issue
      toolgate tools search --source github --limit 20 release
    """
    hits = run(_search(settings, " ".join(query), limit, source))
    if as_json:
        print_json(hits)
        return
    _print_tools(hits)
    if not hits:
        remark("Nothing found; try other words.")


@click.command()
@click.argument("name")
@json_option
@settings_option
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the tool NAME: what it does, its arguments, where its calls go. The id of a hybrid
    action, host/service/action/version, names its tool too, and so does a name that it had before.

    With --json all of it, the input schema as models see it included.
    """
    tool, address, held = run(_tool(settings, name))
    if as_json:
        print_json(_summary(tool) | _detail(tool) | _waiting(tool, held))
        return
    arguments = arguments_of(msgspec.json.decode(tool.input_schema))
    out.print(Text(tool.name, "bold").append(f"  of {tool.source}", "not bold"))
    if tool.aliases:
        say(f"It was {', '.join(tool.aliases)}; that still calls it.")
    say(tool.description)
    say(f"\n{_target(tool.binding, address)}\n{cost_of(settings, tool)}\n")
    _print_arguments(arguments)
    if tool.name in held:
        say(
            f"\nHeld back: {held[tool.name]}. Now: toolgate tools approve {tool.name} --diff", "red"
        )
    else:
        say(f"\nTry: {example(tool.name, arguments)}")


def _print_tools(found: Sequence[Tool | Hit], held: Mapping[str, str] = NONE_HELD) -> None:
    print_rows(
        COLUMNS,
        [
            (
                one.name,
                one.source,
                f"held back: {held[one.name]}"
                if one.name in held
                else first_line(one.title or one.description),
            )
            for one in found
        ],
    )


def _print_arguments(arguments: Sequence[Argument]) -> None:
    if not arguments:
        say("It takes no arguments.")
        return
    print_rows(
        ("argument", "kind", "", "description"),
        [
            (one.name, one.kind, "required" if one.required else "", one.description)
            for one in arguments
        ],
        wrap=True,
    )


def _target(binding: Binding, address: str | None) -> str:
    """What a call of the tool reaches, and who may make it."""
    if isinstance(binding, OpenAPIBinding):
        return f"{binding.method} {address or '(no address)'}{binding.path}"
    if isinstance(binding, GraphQLBinding):
        asks = f"\nasks for {binding.selection}" if binding.selection else ""
        return f"{binding.operation} {binding.field}  {address or '(no address)'}{asks}"
    if isinstance(binding, McpBinding):
        spoken = "" if binding.eras == "both" else f", in its {binding.eras} era only"
        return f"tool {binding.name}  {address or 'of a process'}{spoken}"
    if isinstance(binding, GatewayBinding):
        return "this gateway itself"
    where = "in this gateway" if isinstance(binding, PythonBinding) else address or "(no address)"
    facts = [
        f"side {binding.side or 'query and command'}",
        f"scope {binding.scope or 'any'}",
        *(["needs no token"] if binding.skip_auth else []),
        *([] if binding.validated else ["its data is not checked"]),
    ]
    return f"service {binding.service}  {where}\n{', '.join(facts)}"


def _how_to_get_tools(settings: Settings) -> str:
    if any(configured(name, one) for name, one in settings.sources.items()):
        return "No tools yet; `toolgate serve` imports what the settings name."
    return "No tools yet. Try: toolgate import openapi YOUR-API.yaml --name api"


def _summary(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source,
        "title": tool.title,
        "description": tool.description,
    }


def _waiting(tool: Tool, held: Mapping[str, str]) -> dict[str, Any]:
    return {"held": held[tool.name]} if tool.name in held else {}


def _detail(tool: Tool) -> dict[str, Any]:
    return {
        "annotations": tool.annotations,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "binding": tool.binding,
        "digest": tool.digest,
        "toolsets": tool.toolsets,
        "aliases": tool.aliases,
        **({} if tool.definition is None else {"definition": tool.definition}),
    }


async def _tools(settings: Settings, source: str | None) -> tuple[list[Tool], dict[str, str]]:
    """By name, and why some of them are held back."""
    async with open_registry(settings) as registry:
        await _check_source(registry, source)
        found = await registry.store.tools(registry.host_id)
        waiting = await registry.store.tools(registry.host_id, held=True)
        held = await _held(registry)
    tools = [tool for tool in (*found, *waiting) if source in {None, tool.source}]
    names = {tool.name for tool in tools}
    return (
        sorted(tools, key=lambda tool: tool.name),
        {name: reason for name, reason in held.items() if name in names},
    )


async def _held(registry: Registry) -> dict[str, str]:
    """Why tools are held back, by name."""
    held = await Pins(registry.database.pool).held(registry.host_id)
    return {one.name: one.reason for one in held}


async def _search(settings: Settings, query: str, limit: int, source: str | None) -> list[Hit]:
    async with open_registry(settings) as registry:
        await _check_source(registry, source)
        return await search(registry.database.pool, registry.host_id, query, limit, source)


async def _tool(settings: Settings, name: str) -> tuple[Tool, str | None, dict[str, str]]:
    """The tool, the address of its source, and what is held back."""
    async with open_registry(settings) as registry:
        tools = [
            *await registry.store.tools(registry.host_id, held=True),
            *await registry.store.tools(registry.host_id),
        ]
        aliases = {alias: tool for tool in tools for alias in tool.aliases}
        found = {**aliases, **by_service(tools), **{tool.name: tool for tool in tools}}
        if name not in found:
            no_such("tool", name, found)
        tool = found[name]
        source = await registry.store.source(registry.host_id, tool.source)
        return tool, _address(source, settings), await _held(registry)


def _address(source: Source | None, settings: Settings) -> str | None:
    if source is None:
        return None
    adjusted = settings.sources.get(source.name)
    return (adjusted.base_url if adjusted else None) or source.base_url


async def _check_source(registry: Registry, name: str | None) -> None:
    if name is not None and await registry.store.source(registry.host_id, name) is None:
        no_such(
            "source", name, [one.name for one in await registry.store.sources(registry.host_id)]
        )
