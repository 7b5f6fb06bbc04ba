"""What an import did, for a person and for machines."""

import shlex
from collections import Counter
from urllib.parse import urlsplit

from rich.text import Text

from gateway.cli.common.output import harmless, out, say
from registry.documents.addresses import PrivateAddress, check_url_host
from registry.sources.imports import ImportReport
from registry.sources.items import ItemsSaved
from registry.sources.plan import SavedTools
from schemas.mcp.snapshot import ItemKind, ServerFacts
from schemas.source import McpOptions, Outcome

STYLES = {"degraded": "yellow", "held": "yellow", "skipped": "red"}
ITEMS: tuple[ItemKind, ...] = ("prompt", "resource", "template")
SHOWN = 20  # degraded operations at a terminal; they work, and nobody reads hundreds


def print_report(report: ImportReport) -> None:
    """The exceptions one by one, the rest in numbers, and what is left to do."""
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
    """What became of it in the registry, and where calls go."""
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
        f"Nothing was written: {name} is rolled back to version {version}, and this is what it was "
        f"rolled back from.\nTo take it after all: toolgate sources rollback {name} --to {held}",
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
    """What the outcomes are about, of an MCP server."""
    counts = Counter(outcome.key.rpartition("@")[2] for outcome in _kept(report.outcomes))
    numbers = [("tool", counts["call"]), *((kind, counts[kind]) for kind in ITEMS)]
    say(f"It has {', '.join(counted(kind, count) for kind, count in numbers)}.")
    if report.source.server:
        say(f"It speaks {spoken(report.source.server)}.")


def _kept(outcomes: tuple[Outcome, ...]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.name is not None]


def counted(thing: str, count: int) -> str:
    return f"1 {thing}" if count == 1 else f"{count} {thing}s"


def spoken(facts: ServerFacts) -> str:
    """The revisions that a server agreed to, the newest first."""
    revisions = [one for one in (facts.stateless, facts.handshake) if one]
    return " and ".join(revisions) or "no revision that is known here"


def _changes(saved: SavedTools) -> str:
    counts = {
        "added": saved.added,
        "updated": saved.updated,
        "unchanged": saved.unchanged,
        "removed": saved.removed,
    }
    return ", ".join(f"{len(names)} {fate}" for fate, names in counts.items())


def _print_exceptions(outcomes: tuple[Outcome, ...]) -> None:
    told = [one for one in outcomes if one.status in {"skipped", "held"}]
    degraded = [one for one in outcomes if one.status == "degraded"]
    shown = degraded[:SHOWN] if out.is_terminal else degraded
    for outcome in [*told, *shown]:
        status = Text(f"{outcome.status:9} ", STYLES[outcome.status])
        out.print(status.append(harmless(f"{outcome.operation}: {outcome.reason}"), "default"))
    if len(shown) < len(degraded):
        say(f"… and {len(degraded) - len(shown)} more degraded; --report names all")


def _print_address(report: ImportReport) -> None:
    """Where calls go; nothing is worse than to learn on the first call that they cannot."""
    base_url, options = report.source.base_url, report.source.options
    if isinstance(options, McpOptions) and options.command:
        say(f"Calls go to a process: {shlex.join(options.command)}")
    elif base_url is None:
        say("No address to call: the description names none. Give --base-url URL.", "yellow")
    elif not report.source.base_url_trusted and is_private(base_url):
        say(
            f"Calls are refused: {base_url} is private, and only the description names it. "
            f"If it is right, confirm it with --base-url {base_url}",
            "yellow",
        )
    else:
        say(f"Calls go to {base_url}")


def is_private(url: str) -> bool:
    """As far as the name tells, without a look-up."""
    host = urlsplit(url).hostname or ""
    try:
        check_url_host(url)
    except PrivateAddress:
        return True
    return host == "localhost" or host.endswith(".localhost")
