"""`toolgate sources diff | rollback`: versions of a source, preview of the next."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from rich.text import Text

from config.decode import absolute
from config.settings import Settings
from gateway.cli.common.acts import Act
from gateway.cli.common.database import Registry, open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lister import open_asking
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from gateway.cli.common.text import harmless, one_line
from gateway.cli.imports.report import (
    Format,
    ReportingCommand,
    check,
    count_noun,
    escape_markdown,
    print_saved,
    report_option,
    unwanted_option,
    write,
)
from gateway.cli.imports.shared import progress_of
from registry.sources.compatibility import SchemaChange
from registry.sources.import_specs import configured_import, spec_of
from registry.sources.source_reader import ImportSpec
from registry.sources.versions import Difference, History, RollbackResult, ToolChange, Versions
from schemas.source import Version

FATES = {"added": ("+", "green"), "changed": ("~", ""), "removed": ("-", "red")}


def _as_json(version: Version) -> dict[str, object]:
    return {
        "number": version.number,
        "imported": version.imported,
        "title": version.title,
        "version": version.version,
        "digest": version.digest,
        "outcomes": version.outcomes,
        "current": version.current,
        "kept": version.kept,
        "spec": version.spec,
    }


@click.command(cls=ReportingCommand)
@click.argument("name")
@click.argument("new", required=False, type=click.Path())
@report_option
@click.option("--json", "as_json", is_flag=True, help="The same as --report json.")
@unwanted_option("breaking", "changes", usual="never")
@settings_option
def diff(
    settings: Settings,
    name: str,
    new: str | None,
    report: Format | None,
    as_json: bool,
    fail_on: str | None,
) -> None:
    """Compare the source NAME with the description NEW, a path or a URL. Without NEW the current
    description at the location of NAME is used. Nothing is written.

    A change is breaking if calls that worked may fail, or results may lack members: a tool or an
    argument is removed, more is required, less is accepted, other credentials are needed.
    Additions, other texts and another encoding of requests are not breaking; a renamed tool is not
    either, because its former name still calls it.

    \b
    Exit codes: 0; with --fail-on 4 if there is a breaking change, or any change.

    \b
    Examples:
      toolgate sources diff pets
      toolgate sources diff pets petshop-2.yaml --fail-on breaking
      toolgate sources diff pets petshop-2.yaml --report md > review.md
    """
    if report and as_json:
        fail("--json is the same as --report json; remove one of them", USAGE)
    difference = run(_difference(settings, name, new))
    printers = {"table": print_difference, "json": _print_json, "md": _print_markdown}
    printers["json" if as_json else report or "table"](difference)
    breaking = sum(tool.breaking for tool in difference.tools)
    counts = {"changes": len(difference.tools) - breaking, "breaking": breaking}
    check(fail_on or "never", counts)


@click.command()
@click.argument("name")
@click.option("--to", type=click.IntRange(min=1), metavar="NUMBER", help="The version to serve.")
@json_option
@settings_option
def rollback(settings: Settings, name: str, to: int | None, as_json: bool) -> None:
    """Serve an older version of the source NAME again.

    The default is the previous version; `toolgate sources versions NAME` lists the versions.

    The tools are made from the description and the import options of that version, and keep their
    ids. The description that was rolled back is not imported again, neither by `toolgate serve`
    nor by `toolgate import`, until the description changes or `toolgate sources refresh NAME` runs.
    """
    done = run(_roll_back(settings, name, to))
    if as_json:
        print_json({"version": _as_json(done.version), **_summary_json(done.difference)})
        return
    print_difference(done.difference)
    if done.report.saved:
        print_saved(name, done.report.saved)
    say(f"{name} is version {done.version.number} again.")
    remark(f"To end the rollback: toolgate sources refresh {name}")


def print_difference(found: Difference) -> None:
    """At a terminal changes of a tool stand below it; in a pipe each change is a line: fate,
    breaking or not, tool, where, what."""
    if not out.is_terminal:
        print_rows(("", "", "", "", ""), [row for tool in found.tools for row in _lines(tool)])
    for tool in found.tools if out.is_terminal else ():
        _print_tool(tool)
    say(_summary(found), "red" if found.breaking else "")


def _lines(tool: ToolChange) -> list[Sequence[str]]:
    whole = SchemaChange("operation", "", False, tool.operation)
    return [
        (
            tool.status,
            "breaking" if change.breaking else "-",
            tool.name,
            change.where or "-",
            change.text,
        )
        for change in tool.changes or (whole,)
    ]


def _print_tool(tool: ToolChange) -> None:
    sign, style = FATES[tool.status]
    line = Text(f"{sign} {harmless(one_line(tool.name))}", style)
    out.print(line.append("  breaking" if tool.breaking else "", "red"))
    for change in tool.changes:
        text = harmless(one_line(f"{change.where}: {change.text}" if change.where else change.text))
        mark = Text("    ! " if change.breaking else "      ", "red")
        out.print(mark.append(text, "default"), soft_wrap=False)


def _summary(found: Difference) -> str:
    if not found.tools:
        return f"Nothing changes: {count_noun('tool', found.unchanged)} of {found.source}."
    counts = {status: sum(tool.status == status for tool in found.tools) for status in FATES}
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    breaking = sum(tool.breaking for tool in found.tools)
    return f"{found.source}: {told}, {found.unchanged} unchanged; {breaking} breaking."


def _summary_json(found: Difference) -> dict[str, object]:
    return {
        "source": found.source,
        "breaking": found.breaking,
        "unchanged": found.unchanged,
        "tools": msgspec.to_builtins(found.tools),
    }


def _print_json(found: Difference) -> None:
    print_json(_summary_json(found))


def _print_markdown(found: Difference) -> None:
    write(f"## {escape_markdown(_summary(found))}")
    if not found.tools:
        return
    write("\n| tool | | where | change |\n|---|---|---|---|")
    for tool in found.tools:
        for status, breaking, name, where, text in _lines(tool):
            mark = "**breaking**" if breaking == "breaking" else status
            write(
                f"| {escape_markdown(name)} | {mark} | {escape_markdown(where)} "
                f"| {escape_markdown(text)} |"
            )


async def _names(registry: Registry) -> list[str]:
    return [source.name for source in await registry.store.sources(registry.host_id)]


async def _difference(settings: Settings, name: str, new: str | None) -> Difference:
    async with open_asking(settings) as (registry, lister, _):
        spec = _elsewhere(await _spec(registry, settings, name), new)
        versions = Versions(registry.database.pool)
        history = History(
            registry.store, versions, registry.host_id, settings.imports, lister=lister
        )
        return await history.difference(spec)


async def _spec(registry: Registry, settings: Settings, name: str) -> ImportSpec:
    """The import spec: that of the settings, else of the last import."""
    wanted = settings.sources.get(name)
    if wanted and (spec := configured_import(name, wanted)):
        return spec
    source = await registry.store.source(registry.host_id, name)
    if source is None:
        no_such("source", name, await _names(registry))
    return spec_of(source)


def _elsewhere(spec: ImportSpec, new: str | None) -> ImportSpec:
    if new is None:
        return spec
    if not spec.facts.has_description:
        fail(f"{spec.name} has no description; leave {new} out", USAGE)
    return replace(spec, location=absolute(new, Path.cwd()))


async def _roll_back(settings: Settings, name: str, to: int | None) -> RollbackResult:
    with progress_of(name) as advance:
        async with open_registry(settings, Act("rollBack", name)) as registry:
            versions = Versions(registry.database.pool)
            history = History(registry.store, versions, registry.host_id, settings.imports)
            try:
                return await history.roll_back(name, to, advance)
            except LookupError:
                no_such("source", name, await _names(registry))
