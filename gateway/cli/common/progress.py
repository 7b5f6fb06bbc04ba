"""Progress bars of commands, on standard error at a terminal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
)

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
def track(entries: Sequence[T], description: str) -> Iterator[Iterator[T]]:
    """The entries, with a bar."""
    with progress_bar() as bar:
        yield iter(bar.track(entries, description=description))


@dataclass(frozen=True, slots=True)
class JobBar:
    """Implements `Job`: shows the progress of an import."""

    bar: Progress
    task: TaskID
    name: str

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        self.bar.update(
            self.task, description=note or f"Saving {self.name}", completed=done, total=total
        )


@contextmanager
def progress_of(name: str) -> Iterator[JobBar]:
    """A bar for the import of the source `name`."""
    with progress_bar() as bar:
        yield JobBar(bar, bar.add_task(f"Reading {name}", total=None), name)
