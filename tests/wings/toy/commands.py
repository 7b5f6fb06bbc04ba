"""Commands of the toy wing besides its operations."""

import click


@click.command()
def sweep() -> None:
    """Sweep the notes."""
    click.echo("swept")
