"""`toolgate search`: how tools are found, and how well."""

import click

from gateway.cli.common.lazy import LazyGroup

COMMANDS = {
    "eval": ("gateway.cli.search.eval:eval_", "Measure the quality of the search."),
    "try": ("gateway.cli.search.explain:try_", "Show the hits of a query and their scores."),
    "usage": ("gateway.cli.search.eval:usage", "Print the requests that were followed by calls."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def search() -> None:
    """Measure and explain how tools are found. To just find some: toolgate tools search."""
