"""The gateway's own tools with which the others are found."""

import pytest
from msgspec import Raw
from msgspec.json import decode

from registry.catalog.catalog import Catalog
from registry.display.discovery_tools import own_tools
from registry.display.token_budgets import tokens
from registry.display.tool_shaper import ToolShaper
from registry.names.tool_names import DISCLOSURE_TOOLS, SKILL_TOOLS
from registry.skills.snapshot import Skill, SkillSnapshot
from schemas.json_schema.checker import Checker
from schemas.mcp.revisions import V2024_11_05, V2026_07_28
from tests.registry.shown import describe_tool, shaper

SHOP = (
    describe_tool("createOrder", description="Orders food for a PET."),
    describe_tool("get_pet", title="One of them"),
    describe_tool("ping", description="Long. " * 500 + "Says straße at the end."),
)


def test_search_tools_names_sources_within_its_limit() -> None:
    assert "(of bank, shop)" in own_tools(["shop", "bank"])["search_tools"].description
    many = [f"source-{n:03}" for n in range(200)]
    assert len(own_tools(many)["search_tools"].description) < 700
    assert ", ...)" in own_tools(many)["search_tools"].description


def test_skills_come_with_tools_of_their_own_and_an_argument() -> None:
    assert set(own_tools([])) == set(DISCLOSURE_TOOLS)
    own = own_tools([], skills=True)
    assert set(own) == {*DISCLOSURE_TOOLS, *SKILL_TOOLS}
    for name in ("search_tools", "call_tool"):
        assert "skill" in decode(own[name].input_schema)["properties"]


def test_two_definitions_that_differ_have_two_digests() -> None:
    first, second = own_tools(["a"]), own_tools(["b"])
    assert first["search_tools"].digest != second["search_tools"].digest
    assert first["describe_tools"].digest == second["describe_tools"].digest


def test_a_search_declares_its_maximum_limit() -> None:
    search = own_tools([], limit_maximum=20)["search_tools"]
    assert decode(search.input_schema)["properties"]["limit"]["maximum"] == 20
    accepts = Checker(bytes(search.input_schema)).accepts
    assert accepts({"query": "x", "limit": 20})
    assert not accepts({"query": "x", "limit": 21})


def test_schemas_of_own_tools_check_their_arguments() -> None:
    own = own_tools([], skills=True)
    checkers = {does: Checker(bytes(tool.input_schema)) for does, tool in own.items()}
    assert checkers["search_tools"].accepts({"query": "x", "limit": 3, "detail": "names"})
    assert checkers["search_tools"].accepts({"query": "x", "domain": "sales"})
    assert not checkers["search_tools"].accepts({"query": "x", "domain": "x" * 129})
    assert not checkers["search_tools"].accepts({"query": "x", "limit": 0})
    assert not checkers["search_tools"].accepts({})
    assert not checkers["describe_tools"].accepts({"names": []})
    assert not checkers["call_tool"].accepts({"name": "x", "arguments": []})


def test_stubs_are_asked_for_by_an_argument_only_where_there_are_programs() -> None:
    for stubs in (False, True):
        own = Catalog(SHOP, shaper=ToolShaper(stubs=stubs)).own
        for does, rest in (("search_tools", {"query": "x"}), ("describe_tools", {"names": ["x"]})):
            accepts = Checker(bytes(own[does].input_schema)).accepts
            assert accepts(rest)
            assert accepts({**rest, "as": "python"}) is stubs
            assert accepts({**rest, "as": "typescript"}) is stubs
            assert not accepts({**rest, "as": "ruby"})
        assert b'"as"' not in bytes(own["call_tool"].input_schema)


def test_a_list_of_own_tools_costs_little_in_every_profile() -> None:
    rules = shaper()
    catalog = Catalog([describe_tool(f"t{n}") for n in range(50)], shaper=rules)
    for chosen in rules.profiles:
        for revision in (V2024_11_05, V2026_07_28):
            page = catalog.lists.short(DISCLOSURE_TOOLS, (), chosen).page(revision, None, 100)
            listed = decode(page.entries)
            assert [one["name"] for one in listed] == sorted(DISCLOSURE_TOOLS)
            assert tokens(bytes(page.entries)) < 700
            assert (
                catalog.lists.short(DISCLOSURE_TOOLS, (), chosen).page(revision, None, 100) is page
            )


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["PET"], ["createOrder", "get_pet"]),  # light-4j: name or description, in any case
        (["pet", "food"], ["createOrder"]),
        (["one of THEM"], ["get_pet"]),
        (["STRASSE"], ["ping"]),  # what a list leaves out, too
        (["API"], ["createOrder", "get_pet", "ping"]),  # their source
        (["pet", "ping"], []),
        (["search_tools"], []),
        (["describe_tool"], []),
    ],
    ids=str,
)
def test_a_list_is_filtered_by_texts_that_tools_contain(texts: list[str], found: list[str]) -> None:
    tools = Catalog(SHOP, shaper=shaper()).lists.tools()
    page = tools.matching(texts, V2026_07_28, None, 100)
    assert [one["name"] for one in decode(page.entries)] == found


def test_a_filtered_list_goes_on_where_a_page_ended() -> None:
    tools = Catalog(SHOP, shaper=shaper()).lists.tools()
    seen, after = [], None
    for _ in SHOP:
        page = tools.matching(["api"], V2026_07_28, after, 1)
        seen += [one["name"] for one in decode(page.entries)]
        after = page.last
    assert seen == ["createOrder", "get_pet", "ping"]
    assert after is None


def test_that_skills_come_is_a_change_of_the_list() -> None:
    one = Skill(
        id="s", name="sell", description="", front_matter="", instructions="",
        metadata=Raw(b"{}"), number=1, version="1", digest="d",
    )  # fmt: skip
    before, after = Catalog(SHOP), Catalog(SHOP, skills=SkillSnapshot([one]))
    assert "tools" in after.changed_lists(before)
    assert not Catalog(SHOP).changed_lists(before)
