"""Progress bars of commands, on standard error at a terminal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from gateway.cli.common.output import err

T = TypeVar("T")


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar with the description and the counts of its task, and further columns."""
    # names of entries in descriptions are untrusted: no markup
    description = TextColumn("{task.description}", markup=False)
    return Progress(
        description,
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


@contextmanager
def track(entries: Sequence[T], what: str) -> Iterator[Iterator[T]]:
    """The entries, with a bar."""
    with progress_bar() as bar:
        yield iter(bar.track(entries, description=what))
