"""Cost of schemas: the bound that is known at once, and the exact one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.json_schema import cost as schema_cost
from schemas.json_schema.checker import Checker
from schemas.json_schema.cost import check_cost
from schemas.jsonrpc import encode

LEAVES = st.sampled_from([{}, {"type": "string"}, True, {"enum": [1, 2]}])


def compositions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.lists(inner, max_size=3)
    members = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), schemas),
            **dict.fromkeys(("not", "if", "then", "items", "contains"), inner),
            **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), members),
            "additionalProperties": inner,
        },
    )


@given(st.recursive(LEAVES, compositions, max_leaves=12))
def test_the_bound_of_a_schema_without_references_is_not_below_its_cost(schema: Any) -> None:
    """Each part applies once to a value at most, so the parts need only be counted
    (mending 23)."""
    cost = check_cost(schema)
    assert cost.evaluations <= cost.at_most


def test_a_small_schema_is_compiled_without_counting_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That took most of the time of the trial calls of an import (mending 23)."""
    counted: list[Any] = []
    plain = schema_cost._Costs.__init__
    monkeypatch.setattr(
        schema_cost._Costs,
        "__init__",
        lambda self, root: (counted.append(root), plain(self, root))[1],
    )
    small = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    assert Checker(encode(small)).accepts({"id": 1})
    assert counted == []
    shared = {**small, "$defs": {"a": {"type": "string"}}, "not": {"$ref": "#/$defs/a"}}
    assert Checker(encode(shared)).accepts({"id": 1})
    assert counted == [shared]


def test_multiplication_below_an_embedded_id_is_counted() -> None:
    """`#/...` below an `$id` leads into the part with this `$id`, as the validator has it."""
    inner = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    part = {"$id": "urn:x", "$ref": "#/$defs/a0", "$defs": inner | {"a40": {"type": "null"}}}
    with pytest.raises(ValueError, match="more often than can be checked"):
        check_cost({"$ref": "urn:x", "$defs": {"x": part}})
    many = {f"d{n}": {"$id": f"urn:{n}", "$ref": "#"} for n in range(40)}
    with pytest.raises(ValueError, match="an \\$id of their own"):
        check_cost({"$defs": many})
