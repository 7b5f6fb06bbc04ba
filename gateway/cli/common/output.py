"""Output of commands: formatted at a terminal, plain rows in a pipe, or JSON."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gateway.cli.common.text import harmless, is_harmless, one_line
from schemas.invisible_characters import visible_json


class Printer(Console):
    """Console of untrusted text: it has no markup, and writes hidden characters out.

    Whatever is printed passes `render`: texts, tables, bars.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or is_harmless(segment.text):
                yield segment
            else:
                yield Segment(harmless(segment.text), segment.style)


out = Printer()
err = Printer(stderr=True)

GAP = 2
ROOM = 20  # minimum width of the last column


def print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(visible_json(text.decode()) + "\n")


def say(text: str, style: str = "") -> None:
    """Print `text` literally, square brackets included."""
    out.print(Text(text, style=style))


def stream(text: str, *, to_err: bool = False) -> None:
    """Print a part of a text that comes in parts."""
    click.echo(harmless(text), nl=False, err=to_err)


def remark(text: str) -> None:
    """Print for an interactive user; omitted in pipes and logs."""
    if out.is_terminal:
        out.print(Text(text, style="dim"))


def note(text: str) -> None:
    """Print for a person on standard error, where standard output may go to a file."""
    if text and err.is_terminal:
        err.print(Text(text, style="dim"))


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], wrap: bool = False) -> None:
    """Aligned columns. In a pipe rows alone, unabridged; at a terminal the last column is wrapped
    if `wrap`, else cut; other columns stay whole because users may have to copy them."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    titles = [one_line(title) for title in titles]
    lines = [titles, *cells] if out.is_terminal else cells
    widths = [max(map(cell_len, column)) + GAP for column in list(zip(*lines, strict=True))[:-1]]
    if not out.is_terminal:
        for row in cells:
            sys.stdout.write(_pad(row, widths).rstrip() + "\n")
        return
    room = max(out.width - sum(widths), ROOM)
    out.print(Text(_pad(titles, widths), "bold"))
    for row in cells:
        first, *more = _fit(row[-1], room, wrap)
        out.print(Text(_pad([*row[:-1], first], widths).rstrip()))
        for line in more:
            out.print(Text(" " * sum(widths) + line))


def _pad(row: Sequence[str], widths: Sequence[int]) -> str:
    """`row` as a line; all but its last cell have a width."""
    padded = (set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False))
    return "".join(padded) + row[-1]


def _fit(text: str, room: int, wrap: bool) -> list[str]:
    if cell_len(text) <= room:
        return [text]
    return textwrap.wrap(text, room) if wrap else [set_cell_size(text, room - 1) + "…"]
