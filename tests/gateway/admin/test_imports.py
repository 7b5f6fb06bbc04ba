"""Imports by the admin API that run at the same time."""

import gc
import sys
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from config.load import load
from gateway.admin.resources.sources import SourceOperations
from gateway.operations.problems import ProblemDetails

LIMITS = replace(load(None, {}).imports, concurrency=3, tenant_concurrency=2)


@pytest.fixture
def operations() -> SourceOperations:
    nothing: Any = None
    return SourceOperations(
        nothing,
        LIMITS,
        settings_sources=dict,
        lister=None,
        secrets=nothing,
        connections=nothing,
        toolsets={},
        at_machine=False,
    )


def refusal(operations: SourceOperations, tenant: str) -> int | None:
    try:
        with operations._turn(tenant):
            return None
    except ProblemDetails as problem:
        return problem.status


def test_a_tenant_leaves_room_for_imports_of_other_tenants(operations: SourceOperations) -> None:
    with ExitStack() as running:
        for _ in range(2):
            running.enter_context(operations._turn("one"))
        assert refusal(operations, "one") == 429
        assert refusal(operations, "another") is None
        running.enter_context(operations._turn("another"))
        assert refusal(operations, "third") == 503
    assert refusal(operations, "one") is None
    assert not operations._running


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="has no threshold of full collections")
def test_full_collections_are_rarer_while_imports_run(operations: SourceOperations) -> None:
    """Each visits all objects of the descriptions, and holds up all callers for that time."""
    usual = gc.get_threshold()
    with operations._turn("one"):
        with operations._turn("another"):
            assert gc.get_threshold()[2] >= 10 * usual[2]
        assert gc.get_threshold()[2] >= 10 * usual[2]
        assert gc.get_threshold()[:2] == usual[:2]
    assert gc.get_threshold() == usual
