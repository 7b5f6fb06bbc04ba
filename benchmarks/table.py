"""Result table: rows, ratios and verdicts. Pure."""

import statistics
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from rich import box
from rich.table import Table

TIMES = "\N{MULTIPLICATION SIGN}"

Quantity = Literal["floor", "peer", "value", "least"]


class Target(Struct, frozen=True):
    """A ratio must be at least `bound`; a value must stay below it, or with "least" reach it."""

    of: Quantity
    bound: float


class Row(Struct, frozen=True):
    scenario: str
    value: float | None  # None: could not be measured, `note` says why
    unit: str  # "calls/s", "lists/s", "ms", "s", "MB"
    x_floor: float | None = None
    x_floor_cpu: float | None = None  # per CPU second of either process
    x_peer: float | None = None
    targets: tuple[Target, ...] = ()
    errors: int = 0
    note: str = ""
    rounds: tuple[float, ...] = ()  # the values behind the median
    x_floor_rounds: tuple[float, ...] = ()  # those behind `x_floor`


def missing(scenario: str, unit: str, note: str, targets: tuple[Target, ...] = ()) -> Row:
    """A row for what is not there; with targets, they count as missed."""
    return Row(scenario, None, unit, targets=targets, note=note)


def broken(scenario: str, note: str) -> Row:
    """A row for a whole group that could not run; it counts as missed."""
    return Row(scenario, None, "", errors=1, note=note)


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Median of the ratios round by round, so that a drifting machine hits both sides alike."""
    values = ratios(numerators, denominators)
    return statistics.median(values) if values else None


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, ...]:
    """The ratios round by round, without rounds in which the denominator is 0."""
    return tuple(a / b for a, b in zip(numerators, denominators, strict=False) if b)


def missed(row: Row) -> list[str]:
    """What falls short of its target, in words; a target without a figure is missed too."""
    if row.value is None:
        return ["no figure"] if row.targets or row.errors else []
    shortfalls = [_shortfall(row, target) for target in row.targets]
    if row.errors and row.targets:
        shortfalls.append(f"{row.errors} errors")
    return [text for text in shortfalls if text]


def verdict(row: Row) -> str:
    if shortfalls := missed(row):
        return f"NOT reached: {', '.join(shortfalls)}"
    return "reached" if row.targets else ""


def markdown(rows: Sequence[Row]) -> str:
    """The rows with a ratio to the floor, with the spread of their rounds: the README's table."""
    lines = [
        f"| | measured | {TIMES} floor | lowest to highest | {TIMES} floor by CPU time |",
        "|---|---:|---:|---:|---:|",
        *(f"| {' | '.join(_line(row))} |" for row in rows if row.x_floor_rounds),
    ]
    return "\n".join(lines)


def _line(row: Row) -> tuple[str, ...]:
    spread = row.x_floor_rounds
    return (
        row.scenario,
        f"{_figure(row.value or 0.0, row.unit)} {row.unit}",
        f"{row.x_floor or 0.0:.2f}",
        f"{min(spread):.2f} to {max(spread):.2f}",
        f"{row.x_floor_cpu or 0.0:.2f}",
    )


def render(rows: Sequence[Row], title: str, caption: str) -> Table:
    table = Table(title=title, caption=caption, box=box.SIMPLE, title_justify="left")
    table.caption_justify = "left"
    table.add_column("scenario", overflow="fold")
    for heading in ("measured", "x floor", "per CPU s", "x FastMCP"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("target", overflow="fold")
    table.add_column("verdict", overflow="fold")
    for row in rows:
        table.add_row(*cells(row), style=_style(row))
    return table


def cells(row: Row) -> tuple[str, ...]:
    """In the order of the columns."""
    untold = row.errors and row.value is not None and not row.targets
    remarks = (verdict(row), row.note, f"{row.errors} errors" if untold else "")
    said = "; ".join(text for text in remarks if text)
    return (
        row.scenario,
        "-" if row.value is None else f"{_figure(row.value, row.unit)} {row.unit}",
        _times(row.x_floor),
        _times(row.x_floor_cpu),
        _times(row.x_peer),
        ", ".join(_wish(target, row.unit) for target in row.targets),
        said,
    )


def _shortfall(row: Row, target: Target) -> str:
    figure = {"floor": row.x_floor, "peer": row.x_peer}.get(target.of, row.value)
    if figure is None:
        return f"no figure for {_wish(target, row.unit)}"
    good = figure < target.bound if target.of == "value" else figure >= target.bound
    if good:
        return ""
    ratios = {"floor", "peer"}
    return _times(figure) if target.of in ratios else f"{_figure(figure, row.unit)} {row.unit}"


def _wish(target: Target, unit: str) -> str:
    match target.of:
        case "floor":
            return f">= {target.bound:g} x floor"
        case "peer":
            return f">= {target.bound:g} x FastMCP"
        case "value":
            return f"< {target.bound:g} {unit}"
        case "least":
            return f">= {target.bound:g} {unit}"


def _figure(value: float, unit: str) -> str:
    if unit.endswith("/s"):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.1f} x" if factor >= 10 else f"{factor:.2f} x"


def _style(row: Row) -> str:
    if missed(row):
        return "red"
    if row.value is None:
        return "yellow"
    return "green" if row.targets else ""
