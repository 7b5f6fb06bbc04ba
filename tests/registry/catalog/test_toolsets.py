"""Toolsets: parts of a catalog."""

from dataclasses import replace
from typing import Any, cast

import pytest

from config.settings import Toolset
from registry.catalog.catalog import Catalog
from registry.catalog.catalog_events import CatalogEvents
from registry.catalog.catalogs import Catalogs
from registry.catalog.toolsets import unknown
from registry.skills.snapshot import SkillSnapshot
from schemas.binding import ScriptBinding
from schemas.mcp.revisions import V2026_07_28
from schemas.source import Source
from tests.fixtures_database import HOST
from tests.registry.servers import RESOURCES, item, listed_tool, source

WHOLE = Catalog(
    [listed_tool("get_a", "a"), listed_tool("set_a", "a"), listed_tool("get_b", "b")],
    [source("a", **RESOURCES), source("b", **RESOURCES), source("c", prompts={})],
    items=[item("prompt", f"p_{name}", name) for name in "abc"]
    + [item("resource", f"x:{name}", name) for name in "ab"],
)


@pytest.mark.parametrize(
    ("toolset", "tools", "prompts"),
    [
        (Toolset(), ["get_a", "get_b", "set_a"], ["p_a", "p_b", "p_c"]),
        (Toolset(sources=("a",)), ["get_a", "set_a"], ["p_a"]),
        (Toolset(sources=("a", "c", "gone")), ["get_a", "set_a"], ["p_a", "p_c"]),
        (Toolset(include=("get_*",)), ["get_a", "get_b"], ["p_a", "p_b"]),
        (Toolset(exclude=("*_b",)), ["get_a", "set_a"], ["p_a"]),
        (Toolset(include=("get_*",), exclude=("*_b",)), ["get_a"], ["p_a"]),
        (Toolset(sources=("b", "c"), include=("set_*",)), [], ["p_b", "p_c"]),
    ],
)
def test_a_toolset_has_its_selected_tools_and_prompts(
    toolset: Toolset, tools: list[str], prompts: list[str]
) -> None:
    part = WHOLE.toolset(str(toolset), toolset)
    assert [tool.name for tool in part.tools] == tools
    assert [prompt.name for prompt in part.prompts] == prompts
    assert all(part.get(name) is WHOLE.get(name) for name in tools)


def test_tags_and_domains_pick_tools_in_any_case() -> None:
    tools = [
        replace(listed_tool("GetA"), tags=("Billing",)),
        replace(listed_tool("b"), domain="sales"),
        listed_tool("c"),
    ]

    def names(**wanted: Any) -> list[str]:
        part = Catalog(tools, [source()]).toolset("one", Toolset(**wanted))
        return [tool.name for tool in part.tools]

    assert names(include=("get*",)) == ["GetA"]
    assert names(include=("tag:billing",)) == ["GetA"]
    assert names(include=("domain:SALES", "tag:bill*")) == ["GetA", "b"]
    assert names(exclude=("domain:*",)) == ["GetA", "c"]


def test_tools_outside_a_toolset_are_unreachable_through_the_toolset() -> None:
    part = WHOLE.toolset("only a", Toolset(sources=("a",)))
    assert part.get("get_b") is None
    assert part.prompt("p_b") is None
    located = part.locate("x:b")
    assert located is not None
    assert located.source.name == "a"  # the one server that is left, whatever it makes of it
    assert part.locate("toolgate://b/x:b") is None
    assert WHOLE.locate("x:unlisted") is None
    assert set(part.servers) == {"a"}


def test_a_toolset_is_built_once_and_shares_compiled_checkers() -> None:
    part = WHOLE.toolset("shared", Toolset(sources=("a",)))
    assert WHOLE.toolset("shared", Toolset(sources=("a",))) is part
    tool = WHOLE.tools[0]
    assert part.checker(tool) is WHOLE.checker(tool)


def test_a_toolset_that_is_not_set_up_is_empty() -> None:
    catalogs = Catalogs({"one": Toolset()})
    catalogs._current[HOST] = WHOLE
    assert len(catalogs.of(HOST).tools) == len(catalogs.of(HOST, "one").tools) == 3
    assert catalogs.of(HOST, "other").tools == ()
    assert catalogs.of("another tenant", "one").tools == ()


