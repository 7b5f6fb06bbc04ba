"""`python -m tests.conformance`: the official conformance suite; exit 1 when a run is refused."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from tests.conformance.legs import LEGS, Outcome
from tests.conformance.node import install
from tests.conformance.report import show
from tests.conformance.rig import Unready

PLAIN_WIDTH = 100  # where there is no terminal


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(LEGS)), help="Repeatable.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the suite's records here.")
def main(only: tuple[str, ...], keep: Path | None) -> None:
    """Run the suite against the gateway, its fixture and its client."""
    folder = keep or Path(tempfile.mkdtemp(prefix="toolgate-suite-"))
    try:
        outcomes = asyncio.run(_run(only or tuple(LEGS), folder.resolve()))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    show(console, outcomes)
    refused = [outcome.title for outcome in outcomes if not outcome.is_accepted]
    for title in refused:
        click.echo(f"refused: {title}", err=True)
    sys.exit(1 if refused else 0)


async def _run(names: Sequence[str], folder: Path) -> list[Outcome]:
    node = install()
    outcomes = []
    for name in names:
        try:
            async for outcome in LEGS[name](node, folder / name):
                click.echo(f"done: {outcome.title}", err=True)
                outcomes.append(outcome)
        except Unready as failure:
            click.echo(f"{name}: {failure}", err=True)
            outcomes.append(Outcome(name, f"{name}, which could not go on", []))
    return outcomes


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance")
