"""When a run of the conformance suite is accepted."""

import json
from pathlib import Path

import pytest

from tests.conformance import legs
from tests.conformance.legs import Outcome
from tests.conformance.report import details
from tests.conformance.suite import Check, Scenario, records

GOOD = Check("good", "SUCCESS", "")
BAD = Check("bad", "FAILURE", "went wrong")
DOUBTFUL = Check("doubtful", "WARNING", "could be better")


def outcome(*scenarios: Scenario, leg: str = "gateway") -> Outcome:
    return Outcome(leg, "a run", list(scenarios), "stateless")


@pytest.mark.parametrize(
    ("scenarios", "accepted"),
    [
        ([Scenario("a", True, (GOOD, DOUBTFUL))], True),
        ([Scenario("a", True, (GOOD, BAD))], False),
        ([Scenario("a", True, (GOOD,)), Scenario("b", False, (BAD,))], True),
        ([], False),  # a suite that ran nothing proves nothing
    ],
)
def test_a_scored_failure_and_nothing_else_refuses_a_run(
    scenarios: list[Scenario], accepted: bool
) -> None:
    assert outcome(*scenarios).is_accepted is accepted


def test_a_failure_that_is_explained_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "EXPECTED", {("stateless", "a", "bad"): "no word for it"})
    found = outcome(Scenario("a", True, (BAD,)), leg="translated")
    assert found.is_accepted
    assert any("no word for it" in line for line in details(found))
    assert not outcome(Scenario("a", True, (BAD,)), leg="gateway").is_accepted


def test_a_warning_that_is_explained_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legs, "EXPECTED", {("stateless", "a", "doubtful"): "no word for it"})
    found = outcome(Scenario("a", True, (DOUBTFUL,)), leg="translated")
    assert found.is_accepted
    assert any("no word for it" in line for line in details(found))


def test_an_explanation_of_a_passing_check_refuses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "EXPECTED", {("stateless", "a", "bad"): "no word for it"})
    assert not outcome(Scenario("a", True, (GOOD,)), leg="translated").is_accepted


def test_a_scenario_has_the_checks_of_its_newest_record(tmp_path: Path) -> None:
    for number, name in enumerate(
        (
            "server-ping-2026-01-01T10-00-00-000Z",
            "server-ping-2026-01-01T11-00-00-000Z",
            "server-ping-pong-2026-01-01T12-00-00-000Z",
        )
    ):
        (tmp_path / name).mkdir()
        check = {"id": f"check-{number}", "status": "SUCCESS", "description": "Two\nlines"}
        (tmp_path / name / "checks.json").write_text(json.dumps([check]))
    assert list(records(tmp_path, "server-ping")) == [Check("check-1", "SUCCESS", "Two lines")]


def test_a_scenario_without_a_record_has_failed(tmp_path: Path) -> None:
    assert [check.status for check in records(tmp_path, "server-ping")] == ["FAILURE"]
