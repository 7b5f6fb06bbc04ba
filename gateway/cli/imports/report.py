"""Reports of an import, and when it counts as failed.

A table for people, JSON for machines, Markdown for a pull request.
"""

import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from typing import Any, Literal, TypeVar, cast

import click
from rich.text import Text

from gateway.cli.common.failure import UNWANTED, USAGE, fail
from gateway.cli.common.output import out, print_json, print_rows, say
from gateway.cli.common.text import harmless, one_line

STYLES = {"degraded": "yellow", "held": "yellow", "skipped": "red"}
ITEMS = ("prompt", "resource", "template")
Json = Mapping[str, Any]  # an import's answer, with its report

DEGRADED_LISTED = 20  # degraded operations at a terminal; they work, and hundreds would go unread


def print_report(report: Json) -> None:
    """Print exceptions individually, the rest as counts, and the remaining steps."""
    _print_exceptions(report["operations"])
    for note in report["notes"]:
        say(f"note      {note}")
    numbers = ", ".join(f"{count} {status}" for status, count in sorted(_counts(report).items()))
    say(f"{title(report)}: {numbers}")
    print_fate(report)


def title(report: Json) -> str:
    names = filter(None, (report["title"], report["version"]))
    return " ".join(names) or report["source"]


def _counts(report: Json) -> Counter[str]:
    return Counter(operation["status"] for operation in report["operations"])


def print_fate(report: Json) -> None:
    """Print what the registry stored, and the address of calls."""
    if report["server"] is not None:
        _print_server(report)
    if report["rolled_back"] is not None:
        _print_rolled_back(report)
    elif report["saved"] is None:
        say("Dry run: nothing was written.")
    else:
        print_saved(report["source"], report["saved"])
    _print_address(report)


def _print_rolled_back(report: Json) -> None:
    name, version, refused = report["source"], report["rolled_back"], report["refused"]
    say(
        f"Nothing was written: {name} is rolled back to version {version}, and this description "
        f"was rolled back.\nTo serve it again: toolgate sources rollback {name} --to {refused}",
        "yellow",
    )


def print_saved(name: str, changes: Json) -> None:
    say(f"Tools of {name}: {_changes(changes)}.")
    if any(changes["items"].values()):
        say(f"Prompts and resources of {name}: {_changes(changes['items'])}.")
    if changes["held"]:
        count = "1 tool waits" if changes["held"] == 1 else f"{changes['held']} tools wait"
        say(f"{count} to be accepted: toolgate tools accept --source {name} --diff", "yellow")


def _print_server(report: Json) -> None:
    """Print facts of an MCP server."""
    counts = Counter(
        operation["key"].rpartition("@")[2]
        for operation in report["operations"]
        if operation["name"] is not None
    )
    numbers = [("tool", counts["call"]), *((kind, counts[kind]) for kind in ITEMS)]
    say(f"It has {', '.join(count_noun(kind, count) for kind, count in numbers)}.")
    say(f"It speaks {spoken_revisions(report['server'])}.")


def count_noun(thing: str, count: int) -> str:
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"


def spoken_revisions(facts: Json) -> str:
    """Revisions that a server agreed to, newest first."""
    revisions = [facts[era] for era in ("stateless", "handshake") if facts.get(era)]
    return " and ".join(revisions) or "no known revision"


def _changes(counts: Json) -> str:
    fates = ("added", "updated", "unchanged", "removed")
    return ", ".join(f"{counts[fate]} {fate}" for fate in fates)


def _print_exceptions(operations: Sequence[Json]) -> None:
    problems = [each for each in operations if each["status"] in {"skipped", "held"}]
    degraded = [each for each in operations if each["status"] == "degraded"]
    listed = degraded[:DEGRADED_LISTED] if out.is_terminal else degraded
    for operation in [*problems, *listed]:
        status = Text(f"{operation['status']:9} ", STYLES[operation["status"]])
        line = f"{operation['operation']}: {operation['reason']}"
        out.print(status.append(harmless(line), "default"))
    if len(listed) < len(degraded):
        say(f"… and {len(degraded) - len(listed)} more degraded; --report lists all")


