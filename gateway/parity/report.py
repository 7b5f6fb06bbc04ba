"""Reports of parity runs, for people and machines. Pure: it prints nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gateway.parity.compare import VectorDifference
from gateway.parity.play import VectorOutcome, VectorPlan
from gateway.parity.vectors import Mode

SHOWN = 60  # characters of an expectation; the printing code cuts the last column to the terminal
LONGEST = 300
FIXTURE = "L1"  # the plainest vector; its failure indicates that the target is not set up
FEW = 3  # failures, below which the target as a whole is not judged
UNKNOWN = "unknown there: the ledger does not say what the other answers"
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
COLUMNS = ("VECTOR", "WHERE", "EXPECTED", "FOUND")
Row = tuple[str, str, str, str]


def summary(plan: VectorPlan, outcomes: Sequence[VectorOutcome], compat: Mode) -> str:
    """`104 of 104 passed, 9 of spec mode not run (use --compat spec against ...)`."""
    passed = sum(outcome.passed for outcome in outcomes)
    return ", ".join([f"{passed} of {len(outcomes)} passed", *left_out(plan, compat)])


def left_out(plan: VectorPlan, compat: Mode) -> list[str]:
    other = _other(compat)
    hints = {
        f"of {other} mode": f" (use --compat {other} against a target in {other} mode)",
        "for /rpc": " (--rpc-path names it)",
        "of unknown outcome": " (nobody knows what light-hybrid-4j answers)",
    }
    return [f"{count} {why} not run{hints[why]}" for why, count in plan.left_out.items()]


def failure_rows(outcomes: Iterable[VectorOutcome]) -> list[Row]:
    return [
        (outcome.run.label, found.where, cut(found.expected), cut(found.actual, LONGEST))
        for outcome in outcomes
        for found in outcome.findings
    ]


def difference_rows(differences: Iterable[VectorDifference]) -> list[Row]:
    return [
        (one.label, one.finding.where, cut(one.finding.expected), cut(one.finding.actual, LONGEST))
        for one in differences
    ]


def difference_notes(differences: Iterable[VectorDifference]) -> list[str]:
    """The ledger's notes on each vector that differs."""
    notes = [
        f"{one.label} differs on purpose: {one.reason}" if one.reason
        else f"{one.label} differs, {UNKNOWN}"
        for one in differences
        if one.reason or one.unknown
    ]  # fmt: skip
    return list(dict.fromkeys(notes))


def difference_summary(
    plan: VectorPlan, differences: Iterable[VectorDifference], compat: Mode
) -> str:
    """`104 compared, 2 differ without an entry in the ledger, ...`."""
    open_ = [one for one in differences if one.reason is None]
    unknown = {one.label for one in open_ if one.unknown}
    others = {one.label for one in open_} - unknown
    parts = [f"{len(plan.due)} compared, {len(others)} differ without an entry in the ledger"]
    if unknown:
        parts.append(f"{len(unknown)} where the ledger does not say what the other answers")
    return ", ".join([*parts, *left_out(plan, compat)])


def cut(text: str, length: int = SHOWN) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def applied(outcomes: Iterable[VectorOutcome]) -> list[str]:
    """The vectors that passed because of an intended difference from light-hybrid-4j."""
    meant = (o.run.vector.id for o in outcomes if o.passed and o.run.vector.ledger is not None)
    return list(dict.fromkeys(meant))


def hints(outcomes: Sequence[VectorOutcome], compat: Mode, server: str = "The target") -> list[str]:
    """Likely causes that concern the target as a whole."""
    found = [f"{server}: {_OTHER_MODE.format(_other(compat))}"] if _of_other(outcomes) else []
    first = next((one for one in outcomes if one.run.vector.id == FIXTURE and not one.passed), None)
    if first is None or first.played[0].answer is None:
        return found
    answer = first.played[0].answer
    return [*found, *(f"{server} {hint}" for sign, hint in SIGNS.items() if sign in answer.body)]


_OTHER_MODE = (
    "most vectors that are of one mode fail, and most others pass. It seems to be in {0} mode, for "
    "which there is --compat {0}."
)


def _of_other(outcomes: Iterable[VectorOutcome]) -> bool:
    """Whether the failures suggest a target in the other mode."""
    of_one: list[bool] = []
    of_both: list[bool] = []
    for outcome in outcomes:
        several = len(outcome.run.vector.modes) > 1 or outcome.run.mode_free
        (of_both if several else of_one).append(outcome.passed)
    failed = of_one.count(False)
    return failed >= FEW and failed * 2 > len(of_one) and sum(of_both) * 2 >= len(of_both)


def _other(compat: Mode) -> Mode:
    return "spec" if compat == "strict" else "strict"


def as_json(plan: VectorPlan, outcomes: Sequence[VectorOutcome]) -> dict[str, Any]:
    return {
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(not outcome.passed for outcome in outcomes),
        "not_run": dict(plan.left_out),
        "failures": [
            {
                "vector": outcome.run.label,
                "title": outcome.run.vector.title,
                "findings": msgspec.to_builtins(outcome.findings),
            }
            for outcome in outcomes
            if not outcome.passed
        ],
        "ledger": {
            one.run.vector.id: one.run.vector.ledger.reason
            for one in outcomes
            if one.passed and one.run.vector.ledger is not None
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
                "vector": one.label,
                "where": one.finding.where,
                "target": one.finding.expected,
                "against": one.finding.actual,
                "explained": one.reason,
                "unknown": one.unknown,
            }
            for one in differences
        ],
    }
