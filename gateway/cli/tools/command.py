"""`toolgate tools`: list, show and search the gateway's tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import click

from config.settings import Settings
from gateway.cli.common.catalog import check_source, how_to_get_tools
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import warn
from gateway.cli.common.options import json_option, source_option
from gateway.cli.common.output import print_json, print_rows, remark
from gateway.cli.common.text import first_line, one_line
from gateway.cli.search.serving import search_registry
from gateway.cli.tools.costs import print_costs
from gateway.cli.tools.show import held_back, summary, waiting
from registry.embedding.embedder_factory import NONE_YET
from registry.search import Filters, Hit, Mode, SearchQuery, SearchResult
from registry.tools.manual_edits import CatalogRow
from registry.tools.manual_tools import ManualTools
from registry.tools.tool_states import Protocol
from schemas.tool import Tool

COLUMNS = ("name", "source", "what it does")
TO_MAKE_VECTORS = "`toolgate embed backfill` makes them, and so does `toolgate serve`."
BY_HAND = "-"  # in the column of sources
NONE_HELD: Mapping[str, str] = {}


@click.command(name="list")
@source_option
@click.option("--tokens", is_flag=True, help="Show the tokens of each tool, most expensive first.")
@click.option("--profile", metavar="NAME", help="Show the tokens for clients of this profile.")
@click.option("--disabled", is_flag=True, help="List the disabled tools instead.")
@json_option
@settings_option
def list_(
    settings: Settings,
    source: str | None,
    tokens: bool,
    profile: str | None,
    disabled: bool,
    as_json: bool,
) -> None:
    """List the tools by name.

    A pipe gets one line for each: name, source, description (or the reason why the tool is held
    back). --tokens adds the tokens (characters / 4) of its entry in a list; * marks shortened
    entries.
    """
    if disabled:
        _print_disabled(run(_disabled_tools(settings, source)), as_json)
        return
    tools, held = run(_tools(settings, source))
    if tokens or profile:
        print_costs(settings, [tool for tool in tools if tool.name not in held], profile, as_json)
        return
    if as_json:
        print_json([summary(tool) | waiting(tool, held) for tool in tools])
        return
    _print_tools(tools, held)
    if tools:
        remark(f"{len(tools)} tools. Details of one: toolgate tools show NAME")
    else:
        remark(how_to_get_tools(settings))
    if held:
        remark(f"{len(held)} of them wait for approval: toolgate tools approve --all --diff")


@click.command(name="search")
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="Most hits."
)
@click.option("--words", is_flag=True, help="Search by words only; the last one may be a prefix.")
@source_option
@click.option("--domain", metavar="NAME", help="Only tools of this domain.")
@click.option("--namespace", metavar="NAME", help="Only tools of this namespace.")
@click.option("--tier", metavar="NAME", help="Only tools of this tier.")
@click.option(
    "--protocol", type=click.Choice(get_args(Protocol)), help="Only tools called by this protocol."
)
@json_option
@settings_option
def search_(
    settings: Settings,
    query: tuple[str, ...],
    limit: int,
    words: bool,
    as_json: bool,
    **among: str | None,
) -> None:
    """Search tools by the meaning and the words of QUERY, best first.

    Clients get the same search by the tool search_tools. Standard error has a note if vectors are
    missing or the model is unavailable.

    \b
    Examples:
      toolgate tools search file a bug report
      toolgate tools search --source github --limit 20 release
      toolgate tools search --words create iss
    """
    result, is_empty = run(_search(settings, " ".join(query), limit, Among(**among), words))
    hits = result.hits
    if result.note and not is_empty:
        warn(one_line(result.note))
    if as_json:
        print_json(hits)
        return
    _print_tools(hits)
    if not hits:
        remark(how_to_get_tools(settings) if is_empty else "Nothing found; try other words.")


def _print_tools(found: Sequence[Tool | Hit], held: Mapping[str, str] = NONE_HELD) -> None:
    print_rows(
        COLUMNS,
        [
            (
                tool.name,
                tool.source or BY_HAND,
                f"held back: {held[tool.name]}"
                if tool.name in held
                else first_line(tool.title or tool.description),
            )
            for tool in found
        ],
    )


def _print_disabled(found: Sequence[CatalogRow], as_json: bool) -> None:
    if as_json:
        print_json([{"name": tool.name, "source": tool.source} for tool in found])
        return
    print_rows(("name", "source"), [(tool.name, tool.source or BY_HAND) for tool in found])
    if found:
        remark("To enable one: toolgate tools enable NAME")


@dataclass(frozen=True, slots=True)
class Among:
    """Search filters."""

    source: str | None
    domain: str | None
    namespace: str | None
    tier: str | None
    protocol: str | None


def _one(name: str | None) -> tuple[str, ...] | None:
    return None if name is None else (name,)


async def _disabled_tools(settings: Settings, source: str | None) -> list[CatalogRow]:
    async with open_registry(settings) as registry:
        await check_source(registry, source)
        tools = await ManualTools(registry.database.pool, registry.host_id).list_disabled()
    return [tool for tool in tools if source in {None, tool.source}]


async def _tools(settings: Settings, source: str | None) -> tuple[list[Tool], dict[str, str]]:
    """Tools by name, and the reasons why some are held back."""
    async with open_registry(settings) as registry:
        await check_source(registry, source)
        tools_ = await registry.store.tools(registry.host_id)
        late = await registry.store.tools(registry.host_id, held=True)
        held = await held_back(registry)
    tools = [tool for tool in (*tools_, *late) if source in {None, tool.source}]
    names = {tool.name for tool in tools}
    return (
        sorted(tools, key=lambda tool: tool.name),
        {name: reason for name, reason in held.items() if name in names},
    )


async def _search(
    settings: Settings, query: str, limit: int, among: Among, words: bool
) -> tuple[SearchResult, bool]:
    """The search result, and whether there are no tools at all."""
    async with open_registry(settings) as registry:
        await check_source(registry, among.source)
        filters = Filters(
            registry.host_id,
            sources=_one(among.source),
            domains=_one(among.domain),
            namespaces=_one(among.namespace),
            tiers=_one(among.tier),
            protocols=_one(among.protocol),
        )
        mode: Mode = "lexical" if words else "hybrid"
        wanted = SearchQuery(query, limit, mode, filters, prefix=words)
        done = await search_registry(settings, registry, wanted)
        is_empty = not done.found.hits and not await registry.store.tools(registry.host_id)
    missing = done.note == NONE_YET and not words
    note = f"{done.found.note} {TO_MAKE_VECTORS}" if missing else done.found.note
    return replace(done.found, note=note), is_empty
