"""Progress bars of commands, on standard error at a terminal."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from gateway.cli.common.output import err


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
