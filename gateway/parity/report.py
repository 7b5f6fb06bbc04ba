"""Comparison of two servers' answers to the same vector. Pure.

Values that differ between any two servers are ignored: request ids, times, and marks of the run.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.parity.answer_checks import Deviation, differences, media_type, parse
from gateway.parity.runner import RUN, PlayedStep, VectorOutcome, VectorPlan
from gateway.parity.vector_requests import VectorAnswer
from gateway.parity.vectors import Mode

VOLATILE = {"requestid", "request_id", "correlationid", "correlation_id", "timestamp"}
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?")

EXPECTATION_CHARACTERS = (
    60  # characters of an expectation; the printing code cuts the last column to the terminal
)
LONGEST = 300
FIXTURE = "L1"  # the plainest vector; its failure indicates that the target is not set up
MIN_FAILURES = 3  # failures, below which the target as a whole is not judged
UNKNOWN = "unknown there: the ledger lacks the other's answer"

COLUMNS = ("VECTOR", "WHERE", "EXPECTED", "FOUND")

_OTHER_MODE = (
    "most vectors that are of one mode fail, and most others pass. It seems to be in {0} mode, for "
    "which there is --compat {0}."
)


@dataclass(frozen=True, slots=True)
class VectorDifference:
    label: str
    finding: Deviation  # `expected` is the first server's, `actual` the other's
    reason: str | None = None  # the ledger's, where it explains the difference
    unknown: bool = False  # the ledger has the vector, but not light-hybrid-4j's answer to it


def compare(left: VectorOutcome, right: VectorOutcome) -> list[VectorDifference]:
    """Differences between the answers to one run."""
    reason, unknown = _reason(left, right), _unknown(left, right)
    has_steps = len(left.run.steps) > 1
    differences: list[VectorDifference] = []
    for number, (first, second) in enumerate(zip(left.played, right.played, strict=False), 1):
        for finding in _compare_answers(first, second, left.mark, right.mark):
            where = f"step {number}: {finding.where}" if has_steps else finding.where
            at = Deviation(where, finding.expected, finding.actual)
            differences.append(VectorDifference(left.run.label, at, reason, unknown))
    return differences


def _reason(left: VectorOutcome, right: VectorOutcome) -> str | None:
    """The ledger's reason for a difference, if one answer is what the vector expects and the other
    what the ledger records of light-hybrid-4j. Any other answer, such as that of a server that
    lacks the feature, is not covered by the ledger."""
    ledger = left.run.vector.ledger
    if ledger is None or ledger.legacy is None or left.is_passed == right.is_passed:
        return None
    old = right if left.is_passed else left
    return ledger.reason if all(step.as_legacy for step in old.played) else None


def _unknown(left: VectorOutcome, right: VectorOutcome) -> bool:
    ledger = left.run.vector.ledger
    return ledger is not None and ledger.legacy is None and left.is_passed != right.is_passed


def _compare_answers(
    left: PlayedStep, right: PlayedStep, left_mark: str, right_mark: str
) -> Iterator[Deviation]:
    if left.answer is None or right.answer is None:
        if left.failure != right.failure:
            yield Deviation("answer", left.failure or "answers", right.failure or "answers")
        return
    if left.answer.status != right.answer.status:
        yield Deviation("status", str(left.answer.status), str(right.answer.status))
    first, second = _type(left.answer), _type(right.answer)
    if first and second and first != second:  # light-hybrid-4j may send no type
        yield Deviation("content-type", first, second)
    try:
        first_body, second_body = parse(left.answer.body), parse(right.answer.body)
    except ValueError:  # `OK` is not `"OK"`
        first_body, second_body = _text(left.answer), _text(right.answer)
    first_body, second_body = (
        _stable(_sort_batch(first_body), left_mark),
        _stable(_sort_batch(second_body), right_mark),
    )
    yield from differences(first_body, second_body, "body", exact=True, matchers=False)


def _text(answer: VectorAnswer) -> str:
    return answer.body.decode(errors="replace")


def _type(answer: VectorAnswer) -> str:
    return media_type(answer.headers.get("content-type", ""))


def _sort_batch(value: Any) -> Any:
    """Sorted answers to a batch, whose order is undefined."""
    if not isinstance(value, list):
        return value
    return sorted(
        value, key=lambda member: json.dumps(member.get("id")) if isinstance(member, dict) else ""
    )


def _stable(value: Any, mark: str) -> Any:
    match value:
        case str():
            text = value.replace(mark, RUN)
            return _TIME.sub("(time)", _UUID.sub("(uuid)", text))
        case list():
            return [_stable(item, mark) for item in value]
        case dict():
            return {
                name: _stable(member, mark)
                for name, member in value.items()
                if name.lower() not in VOLATILE
            }
    return value


SIGNS = {  # of a target that is not set up
    b"ERR10000": (
        "does not take our tokens: it must trust the key (keys/jwks.json beside the "
        "vectors, or the public half of --key FILE)."
    ),
    b"ERR11200": (
        "does not have the services that the vectors call: service/README.md beside the "
        "vectors has what they do."
    ),
}
Row = tuple[str, str, str, str]


def summary(plan: VectorPlan, outcomes: Sequence[VectorOutcome], compat: Mode) -> str:
    """`104 of 104 passed, 9 of spec mode not run (use --compat spec against ...)`."""
    passed = sum(outcome.is_passed for outcome in outcomes)
    return ", ".join([f"{passed} of {len(outcomes)} passed", *left_out(plan, compat)])


def left_out(plan: VectorPlan, compat: Mode) -> list[str]:
    opposite = _other(compat)
    hints = {
        f"of {opposite} mode": f" (use --compat {opposite} against a target in {opposite} mode)",
        "for /rpc": " (--rpc-path names it)",
        "of unknown outcome": " (light-hybrid-4j's answer is not known)",
    }
    return [f"{count} {why} not run{hints[why]}" for why, count in plan.left_out.items()]


def failure_rows(outcomes: Iterable[VectorOutcome]) -> list[Row]:
    return [
        (
            outcome.run.label,
            deviation.where,
            cut(deviation.expected),
            cut(deviation.actual, LONGEST),
        )
        for outcome in outcomes
        for deviation in outcome.findings
    ]


def difference_rows(differences: Iterable[VectorDifference]) -> list[Row]:
    return [
        (
            difference.label,
            difference.finding.where,
            cut(difference.finding.expected),
            cut(difference.finding.actual, LONGEST),
        )
        for difference in differences
    ]


def difference_notes(differences: Iterable[VectorDifference]) -> list[str]:
    """The ledger's notes on each vector that differs."""
    notes = [
        f"{difference.label} differs on purpose: {difference.reason}" if difference.reason
        else f"{difference.label} differs, {UNKNOWN}"
        for difference in differences
        if difference.reason or difference.unknown
    ]  # fmt: skip
    return list(dict.fromkeys(notes))


