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
from urllib.parse import urlsplit

import click
import msgspec
from rich.text import Text

from gateway.cli.common.failure import UNWANTED, USAGE, fail
from gateway.cli.common.output import out, print_json, print_rows, say
from gateway.cli.common.text import harmless, one_line
from registry.display.budgets import tokens
from registry.documents.ssrf_protection import PrivateAddress, check_url_host
from registry.sources.import_plan import SavedTools
from registry.sources.imports import ImportReport
from registry.sources.mcp_items import ItemsSaved
from schemas.mcp.snapshot import ItemKind, ServerFacts
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import ToolDraft
from schemas.urls import without_queries

STYLES = {"degraded": "yellow", "held": "yellow", "skipped": "red"}
ITEMS: tuple[ItemKind, ...] = ("prompt", "resource", "template")
SHOWN = 20  # degraded operations at a terminal; they work, and hundreds would go unread


def print_report(report: ImportReport) -> None:
    """Print exceptions individually, the rest as counts, and the remaining steps."""
    _print_exceptions(report.outcomes)
    for note in report.notes:
        say(f"note      {note}")
    counts = Counter(outcome.status for outcome in report.outcomes)
    numbers = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    say(f"{title(report)}: {numbers}")
    print_fate(report)


def title(report: ImportReport) -> str:
    names = filter(None, (report.source.title, report.source.version))
    return " ".join(names) or report.source.name


def print_fate(report: ImportReport) -> None:
    """Print what the registry stored, and the address of calls."""
    if report.source.server is not None:
        _print_server(report)
    if report.rolled_back is not None:
        _print_rolled_back(report.source.name, report.rolled_back, report.held)
    elif report.saved is None:
        say("Dry run: nothing was written.")
    else:
        print_saved(report.source.name, report.saved)
    _print_address(report)


def _print_rolled_back(name: str, version: int, held: int | None) -> None:
    say(
        f"Nothing was written: {name} is rolled back to version {version}, and this description "
        f"was rolled back.\nTo serve it again: toolgate sources rollback {name} --to {held}",
        "yellow",
    )


def print_saved(name: str, saved: SavedTools) -> None:
    say(f"Tools of {name}: {_changes(saved)}.")
    items = saved.items
    if items != ItemsSaved():
        say(
            f"Prompts and resources of {name}: {items.added} added, {items.updated} updated, "
            f"{items.unchanged} unchanged, {items.removed} removed."
        )
    if saved.held:
        count = "1 tool waits" if len(saved.held) == 1 else f"{len(saved.held)} tools wait"
        say(f"{count} for approval: toolgate tools approve --source {name} --diff", "yellow")


def _print_server(report: ImportReport) -> None:
    """Print facts of an MCP server."""
    counts = Counter(outcome.key.rpartition("@")[2] for outcome in _named_outcomes(report.outcomes))
    numbers = [("tool", counts["call"]), *((kind, counts[kind]) for kind in ITEMS)]
    say(f"It has {', '.join(count_noun(kind, count) for kind, count in numbers)}.")
    if report.source.server:
        say(f"It speaks {spoken_revisions(report.source.server)}.")


def _named_outcomes(outcomes: tuple[Outcome, ...]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.name is not None]


def count_noun(thing: str, count: int) -> str:
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"


def spoken_revisions(facts: ServerFacts) -> str:
    """Revisions that a server agreed to, newest first."""
    revisions = [revision for revision in (facts.stateless, facts.handshake) if revision]
    return " and ".join(revisions) or "no known revision"


def _changes(saved: SavedTools) -> str:
    counts = {
        "added": saved.added,
        "updated": saved.updated,
        "unchanged": saved.unchanged,
        "removed": saved.removed,
    }
    return ", ".join(f"{len(names)} {fate}" for fate, names in counts.items())


