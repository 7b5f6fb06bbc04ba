"""`toolgate parity`: test vectors, played to any server that speaks the portal's dialects."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import click

from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, say
from gateway.cli.common.parameter_types import Number
from gateway.cli.common.progress import track
from gateway.parity import report
from gateway.parity.report import compare
from gateway.parity.runner import VectorOutcome, VectorPlan, check_services, plan, play, reach
from gateway.parity.vector_requests import Sender, open_sender
from gateway.parity.vectors import Mode, Suite, VectorRun, load, mint

QUERY, COMMAND, RPC = "/portal/query", "/portal/command", "/rpc"
FOLDER = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class ParityOptions:
    """Parsed options of the command."""

    target: str
    against: str | None
    compat: Mode
    legacy: bool  # judge by what light-hybrid-4j answers
    paths: Mapping[str, str]  # "": the target has no such path
    against_paths: Mapping[str, str]
    timeout_s: float


@click.command()
@click.option("--target", metavar="URL", required=True, help="Server to test.")
@click.option("--against", metavar="URL", help="Second server; show the differences.")
@click.option(
    "--vectors", type=FOLDER, metavar="DIR", help="Folder of vectors [default: the bundled ones]."
)
@click.option(
    "--only", multiple=True, metavar="ID", help="Only these vectors, as in 'L3*'; repeatable."
)
@click.option(
    "--compat",
    type=click.Choice(["strict", "spec"]),
    default="strict",
    show_default=True,
    help="Compatibility of the target's portal paths (its portal.compat).",
)
@click.option(
    "--expect",
    type=click.Choice(["toolgate", "legacy"]),
    default="toolgate",
    show_default=True,
    help="Expected responses: of Toolgate or of light-hybrid-4j.",
)
@click.option(
    "--key",
    type=FOLDER,
    metavar="FILE",
    help="Private key (PEM) that the target trusts [default: the one beside the vectors].",
)
@click.option(
    "--query-path", metavar="PATH", default=QUERY, show_default=True, help="Path or URL of queries."
)
@click.option(
    "--command-path",
    metavar="PATH",
    default=COMMAND,
    show_default=True,
    help="Path or URL of commands.",
)
@click.option(
    "--rpc-path",
    metavar="PATH",
    help=f"Path or URL of JSON-RPC [default: {RPC}; none with --expect legacy].",
)
@click.option(
    "--against-path",
    "against_paths",
    multiple=True,
    metavar="NAME=PATH",
    help="Path of query, command or rpc at --against [default: as at the target].",
)
@click.option("--timeout", "timeout_s", type=Number(min=0.1), default=30, metavar="S",
              help="Timeout of a response, in seconds.", show_default=True)  # fmt: skip
@json_option
def parity(
    target: str,
    against: str | None,
    vectors: Path | None,
    only: tuple[str, ...],
    compat: Mode,
    expect: Literal["toolgate", "legacy"],
    key: Path | None,
    query_path: str,
    command_path: str,
    rpc_path: str | None,
    against_paths: tuple[str, ...],
    timeout_s: float,
    as_json: bool,
) -> None:
    """Test a server with the parity vectors.

    They cover the legacy payload, JSON-RPC, and batches. The target can be Toolgate,
    light-hybrid-4j, or another implementation. It must have the services that the vectors call, and
    trust their key: see tests/vectors/hybrid/README.md in the source. A PATH can be a whole URL; an
    empty PATH means that the target does not have it.

    \b
    Examples:
      toolgate parity --target http://localhost:8765
      toolgate parity --target http://localhost:8765 --only L33 --only 'J1*'
      toolgate parity --target http://localhost:8080 --expect legacy \\
          --query-path http://localhost:8440/portal/query
      toolgate parity --target http://localhost:8765 \\
          --against http://localhost:8080

    Exit codes: 0 if all vectors passed, or if the ledger of light-hybrid-4j explains all
    differences; else 1.
    """
    if expect == "legacy" and (compat == "spec" or against):
        fail("--expect legacy goes with neither --compat spec nor --against", USAGE)
    default_rpc = "" if expect == "legacy" else RPC
    rpc = default_rpc if rpc_path is None else rpc_path
    paths = {"query": query_path, "command": command_path, "rpc": rpc}
    other_paths = paths | _pairs(against_paths)
    options = ParityOptions(
        target, against, compat, expect == "legacy", paths, other_paths, timeout_s
    )
    _check_urls(options)
    passed = run(_parity(options, vectors, key, only, as_json))
    if not passed:
        click.get_current_context().exit(FAILED)


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    for name in pairs.keys() - {"query", "command", "rpc"}:
        fail(f"--against-path: expected query=, command= or rpc=, not {name!r}", USAGE)
    return pairs


def _check_urls(options: ParityOptions) -> None:
    for option, url in (("--target", options.target), ("--against", options.against)):
        if url is not None and not url.startswith(("http://", "https://")):
            fail(f"{option}: expected a URL such as http://localhost:8765, not {url!r}", USAGE)
    for path in {*options.paths.values(), *options.against_paths.values()} - {""}:
        if not path.startswith(("/", "http://", "https://")):
            fail(f"expected a path such as /portal/query, or a URL, not {path!r}", USAGE)


async def _parity(
    options: ParityOptions,
    folder: Path | None,
    key: Path | None,
    only: Sequence[str],
    as_json: bool,
) -> bool:
    """Whether all runs passed."""
    suite = load(folder)
    tokens = mint(suite, key)
    rpc = bool(options.paths["rpc"]) and (not options.against or bool(options.against_paths["rpc"]))
    due = plan(_select_runs(suite, only), options.compat, legacy=options.legacy, rpc=rpc)
    servers = [(options.target, options.paths)]
    if options.against is not None:
        servers.append((options.against, options.against_paths))
    async with AsyncExitStack() as stack:
        senders = [
            await stack.enter_async_context(open_sender(url, paths, options.timeout_s))
            for url, paths in servers
        ]
        for sender in senders:
            await reach(sender, due.due)
            await check_services(sender, suite, due.due, tokens)
        outcomes = await _outcomes(senders, due, tokens, options.legacy)
    if len(servers) == 1:
        return _report(options, due, [outcome for [outcome] in outcomes], as_json)
    return _report_differences(
        options, due, [(outcome, second) for outcome, second in outcomes], as_json
    )


def _select_runs(suite: Suite, only: Sequence[str]) -> list[VectorRun]:
    runs = list(suite.runs)
    for pattern in only:
        if not any(_matches(run, pattern) for run in runs):
            near = get_close_matches(pattern, [run.vector.id for run in runs], n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            fail(f"--only: there is no vector {pattern!r} in {suite.folder}.{hint}", USAGE)
    return [run for run in runs if not only or any(_matches(run, text) for text in only)]


def _matches(run: VectorRun, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (run.label, run.vector.id))


async def _outcomes(
    senders: Sequence[Sender], due: VectorPlan, tokens: Mapping[str, str], legacy: bool
) -> list[list[VectorOutcome]]:
    """Outcomes of each run, one per server."""
    with track(due.due, "vectors") as runs:
        return [
            [await play(sender, run, tokens, legacy=legacy) for sender in senders] for run in runs
        ]


def _report(
    options: ParityOptions, due: VectorPlan, outcomes: Sequence[VectorOutcome], as_json: bool
) -> bool:
    passed = all(outcome.is_passed for outcome in outcomes)
    if as_json:
        print_json({**_facts(options), **report.as_json(due, outcomes)})
        return passed
    if not passed:
        print_rows(report.COLUMNS, report.failure_rows(outcomes))
    for hint in report.hints(outcomes, options.compat):
        say(hint, "yellow")
    applied = [] if options.legacy else report.applied_differences(outcomes)
    if applied:
        say(f"Intended differences from light-hybrid-4j (LEDGER.md): {', '.join(applied)}")
    say(report.summary(due, outcomes, options.compat), "green" if passed else "red")
    return passed


def _report_differences(
    options: ParityOptions,
    due: VectorPlan,
    pairs: Sequence[tuple[VectorOutcome, VectorOutcome]],
    as_json: bool,
) -> bool:
    differences = [difference for pair in pairs for difference in compare(*pair)]
    unexplained = [difference for difference in differences if difference.reason is None]
    if as_json:
        print_json({**_facts(options), **report.comparison_json(due, len(due.due), differences)})
        return not unexplained
    if unexplained:
        columns = ("VECTOR", "WHERE", "TARGET", "AGAINST")
        print_rows(columns, report.difference_rows(unexplained))
    for note in report.difference_notes(differences):
        say(note)
    if unexplained:
        for name, outcomes in zip(
            ("The target", "--against"), zip(*pairs, strict=True), strict=True
        ):
            for hint in report.hints(outcomes, options.compat, name):
                say(hint, "yellow")
    text = report.difference_summary(due, differences, options.compat)
    say(text, "red" if unexplained else "green")
    return not unexplained


def _facts(options: ParityOptions) -> dict[str, Any]:
    target = {"target": options.target, "compat": options.compat}
    return target if options.against is None else {**target, "against": options.against}