def _print_address(report: Json) -> None:
    """Print the address of calls, so that a wrong one is noticed before the first call."""
    base_url = report["base_url"]
    if report["command"]:
        say(f"Calls go to a process: {shlex.join(report['command'])}")
    elif base_url is None:
        say("The description has no server URL: add --base-url URL.", "yellow")
    elif report["is_refused"]:
        say(
            f"Calls are refused: {base_url} is a private address of the description. "
            f"To allow it, add --base-url {base_url}",
            "yellow",
        )
    else:
        say(f"Calls go to {base_url}")


ORDER = ("imported", "degraded", "held", "skipped", "excluded")
TOP = 3  # number of largest definitions that are named
INDENT = 18  # of a reason, below its operation
WIDTH = 80  # maximum, for prose


def print_table(report: Json) -> None:
    """At a terminal reasons stand below, and errors come last, where people look; in a pipe each
    operation is one line: status, tokens, name, operation, reason."""
    operations = report["operations"]
    if out.is_terminal:
        out.print(Text(f"{'status':9} {'tokens':>6}  tool", "bold"))
        for operation in sorted(operations, key=lambda each: each["status"] in STYLES):
            _print_outcome(operation)
    else:
        print_rows(ROWS, list(map(_row, operations)))
    say("")
    notes = (f"note: {note}" for note in report["notes"])
    for line in [*_totals(report), *_expenses(report), *notes]:
        wrapped = textwrap.wrap(line, WIDTH, break_on_hyphens=False)
        for part in wrapped if out.is_terminal else [line]:
            say(part)
    print_fate(report)


ROWS = ("status", "tokens", "name", "operation", "reason")


def _row(operation: Json) -> Sequence[str]:
    return (
        operation["status"],
        "-" if operation["tokens"] is None else str(operation["tokens"]),
        operation["name"] or "-",
        operation["operation"],
        operation["reason"] or "",
    )


def _print_outcome(operation: Json) -> None:
    status, price = operation["status"], operation["tokens"]
    line = Text(f"{status:9}", STYLES.get(status, ""))
    name = one_line(operation["name"] or operation["operation"])
    line.append(f" {'' if price is None else price:>6}  {name}", "default")
    line.truncate(min(out.width, WIDTH), overflow="ellipsis")
    out.print(line)
    room = min(out.width, WIDTH) - INDENT
    for part in textwrap.wrap(one_line(operation["reason"] or ""), max(room, INDENT)):
        out.print(Text(f"{'':{INDENT}}{part}", "dim"))


def _totals(report: Json) -> Iterator[str]:
    """Totals; shares relate to operations that were not excluded."""
    counts = _counts(report)
    included = sum(counts.values()) - counts["excluded"]
    shares = [
        f"{counts[status]:,} {status} ({_share(counts[status], included)})"
        for status in ORDER
        if counts[status] and status != "excluded"
    ]
    excluded = f"; {counts['excluded']:,} excluded" if counts["excluded"] else ""
    yield f"{title(report)}: {counted_large('operation', included)}: {', '.join(shares)}{excluded}"


def counted_large(thing: str, count: int) -> str:
    return count_noun(thing, count) if count < 1000 else f"{count:,} {thing}s"


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else "0.0%"


def _expenses(report: Json) -> Iterator[str]:
    costs = {
        operation["name"]: operation["tokens"]
        for operation in report["operations"]
        if operation["tokens"] is not None
    }
    if not costs:
        return
    top = sorted(costs.items(), key=lambda pair: -pair[1])[:TOP]
    largest = ", ".join(f"{name} {price:,}" for name, price in top)
    yield (
        f"Definitions: {sum(costs.values()):,} tokens (characters / 4) before lists shorten them; "
        f"the largest: {largest}"
    )


def print_report_json(report: Json) -> None:
    saved, server = report["saved"], report["server"]
    if saved is not None and server is None:
        saved = {fate: saved[fate] for fate in ("added", "updated", "unchanged", "removed")}
    print_json(
        {
            "source": report["source"],
            "title": report["title"],
            "version": report["version"],
            "base_url": report["base_url"],
            "dry_run": saved is None and report["rolled_back"] is None,
            "rolled_back": report["rolled_back"],
            "notes": report["notes"],
            "saved": saved,
            **({} if server is None else {"server": server}),
            "totals": _numbers(report),
            "tokens": sum(operation["tokens"] or 0 for operation in report["operations"]),
            "operations": report["operations"],
        }
    )


