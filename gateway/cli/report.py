"""What an import did, for a person and for machines."""

from collections import Counter
from urllib.parse import urlsplit

import msgspec
from rich.text import Text

from gateway.cli.output import harmless, out, print_json, say
from registry.addresses import PrivateAddress, check_url_host
from registry.changes import Saved
from registry.sources import Report
from schemas.source import Outcome

STYLES = {"degraded": "yellow", "skipped": "red"}
SHOWN = 20  # degraded operations at a terminal; they work, and nobody reads hundreds


def print_report(report: Report) -> None:
    """The exceptions one by one, the rest in numbers, and what is left to do."""
    _print_exceptions(report.outcomes)
    for note in report.notes:
        say(f"note      {note}")
    counts = Counter(outcome.status for outcome in report.outcomes)
    numbers = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    title = " ".join(filter(None, (report.source.title, report.source.version)))
    say(f"{title or report.source.name}: {numbers}")
    if report.saved is None:
        say("Dry run: nothing was written.")
    else:
        say(f"Tools of {report.source.name}: {_changes(report.saved)}.")
    _print_address(report)


def _changes(saved: Saved) -> str:
    counts = {
        "added": saved.added,
        "updated": saved.updated,
        "unchanged": saved.unchanged,
        "removed": saved.removed,
    }
    return ", ".join(f"{len(names)} {fate}" for fate, names in counts.items())


def _print_exceptions(outcomes: tuple[Outcome, ...]) -> None:
    told = [one for one in outcomes if one.status == "skipped"]
    degraded = [one for one in outcomes if one.status == "degraded"]
    shown = degraded[:SHOWN] if out.is_terminal else degraded
    for outcome in [*told, *shown]:
        status = Text(f"{outcome.status:9} ", STYLES[outcome.status])
        out.print(status.append(harmless(f"{outcome.operation}: {outcome.reason}"), "default"))
    if len(shown) < len(degraded):
        say(f"… and {len(degraded) - len(shown)} more degraded; --json names all")


def _print_address(report: Report) -> None:
    """Where calls go; nothing is worse than to learn on the first call that they cannot."""
    base_url = report.source.base_url
    if base_url is None:
        say("No address to call: the description names none. Give --base-url URL.", "yellow")
    elif not report.source.base_url_trusted and _private(base_url):
        say(
            f"Calls are refused: {base_url} is private, and only the description names it. "
            f"If it is right, confirm it with --base-url {base_url}",
            "yellow",
        )
    else:
        say(f"Calls go to {base_url}")


def _private(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        check_url_host(url)
    except PrivateAddress:
        return True
    return host == "localhost" or host.endswith(".localhost")


def print_report_json(report: Report) -> None:
    saved = report.saved
    print_json(
        {
            "source": report.source.name,
            "base_url": report.source.base_url,
            "dry_run": saved is None,
            "notes": report.notes,
            "saved": None if saved is None else {
                "added": len(saved.added),
                "updated": len(saved.updated),
                "unchanged": len(saved.unchanged),
                "removed": len(saved.removed),
            },
            "operations": msgspec.to_builtins(report.outcomes),
        }
    )  # fmt: skip
