"""Types of the requests of operations."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from msgspec import Meta, Struct

import gateway.admin
import gateway.wings
from gateway.cli.operations import declared_operations
from gateway.operations.problems import ProblemDetails
from gateway.operations.request_parsing import read_names, read_query


def patterns(kind: Any, seen: set[type]) -> Iterator[Meta]:
    """The constraints of all texts in a type."""
    if isinstance(kind, type) and issubclass(kind, Struct) and kind not in seen:
        seen.add(kind)
        for field in msgspec.structs.fields(kind):
            yield from patterns(field.type, seen)
    if get_origin(kind) is Annotated:
        yield from (one for one in get_args(kind) if isinstance(one, Meta) and one.pattern)
    for inner in get_args(kind):
        yield from patterns(inner, seen)


def test_patterns_of_requests_are_described() -> None:
    """A caller is told of no regular expression (mending 40)."""
    seen: set[type] = set()
    bare = set()
    for package in (gateway.admin, gateway.wings):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith(".ray_bulk"):  # imports ray, an extra
                continue
            for name, kind in vars(importlib.import_module(found.name)).items():
                texts = [one.pattern for one in patterns(kind, seen) if not one.description]
                bare |= {(found.name, name, text) for text in texts}
    assert seen
    assert bare == set()


@pytest.mark.parametrize(("id_", "status"), [("putAgent", 422), ("getAgent", 404)])
def test_names_of_new_entries_are_described_by_their_pattern(id_: str, status: int) -> None:
    rows = declared_operations(("gateway.admin.resources.agents:AgentOperations",))
    with pytest.raises(ProblemDetails) as raised:
        read_names(rows[id_], {"agent": "bad name!"})
    assert raised.value.status == status
    told = [mistake.detail for mistake in raised.value.errors]
    expected = 'expected the name of an agent, of A-Z, a-z, 0-9, . _ and -, got "bad name!"'
    assert told == ([expected] if status == 422 else [])


@pytest.mark.parametrize(
    ("query", "status"), [("since=x", 400), ("since={0}&until={0}", 422), ("since={0}&until=", 400)]
)
def test_parameters_that_contradict_each_other_are_not_called_malformed(
    query: str, status: int
) -> None:
    rows = declared_operations(("gateway.admin.resources.audit:AuditOperations",))
    with pytest.raises(ProblemDetails) as raised:
        read_query(rows["searchAudit"], query.format("2000-01-01T00:00:00Z").encode())
    assert raised.value.status == status
    assert raised.value.errors
