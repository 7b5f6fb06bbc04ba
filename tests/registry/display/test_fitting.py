"""Several tools in one answer: whatever they say, it stays below its ceiling."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from msgspec.json import decode

from registry.display.profiles import BUILT_IN
from registry.display.tool_shaper import FittedTools, ListedTool, ListingBudget
from schemas.binding import McpBinding, MirroredArgument
from schemas.jsonrpc import encode
from tests.properties import examples
from tests.registry.anyschema import schemas
from tests.registry.shown import describe_tool, shaper

SHAPING = shaper()
SMALL = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
HUGE = {
    "type": "object",
    "required": ["must"],
    "properties": {
        "must": {"type": "string"},
        **{
            f"part_{n}": {
                "type": "object",
                "description": "Says something about it. " * 9,
                "properties": {f"of_{m}": {"type": "string"} for m in range(30)},
            }
            for n in range(40)
        },
    },
}


def ceiling(tokens: int = 2000, profile: str = "plain") -> ListingBudget:
    chosen = SHAPING.profiles.profile(profile)
    assert chosen is not None
    return ListingBudget(tokens, SHAPING, chosen, "describe_tools")


def fit_tools(
    given: list[Any], characters: int = 8000, profile: str = "plain", whole: bool = True
) -> FittedTools:
    tools = [
        ListedTool(describe_tool(f"tool_{n}", one, description=f"Does {n}. " * 200), {"score": 0.5})
        for n, one in enumerate(given)
    ]
    return ceiling(profile=profile).fit(tools, characters, whole)


def length(entry: Any) -> int:
    return len(encode(entry).decode())


def test_tools_that_fit_are_whole() -> None:
    found = fit_tools([SMALL, SMALL])
    assert [decode(one["inputSchema"]) for one in found.entries] == [SMALL, SMALL]
    assert (found.folded, found.left_out) == (0, 0)
    assert list(found.entries[0]) == ["name", "description", "score", "inputSchema"]


def test_large_tools_share_the_budget_and_small_tools_are_whole() -> None:
    found = fit_tools([HUGE, SMALL, HUGE, HUGE])
    assert decode(found.entries[1]["inputSchema"]) == SMALL
    sizes = [length(found.entries[n]) for n in (0, 2, 3)]
    assert min(sizes) > 1000
    assert sizes == sorted(sizes, reverse=True)
    assert sum(map(length, found.entries)) > 4000
    for n in (0, 2, 3):
        schema = decode(found.entries[n]["inputSchema"])
        assert schema["properties"]["must"] == {"type": "string"}
        assert schema["required"] == ["must"]
        assert "Call describe_tools for all." in str(schema)


def test_where_there_is_no_room_for_schemas_names_and_lines_remain() -> None:
    found = fit_tools([HUGE] * 20, 1600)
    assert len(found.entries) == 20
    assert 15 <= found.folded < 20
    assert all(one["description"].startswith("Does ") for one in found.entries)


def test_tools_without_room_are_counted_and_the_best_stay() -> None:
    found = fit_tools([SMALL] * 20, 400)
    assert 0 < len(found.entries) < 20
    assert found.left_out == 20 - len(found.entries)
    assert found.entries[0]["name"] == "tool_0"


def test_names_alone_are_lines_without_schemas() -> None:
    found = fit_tools([SMALL], whole=False)
    assert "inputSchema" not in found.entries[0]
    assert len(found.entries[0]["description"]) <= 100


def test_schemas_unsupported_by_a_profile_are_left_out() -> None:
    bad = {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}}
    found = fit_tools([bad, SMALL], profile="claude")
    assert ["inputSchema" in one for one in found.entries] == [False, True]
    assert found.folded == 1


def test_a_large_tool_of_a_server_that_wants_headers_is_shortened_too() -> None:
    binding = McpBinding("x", mirrored=(MirroredArgument(("must",), "Must"),))
    tools = [ListedTool(describe_tool("x", HUGE, binding=binding), {})]
    found = ceiling().fit(tools, 4000, schemas=True)
    assert found.folded == 0
    assert length(found.entries[0]) <= 4000


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    given_=st.lists(st.one_of(schemas(), st.just(HUGE), st.just(SMALL)), max_size=7),
    characters=st.integers(0, 6000),
    profile=st.sampled_from(sorted(BUILT_IN)),
)
@pytest.mark.filterwarnings("ignore")
def test_no_answer_is_above_its_ceiling(given_: Any, characters: int, profile: str) -> None:
    found = fit_tools(given_, characters, profile)
    assert len(encode(found.entries).decode()) <= characters + len("[]")
    assert len(found.entries) + found.left_out == len(given_)
    for one in found.entries:
        if "inputSchema" in one:
            Draft202012Validator(decode(one["inputSchema"]))
    assert decode(encode(found.entries)) is not None
