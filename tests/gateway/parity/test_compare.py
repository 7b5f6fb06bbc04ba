"""Two servers' answers side by side."""

import json
from typing import Any

import msgspec
import pytest

from gateway.parity.answer_checks import judge
from gateway.parity.report import compare
from gateway.parity.runner import PlayedStep, VectorOutcome
from gateway.parity.vector_requests import VectorAnswer
from gateway.parity.vectors import Vector, VectorRun

VECTOR = {
    "id": "L6",
    "title": "One",
    "modes": ["strict"],
    "given": {"target": "query"},
    "expect": {"status": 400},
}
LEDGER = {"was": "a", "now": "b", "reason": "why", "legacy": {"status": 500}}


def outcome(
    body: Any, status: int = 400, *, mark: str = "mark", media: str = "", **vector: Any
) -> VectorOutcome:
    """What a server's answer to the vector comes to."""
    one = msgspec.convert(VECTOR | vector, Vector)
    [step] = one.all_steps
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = VectorAnswer(status, {"content-type": media} if media else {}, content)
    findings = tuple(judge(step.expect, answer))
    played = PlayedStep(answer, None, as_legacy=status == 500)
    return VectorOutcome(VectorRun(one.id, one, one.all_steps), (played,), findings, mark)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "requestId": "x"}, {"a": 1, "requestId": "y"}),
        ({"at": "2026-01-02T03:04:05Z"}, {"at": "2027-01-02 03:04:05.123+01:00"}),
        (
            {"id": "6f1f9f38-8c2b-4b6e-9b5a-0d6f3a1d8e11"},
            {"id": "11111111-8c2b-4b6e-9b5a-0d6f3a1d8e11"},
        ),
        ([{"id": 1}, {"id": "2"}], [{"id": "2"}, {"id": 1}]),
        (b"OK", b"OK"),
        (b"", b""),
    ],
)
def test_volatile_values_are_no_difference(one: Any, other: Any) -> None:
    assert compare(outcome(one), outcome(other)) == []


def test_marks_made_for_the_run_are_no_difference() -> None:
    one, other = outcome({"key": "aaa1"}, mark="aaa"), outcome({"key": "bbb1"}, mark="bbb")
    assert compare(one, other) == []


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ({"a": 1}, {"a": 2}, "body.a"),
        ({"a": 1}, {"a": 1, "b": 2}, "body.b"),
        ({"a": 1, "b": 2}, {"a": 1}, "body.b"),
        ({"a": {"$any": True}}, {"a": 5}, "body.a"),
        ([1, 2], [1, 3], "body[1]"),
        (b"OK", b'"OK"', "body"),
        (b"", b"null", "body"),
        (b"no", b"OK", "body"),
    ],
)
def test_differing_values_are_differences(one: Any, other: Any, where: str) -> None:
    found = compare(outcome(one), outcome(other))
    assert [difference.finding.where for difference in found] == [where]
    assert found[0].reason is None


def test_statuses_and_media_types_differ_but_a_missing_type_does_not() -> None:
    one = outcome({}, 400, media="application/json; charset=utf-8")
    wheres = [d.finding.where for d in compare(one, outcome({}, 404, media="text/plain"))]
    assert wheres == ["status", "content-type"]
    assert compare(one, outcome({}, 400)) == []


def test_the_ledger_explains_a_difference_by_the_legacy_behaviour() -> None:
    ours, theirs = outcome({}, 400, ledger=LEDGER), outcome({}, 500, ledger=LEDGER)
    [found] = compare(ours, theirs)
    assert found.reason == "why"
    [found] = compare(theirs, ours)
    assert found.reason == "why"


def test_the_ledger_does_not_explain_any_other_answer() -> None:
    ours, theirs = outcome({}, 400, ledger=LEDGER), outcome({}, 404, ledger=LEDGER)
    [found] = compare(ours, theirs)
    assert found.reason is None


UNKNOWN = LEDGER | {"legacy": None}


def test_the_ledger_does_not_explain_unknown_legacy_answers() -> None:
    for status in (404, 500):
        [found] = compare(outcome({}, 400, ledger=UNKNOWN), outcome({}, status, ledger=UNKNOWN))
        assert (found.reason, found.unknown) == (None, True)


def test_only_an_entry_of_the_ledger_that_applies_makes_a_difference_unknown() -> None:
    [both_wrong] = compare(outcome({}, 404, ledger=UNKNOWN), outcome({}, 500, ledger=UNKNOWN))
    [no_entry] = compare(outcome({}, 400), outcome({}, 404))
    [known] = compare(outcome({}, 400, ledger=LEDGER), outcome({}, 404, ledger=LEDGER))
    assert not any(found.unknown or found.reason for found in (both_wrong, no_entry, known))


def test_two_servers_that_are_both_wrong_are_not_explained() -> None:
    [found] = compare(outcome({}, 500, ledger=LEDGER), outcome({}, 404, ledger=LEDGER))
    assert found.reason is None
