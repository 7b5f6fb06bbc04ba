"""What lists of tools cost, and how they are kept within their budgets."""

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from msgspec.json import decode, encode

from config.settings import Toolset
from registry.catalog.catalog import Catalog
from registry.display.token_budgets import tokens
from registry.display.tool_shaper import ToolShaper
from schemas.binding import HybridBinding, McpBinding, MirroredArgument
from schemas.mcp.revisions import V2025_06_18, V2026_07_28
from tests.registry.shown import describe_tool, list_tools, shaper

SENTENCE = "It does one thing and no other. "
STRINGS = {f"field_{number}": {"type": "string", "description": SENTENCE} for number in range(40)}
DEEP = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        **{f"part_{n}": {"type": "object", "properties": STRINGS} for n in range(20)},
    },
    "required": ["id"],
}
OUTPUT = {"type": "object", "properties": STRINGS}


def cost(entry: dict[str, Any]) -> int:
    return tokens(encode(entry))


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöüß".encode(), 1)]
)
def test_a_token_is_four_characters(text: str | bytes, expected: int) -> None:
    assert tokens(text) == expected


def test_a_large_tool_is_cut_to_the_ceiling_and_a_small_tool_is_unchanged() -> None:
    small = describe_tool("small", {"type": "object", "properties": {"a": {"type": "string"}}})
    catalog = Catalog([describe_tool("large", DEEP), small], shaper=shaper(tool_tokens=1000))
    own, large, other = list_tools(catalog)
    assert own["name"] == "describe_tool"
    assert cost(large) <= 1000
    assert large["inputSchema"]["properties"]["id"] == {"type": "string"}
    assert "Call describe_tool for all." in str(large["inputSchema"])
    assert other["inputSchema"] == {"type": "object", "properties": {"a": {"type": "string"}}}


ODD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"kind": {"$anchor": "kind", "type": "string"}},
    "type": "object",
    "properties": {
        "kind": {"$ref": "#kind"},
        "description": {"type": "string", "default": {"description": SENTENCE * 20}},
    },
    "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
    "then": {"required": ["description"]},
    "unevaluatedProperties": False,
}


def test_a_schema_that_fits_keeps_every_keyword() -> None:
    [shown] = list_tools(Catalog([describe_tool("odd", ODD)], shaper=shaper(tool_tokens=1000)))
    assert shown["inputSchema"] == ODD


def test_of_a_schema_that_fits_only_texts_get_shorter() -> None:
    texts = {"type": "string", "description": SENTENCE * 20}
    schema = {**ODD, "dependentSchemas": {"kind": {"properties": {"x": texts}}}}
    rules = shaper(tool_tokens=1000, argument_characters=200, describe="never")
    [shown] = list_tools(Catalog([describe_tool("odd", schema)], shaper=rules))
    short = {"type": "string", "description": f"{SENTENCE * 6}…"}
    expected = {**ODD, "dependentSchemas": {"kind": {"properties": {"x": short}}}}
    assert shown["inputSchema"] == expected


def test_the_catalog_keeps_the_whole_schema_for_its_checks() -> None:
    catalog = Catalog([describe_tool("large", DEEP)], shaper=shaper(tool_tokens=300))
    tool = catalog.get("large")
    assert tool is not None
    assert catalog.checker(tool).explain({"id": "x", "part_3": {"field_1": 5}})
    [_, shown] = list_tools(catalog)
    assert Draft202012Validator(shown["inputSchema"]).is_valid(
        {"id": "x", "part_3": {"field_1": 5}}
    )


def test_output_schemas_are_shown_when_settings_say_so() -> None:
    tools = [describe_tool("a", output=OUTPUT)]
    [without] = list_tools(Catalog(tools, shaper=shaper()))
    [with_it] = list_tools(Catalog(tools, shaper=shaper(output_schemas=True)))
    assert "outputSchema" not in without
    assert with_it["outputSchema"] == OUTPUT


@pytest.mark.parametrize("binding", [McpBinding("own"), HybridBinding("h/s/a/1")], ids=repr)
def test_output_schemas_of_other_servers_are_always_shown(binding: Any) -> None:
    tool = describe_tool("a", output=OUTPUT, binding=binding)
    [shown] = list_tools(Catalog([tool], shaper=shaper()))
    assert shown["outputSchema"] == OUTPUT


def test_a_long_description_ends_with_a_sentence() -> None:
    tool = describe_tool("a", description=SENTENCE * 100)
    shown = list_tools(Catalog([tool], shaper=shaper(description_characters=100)))[0]
    assert shown["description"] == f"{SENTENCE * 3}…"


@pytest.mark.parametrize(
    ("describe", "small", "large"), [("auto", 1, 2), ("always", 2, 2), ("never", 1, 1)]
)
def test_describe_tool_is_listed_by_setting(describe: str, small: int, large: int) -> None:
    rules = shaper(describe=describe, tool_tokens=500)
    assert len(list_tools(Catalog([describe_tool("a")], shaper=rules))) == small
    assert len(list_tools(Catalog([describe_tool("a", DEEP)], shaper=rules))) == large


