"""The catalog of hybrid actions: found by their ids, listed with them."""

import logging
from dataclasses import replace

import pytest
from msgspec import Raw
from msgspec.json import decode

from registry.catalog.catalog import VIEWS_LIMIT, Catalog
from schemas.binding import Binding, HybridBinding, OpenAPIBinding, PythonBinding
from schemas.mcp.revisions import HANDSHAKE, STATELESS, Revision
from schemas.tool import Annotations, Tool


def tool(name: str, binding: Binding, source: str = "any") -> Tool:
    return Tool(
        id=name,
        name=name,
        title=None,
        description="",
        input_schema=Raw(b'{"type":"object"}'),
        output_schema=None,
        annotations=Annotations(),
        binding=binding,
        source=source,
        digest=name,
    )


def hybrid(name: str, id_: str) -> Tool:
    return tool(name, HybridBinding(id_))


def python(name: str, id_: str) -> Tool:
    return tool(name, PythonBinding(id_))


REST = tool("rest", OpenAPIBinding("GET", "/"))


def test_services_are_found_by_their_ids_and_are_in_their_order() -> None:
    catalog = Catalog([hybrid("a", "h/z/a/1"), REST, python("b", "h/a/b/1")])
    assert [one.name for one in catalog.services] == ["b", "a"]
    found = catalog.service("h/z/a/1")
    assert found is not None
    assert found.name == "a"
    assert catalog.service("rest") is None
    assert catalog.service("h/z/a/") is None


@pytest.mark.parametrize(
    ("tools", "served"),
    [
        ([hybrid("a", "x"), hybrid("b", "x")], "a"),
        ([hybrid("a", "x"), python("b", "x")], "b"),
        ([python("a", "x"), hybrid("b", "x")], "a"),
        ([python("a", "x"), python("b", "x")], "a"),
        ([hybrid("a", "x"), python("b", "x"), python("c", "x"), hybrid("d", "x")], "b"),
    ],
)
def test_of_services_with_one_id_the_first_is_served_with_a_warning(
    tools: list[Tool], served: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolgate.catalog"):
        catalogs = [Catalog(order) for order in (tools, tools[::-1])]
    for catalog in catalogs:
        assert [one.name for one in catalog.services] == [served]
        assert len(catalog.tools) == len(tools)
    assert [record.message for record in caplog.records] == ["service_duplicate"] * 2
    assert vars(caplog.records[0])["services"] == [
        "x served by any, not by " + ", ".join(["any"] * (len(tools) - 1))
    ]


def test_the_warning_names_the_serving_and_other_sources(caplog: pytest.LogCaptureFixture) -> None:
    claims = {"a": HybridBinding("x"), "b": PythonBinding("x"), "c": HybridBinding("x")}
    Catalog([tool(name, binding, f"source-{name}") for name, binding in claims.items()])
    (record,) = caplog.records
    assert vars(record)["services"] == ["x served by source-b, not by source-a, source-c"]


def test_nobody_is_told_about_services_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    Catalog([hybrid("a", "x"), hybrid("b", "y"), REST])
    assert caplog.records == []


@pytest.mark.parametrize("revision", [*HANDSHAKE.values(), *STATELESS.values()])
def test_a_list_gives_the_id_of_a_service_where_tools_have_titles(revision: Revision) -> None:
    listed = decode(Catalog([hybrid("a", "h/s/a/1"), REST]).lists.page(revision, None, 9).entries)
    meta = {"toolgate/service": "h/s/a/1"} if revision.titles else None
    assert [one.get("_meta") for one in listed] == [meta, None]


def test_a_service_with_another_id_is_another_list() -> None:
    first, second = Catalog([hybrid("a", "h/s/a/1")]), Catalog([hybrid("a", "h/s/a/2")])
    assert first.changed_lists(second) == {"tools"}
    assert not first.changed_lists(Catalog([python("a", "h/s/a/1")]))


def test_one_view_too_many_takes_the_oldest_alone() -> None:
    names = [str(number) for number in range(VIEWS_LIMIT + 1)]
    catalog = Catalog(
        tool(f"tool_{one}", HybridBinding(f"h/{one}/a/1", scope=one)) for one in names
    )
    views = [catalog.visible_to(frozenset({one})) for one in names]
    assert catalog.visible_to(frozenset({names[1]})) is views[1]
    assert catalog.visible_to(frozenset({names[0]})) is not views[0]


@pytest.mark.parametrize("id_", ["call_tool", "Search-Tools", "rest"])
def test_no_id_of_an_action_is_the_name_of_another_tool(id_: str) -> None:
    """`/rpc` takes ids and names as methods: by such an id an action would get their arguments."""
    catalog = Catalog([hybrid(f"evil_{id_}", id_), hybrid("sum", "sum"), REST])
    assert catalog.service(id_) is None
    assert catalog.service("sum") is catalog.get("sum")
    assert catalog.get(f"evil_{id_}") is not None


def test_an_invisible_tool_leaves_its_name_to_no_action() -> None:
    """Else arguments that are meant for it would go to somebody else's action."""
    scoped = replace(hybrid("secret", "sum"), binding=HybridBinding("sum", scope="admin"))
    catalog = Catalog([REST, scoped, hybrid("zz_sum", "sum"), hybrid("evil", "rest")])
    assert catalog.service("sum") is catalog.get("secret")
    denied = {REST.id, scoped.id}
    for view in (catalog.without(denied, (), frozenset(denied)), catalog.visible_to(frozenset())):
        assert view.get("secret") is None
        assert (view.service("rest"), view.service("sum"), *view.services) == (None, None)


def test_an_identifier_means_the_same_tool_in_every_view() -> None:
    exact, other = (tool(name, OpenAPIBinding("GET", "/")) for name in ("a_b", "a-b"))
    catalog = Catalog([exact, other, REST])
    assert catalog.identifier(exact) == "a_b"
    identifier = catalog.identifier(other)
    assert identifier is not None
    assert identifier.startswith("a_b_")
    assert catalog.identifier(replace(other, name="shown_as")) == identifier
    assert catalog.by_identifier[identifier] is other
    view = catalog.without({"a_b"}, (), frozenset({"a_b"}))
    assert view.identifier(other) == identifier
    assert "a_b" not in view.by_identifier
    assert view.identifier(exact) is None
    assert catalog.identifier(catalog.own["search_tools"]) is None


def test_the_search_names_only_visible_sources() -> None:
    scoped = replace(hybrid("a", "a"), binding=HybridBinding("a", scope="admin"), source="hidden")
    catalog = Catalog([REST, scoped])
    assert "hidden" in catalog.own["search_tools"].description
    assert "hidden" not in catalog.visible_to(frozenset()).own["search_tools"].description
