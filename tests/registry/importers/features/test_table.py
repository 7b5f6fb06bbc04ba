"""The conformance table says what is tested, no more and no less."""

from pathlib import Path

import pytest

from tests.registry.importers.features.cases import CASES
from tests.registry.importers.features.table import (
    NO,
    PART,
    ROWS,
    UNKNOWN,
    YES,
    covered_versions,
    markdown,
    rows,
)

CHAPTER = Path(__file__).parents[4] / "docs" / "importing.md"
ALL_ROWS = [row for area in ROWS for row in rows(area)]


def test_every_feature_that_is_tested_has_a_row_and_the_other_way_round() -> None:
    assert sorted(row.feature for row in ALL_ROWS) == sorted(covered_versions())


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.feature)
def test_a_feature_is_tested_in_every_supporting_version(row) -> None:  # type: ignore[no-untyped-def]
    assert set(row.versions) == covered_versions()[row.feature]
    assert {row.fastmcp, row.contextforge} <= {YES, PART, NO, UNKNOWN}


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert sorted(names) == sorted(set(names))


def test_the_chapter_on_importing_has_the_table() -> None:
    assert markdown() in CHAPTER.read_text()
