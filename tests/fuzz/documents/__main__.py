"""`python -m tests.fuzz.documents`: mutants of descriptions; exit 1 when one does harm."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.documents.run import Outcome, fuzz, prepare
from tests.fuzz.documents.whole import find_slow_mutants

ROUND = 1_000_000


@click.command()
@click.option("--mutants", type=click.IntRange(0), default=10_000, show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same mutants; random when absent.")
@click.option("--mutant", "number", type=int, help="Only this one.")
@click.option("--whole", default=20, show_default=True, help="Damaged descriptions to be timed.")
@click.option(
    "--descriptions",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="TOOLGATE_BENCH_DESCRIPTIONS",
    help="Directory of real descriptions; without it there are only our own.",
)
def main(
    mutants: int, seed: int | None, number: int | None, whole: int, descriptions: Path | None
) -> None:
    """Damage descriptions and import them: refused or read, quickly, and never a crash."""
    seed = SystemRandom().randrange(ROUND) if seed is None else seed
    chosen = range(mutants) if number is None else range(number, number + 1)
    source = descriptions or "our own descriptions only: no directory of real ones was given"
    click.echo(f"seed {seed}, {len(chosen):,} mutants of {source}")
    directory = Path(tempfile.mkdtemp(prefix="toolgate-mutants-"))
    prepare(directory, descriptions, seed)
    outcome = Outcome()
    if chosen:
        with _progress(len(chosen)) as done:
            outcome = asyncio.run(fuzz(directory, seed, chosen, done))
    late = find_slow_mutants(directory, descriptions, seed, whole) if number is None else []
    for one in (*outcome.findings, *late):
        click.echo(f"\n{one}", err=True)
    for place, count in outcome.places.most_common():
        click.echo(f"{count:,} x {place}", err=True)
    wrong = outcome.findings or late
    click.echo(f"{outcome.refused:,} refused as a whole; {outcome.tools:,} tools of the others")
    click.echo(f"{outcome.done:,} mutants; {'harm: see above' if wrong else 'no harm done'}")
    if not wrong:  # what does harm is kept, to be looked at
        shutil.rmtree(directory)
    sys.exit(1 if wrong else 0)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("mutants", total=total)
        yield lambda: bar.advance(task)


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz.documents")
