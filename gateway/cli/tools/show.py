"""`toolgate tools show`: details of one tool."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.arguments import Argument, arguments_of, example
from gateway.cli.common.database import Registry, open_registry, run, settings_option
from gateway.cli.common.failure import fail, no_such
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json, print_rows, say
from gateway.cli.tools.costs import cost_of
from registry.catalog.lookup import by_service
from registry.embedding.status import EntityEmbedding, embedding_of
from registry.sources.pins import Pins
from registry.tools.manual_edits import CatalogRow, NoSuchTool
from registry.tools.manual_tools import ManualTools
from schemas.source import Source
from schemas.tool import Tool
from schemas.urls import without_queries

_DETAILS = {
    "routing_domain": "domain",
    "semantic_namespace": "namespace",
    "sensitivity_tier": "tier",
    "target_personas": "personas",
    "cost_tier": "cost",
}


@click.command()
@click.argument("name")
@json_option
@settings_option
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the tool NAME: its description, arguments, target of calls, and embedding. NAME can also
    be the id of a hybrid action, host/service/action/version, or a former name of the tool.

    The option --json prints all details, with the input schema that models see.
    """
    tool, address, held, standing, embedding = run(_tool(settings, name))
    if as_json:
        print_json(
            summary(tool)
            | _detail(tool)
            | waiting(tool, held)
            | {"standing": standing, "embedding": embedding}
        )
        return
    arguments = arguments_of(msgspec.json.decode(tool.input_schema))
    of = f"of {tool.source}" if tool.source else "manual"
    out.print(Text(tool.name, "bold").append(f"  {of}", "not bold"))
    if tool.aliases:
        say(f"Former names that still call it: {', '.join(tool.aliases)}")
    say(tool.description)
    say(f"\n{tool.binding.target(address)}\n{cost_of(settings, tool)}")
    for line in (*_standing(standing), _embedding(embedding)):
        say(line)
    say("")
    _print_arguments(arguments)
    if tool.name in held:
        say(
            f"\nHeld back: {held[tool.name]}. Now: toolgate tools approve {tool.name} --diff", "red"
        )
    else:
        say(f"\nTry: {example(tool.name, arguments)}")


def summary(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source,
        "title": tool.title,
        "description": tool.description,
    }


def waiting(tool: Tool, held: Mapping[str, str]) -> dict[str, Any]:
    return {"held": held[tool.name]} if tool.name in held else {}


async def held_back(registry: Registry) -> dict[str, str]:
    """Why tools are held back, by name."""
    held = await Pins(registry.database.pool).list_held(registry.host_id)
    return {tool.name: tool.reason for tool in held}


def _standing(standing: CatalogRow) -> Iterator[str]:
    """The origin of its description, and its manual metadata."""
    if standing.overridden:
        since = f" since {standing.override_ts:%Y-%m-%d %H:%M}" if standing.override_ts else ""
        yield f"description edited{since} by {standing.override_user}; imports keep it"
    elif standing.manual and standing.source:
        yield f"manual tool; its calls use the source {standing.source}"
    details = [
        f"{name} {value}" for key, name in _DETAILS.items() if (value := getattr(standing, key))
    ]
    if standing.lifecycle_status != "active":
        details.append(standing.lifecycle_status)
    if standing.semantic_weight != 1:
        details.append(f"weight {standing.semantic_weight:g}")
    if standing.keywords:
        details.append(f"keywords {', '.join(map(str, standing.keywords))}")
    if standing.tags:
        details.append(f"tags {', '.join(standing.tags)}")
    if details:
        yield "; ".join(details)


def _embedding(embedding: EntityEmbedding) -> str:
    model = f", {embedding.model}" if embedding.model else ""
    when = f", {embedding.embedded:%Y-%m-%d %H:%M}" if embedding.embedded else ""
    error = f": {embedding.error}" if embedding.error else ""
    return f"embedding {embedding.status}{model}{when}{error}"


def _print_arguments(arguments: Sequence[Argument]) -> None:
    if not arguments:
        say("It takes no arguments.")
        return
    print_rows(
        ("argument", "kind", "", "description"),
        [
            (
                argument.name,
                argument.kind,
                "required" if argument.required else "",
                argument.description,
            )
            for argument in arguments
        ],
        wrap=True,
    )


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


async def _tool(
    settings: Settings, name: str
) -> tuple[Tool, str | None, dict[str, str], CatalogRow, EntityEmbedding]:
    """The tool, the address of its source, what is held back, and its registry entries."""
    async with open_registry(settings) as registry:
        tools = [
            *await registry.store.tools(registry.host_id, held=True),
            *await registry.store.tools(registry.host_id),
        ]
        aliases = {alias: tool for tool in tools for alias in tool.aliases}
        by_name = {**aliases, **by_service(tools), **{tool.name: tool for tool in tools}}
        by_hand = ManualTools(registry.database.pool, registry.host_id)
        if name not in by_name:
            disabled = {tool.name for tool in await by_hand.list_disabled()}
            if name in disabled:
                fail(f"{name} is disabled; to enable it: toolgate tools enable {name}")
            no_such("tool", name, [*by_name, *disabled])
        tool = by_name[name]
        source = await registry.store.source(registry.host_id, tool.source)
        try:
            standing = await by_hand.catalog_row(tool.name)
        except NoSuchTool:
            no_such("tool", name, by_name)
        embedding = await embedding_of(registry.database.pool, registry.host_id, tool.id)
        held = await held_back(registry)
        return tool, _address(source, settings), held, standing, embedding


def _address(source: Source | None, settings: Settings) -> str | None:
    if source is None:
        return None
    adjusted = settings.sources.get(source.name)
    address = (adjusted.base_url if adjusted else None) or source.base_url
    return address and without_queries(address)
