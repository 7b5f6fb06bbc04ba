"""Plots of an evaluation."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from registry.evaluation.plots import NoPlots, write_plots
from registry.evaluation.quality_metrics import recall_curve
from tests.registry.evaluation.test_report import FOUND, RESULT, WANTED

SHOWN = replace(
    RESULT,
    recalls={mode: recall_curve(found, WANTED) for mode, found in FOUND.items()},
    fits=[(0.12, False), (0.18, True), (1.0, True)],
)


def test_recall_grows_with_the_tools_shown() -> None:
    assert SHOWN.recalls["hybrid"] == [75.0, *[100.0] * 9]


def test_each_plot_is_written_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, the extra plots, is not installed")
    one = replace(SHOWN, quality=replace(SHOWN.quality, name="../a set"))
    written = write_plots([one], tmp_path / "plots")
    assert [path.name for path in written] == [
        "a-set-recall.png",
        "a-set-recall.svg",
        "a-set-calibration.png",
        "a-set-calibration.svg",
    ]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in written[1].read_bytes()


def test_a_missing_library_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as if it were not installed
    with pytest.raises(NoPlots, match=r"toolgate\[plots\]"):
        write_plots([SHOWN], tmp_path)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plots").write_text("")
    with pytest.raises(NoPlots, match="file exists"):
        write_plots([SHOWN], tmp_path / "plots")
