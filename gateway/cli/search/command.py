"""`toolgate search`: search quality, and explanations of results."""

import click

from gateway.cli.common.lazy import LazyGroup

COMMANDS = {
    "eval": ("gateway.cli.search.eval:eval_", "Measure how well tools are found."),
    "try": ("gateway.cli.search.attempt:try_", "Show what a query finds, and why."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def search() -> None:
    """Measure and explain how tools are found. To just find some: toolgate tools search."""
