"""describe_tools: several at once, below a ceiling whatever they are."""

from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.json import decode

from gateway.context import Context, Identity, Principal, QueryOptions
from gateway.methods.describe_tools import DescribeSeveral
from gateway.methods.lists import Lists
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.display.profiles import BUILT_IN, Profiles
from registry.display.token_budgets import tokens
from registry.display.tool_shaper import ToolShaper
from schemas.errors import InvalidParams
from schemas.mcp.revisions import V2026_07_28
from schemas.tool import TextContent, Tool, ToolResult
from tests.properties import examples
from tests.registry.anyschema import NAMES, schemas
from tests.registry.shown import SETTINGS, describe_tool

RULES = ToolShaper(SETTINGS.budgets, Profiles(SETTINGS.profiles), stubs=True)
SMALL = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
HUGE = {
    "type": "object",
    "properties": {
        f"part_{n}": {"type": "object", "properties": {f"of_{m}": SMALL for m in range(30)}}
        for n in range(40)
    },
}


class Held(Catalogs):
    def __init__(self, catalog: Catalog, shaper: ToolShaper) -> None:
        super().__init__({}, shaper)
        self._catalog = catalog

    def of(self, _tenant: str, _toolset: str | None = None) -> Catalog:
        return self._catalog


def run_describe(
    tools: list[Tool], most: int = 2000, profile: str = "plain", **arguments: Any
) -> Any:
    return decode(text_of(describe_result(tools, most, profile, **arguments)))


def describe_result(
    tools: list[Tool], most: int = 2000, profile: str = "plain", **arguments: Any
) -> ToolResult:
    catalog = Catalog(tools, shaper=RULES)
    lists = Lists(
        Held(catalog, RULES),
        page_size=9,
        ttl_ms=9,
        down=lambda _tenant, _catalog: (),
        fail_closed=False,
    )
    around = Context(
        Identity(Principal("p", "t")), V2026_07_28, "r", options=QueryOptions(profile=profile)
    )

    async def run() -> Any:
        own = DescribeSeveral(lists, most)
        return await own.call(catalog.own["describe_tools"], None, arguments, around)

    result = anyio.run(run)
    assert isinstance(result.content[0], TextContent)
    assert tokens(result.content[0].text) <= most
    assert tokens(bytes(result.structured_content)) <= most
    return result


def test_small_tools_are_described_whole() -> None:
    tools = [
        describe_tool("a", SMALL, description="Long. " * 300, output=SMALL),
        describe_tool("b", SMALL),
    ]
    answer = run_describe(tools, names=["b", "a"])
    assert [one["name"] for one in answer["tools"]] == ["b", "a"]
    assert answer["tools"][1]["description"] == "Long. " * 300
    assert answer["tools"][1]["outputSchema"] == SMALL
    assert set(answer) == {"tools"}


def test_output_schemas_go_first() -> None:
    answer = run_describe([describe_tool("a", SMALL, output=HUGE)], names=["a"])
    assert answer["tools"][0]["inputSchema"] == SMALL
    assert "Output schemas are left out" in answer["more"]


def test_a_large_tool_is_shortened_and_its_parts_are_available() -> None:
    tools = [describe_tool(name, HUGE) for name in ("a", "b")]
    answer = run_describe(tools, names=["a", "b"])
    assert all("part_39" in one["inputSchema"]["properties"] for one in answer["tools"])
    assert "by their path" in answer["more"]
    parts = run_describe(tools, names=["a", "b"], path="part_3.of_7")
    assert [one["schema"] for one in parts["tools"]] == [SMALL, SMALL]
    folded = run_describe(tools, 250, names=["a", "b"], path="part_3")
    assert "A longer path tells the rest." in str(folded["tools"][0]["schema"])


