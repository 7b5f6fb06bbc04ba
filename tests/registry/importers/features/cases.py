"""All cases."""

from collections.abc import Sequence

from tests.properties import draw_one
from tests.registry.importers.features import (
    answers,
    bodies,
    documents,
    layouts,
    parameters,
    security,
)
from tests.registry.importers.features.case import VERSIONS, Case

CASES = [
    *layouts.CASES,
    *documents.CASES,
    *parameters.CASES,
    *bodies.CASES,
    *security.CASES,
    *answers.CASES,
]
# `test_kept` calls their tools in every version.
EVERYWHERE = {
    *("answer_media", "answer_json", "answer_unfit", "multipart_by_url", "marked_for_a_toolset")
}


def draw_versions(case: Case) -> Sequence[str]:
    """Versions in which a case is tested: 2.0, and one of 3.x, which are read by the same code."""
    if case.name in EVERYWHERE:
        return case.versions
    three = [version for version in case.versions if version != "2.0"]
    return [*(["2.0"] if case.two else []), *draw_one(three, case.name)]


_DRAWN = {case.name: draw_versions(case) for case in CASES}
CASES_OF = {
    version: [case for case in CASES if version in _DRAWN[case.name]] for version in VERSIONS
}
