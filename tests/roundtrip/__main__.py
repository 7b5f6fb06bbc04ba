"""`python -m tests.roundtrip FILE...`: how many values arrive, by feature; exit 1 below 99%."""

import asyncio
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from schemas.errors import ImportRejected
from tests.roundtrip.graphql import round_trip_graphql
from tests.roundtrip.report import Report
from tests.roundtrip.run import VARIANTS, round_trip

ENOUGH = 0.99


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--seed", default=1, show_default=True)
@click.option("--variants", default=VARIANTS, show_default=True, help="Calls of each operation.")
@click.option("--graphql", is_flag=True, help="The files are GraphQL: SDL or introspection.")
@click.option("--only", multiple=True, help="Key of an operation, path@method; repeatable.")
@click.option("--media-type", "media_types", multiple=True, help="Preferred; repeatable.")
def main(
    files: tuple[Path, ...],
    seed: int,
    variants: int,
    graphql: bool,
    only: tuple[str, ...],
    media_types: tuple[str, ...],
) -> None:
    """Send every operation of descriptions to an echo, and read what arrives."""
    total = Report()
    for file in files:
        try:
            one = asyncio.run(
                round_trip_graphql(file, seed, variants)
                if graphql
                else round_trip(file, seed, variants, only, media_types)
            )
        except ImportRejected as refusal:
            click.echo(f"{file}: {refusal}")
            continue
        share = f"{one.good} of {one.operations} operations, {one.rate():.2%} of values"
        click.echo(f"{file.name}: {share}, {len(one.unmade)} without arguments")
        total.merge(one)
    _print(total)
    sys.exit(total.rate() < ENOUGH)


def _print(report: Report) -> None:
    table = Table("feature", "arrived", "wrong", "not expressible", "rate")
    for name in report.features:
        counts = (report.arrived[name], report.wrong[name], report.inexpressible[name])
        table.add_row(name, *(f"{count:,}" for count in counts), f"{report.rate(name):.2%}")
    Console(width=140).print(table)
    for reason, count in report.reasons.most_common():
        click.echo(f"not expressible: {count:,} x {reason}")
    for feature, examples in sorted(report.examples.items()):
        for example in examples:
            click.echo(f"WRONG {feature}: {example}")
    for one in report.unmade[:20]:
        click.echo(f"no arguments: {one}")


if __name__ == "__main__":
    main(prog_name="python -m tests.roundtrip")