def test_an_unknown_part_is_refused_and_partly_missing_parts_are_noted() -> None:
    tools = [describe_tool("a", SMALL), describe_tool("b", HUGE)]
    with pytest.raises(InvalidParams, match="there is no 'idd' in the input schema of a; there is"):
        run_describe(tools, names=["a"], path="idd")
    answer = run_describe(tools, names=["a", "b"], path="id")
    assert answer["tools"][0]["schema"] == {"type": "string"}
    assert "there is no 'id' in the input schema of b" in answer["tools"][1]["error"]


def test_of_many_names_the_first_are_read() -> None:
    tools = [describe_tool(f"t{n:02}", SMALL) for n in range(30)]
    answer = run_describe(tools, names=[tool.name for tool in tools])
    assert len(answer["tools"]) == 20
    assert "Only the first 20 names" in answer["more"]


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    each=st.lists(st.one_of(schemas(), st.just(HUGE), st.just(SMALL)), min_size=1, max_size=6),
    others=st.lists(st.text(min_size=1, max_size=300), max_size=25),
    path=st.sampled_from(("", "a", "kind.b", "part_1", "id", "[]" * 500, "x" * 900, *NAMES)),
    most=st.integers(250, 2500),
    profile=st.sampled_from(sorted(BUILT_IN)),
)
def test_no_answer_is_above_its_ceiling(
    each: list[Any], others: list[str], path: str, most: int, profile: str
) -> None:
    tools = [describe_tool(f"tool_{n}", one, output=one) for n, one in enumerate(each)]
    names = [*(tool.name for tool in tools), *others]
    try:
        answer = run_describe(tools, most, profile, names=names, path=path)
    except InvalidParams:
        answer = None
    assert path or answer is not None
    assert answer is None or answer["tools"] or "no room" in answer["more"]


def test_describe_tools_writes_a_stub_for_each_tool() -> None:
    tools = [describe_tool("get-a", SMALL, description="Gets."), describe_tool("b", SMALL)]
    names = ["b", "get-a", "get_a", "describe_tools"]
    result = describe_result(tools, names=names, **{"as": "python"})
    stubs = ["def b(*, id: str) -> Any: ...", 'def get_a(*, id: str) -> Any: """Gets."""']
    unknown = [
        "# there is no tool 'get_a'; there is get-a",
        "# there is no tool 'describe_tools'",
    ]
    assert text_of(result).splitlines() == [*stubs, *unknown]
    answer = decode(bytes(result.structured_content))  # type: ignore[arg-type]
    assert answer["tools"] == [
        {"name": "b", "stub": stubs[0]},
        {"name": "get-a", "stub": stubs[1]},
    ]
    assert [entry["name"] for entry in answer["unknown"]] == names[2:]
    with pytest.raises(InvalidParams, match="there is no tool 'describe_tools'"):
        describe_result(tools, names=["describe_tools"], **{"as": "python"})


def test_a_part_is_described_as_a_type() -> None:
    tools = [describe_tool("a", HUGE), describe_tool("b", SMALL)]
    result = describe_result(tools, names=["a", "b"], path="part_3.of_7", **{"as": "typescript"})
    first, second = text_of(result).splitlines()
    assert first == "type a_part_3_of_7 = {id: string}"
    assert second.startswith("// b: path: there is no 'part_3'")


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    each=st.lists(st.one_of(schemas(), st.just(HUGE), st.just(SMALL)), min_size=1, max_size=20),
    others=st.lists(st.text(min_size=1, max_size=300), max_size=25),
    path=st.sampled_from(("", "a", "part_1", "[]" * 500, *NAMES)),
    most=st.integers(250, 2500),
    language=st.sampled_from(("python", "typescript")),
)
def test_no_answer_of_stubs_is_above_its_ceiling(
    each: list[Any], others: list[str], path: str, most: int, language: str
) -> None:
    tools = [describe_tool(f"tool_{n}", one, output=one) for n, one in enumerate(each)]
    names = [*(tool.name for tool in tools), *others]
    try:
        describe_result(tools, most, names=names, path=path, **{"as": language})
    except InvalidParams:
        assert path


def text_of(result: ToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text
