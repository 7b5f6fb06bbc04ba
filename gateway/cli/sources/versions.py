"""`toolgate sources diff | rollback`: versions of a source, preview of the next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from config.decode import absolute
from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json, print_rows, remark, say
from gateway.cli.common.progress import progress_of
from gateway.cli.common.text import one_line
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
from gateway.cli.operations import Connect, client_option, hinting

Json = Mapping[str, Any]

FATES = {"added": ("+", "green"), "changed": ("~", ""), "removed": ("-", "red")}


@click.command(cls=ReportingCommand)
@click.argument("name")
@click.argument("new", required=False, type=click.Path())
@report_option
@click.option("--json", "as_json", is_flag=True, help="The same as --report json.")
@unwanted_option("breaking", "changes", usual="never")
@client_option("sources:SourceOperations")
def diff(
    _settings: Settings,
    connect: Connect,
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
    difference = run(_difference(connect, name, new))
    printers = {"table": print_difference, "json": _print_json, "md": _print_markdown}
    printers["json" if as_json else report or "table"](difference)
    breaking = sum(tool["breaking"] for tool in difference["tools"])
    counts = {"changes": len(difference["tools"]) - breaking, "breaking": breaking}
    check(fail_on or "never", counts)


@click.command()
@click.argument("name")
@click.option("--to", type=click.IntRange(min=1), metavar="NUMBER", help="The version to serve.")
@json_option
@client_option("sources:SourceOperations")
def rollback(
    _settings: Settings, connect: Connect, name: str, to: int | None, as_json: bool
) -> None:
    """Serve an older version of the source NAME again.

    The default is the previous version; `toolgate sources versions NAME` lists the versions.

    \b
    Example:
      toolgate sources rollback pets --to 3

    The tools are made from the description and the import options of that version, and keep their
    ids. The description that was rolled back is not imported again, neither by `toolgate serve`
    nor by `toolgate import`, until the description changes or `toolgate sources refresh NAME` runs.
    """
    done = run(_roll_back(connect, name, to))
    if as_json:
        print_json({"version": done["version"], **_summary_json(done["difference"])})
        return
    print_difference(done["difference"])
    print_saved(name, done["report"]["saved"])
    say(f"{name} is version {done['version']['number']} again.")
    remark(f"To end the rollback: toolgate sources refresh {name}")


def print_difference(difference: Json) -> None:
    """At a terminal changes of a tool stand below it; in a pipe each change is a line: fate,
    breaking or not, tool, where, what."""
    tools = difference["tools"]
    if not out.is_terminal:
        print_rows(("", "", "", "", ""), [row for tool in tools for row in _lines(tool)])
    for tool in tools if out.is_terminal else ():
        _print_tool(tool)
    say(_summary(difference), "red" if _is_breaking(difference) else "")


def _is_breaking(difference: Json) -> bool:
    return any(tool["breaking"] for tool in difference["tools"])


def _lines(tool: Json) -> list[Sequence[str]]:
    operation_change = {"where": "", "breaking": False, "text": tool["operation"]}
    return [
        (
            tool["status"],
            "breaking" if change["breaking"] else "-",
            tool["name"],
            change["where"] or "-",
            change["text"],
        )
        for change in tool["changes"] or (operation_change,)
    ]


def _print_tool(tool: Json) -> None:
    sign, style = FATES[tool["status"]]
    line = Text(f"{sign} {one_line(tool['name'])}", style)
    out.print(line.append("  breaking" if tool["breaking"] else "", "red"))
    for change in tool["changes"]:
        text = f"{change['where']}: {change['text']}" if change["where"] else change["text"]
        mark = Text("    ! " if change["breaking"] else "      ", "red")
        out.print(mark.append(one_line(text), "default"), soft_wrap=False)


def _summary(difference: Json) -> str:
    source, tools, unchanged = difference["source"], difference["tools"], difference["unchanged"]
    if not tools:
        return f"Nothing changes: {count_noun('tool', unchanged)} of {source}."
    counts = Counter(tool["status"] for tool in tools)
    changes = ", ".join(f"{counts[status]} {status}" for status in FATES)
    breaking = sum(tool["breaking"] for tool in tools)
    return f"{source}: {changes}, {unchanged} unchanged; {breaking} breaking."


def _summary_json(difference: Json) -> dict[str, object]:
    return {
        "source": difference["source"],
        "breaking": _is_breaking(difference),
        "unchanged": difference["unchanged"],
        "tools": difference["tools"],
    }


def _print_json(difference: Json) -> None:
    print_json(_summary_json(difference))


def _print_markdown(difference: Json) -> None:
    write(f"## {escape_markdown(_summary(difference))}")
    if not difference["tools"]:
        return
    write("\n| tool | | where | change |\n|---|---|---|---|")
    for tool in difference["tools"]:
        for status, breaking, name, where, text in _lines(tool):
            mark = "**breaking**" if breaking == "breaking" else status
            write(
                f"| {escape_markdown(name)} | {mark} | {escape_markdown(where)} "
                f"| {escape_markdown(text)} |"
            )


async def _difference(connect: Connect, name: str, new: str | None) -> Json:
    arguments: dict[str, Any] = {"source": name}
    if new is not None:
        arguments["location"] = absolute(new, Path.cwd())
    with progress_of(name) as job:
        async with connect(job=job) as client:
            compare = partial(client.call, "compareSource", arguments)
            difference: Json = (await hinting(client, arguments, compare)).value
            return difference


async def _roll_back(connect: Connect, name: str, to: int | None) -> Json:
    arguments: dict[str, Any] = {"source": name, "report": True}
    if to is not None:
        arguments["to"] = to
    with progress_of(name) as job:
        async with connect(job=job) as client:
            roll_back = partial(client.call, "rollBack", arguments)
            done: Json = (await hinting(client, arguments, roll_back)).value
            return done