def _print_exceptions(outcomes: tuple[Outcome, ...]) -> None:
    problems = [outcome for outcome in outcomes if outcome.status in {"skipped", "held"}]
    degraded = [outcome for outcome in outcomes if outcome.status == "degraded"]
    shown = degraded[:SHOWN] if out.is_terminal else degraded
    for outcome in [*problems, *shown]:
        status = Text(f"{outcome.status:9} ", STYLES[outcome.status])
        out.print(status.append(harmless(f"{outcome.operation}: {outcome.reason}"), "default"))
    if len(shown) < len(degraded):
        say(f"… and {len(degraded) - len(shown)} more degraded; --report lists all")


def _print_address(report: ImportReport) -> None:
    """Print the address of calls, so that a wrong one is noticed before the first call."""
    base_url, options = report.source.base_url, report.source.options
    if options.command:
        say(f"Calls go to a process: {shlex.join(options.command)}")
    elif base_url is None:
        say("The description has no server URL: add --base-url URL.", "yellow")
    elif not report.source.base_url_trusted and is_private(base_url):
        say(
            f"Calls are refused: {base_url} is a private address of the description. "
            f"To allow it, add --base-url {base_url}",
            "yellow",
        )
    else:
        say(f"Calls go to {without_queries(base_url)}")


def is_private(url: str) -> bool:
    """Whether the URL's host is private by its name, without DNS look-up."""
    host = urlsplit(url).hostname or ""
    try:
        check_url_host(url)
    except PrivateAddress:
        return True
    return host == "localhost" or host.endswith(".localhost")


ORDER: tuple[OutcomeStatus, ...] = ("imported", "degraded", "held", "skipped", "excluded")
TOP = 3  # number of largest definitions that are named
INDENT = 18  # of a reason, below its operation
WIDTH = 80  # maximum, for prose


def print_table(report: ImportReport) -> None:
    """At a terminal reasons stand below, and errors come last, where people look; in a pipe each
    operation is one line: status, tokens, name, operation, reason."""
    cost = costs(report)
    rows = [
        (outcome, cost.get(outcome.key) if outcome.name else None) for outcome in report.outcomes
    ]
    if out.is_terminal:
        out.print(Text(f"{'status':9} {'tokens':>6}  tool", "bold"))
        for outcome, price in sorted(rows, key=lambda row: row[0].status in STYLES):
            _print_outcome(outcome, price)
    else:
        print_rows(ROWS, [_row(outcome, price) for outcome, price in rows])
    say("")
    notes = (f"note: {note}" for note in report.notes)
    for line in [*_totals(report), *_expenses(report, cost), *notes]:
        wrapped = textwrap.wrap(line, WIDTH, break_on_hyphens=False)
        for part in wrapped if out.is_terminal else [line]:
            say(part)
    print_fate(report)


ROWS = ("status", "tokens", "name", "operation", "reason")


def _row(outcome: Outcome, price: int | None) -> Sequence[str]:
    return (
        outcome.status,
        "-" if price is None else str(price),
        outcome.name or "-",
        outcome.operation,
        outcome.reason or "",
    )


def _print_outcome(outcome: Outcome, price: int | None) -> None:
    line = Text(f"{outcome.status:9}", STYLES.get(outcome.status, ""))
    name = one_line(outcome.name or outcome.operation)
    line.append(f" {'' if price is None else price:>6}  {name}", "default")
    line.truncate(min(out.width, WIDTH), overflow="ellipsis")
    out.print(line)
    room = min(out.width, WIDTH) - INDENT
    for part in textwrap.wrap(one_line(outcome.reason or ""), max(room, INDENT)):
        out.print(Text(f"{'':{INDENT}}{part}", "dim"))


def costs(report: ImportReport) -> dict[str, int]:
    """Maximum tokens of each definition in lists, by key of the operation."""
    return {draft.key: tokens(_definition(draft)) for draft in report.drafts}


def _definition(draft: ToolDraft) -> bytes:
    whole = {
        "name": draft.name,
        "title": draft.title,
        "description": draft.description,
        "inputSchema": draft.input_schema,
        "annotations": draft.annotations,
    }
    return msgspec.json.encode({key: value for key, value in whole.items() if value is not None})


