"""Comparison of two servers' answers to the same vector. Pure.

Values that differ between any two servers are ignored: request ids, times, and marks of the run.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.parity.judge import Deviation, differences, media_type, parse
from gateway.parity.play import RUN, Played, VectorOutcome
from gateway.parity.send import VectorAnswer

VOLATILE = {"requestid", "request_id", "correlationid", "correlation_id", "timestamp"}
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class VectorDifference:
    label: str
    finding: Deviation  # `expected` is the first server's, `actual` the other's
    reason: str | None = None  # the ledger's, where it explains the difference
    unknown: bool = False  # the ledger has the vector, but not light-hybrid-4j's answer to it


def compare(one: VectorOutcome, other: VectorOutcome) -> list[VectorDifference]:
    """Differences between the answers to one run."""
    reason, unknown = _reason(one, other), _unknown(one, other)
    several = len(one.run.steps) > 1
    found: list[VectorDifference] = []
    for number, (first, second) in enumerate(zip(one.played, other.played, strict=False), 1):
        for finding in _compared(first, second, one.mark, other.mark):
            where = f"step {number}: {finding.where}" if several else finding.where
            at = Deviation(where, finding.expected, finding.actual)
            found.append(VectorDifference(one.run.label, at, reason, unknown))
    return found


def _reason(one: VectorOutcome, other: VectorOutcome) -> str | None:
    """The ledger's reason, if one answer is what the vector expects and the other what the ledger
    records of light-hybrid-4j. Any other answer, such as that of a server that lacks the feature,
    is not covered by the ledger."""
    ledger = one.run.vector.ledger
    if ledger is None or ledger.legacy is None or one.passed == other.passed:
        return None
    old = other if one.passed else one
    return ledger.reason if all(step.as_legacy for step in old.played) else None


def _unknown(one: VectorOutcome, other: VectorOutcome) -> bool:
    ledger = one.run.vector.ledger
    return ledger is not None and ledger.legacy is None and one.passed != other.passed


def _compared(one: Played, other: Played, mark: str, other_mark: str) -> Iterator[Deviation]:
    if one.answer is None or other.answer is None:
        if one.failure != other.failure:
            yield Deviation("answer", one.failure or "answers", other.failure or "answers")
        return
    if one.answer.status != other.answer.status:
        yield Deviation("status", str(one.answer.status), str(other.answer.status))
    first, second = _type(one.answer), _type(other.answer)
    if first and second and first != second:  # light-hybrid-4j may send no type
        yield Deviation("content-type", first, second)
    try:
        ours, theirs = parse(one.answer.body), parse(other.answer.body)
    except ValueError:  # `OK` is not `"OK"`
        ours, theirs = _text(one.answer), _text(other.answer)
    ours, theirs = _stable(_sorted(ours), mark), _stable(_sorted(theirs), other_mark)
    yield from differences(ours, theirs, "body", exact=True, matchers=False)


def _text(answer: VectorAnswer) -> str:
    return answer.body.decode(errors="replace")


def _type(answer: VectorAnswer) -> str:
    return media_type(answer.headers.get("content-type", ""))


def _sorted(value: Any) -> Any:
    """Sorted answers to a batch, whose order is undefined."""
    if not isinstance(value, list):
        return value
    return sorted(value, key=lambda one: json.dumps(one.get("id")) if isinstance(one, dict) else "")


def _stable(value: Any, mark: str) -> Any:
    match value:
        case str():
            text = value.replace(mark, RUN)
            return _TIME.sub("(time)", _UUID.sub("(uuid)", text))
        case list():
            return [_stable(one, mark) for one in value]
        case dict():
            return {
                name: _stable(one, mark)
                for name, one in value.items()
                if name.lower() not in VOLATILE
            }
    return value