def _numbers(report: Json) -> dict[str, Any]:
    """Counts; `share`: of operations that were not excluded, from 0 to 1."""
    counts = _counts(report)
    included = sum(counts.values()) - counts["excluded"]
    return {
        status: {
            "count": counts[status],
            "share": None
            if status == "excluded" or not included
            else round(counts[status] / included, 4),
        }
        for status in ORDER
    }


def print_markdown(report: Json) -> None:
    """Print problems first, all else collapsed."""
    write(f"## {escape_markdown(title(report))}\n")
    for line in [*_totals(report), *_expenses(report), *report["notes"]]:
        write(f"- {escape_markdown(line)}")
    odd = [operation for operation in report["operations"] if operation["status"] in STYLES]
    others = [operation for operation in report["operations"] if operation["status"] not in STYLES]
    if odd:
        _write_rows(odd)
    if others:
        write(f"\n<details><summary>{counted_large('other operation', len(others))}</summary>")
        _write_rows(others)
        write("\n</details>")


def _write_rows(operations: Sequence[Json]) -> None:
    write("\n| status | tokens | tool | operation | reason |\n|---|--:|---|---|---|")
    for operation in operations:
        write(f"| {' | '.join(map(escape_markdown, _row(operation)))} |")


def write(line: str) -> None:
    sys.stdout.write(line + "\n")


def escape_markdown(text: str) -> str:
    """Markdown that shows `text` literally in one line; mentions notify no user."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    plain = plain.replace("@", "&#64;")
    for mark in "|`*_[]":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


F = TypeVar("F", bound=Callable[..., Any])

Format = Literal["table", "json", "md"]
FORMATS = ("table", "json", "md")
OPTION = "--report"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    format: Format | None  # None: exceptions individually, the rest as counts
    fail_on: str  # "never", or the outcome that counts as failure


class ReportingCommand(click.Command):
    """A command whose --report takes an optional format."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_format(args))


def _with_format(args: Sequence[str]) -> list[str]:
    """Inserts the default format: in `--report pets.yaml` the file is the next argument."""
    return [
        f"{OPTION}=table" if argument == OPTION and after not in FORMATS else argument
        for argument, after in zip_longest(args, args[1:], fillvalue="")
    ]


def report_option(command: F) -> F:
    return click.option(
        OPTION,
        "report",
        type=click.Choice(FORMATS),
        help="Print a full report [default format: table].",
    )(command)


def unwanted_option(*unwanted: str, usual: str) -> Callable[[F], F]:
    """--fail-on with one of these outcomes."""
    return click.option(
        "--fail-on",
        type=click.Choice([*unwanted, "never"]),
        help=f"Exit with {UNWANTED} if there are such outcomes [default: {usual}].",
    )


def telling_options(command: F) -> F:
    """--json, --report and --fail-on; the command receives them as `telling`."""

    @wraps(command)
    def call_with_report(
        *args: Any, report: Format | None, as_json: bool, fail_on: str | None, **others: Any
    ) -> Any:
        if report and as_json:
            fail("--json is the same as --report json; remove one of them", USAGE)
        usual = "skipped" if report else "never"
        telling = ReportOptions("json" if as_json else report, fail_on or usual)
        return command(*args, telling=telling, **others)

    usual_help = "skipped with --report, else never"
    decorated: Any = unwanted_option("skipped", "degraded", usual=usual_help)(call_with_report)
    decorated = report_option(decorated)
    json_help = "Print JSON, like --report json, without failing by default."
    decorated = click.option("--json", "as_json", is_flag=True, help=json_help)(decorated)
    return cast("F", decorated)


def check(fail_on: str, unwanted: Mapping[str, int]) -> None:
    """Fail if an outcome of `fail_on` or worse occurred; `unwanted`: counts, mildest first."""
    if fail_on == "never":
        return
    worse = list(unwanted)[list(unwanted).index(fail_on) :]
    if wrong := [f"{unwanted[status]} {status}" for status in worse if unwanted[status]]:
        fail(f"{' and '.join(wrong)}, and --fail-on is {fail_on}", UNWANTED)