def _totals(report: ImportReport) -> Iterator[str]:
    """Totals; shares relate to operations that were not excluded."""
    counts = Counter(outcome.status for outcome in report.outcomes)
    wanted = sum(counts.values()) - counts["excluded"]
    shares = [
        f"{counts[status]:,} {status} ({_share(counts[status], wanted)})"
        for status in ORDER
        if counts[status] and status != "excluded"
    ]
    excluded = f"; {counts['excluded']:,} excluded" if counts["excluded"] else ""
    yield f"{title(report)}: {counted_large('operation', wanted)}: {', '.join(shares)}{excluded}"


def counted_large(thing: str, count: int) -> str:
    return count_noun(thing, count) if count < 1000 else f"{count:,} {thing}s"


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else "0.0%"


def _expenses(report: ImportReport, cost: Mapping[str, int]) -> Iterator[str]:
    if not cost:
        return
    names = {outcome.key: outcome.name for outcome in report.outcomes if outcome.name}
    top = sorted(cost.items(), key=lambda pair: -pair[1])[:TOP]
    largest = ", ".join(f"{names.get(key, key)} {price:,}" for key, price in top)
    yield (
        f"Definitions: {sum(cost.values()):,} tokens (characters / 4) before lists shorten them; "
        f"the largest: {largest}"
    )


def print_report_json(report: ImportReport) -> None:
    cost, saved = costs(report), report.saved
    print_json(
        {
            "source": report.source.name,
            "title": report.source.title,
            "version": report.source.version,
            "base_url": report.source.base_url and without_queries(report.source.base_url),
            "dry_run": saved is None and report.rolled_back is None,
            "rolled_back": report.rolled_back,
            "notes": report.notes,
            "saved": None if saved is None else _counts(report, saved),
            **({"server": report.source.server} if report.source.server else {}),
            "totals": _numbers(report),
            "tokens": sum(cost.values()),
            "operations": [
                {
                    **msgspec.to_builtins(outcome),
                    "tokens": cost.get(outcome.key) if outcome.name else None,
                }
                for outcome in report.outcomes
            ],
        }
    )


def _numbers(report: ImportReport) -> dict[str, Any]:
    """Counts; `share`: of operations that were not excluded, from 0 to 1."""
    counts = Counter(outcome.status for outcome in report.outcomes)
    wanted = sum(counts.values()) - counts["excluded"]
    return {
        status: {
            "count": counts[status],
            "share": None
            if status == "excluded" or not wanted
            else round(counts[status] / wanted, 4),
        }
        for status in ORDER
    }


def _counts(report: ImportReport, saved: SavedTools) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "added": len(saved.added),
        "updated": len(saved.updated),
        "unchanged": len(saved.unchanged),
        "removed": len(saved.removed),
    }
    if not report.source.facts.server:
        return counts
    items = saved.items
    return {
        **counts,
        "held": len(saved.held),
        "items": {
            "added": items.added,
            "updated": items.updated,
            "unchanged": items.unchanged,
            "removed": items.removed,
        },
    }


def print_markdown(report: ImportReport) -> None:
    """Print problems first, all else collapsed."""
    cost = costs(report)
    write(f"## {escape_markdown(title(report))}\n")
    for line in [*_totals(report), *_expenses(report, cost), *report.notes]:
        write(f"- {escape_markdown(line)}")
    odd = [outcome for outcome in report.outcomes if outcome.status in STYLES]
    rest = [outcome for outcome in report.outcomes if outcome.status not in STYLES]
    if odd:
        _write_rows(odd, cost)
    if rest:
        write(f"\n<details><summary>{counted_large('other operation', len(rest))}</summary>")
        _write_rows(rest, cost)
        write("\n</details>")


def _write_rows(outcomes: Sequence[Outcome], cost: Mapping[str, int]) -> None:
    write("\n| status | tokens | tool | operation | reason |\n|---|--:|---|---|---|")
    for outcome in outcomes:
        cells = _row(outcome, cost.get(outcome.key) if outcome.name else None)
        write(f"| {' | '.join(map(escape_markdown, cells))} |")


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