def test_a_catalog_over_its_budget_is_shortened_evenly(caplog: pytest.LogCaptureFixture) -> None:
    tools = [
        describe_tool(f"tool_{n:02}", DEEP, description=f"{n}. {SENTENCE * 20}") for n in range(20)
    ]
    whole = Catalog(tools, shaper=shaper(tool_tokens=2000)).lists.tools()
    rules = shaper(tool_tokens=2000, catalog_tokens=whole.tokens // 3)
    made = Catalog(tools, shaper=rules).lists.tools()
    assert made.tokens <= whole.tokens // 3
    assert made.level > 0
    assert max(made.costs.values()) - min(made.costs.values()) < 20
    assert [record.msg for record in caplog.records] == ["catalog_shortened"]


def test_a_catalog_that_cannot_be_shortened_enough_is_listed_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = [describe_tool(f"tool_{n:03}", DEEP) for n in range(50)]
    rules = shaper(catalog_tokens=100)
    assert len(list_tools(Catalog(tools, shaper=rules))) == 51
    Catalog(tools, shaper=rules).lists.tools()
    assert [record.msg for record in caplog.records] == ["catalog_over_budget"]


def test_a_list_does_not_depend_on_the_order_of_the_tools() -> None:
    tools = [describe_tool(f"tool_{n}", DEEP, description=SENTENCE * n) for n in range(9)]
    rules = shaper(tool_tokens=400, catalog_tokens=3000)
    catalogs = [Catalog(order, shaper=rules) for order in (tools, tools[::-1])]
    first, second = (bytes(one.lists.page(V2026_07_28, None, 99).entries) for one in catalogs)
    assert first == second


def test_each_tool_is_shaped_once_for_all_catalogs() -> None:
    rules, tools = shaper(tool_tokens=300), [describe_tool("large", DEEP)]
    first, second = (Catalog(tools, shaper=rules).lists.tools() for _ in range(2))
    shown = [rules.shape(tools[0], one.profile, 0, "describe_tool") for one in (first, second)]
    assert shown[0] is shown[1]


def test_arguments_that_headers_repeat_are_never_folded() -> None:
    binding = McpBinding("own", mirrored=(MirroredArgument(("part_1", "field_1"), "field"),))
    tool = describe_tool("a", DEEP, binding=binding)
    [shown] = list_tools(Catalog([tool], shaper=shaper(tool_tokens=300)))
    assert shown["inputSchema"] == DEEP


def test_tools_are_unchanged_without_budgets() -> None:
    tool = describe_tool("a", DEEP, output=OUTPUT, description=SENTENCE * 200)
    [shown] = list_tools(Catalog([tool]))
    assert (shown["inputSchema"], shown["outputSchema"]) == (DEEP, OUTPUT)


def test_pages_go_on_behind_the_gateways_own_tool() -> None:
    tools = [describe_tool(f"{letter}_tool", DEEP) for letter in "abdez"]
    catalog = Catalog(tools, shaper=shaper(tool_tokens=300))
    names: list[str] = []
    after = None
    while True:
        page = catalog.lists.page(V2025_06_18, after, 2)
        names += [entry["name"] for entry in decode(page.entries)]
        if page.last is None:
            break
        after = page.last
    assert names == ["a_tool", "b_tool", "d_tool", "describe_tool", "e_tool", "z_tool"]


def test_the_rules_of_one_catalog_hold_in_its_toolsets_too() -> None:
    catalog = Catalog(
        [describe_tool("large", DEEP), describe_tool("small")], shaper=shaper(tool_tokens=300)
    )
    part = catalog.toolset("some", Toolset(include=("small",)))
    assert [entry["name"] for entry in list_tools(part)] == ["small"]
    whole = catalog.toolset("other", Toolset(include=("l*",)))
    assert [entry["name"] for entry in list_tools(whole)] == ["describe_tool", "large"]
    assert part.get("describe_tool") == catalog.get("describe_tool")


def test_the_argument_that_picks_members_of_the_answer_can_be_shown() -> None:
    rules = shaper()
    rules = ToolShaper(rules.budgets, rules.profiles, fields=True)
    own = {"type": "object", "properties": {"_fields": {"type": "integer"}}}
    tools = [
        describe_tool("a"),
        describe_tool("b", own),
        describe_tool("c", binding=McpBinding("c")),
    ]
    shown = [
        one["inputSchema"].get("properties", {}) for one in list_tools(Catalog(tools, shaper=rules))
    ]
    assert shown[0]["_fields"]["type"] == "array"
    assert shown[1:] == [{"_fields": {"type": "integer"}}, {}]


def test_plain_shaping_leaves_tools_alone() -> None:
    tool = describe_tool("a", DEEP)
    assert ToolShaper().shape(tool, ToolShaper().profiles.default, 0, "x").tool is tool
