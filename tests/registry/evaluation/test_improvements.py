"""The tools that requests miss, and what is proposed for their descriptions."""

from collections.abc import Mapping
from typing import Any

import pytest

from registry.evaluation.improvements import TOOLS, DescribedTool, improvements, propose_description
from registry.evaluation.request_sets import RelevantTools

OBJECT: Mapping[str, Any] = {"type": "object"}
PARCEL: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "country": {"type": "string"},
        "trackingNumber": {"type": "string", "description": "On the label. 12 digits."},
        "speed": {"enum": ["slow", "fast"]},
    },
    "required": ["trackingNumber"],
}
STATE: Mapping[str, Any] = {"type": "object", "properties": {"state": {}, "eta": {}}}
LONG = "Says where a parcel is at the moment."


def relevant_tools(*ids: str) -> RelevantTools:
    return RelevantTools(frozenset(ids), tuple(frozenset([id_]) for id_ in ids))


def test_the_most_often_missed_tools_are_first() -> None:
    tools = [DescribedTool(name, name, LONG) for name in ("a_a", "b_b", "c_c")]
    found = [["b_b"], ["b_b", "a_a"], [], ["x"] * 5 + ["c_c"]]
    listed = improvements(
        found, [relevant_tools(*ids) for ids in (["a_a"], ["a_a"], ["a_a"], ["c_c"])], tools
    )
    numbers = [(tool.tool, tool.missed, tool.requests, tool.instead) for tool in listed]
    assert numbers == [("c_c", 1, 1, ()), ("a_a", 2, 3, ("b_b",))][::-1]


def test_at_most_ten_tools_are_listed_and_deleted_tools_are_not() -> None:
    tools = [DescribedTool(f"tool_{n}", f"tool_{n}", LONG) for n in range(50)]
    requests = [relevant_tools(tool.id) for tool in tools] + [relevant_tools("gone")]
    listed = improvements([[] for _ in requests], requests, tools)
    assert len(listed) == TOOLS
    assert "gone" not in [tool.tool for tool in listed]


def test_an_alternative_that_is_found_satisfies_a_request() -> None:
    tools = [DescribedTool(name, name, LONG) for name in ("a_a", "b_b")]
    either = RelevantTools(frozenset(["a_a", "b_b"]), (frozenset(["a_a", "b_b"]),))
    assert improvements([["b_b"]], [either], tools) == ()


@pytest.mark.parametrize(
    ("name", "description", "schema", "reason"),
    [
        ("track_parcel", "", OBJECT, "it has no description"),
        ("track_parcel", "Track it.", OBJECT, "its description has 2 words"),
        ("parcel", LONG, OBJECT, "its name parcel is one word"),
        ("track_parcel", LONG, PARCEL, "2 of 3 parameters have no description"),
        ("track_parcel", LONG, OBJECT, "its description has other words than the requests"),
    ],
)
def test_reasons_name_the_fault_of_a_description(
    name: str, description: str, schema: Mapping[str, Any], reason: str
) -> None:
    tool = DescribedTool("1", name, description, input_schema=schema)
    [missed] = improvements([[]], [relevant_tools("1")], [tool])
    assert any(text.startswith(reason) for text in missed.reasons)


def test_tools_of_one_description_are_named() -> None:
    tools = [DescribedTool(id_, f"get_{id_}", LONG) for id_ in "ab"]
    [missed] = improvements([[]], [relevant_tools("a")], tools)
    assert missed.reasons == ("2 tools have this description: say what is different",)


def test_a_description_is_proposed_from_name_and_schemas() -> None:
    tool = DescribedTool("1", "trackParcel", "", None, "Post", PARCEL, STATE)
    assert propose_description(tool) == (
        "Track parcel (Post), by tracking number (on the label), country and speed (slow, fast)."
        " Answers with state and eta."
    )


@pytest.mark.parametrize(
    "schema", [None, {}, {"properties": 7, "required": 7}, {"properties": {"a": True}}]
)
def test_odd_schemas_give_a_sentence(schema: Any) -> None:
    sentence = propose_description(DescribedTool("1", "ping", "", input_schema=schema))
    assert sentence in ("Ping.", "Ping, by a.")
