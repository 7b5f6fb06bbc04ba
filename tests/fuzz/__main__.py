"""`python -m tests.fuzz`: random requests to every front; exit 1 when an answer is wrong."""

import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.rig import database, targets
from tests.fuzz.run import CONCURRENCY, Crashes, Run

ROUND = 1_000_000  # seeds are smaller, to be typed again


@click.command()
@click.option("--cases", type=click.IntRange(1), default=50_000, show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same cases; random when absent.")
@click.option("--case", "numbers", type=int, multiple=True, help="Only this one; repeatable.")
@click.option("--concurrency", type=click.IntRange(1), default=CONCURRENCY, show_default=True)
def main(cases: int, seed: int | None, numbers: tuple[int, ...], concurrency: int) -> None:
    """Send random JSON, valid and broken, to every front of three real gateways."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the database is stopped then, too
    seed = SystemRandom().randrange(ROUND) if seed is None else seed
    chosen = numbers or range(cases)
    click.echo(f"seed {seed}, {len(chosen):,} cases")
    told = asyncio.run(_fuzz(seed, chosen, concurrency))
    for one in told:
        click.echo(f"\n{one}", err=True)
    click.echo("wrong answers: see above" if told else "nothing wrong")
    sys.exit(1 if told else 0)


async def _fuzz(seed: int, numbers: Sequence[int], concurrency: int) -> list[str]:
    """What is wrong, in words."""
    crashes = Crashes()
    logging.getLogger("toolgate").addHandler(crashes)
    logging.getLogger("uvicorn").addHandler(crashes)
    with (
        database() as cluster,
        tempfile.TemporaryDirectory(prefix="toolgate-fuzz-") as name,
        _progress(len(numbers)) as done,
    ):
        async with targets(cluster, Path(name)) as found:
            run = Run(seed, iter(numbers), found, done)
            findings = await run.all(concurrency)
            events = [one for target in found.values() for one in target.complaints]
    counted = [f"{count:,} x {complaint}" for complaint, count in run.counts.most_common()]
    return [*map(str, findings), *events, *crashes.records, *counted]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("cases", total=total)
        yield lambda: bar.advance(task)


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz")
