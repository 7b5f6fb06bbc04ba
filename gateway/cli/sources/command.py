"""`toolgate sources list | show | prune`."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.cli.common.credentials import lines, standing
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import no_such
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from gateway.cli.common.stored import stored_in
from gateway.cli.common.text import harmless
from gateway.cli.imports.report import ITEMS, count_noun, spoken_revisions
from gateway.cli.local import open_operations
from gateway.upstreams.http.connections import NO_ENTRIES, Entries
from registry.sources.import_specs import configured_import, removed_from_settings
from registry.sources.pins import Pins
from registry.sources.source_reader import ImportSpec
from schemas.mcp.snapshot import SnapshotItem
from schemas.source import Source
from schemas.tool import Tool
from schemas.urls import without_queries


@click.command(name="list")
@settings_option
@json_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the sources: location of the description and target of calls.

    A pipe gets one line for each: name, number of tools, base URL, location of the description,
    kind, and origin of the import: settings, example, cli, admin or -. "left over" marks sources
    that were in the settings once and are no longer.
    """
    sources = [_with_base_url(source, settings) for source in run(_list(settings))]
    stale = removed_from_settings(sources, settings.sources)
    if as_json:
        print_json([{**_as_data(s), "left_over": s.name in stale} for s in sources])
    elif out.is_terminal:
        for source in sources:
            _print_source(source, source.name in stale)
    else:
        rows = [
            (
                *(s.name, str(s.tool_count), without_queries(s.base_url or "-")),
                *(without_queries(s.location), s.kind, _origin(s, s.name in stale)),
            )
            for s in sources
        ]
        print_rows(("name", "tools", "base URL", "description", "kind", "origin"), rows)
    waiting = settings.sources.keys() - {source.name for source in sources}
    for name in sorted(waiting):
        if spec := configured_import(name, settings.sources[name]):
            remark(f"{name} is not imported yet. {_how_to_import(spec)}")
    if not sources and not waiting:
        remark("No sources yet. Try: toolgate import openapi YOUR-API.yaml --name api")


@click.command()
@click.argument("name")
@settings_option
@json_option
def show(settings: Settings, name: str, as_json: bool) -> None:
    """Show the source NAME: its description, the target of its calls, and the facts that an MCP
    server announced.

    The option --json prints all details.
    """
    source, items, held, tools, stored = run(_detail(settings, name))
    bindings = (tool.binding for tool in tools)
    wanted = standing(bindings, settings.sources.get(name), stored)
    if as_json:
        counts = {kind: sum(item.kind == kind for item in items) for kind in ITEMS}
        schemes = {scheme: is_met for scheme, (_, is_met) in wanted.schemes.items()}
        print_json(
            {
                **_as_data(source),
                **counts,
                "held": held,
                "aliases": {alias: tool.name for tool in tools for alias in tool.aliases},
                "credentials": schemes,
            }
        )
        return
    _print_source(source, bool(removed_from_settings([source], settings.sources)))
    for line in [*_lines(source, items), *lines(name, wanted), *_aliases(tools)]:
        say(f"  {line}")
    for name_held in held:
        say(f"  held  {name_held}: see `toolgate tools approve {name_held} --diff`", "yellow")


def _lines(source: Source, items: Sequence[SnapshotItem]) -> Iterator[str]:
    """Additional lines about an MCP server."""
    if source.server is None:
        return
    counts = Counter(item.kind for item in items)
    yield f"has   {', '.join(count_noun(kind, counts[kind]) for kind in ITEMS)}"
    info = source.server.info
    yield f"is    {info.get('name', 'nameless')} {info.get('version', '')}".rstrip()
    yield f"names prefix {source.options.prefix}"
    if source.options.own_sessions:
        yield "calls each client session has its own session at the server"
    if source.options.pin:
        yield "pins  new and changed tools wait for approval"


def _aliases(tools: Sequence[Tool]) -> Iterator[str]:
    """Former names that still call a tool."""
    for tool in tools:
        for alias in tool.aliases:
            yield f"alias {alias} calls {tool.name}"


def _how_to_import(spec: ImportSpec) -> str:
    if spec.facts.loaded:
        return "`toolgate serve` does it."
    return f"Now: toolgate sources refresh {spec.name}"


