"""What commands print: for a person at a terminal, for the next program in a pipe, as JSON."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

# Descriptions and answers are other people's texts, and escape sequences can rewrite a terminal.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
GAP = 2


def print_json(value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def say(text: str, style: str = "") -> None:
    """Print `text` as it is, square brackets included."""
    out.print(Text(harmless(text), style=style))


def remark(text: str) -> None:
    """For a person who watches; neither a pipe nor a log gets it."""
    if out.is_terminal:
        out.print(Text(harmless(text), style="dim"))


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns: at a terminal with titles and cut to fit, in a pipe whole and bare."""
    if out.is_terminal:
        out.print(_table(titles, rows), soft_wrap=False)
        return
    widths = [max(map(len, column)) + GAP for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("".join(cells).rstrip() + "\n")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        last = number == len(titles) - 1  # gives way to the others, which have to be typed again
        table.add_column(title, no_wrap=True, overflow="ellipsis" if last else "fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def harmless(text: str) -> str:
    """`text` without what a terminal would take for commands."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
