"""The whole report of an import: every operation, what became of it, and what its tool costs a
model. A table for people, JSON for machines, Markdown for a pull request."""

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.text import Text

from gateway.cli.common.output import one_line, out, print_json, print_rows, say
from gateway.cli.imports.report import STYLES, counted, print_fate, title
from registry.display.budgets import tokens
from registry.sources.imports import ImportReport
from registry.sources.plan import SavedTools
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import ToolDraft

ORDER: tuple[OutcomeStatus, ...] = ("imported", "degraded", "held", "skipped", "excluded")
TOP = 3  # largest definitions that are named
INDENT = 18  # of a reason, below its operation
WIDTH = 80  # at most, for texts that are read


def print_table(report: ImportReport) -> None:
    """At a terminal reasons stand below, and what went wrong comes last, where people look; in a
    pipe each operation is one line: status, tokens, name, operation, reason."""
    cost = costs(report)
    rows = [(one, cost.get(one.key) if one.name else None) for one in report.outcomes]
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
    """Tokens of each definition as lists send it at most, by key of the operation."""
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
    """Shares are of what was not excluded."""
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
    return counted(thing, count) if count < 1000 else f"{count:,} {thing}s"


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
            "base_url": report.source.base_url,
            "dry_run": saved is None and report.rolled_back is None,
            "rolled_back": report.rolled_back,
            "notes": report.notes,
            "saved": None if saved is None else _counts(report, saved),
            **({"server": report.source.server} if report.source.server else {}),
            "totals": _numbers(report),
            "tokens": sum(cost.values()),
            "operations": [
                {**msgspec.to_builtins(one), "tokens": cost.get(one.key) if one.name else None}
                for one in report.outcomes
            ],
        }
    )


def _numbers(report: ImportReport) -> dict[str, Any]:
    """`share`: of what was not excluded, from 0 to 1."""
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
    if report.source.kind != "mcp":
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
    """What needs a look first, all else folded away."""
    cost = costs(report)
    write(f"## {escaped(title(report))}\n")
    for line in [*_totals(report), *_expenses(report, cost), *report.notes]:
        write(f"- {escaped(line)}")
    odd = [one for one in report.outcomes if one.status in STYLES]
    rest = [one for one in report.outcomes if one.status not in STYLES]
    if odd:
        _write_rows(odd, cost)
    if rest:
        write(f"\n<details><summary>{counted_large('other operation', len(rest))}</summary>")
        _write_rows(rest, cost)
        write("\n</details>")


def _write_rows(outcomes: Sequence[Outcome], cost: Mapping[str, int]) -> None:
    write("\n| status | tokens | tool | operation | reason |\n|---|--:|---|---|---|")
    for one in outcomes:
        cells = _row(one, cost.get(one.key) if one.name else None)
        write(f"| {' | '.join(map(escaped, cells))} |")


def write(line: str) -> None:
    sys.stdout.write(line + "\n")


def escaped(text: str) -> str:
    """As Markdown that shows `text` in one line, and does nothing else: it calls nobody either."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    plain = plain.replace("@", "&#64;")
    for mark in "|`*_[]":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
