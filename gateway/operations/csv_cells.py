"""Cells of CSV files that people open in spreadsheets."""

from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # beginnings of cells that spreadsheets calculate


def csv_cell(value: Any) -> str:
    """A cell that no spreadsheet calculates."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text