def test_clients_listing_scripts_are_notified_when_scripts_are_switched() -> None:
    events, told = CatalogEvents(), list[tuple[str, frozenset[str]]]()
    catalogs = Catalogs(shows_scripts=False, events=events)
    script = replace(listed_tool("s"), binding=ScriptBinding("python", "def main(a): return 1"))
    catalogs._current |= {HOST: Catalog([script, listed_tool("t")]), "b": WHOLE}
    events.lists_changed.subscribe(lambda tenant, kinds: told.append((tenant, kinds)))
    catalogs.show_scripts(False)
    assert told == []
    assert [one.name for one in catalogs.visible(catalogs.of(HOST)).tools] == ["t"]
    assert catalogs.visible(catalogs.of(HOST)).denied == {script.id}
    assert catalogs.visible(WHOLE) is WHOLE
    catalogs.show_scripts(True)
    assert told == [(HOST, frozenset({"tools"}))]
    assert [one.name for one in catalogs.visible(catalogs.of(HOST)).tools] == ["s", "t"]


class Stored:
    """A registry that has one source for each tenant."""

    async def tools(self, _tenant: str) -> list[Any]:
        return []

    items = tools

    async def sources(self, tenant: str) -> list[Source]:
        return [Source(f"of {tenant}", "crm", "openapi", "file", None, base_url_trusted=True)]

    async def skills(self, _tenant: str) -> SkillSnapshot:
        return SkillSnapshot()


@pytest.mark.anyio
async def test_sources_of_tenants_are_distinguished_from_gateway_sources() -> None:
    catalogs, store = Catalogs(own=HOST), cast("Any", Stored())
    for tenant in (HOST, "b"):
        await catalogs.reload(store, tenant)
    own, foreign = (catalogs.of(tenant).sources["crm"] for tenant in (HOST, "b"))
    assert (own.foreign, own.place) == ("", "crm")
    assert (foreign.foreign, foreign.place) == ("b", "b/crm")


def test_its_lists_are_its_own() -> None:
    part = WHOLE.toolset("listed", Toolset(include=("set_*",)))
    assert b"get_a" not in bytes(part.lists.page(V2026_07_28, None, 9).entries)
    assert b"get_a" in bytes(WHOLE.lists.page(V2026_07_28, None, 9).entries)


@pytest.mark.parametrize(
    ("other", "changed"),
    [
        (Catalog(), set()),
        (Catalog([listed_tool("t")]), {"tools"}),
        (Catalog(items=[item("prompt", "p")]), {"prompts"}),
        (Catalog(items=[item("resource", "x:y")]), {"resources"}),
        (Catalog(items=[item("template", "x:{y}")]), {"resources"}),
        (Catalog([listed_tool("t")], items=[item("prompt", "p")]), {"tools", "prompts"}),
    ],
)
def test_changed_lists_are_distinguished(other: Catalog, changed: set[str]) -> None:
    assert other.changed_lists(Catalog()) == Catalog().changed_lists(other) == changed


def test_another_definition_is_a_change_and_another_source_is_none() -> None:
    before = Catalog([listed_tool("t")], items=[item("prompt", "p")])
    of_another = Catalog([listed_tool("t", "b")], items=[item("prompt", "p", "b")])
    assert before.changed_lists(of_another) == set()
    updated = Catalog([listed_tool("t", digest="2")], items=[item("prompt", "p")])
    assert before.changed_lists(updated) == {"tools"}
    titled = Catalog([listed_tool("t")], items=[item("prompt", "p", title="P")])
    assert before.changed_lists(titled) == {"prompts"}


def test_whether_tools_can_be_tasks_is_part_of_their_list() -> None:
    tools = [listed_tool("t", definition={"execution": {"taskSupport": "optional"}})]
    tasks: dict[str, object] = {"requests": {"tools": {"call": {}}}}
    without, having = Catalog(tools, [source()]), Catalog(tools, [source(tasks=tasks)])
    assert without.changed_lists(having) == {"tools"}


def test_a_description_adds_its_tools_to_toolsets_unless_excluded() -> None:
    marked = replace(listed_tool("get_b", "b"), toolsets=("one", "nowhere"))
    whole = Catalog([marked, listed_tool("get_a", "a")], [source("a"), source("b")])
    only_a = Toolset(sources=("a",))
    assert [tool.name for tool in whole.toolset("one", only_a).tools] == ["get_a", "get_b"]
    assert set(whole.toolset("one", only_a).sources) == {"a", "b"}
    assert [tool.name for tool in whole.toolset("two", only_a).tools] == ["get_a"]
    again = Catalog(whole.tools, whole.sources.values())
    assert again.toolset("one", Toolset(exclude=("get_b",))).get("get_b") is None
    assert unknown([marked.toolsets], {"one": only_a}) == {"nowhere": 1}
