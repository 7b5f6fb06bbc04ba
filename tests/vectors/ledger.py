"""The tables of LEDGER.md, from the vectors: `python -m tests.vectors.ledger` writes them anew."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.parity.vectors import VectorFile, load

LEDGER = Path(__file__).with_name("LEDGER.md")
MARK = "<!-- From here on: written from the vectors by `python -m tests.vectors.ledger` -->\n"
ORDER = "LJSGX"  # the first letter of the ids: the old before the new
HEAD = "|  | asked | light-hybrid-4j | Toolgate | why |\n|---|---|---|---|---|\n"


def tables() -> str:
    files = sorted(load().files, key=lambda file: ORDER.index(file.vectors[0].id[0]))
    return "\n".join(_table(file) for file in files if any(v.ledger for v in file.vectors))


def _table(file: VectorFile) -> str:
    return f"## {file.title}\n\n{HEAD}{''.join(_rows(file))}"


def _rows(file: VectorFile) -> Iterator[str]:
    for vector in file.vectors:
        if (entry := vector.ledger) is not None:
            why = _why(entry.reason, entry.setting)
            yield _row(vector.id, vector.title, entry.was, entry.now, why)


def general() -> str:
    rows = (
        _row(one.id, "", one.was, one.now, _why(one.reason, one.setting))
        for file in load().files
        for one in file.general
    )
    return f"## Everywhere\n\n{HEAD}{''.join(rows)}"


def _why(reason: str, setting: str | None) -> str:
    return reason if setting is None else f"{reason} Setting: `{setting}`."


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escape_cells(cells))} |\n"


def _escape_cells(cells: Iterable[str]) -> Iterator[str]:
    return (cell.replace("|", "\\|") for cell in cells)


def render_ledger() -> str:
    """LEDGER.md as it should be: what was written by hand, and the tables."""
    by_hand = LEDGER.read_text().partition(MARK)[0]
    return f"{by_hand}{MARK}\n{general()}\n{tables()}"


if __name__ == "__main__":
    LEDGER.write_text(render_ledger())