def _as_data(source: Source) -> dict[str, Any]:
    """The source as plain data, without the queries of its URLs, as some are keys."""
    data: dict[str, Any] = msgspec.to_builtins(source)
    urls = {key: data[key] for key in ("location", "base_url") if data[key]}
    return {**data, **{key: without_queries(url) for key, url in urls.items()}}


def _with_base_url(source: Source, settings: Settings) -> Source:
    """The source with the effective base URL of calls."""
    wanted = settings.sources.get(source.name)
    if wanted is None or wanted.base_url is None:
        return source
    return replace(source, base_url=wanted.base_url, base_url_trusted=True)


def _origin(source: Source, stale: bool) -> str:
    return f"{source.origin}, left over" if stale else source.origin or "-"


def _print_source(source: Source, stale: bool) -> None:
    """`stale`: removed from the settings."""
    tools = "1 tool" if source.tool_count == 1 else f"{source.tool_count} tools"
    version = f", version {source.version}" if source.version else ""
    imported = source.updated[:16].replace("T", " ")
    facts = harmless(f"  {source.kind}, {tools}{version}, imported {imported}")
    out.print(Text(source.name, "bold").append(facts, "not bold"))
    say(f"  from  {without_queries(source.location)}")
    say(f"  calls {_where(source)}")
    if source.server is not None:
        say(f"  speaks {spoken_revisions(source.server)}")
    if source.rolled_back is not None:
        say(
            f"  is rolled back to version {source.number}, from {source.rolled_back.version}; "
            f"to end that: toolgate sources refresh {source.name}",
            "yellow",
        )
    if stale:
        say(
            "  left over: the settings have it no longer, so its calls are sent without headers "
            "and credentials of the settings; to remove it: toolgate sources prune",
            "yellow",
        )


def _where(source: Source) -> str:
    if source.facts.loaded:
        return "Python code in the gateway"
    if source.options.command:
        return f"a process: {shlex.join(source.options.command)}"
    return without_queries(source.base_url or "no address: set its base_url")


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@yes_option
@settings_option
def prune(settings: Settings, dry_run: bool, yes: bool) -> None:
    """Remove the sources that left the settings, and their tools.

    These sources were imported from a settings file, and the current settings do not have them.
    Sources that a command or the admin API imported stay. To keep a source, import it by command
    under its name first.
    """
    sources = [source for source in run(_views(settings)) if source["removed_from_settings"]]
    if not sources:
        say("No source is left over from earlier settings.")
        return
    names = ", ".join(source["name"] for source in sources)
    what = f"{names} and {count_noun('tool', sum(source['tools'] for source in sources))}"
    if dry_run:
        say(f"Would remove {what}.")
        return
    if not yes:
        ask("remove", what)
    run(_prune(settings, [source["name"] for source in sources]))
    for source in sources:
        say(f"Removed {source['name']} and its {count_noun('tool', source['tools'])}.")


async def _views(settings: Settings) -> list[dict[str, Any]]:
    async with open_operations(settings) as operations:
        return await operations.items("listSources", {})


async def _list(settings: Settings) -> list[Source]:
    async with open_registry(settings) as registry:
        return await registry.store.sources(registry.host_id)


async def _detail(
    settings: Settings, name: str
) -> tuple[Source, list[SnapshotItem], list[str], list[Tool], Entries]:
    """The source, its items, its tools that wait for approval, its served tools, and the stored
    credentials for its security schemes."""
    source = _with_base_url(await _find_source(settings, name), settings)
    async with open_registry(settings) as registry:
        items = await registry.store.items(registry.host_id)
        held = await Pins(registry.database.pool).list_held(registry.host_id)
        tools = await registry.store.tools(registry.host_id)
        stored = await stored_in(settings, registry)
    return (
        source,
        [item for item in items if item.source == name],
        [tool.name for tool in held if tool.source == name],
        [tool for tool in tools if tool.source == name],
        stored.get(name, NO_ENTRIES),
    )


async def _find_source(settings: Settings, name: str) -> Source:
    by_name = {source.name: source for source in await _list(settings)}
    return by_name[name] if name in by_name else no_such("source", name, by_name)


async def _prune(settings: Settings, names: Sequence[str]) -> None:
    async with open_operations(settings) as operations:
        for name in names:
            await operations.call("deleteSource", {"source": name})
