"""Whose a URI is, and what clients call it."""

from collections.abc import Sequence

import pytest

from registry.resources import Resources
from registry.uris import MATCHED
from schemas.mcp.snapshot import Item
from tests.registry.servers import RESOURCES, item, source


def routes(*items: Item, sources: Sequence[str] = ("a", "b")) -> Resources:
    return Resources(items, {name: source(name, **RESOURCES) for name in sources})


def found(resources: Resources, uri: str) -> tuple[str, str] | None:
    located = resources.locate(uri)
    return (located.source.name, located.uri) if located else None


SAME = (
    item("resource", "file:///x", "a"),
    item("resource", "file:///x", "b", "toolgate://b/file:///x"),
)


def test_a_resource_is_found_by_the_name_that_clients_know() -> None:
    resources = routes(*SAME)
    assert found(resources, "file:///x") == ("a", "file:///x")
    assert found(resources, "toolgate://b/file:///x") == ("b", "file:///x")
    assert found(resources, "toolgate://a/file:///x") == ("a", "file:///x")


def test_one_that_is_not_listed_is_found_by_its_wrapped_name_alone() -> None:
    resources = routes(*SAME)
    assert found(resources, "toolgate://b/file:///unlisted") == ("b", "file:///unlisted")
    assert found(resources, "file:///unlisted") is None


def test_a_wrapped_name_never_leads_to_another_server_than_it_says() -> None:
    resources = routes(item("template", "{+any}", "a"))
    assert found(resources, "toolgate://b/x:y") == ("b", "x:y")
    assert found(resources, "toolgate://nobody/x:y") is None
    assert found(resources, "toolgate://b/") is None
    assert found(routes(sources=["a"]), "toolgate://nobody/x:y") is None


def test_the_only_server_with_resources_has_all_uris() -> None:
    resources = Resources([], {"a": source("a", **RESOURCES), "b": source("b", tools={})})
    assert found(resources, "x:y") == ("a", "x:y")
    assert found(routes(sources=["a"]), "x:y") == ("a", "x:y")
    assert found(routes(sources=[]), "x:y") is None


def test_a_resource_goes_before_templates_and_the_longest_template_before_others() -> None:
    resources = routes(
        item("resource", "x:/a/b", "b"),
        item("template", "x:/{+p}", "a"),
        item("template", "x:/a/{p}", "b"),
        item("template", "x:/{p}/b", "a"),
    )
    assert found(resources, "x:/a/b") == ("b", "x:/a/b")
    assert found(resources, "x:/a/c") == ("b", "x:/a/c")
    assert found(resources, "x:/c/b") == ("a", "x:/c/b")
    assert found(resources, "x:/c/d") == ("a", "x:/c/d")


def test_of_equally_long_templates_the_source_that_comes_first_has_the_uri() -> None:
    one, other = item("template", "x:/{p}", "b"), item("template", "x:{+p}/", "a")
    assert found(routes(one, other), "x:/") == ("a", "x:/")
    assert found(routes(other, one), "x:/") == ("a", "x:/")


def test_a_template_that_is_known_by_a_wrapped_name_takes_no_plain_uris() -> None:
    resources = routes(item("template", "x:{p}", "b", "toolgate://b/x:{p}"))
    assert found(resources, "x:1") is None
    assert found(resources, "toolgate://b/x:1") == ("b", "x:1")


def test_the_eras_of_what_gives_a_uri_are_told() -> None:
    old = item("template", "x:{p}", "a")
    resources = routes(Item("template", "y:{p}", "y:{p}", old.definition, "a", "stateless"), old)
    for uri, eras in (("y:1", "stateless"), ("toolgate://a/y:1", "stateless"), ("x:1", "both")):
        located = resources.locate(uri)
        assert located is not None
        assert located.eras == eras


def test_a_uri_longer_than_any_should_be_is_of_no_template() -> None:
    resources = routes(item("template", "x:{p}", "a"))
    assert found(resources, "x:" + "a" * (MATCHED - 2)) is not None
    assert found(resources, "x:" + "a" * (MATCHED - 1)) is None


@pytest.mark.parametrize(
    ("of", "uri", "known_as"),
    [
        ("a", "file:///x", "file:///x"),
        ("b", "file:///x", "toolgate://b/file:///x"),
        ("b", "toolgate://b/file:///x", "toolgate://b/file:///x"),
        ("b", "other:y", "toolgate://b/other:y"),
        ("b", "toolgate://a/file:///x", "toolgate://b/toolgate://a/file:///x"),
        ("b", "toolgate://far/x:y", "toolgate://b/toolgate://far/x:y"),
    ],
)
def test_what_clients_are_told_leads_them_back(of: str, uri: str, known_as: str) -> None:
    resources = routes(*SAME)
    assert resources.expose(of, uri) == known_as
    assert resources.expose(of, known_as) == known_as
    located = resources.locate(known_as)
    assert located is not None
    assert located.source.name == of


def test_an_item_of_a_source_that_is_gone_is_nowhere() -> None:
    assert found(routes(item("resource", "x:y", "gone")), "x:y") is None


def test_a_template_of_a_later_release_is_passed_over() -> None:
    assert found(routes(item("template", "x:{!new}", "a")), "x:y") is None
