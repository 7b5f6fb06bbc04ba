"""The rows about descriptions: what counts as lost, as wrong, as too large."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.descriptions import chosen, coverage, covered, round_trip_rows
from benchmarks.request import Unavailable
from benchmarks.table import missed
from tests.roundtrip.finding import Finding
from tests.roundtrip.report import Report

TOLD: dict[str, Any] = {
    "statuses": {"imported": 150, "degraded": 49, "skipped": 1, "excluded": 7},
    "reasons": [["degraded: parameter … has no schema", 49]],
    "seconds": 4.0,
    "cpu_s": 3.9,
    "peak_mb": 120.0,
    "idle_mb": 60.0,
}


def test_an_operation_that_is_skipped_is_lost() -> None:
    lost, seconds, memory = coverage(Path("a.json"), TOLD, "")
    assert lost.value == 0.5  # of 200: what was left out on purpose does not count
    assert missed(lost) == ["0.50 %"]
    assert "200 operations" in lost.note
    assert "49 x degraded" in lost.note
    assert (seconds.value, memory.value) == (4.0, 120.0)
    assert missed(seconds) == missed(memory) == []


def test_a_crash_is_missed_and_a_refusal_is_told() -> None:
    [crash] = coverage(Path("a.json"), {"crashed": "KeyError"}, "")
    assert missed(crash)
    [refusal] = coverage(Path("a.json"), {"rejected": "no description"}, "")
    assert (missed(refusal), refusal.note) == ([], "no description")


def test_all_files_count_together() -> None:
    good = {**TOLD, "statuses": {"imported": 400}}
    row = covered([TOLD, good, {"rejected": "x"}], "")
    assert row.value == pytest.approx(100 / 600)
    assert missed(row) == []
    assert missed(covered([TOLD, {"crashed": "x"}], ""))


def test_unverifiable_values_count_neither_right_nor_wrong() -> None:
    report = Report(operations=2, good=1)
    report.add("a", [Finding("query", True)] * 99 + [Finding("query", False)])
    report.add("a", [Finding("null", False, "undefined")] * 5)
    rows = {row.scenario: row for row in round_trip_rows(report, "")}
    assert rows["  query"].value == pytest.approx(1.0)
    assert missed(rows["  query"])
    assert rows["  null"].value is None
    assert "5 not expressible" in rows["  null"].note
    assert rows["all files: values wrong"].value == pytest.approx(1.0)
    assert "1 of 2 operations whole" in rows["all files: values wrong"].note


def test_without_a_directory_there_are_descriptions_of_our_own(tmp_path: Path) -> None:
    files = chosen(tmp_path, None, quick=False)
    assert {"ours-2.0.json", "ours-3.2.json"} < {path.name for path in files}
    assert len(chosen(tmp_path, None, quick=True)) == 2
    assert set(chosen(tmp_path, tmp_path, quick=False)) == set(files)
    with pytest.raises(Unavailable, match="holds no description"):
        chosen(tmp_path, Path(__file__).parent, quick=False)


def test_a_file_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = next(one for one in chosen(tmp_path, None, quick=False) if "2.0" in one.name)
    command = [sys.executable, "-m", "benchmarks.reading"]
    told = json.loads(subprocess.run([*command, path], capture_output=True, check=True).stdout)
    assert told["statuses"] == {"imported": 16}
    assert told["peak_mb"] >= told["idle_mb"] > 0
    path.write_text("{}")
    told = json.loads(subprocess.run([*command, path], capture_output=True, check=True).stdout)
    assert "missing" in told["rejected"]
