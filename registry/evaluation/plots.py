"""Plots of an evaluation, each as PNG and SVG: recall by the number of tools shown, and how often
a relevant tool is among the first ten, by the fit. Needs matplotlib, an optional dependency."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from registry.evaluation.curves import calibration
from registry.evaluation.quality_metrics import SetResult
from schemas.errors import ToolgateError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_INSTALLED = "plots need matplotlib: pip install 'toolgate[plots]'"
SIZE = (6.0, 4.0)  # inches
FORMATS = ("png", "svg")


class NoPlots(ToolgateError):
    """Plots cannot be drawn or written."""


def write_plots(results: Sequence[SetResult], folder: Path) -> list[Path]:
    """Write the plots of each result into `folder`. Raises NoPlots."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for result in results for path in _write_figures(result, folder)]
    except ImportError as error:
        raise NoPlots(NOT_INSTALLED) from error
    except OSError as error:
        raise NoPlots(f"{folder}: {(error.strerror or str(error)).lower()}") from error


def _write_figures(result: SetResult, folder: Path) -> Iterator[Path]:
    figures = {"recall": _recall(result)}
    if result.fits:
        figures["calibration"] = _calibration(result)
    name = re.sub(r"[^\w.-]+", "-", result.quality.name).strip("-.") or "set"
    for kind, figure in figures.items():
        for suffix in FORMATS:
            path = folder / f"{name}-{kind}.{suffix}"
            figure.savefig(path, dpi=150)
            yield path


def _recall(result: SetResult) -> "Figure":
    figure = _figure()
    axes = figure.subplots()
    for mode, values in result.recalls.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=mode)
    axes.set(
        title=f"{result.quality.name}: recall, {result.model or 'no model'}",
        xlabel="tools shown",
        ylabel="per cent of the relevant tools",
        ylim=(0, 100),
    )
    axes.legend()
    return figure


def _calibration(result: SetResult) -> "Figure":
    figure = _figure()
    axes = figure.subplots()
    points = calibration(result.fits)
    axes.plot([0, 1], [0, 1], color="lightgrey", label="calibrated")
    axes.plot(
        [point.told for point in points],
        [point.found for point in points],
        marker="o",
        label="found",
    )
    axes.set(
        title=f"{result.quality.name}: calibration of {len(result.fits)} searches",
        xlabel="fit that was told",
        ylabel="share with a relevant tool among the first ten",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.legend()
    return figure


def _figure() -> "Figure":
    from matplotlib.figure import Figure

    return Figure(SIZE, layout="constrained")
