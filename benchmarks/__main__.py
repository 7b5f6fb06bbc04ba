"""`python -m benchmarks`: one run that writes a table of ratios and a JSON file."""

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console

from benchmarks import machine, peer, wrk
from benchmarks.agents import measure_agents
from benchmarks.backfill import measure_backfill
from benchmarks.code_mode import measure_code
from benchmarks.definitions import measure_definitions
from benchmarks.descriptions import measure_descriptions
from benchmarks.disclosure import measure_disclosure
from benchmarks.events import measure_events
from benchmarks.footprint import measure_import, measure_latency, measure_memory
from benchmarks.fronts import measure_calls, measure_lists
from benchmarks.guarded import measure_guarded
from benchmarks.ingestion import measure_ingestion
from benchmarks.library import measure_library
from benchmarks.load import CONNECTIONS, Load
from benchmarks.memories import measure_memories
from benchmarks.multihop import measure_multihop
from benchmarks.peers import measure_peers
from benchmarks.portal import measure_portal
from benchmarks.processes import allowed_files, pin, split_cores
from benchmarks.proxied import measure_mcp
from benchmarks.quality import measure_quality
from benchmarks.recursion import measure_recursion
from benchmarks.request import Unavailable
from benchmarks.result import Result, caption, write
from benchmarks.rig import Rig, running, start_upstream
from benchmarks.search import measure_search
from benchmarks.streams import measure_streams
from benchmarks.table import Row, broken, markdown, missed, render
from benchmarks.tracing import measure_tracing

NAMES = (
    "calls", "peers", "guarded", "lists", "portal", "mcp", "latency", "import", "footprint",
    "streams", "descriptions", "disclosure", "quality", "search", "backfill", "memory", "events",
    "agents", "code", "definitions", "multihop", "ingestion", "library", "recursion", "tracing",
)  # fmt: skip
SLICE_S = 2.0  # one measurement; a scenario is the sum of its slices
QUICK_S = 2.0
README = ("calls", "guarded", "portal", "mcp", "latency")  # groups whose figures stand there

Group = Callable[[Rig], list[Row]]
Say = Callable[[str], None]


@click.command()
@click.option("--quick", is_flag=True, help="2 s per scenario: does it run, not how fast.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="One group; repeatable.")
@click.option("--readme", is_flag=True, help="The groups of the README's table.")
@click.option("--seconds", type=click.FloatRange(2), default=10, show_default=True)
@click.option(
    "--openapi",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="TOOLGATE_BENCH_OPENAPI",
    help="Large description to import, such as GitHub's; a generated one when absent.",
)
@click.option(
    "--descriptions",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TOOLGATE_BENCH_DESCRIPTIONS",
    help="Directory of OpenAPI descriptions to measure; generated ones when absent.",
)
@click.option(
    "--toolsets",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TOOLGATE_BENCH_TOOLSETS",
    help="Directory of tool sets (NAME/queries.jsonl, NAME/tools.jsonl); our own one when absent.",
)
@click.option(
    "--recall",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TOOLGATE_BENCH_RECALL",
    help="Directory of conversations with questions (locomo, memorybank-zh); left out when absent.",
)
@click.option("--large", is_flag=True, help="Memory: with a million memories, too; 30 minutes.")
@click.option("--tools", type=click.IntRange(100), help="How many tools the searches are among.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--markdown",
    "table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the ratios to the floor with their spread, as in the README.",
)
@click.option("--strict", is_flag=True, help="Exit 1 when a target is missed.")
def main(
    quick: bool,
    only: tuple[str, ...],
    readme: bool,
    seconds: float,
    openapi: Path | None,
    descriptions: Path | None,
    toolsets: Path | None,
    recall: Path | None,
    large: bool,
    tools: int | None,
    output: Path | None,
    table: Path | None,
    strict: bool,
) -> None:
    """Measure the gateway beside a bare floor, nginx and other gateways, on loopback."""
    groups: dict[str, Group] = {
        "calls": measure_calls,
        "peers": measure_peers,
        "guarded": measure_guarded,
        "tracing": measure_tracing,
        "lists": measure_lists,
        "portal": measure_portal,
        "mcp": measure_mcp,
        "latency": measure_latency,
        "import": partial(measure_import, description=openapi),
        "footprint": measure_memory,
        "streams": measure_streams,
        "descriptions": partial(measure_descriptions, directory=descriptions, quick=quick),
        "disclosure": partial(measure_disclosure, directory=descriptions),
        "quality": partial(measure_quality, directory=toolsets, quick=quick),
        "search": partial(measure_search, directory=toolsets, quick=quick, count=tools),
        "backfill": partial(measure_backfill, directory=toolsets, quick=quick),
        "memory": partial(measure_memories, directory=recall, quick=quick, large=large),
        "definitions": partial(measure_definitions, directory=recall),
        "multihop": partial(measure_multihop, directory=recall),
        "ingestion": partial(measure_ingestion, directory=recall),
        "library": partial(measure_library, directory=recall),
        "recursion": measure_recursion,
        "events": partial(measure_events, quick=quick),
        "agents": partial(measure_agents, quick=quick),
        "code": partial(measure_code, quick=quick),
    }
    groups_to_run = (*only, *README) if readme else only or NAMES
    chosen = {name: groups[name] for name in NAMES if name in groups_to_run}
    result = run(chosen, QUICK_S if quick else seconds)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(render(result.rows, "Toolgate benchmarks", caption(result)))
    click.echo(f"JSON: {write(result, output)}")
    if table is not None:
        table.write_text(f"{markdown(result.rows)}\n")
    if strict and any(missed(row) for row in result.rows):
        sys.exit(1)


def run(groups: Mapping[str, Group], seconds: float) -> Result:
    started, before = datetime.now(UTC), machine.steal()
    cores, rounds = split_cores(), max(2, round(seconds / SLICE_S))
    pin(0, cores.load)
    allowed_files()
    signal.signal(signal.SIGTERM, _interrupt)
    with _workspace() as directory, _progress() as say:
        child, upstream = start_upstream(directory, cores)
        load = Load(wrk.BINARY, directory)
        with running(child, "/items/1", say):
            rig = Rig(directory, cores, load, seconds / rounds, rounds, child, say)
            rows = [row for name, group in groups.items() for row in _attempt(name, group, rig)]
    return Result(
        started=started,
        seconds=seconds,
        connections=CONNECTIONS,
        generator=load.name,
        upstream=upstream,
        tested_cores=tuple(sorted(cores.tested)),
        load_cores=tuple(sorted(cores.load)),
        stolen=machine.steal().share_since(before),
        machine=machine.describe(len(cores.tested | cores.load), _peers()),
        rows=tuple(rows),
    )


def _peers() -> dict[str, str]:
    """Their versions, as far as they are installed."""
    named = {"FastMCP": peer.FASTMCP, "Envoy": peer.ENVOY, "ContextForge": peer.CONTEXTFORGE}
    return {name: peer.installed() or "absent" for name, peer in named.items()}


def _attempt(name: str, group: Group, rig: Rig) -> list[Row]:
    """One group that cannot run does not cost the others."""
    try:
        return group(rig)
    except (Unavailable, OSError) as reason:
        return [broken(name, str(reason))]


@contextmanager
def _workspace() -> Iterator[Path]:
    """As root the embedded database runs as another user, who must be able to enter."""
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@contextmanager
def _progress() -> Iterator[Say]:
    """A spinner where a person looks, lines elsewhere; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: click.echo(text, err=True)
        return
    with console.status("starting") as status:
        yield lambda text: status.update(text)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds like Ctrl-C, so that every child is stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