def difference_summary(
    plan: VectorPlan, differences: Iterable[VectorDifference], compat: Mode
) -> str:
    """`104 compared, 2 differ without an entry in the ledger, ...`."""
    open_ = [difference for difference in differences if difference.reason is None]
    unknown = {difference.label for difference in open_ if difference.unknown}
    others = {difference.label for difference in open_} - unknown
    parts = [f"{len(plan.due)} compared, {len(others)} differ without an entry in the ledger"]
    if unknown:
        parts.append(f"{len(unknown)} where the ledger lacks the other's answer")
    return ", ".join([*parts, *left_out(plan, compat)])


def cut(text: str, length: int = EXPECTATION_CHARACTERS) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def applied_differences(outcomes: Iterable[VectorOutcome]) -> list[str]:
    """The vectors that passed because of an intended difference from light-hybrid-4j."""
    intended = (
        o.run.vector.id for o in outcomes if o.is_passed and o.run.vector.ledger is not None
    )
    return list(dict.fromkeys(intended))


def hints(outcomes: Sequence[VectorOutcome], compat: Mode, server: str = "The target") -> list[str]:
    """Likely causes that concern the target as a whole."""
    lines = [f"{server}: {_OTHER_MODE.format(_other(compat))}"] if _of_other(outcomes) else []
    first = next(
        (
            outcome
            for outcome in outcomes
            if outcome.run.vector.id == FIXTURE and not outcome.is_passed
        ),
        None,
    )
    if first is None or first.played[0].answer is None:
        return lines
    answer = first.played[0].answer
    return [*lines, *(f"{server} {hint}" for sign, hint in SIGNS.items() if sign in answer.body)]


def _of_other(outcomes: Iterable[VectorOutcome]) -> bool:
    """Whether the failures suggest a target in the other mode."""
    per_principal: list[bool] = []
    of_both: list[bool] = []
    for outcome in outcomes:
        is_comparable = len(outcome.run.vector.modes) > 1 or outcome.run.mode_free
        (of_both if is_comparable else per_principal).append(outcome.is_passed)
    failed = per_principal.count(False)
    return (
        failed >= MIN_FAILURES
        and failed * 2 > len(per_principal)
        and sum(of_both) * 2 >= len(of_both)
    )


def _other(compat: Mode) -> Mode:
    return "spec" if compat == "strict" else "strict"


def as_json(plan: VectorPlan, outcomes: Sequence[VectorOutcome]) -> dict[str, Any]:
    return {
        "passed": sum(outcome.is_passed for outcome in outcomes),
        "failed": sum(not outcome.is_passed for outcome in outcomes),
        "not_run": dict(plan.left_out),
        "failures": [
            {
                "vector": outcome.run.label,
                "title": outcome.run.vector.title,
                "findings": msgspec.to_builtins(outcome.findings),
            }
            for outcome in outcomes
            if not outcome.is_passed
        ],
        "ledger": {
            outcome.run.vector.id: outcome.run.vector.ledger.reason
            for outcome in outcomes
            if outcome.is_passed and outcome.run.vector.ledger is not None
        },
    }


def comparison_json(
    plan: VectorPlan, compared: int, differences: Sequence[VectorDifference]
) -> dict[str, Any]:
    return {
        "compared": compared,
        "not_run": dict(plan.left_out),
        "differences": [
            {
                "vector": difference.label,
                "where": difference.finding.where,
                "target": difference.finding.expected,
                "against": difference.finding.actual,
                "explained": difference.reason,
                "unknown": difference.unknown,
            }
            for difference in differences
        ],
    }
