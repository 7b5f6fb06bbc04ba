"""What expressions see of a caller, and of whom nothing."""

from typing import Any

import pytest

from gateway.context import Principal
from gateway.policy.engine import CLAIMS, facts_of

VALUES, BYTES, LEVELS = CLAIMS


def nest(levels: int) -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(levels):
        deep = {"a": deep}
    return deep


def test_facts_of_a_principal_are_json() -> None:
    scopes, roles = frozenset({"b", "a"}), frozenset({"z", "y"})
    assert facts_of(Principal("ada", "t", scopes, {"team": ["blue"]}, roles=roles, mark="m")) == {
        "id": "ada",
        "tenant": "t",
        "scopes": ["a", "b"],
        "roles": ["y", "z"],
        "claims": {"team": ["blue"]},
    }


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ({"groups": [0] * (VALUES - 2)}, {"groups": [0] * (VALUES - 1)}),
        ({"a": "x" * (BYTES - 1)}, {"a": "x" * BYTES}),
        (nest(LEVELS), nest(LEVELS + 1)),
    ],
    ids=["values", "bytes", "levels"],
)
def test_of_a_caller_with_larger_claims_nothing_is_seen(
    most: dict[str, Any], more: dict[str, Any]
) -> None:
    seen = facts_of(Principal("ada", "t", claims=most))
    assert seen is not None
    assert seen["claims"] == most
    assert facts_of(Principal("ada", "t", claims=more)) is None
