"""What commands print: for a person at a terminal, for the next program in a pipe, as JSON."""

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from schemas.hidden import visible, visible_json

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

# Descriptions and answers are other people's texts. Escape sequences can rewrite a terminal, and
# marks of direction show a line in another order than it has.
GAP = 2
ROOM = 20  # at least, for the last column


def print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(visible_json(text.decode()) + "\n")


def say(text: str, style: str = "") -> None:
    """Print `text` as it is, square brackets included."""
    out.print(Text(harmless(text), style=style))


def remark(text: str) -> None:
    """For a person who watches; neither a pipe nor a log gets it."""
    if out.is_terminal:
        out.print(Text(harmless(text), style="dim"))


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]], wrap: bool = False) -> None:
    """Aligned columns. In a pipe rows alone, and whole; at a terminal the last column is made to
    fit, wrapped if `wrap`, else cut: what stands before it may have to be typed again.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    lines = [titles, *cells] if out.is_terminal else cells
    widths = [max(map(cell_len, column)) + GAP for column in list(zip(*lines, strict=True))[:-1]]
    if not out.is_terminal:
        for row in cells:
            sys.stdout.write(_padded(row, widths).rstrip() + "\n")
        return
    room = max(out.width - sum(widths), ROOM)
    out.print(Text(_padded(titles, widths), "bold"))
    for row in cells:
        first, *more = _fitted(row[-1], room, wrap)
        out.print(Text(_padded([*row[:-1], first], widths).rstrip()))
        for line in more:
            out.print(Text(" " * sum(widths) + line))


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    """`row` as a line; all but its last cell have a width."""
    padded = (set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False))
    return "".join(padded) + row[-1]


def _fitted(text: str, room: int, wrap: bool) -> list[str]:
    if cell_len(text) <= room:
        return [text]
    return textwrap.wrap(text, room) if wrap else [set_cell_size(text, room - 1) + "…"]


def harmless(text: str) -> str:
    r"""`text` with what a terminal would take for commands, and what nobody sees, written out, as
    in `\u{1b}`."""
    return visible(text).replace("\r", "\\u{d}")


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
