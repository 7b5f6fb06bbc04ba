"""Whose a URI is, and what clients call it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from msgspec import Raw

from registry.catalog.resources import LETTERS, LOOKUPS, TEMPLATES_COMPARED, CatalogResources
from registry.names.tool_names import Naming
from registry.names.uris import URI_LIMIT, Template, UriBits, wrap_uri
from schemas.mcp.snapshot import SnapshotItem
from tests.registry.servers import RESOURCES, item, source


def routes(*items: SnapshotItem, sources: Sequence[str] = ("a", "b")) -> CatalogResources:
    return CatalogResources(items, {name: source(name, **RESOURCES) for name in sources})


def locate_uri(resources: CatalogResources, uri: str) -> tuple[str, str] | None:
    located = resources.locate(uri)
    return (located.source.name, located.uri) if located else None


SAME = (
    item("resource", "file:///x", "a"),
    item("resource", "file:///x", "b", "toolgate://b/file:///x"),
)


def test_a_resource_is_found_by_the_name_that_clients_know() -> None:
    resources = routes(*SAME)
    assert locate_uri(resources, "file:///x") == ("a", "file:///x")
    assert locate_uri(resources, "toolgate://b/file:///x") == ("b", "file:///x")
    assert locate_uri(resources, "toolgate://a/file:///x") == ("a", "file:///x")


def test_an_unlisted_resource_is_found_only_by_its_wrapped_name() -> None:
    resources = routes(*SAME)
    assert locate_uri(resources, "toolgate://b/file:///unlisted") == ("b", "file:///unlisted")
    assert locate_uri(resources, "file:///unlisted") is None


def test_a_wrapped_name_leads_only_to_its_server() -> None:
    resources = routes(item("template", "{+any}", "a"))
    assert locate_uri(resources, "toolgate://b/x:y") == ("b", "x:y")
    assert locate_uri(resources, "toolgate://nobody/x:y") is None
    assert locate_uri(resources, "toolgate://b/") is None
    assert locate_uri(routes(sources=["a"]), "toolgate://nobody/x:y") is None


PAGE = "ui://board/main.html"


def test_pages_of_apps_keep_their_scheme_when_wrapped() -> None:
    """Hosts accept no other scheme than `ui` for the pages of MCP Apps (mending 13)."""
    name = wrap_uri("b", PAGE)
    assert name == "ui://toolgate/b/board/main.html"
    resources = routes(item("resource", PAGE, "a"), item("resource", PAGE, "b", name))
    assert locate_uri(resources, PAGE) == ("a", PAGE)
    assert locate_uri(resources, name) == ("b", PAGE)
    assert locate_uri(resources, "ui://toolgate/a/board/main.html") == ("a", PAGE)
    assert locate_uri(resources, f"toolgate://b/{PAGE}") == ("b", PAGE)  # as it was once wrapped
    assert locate_uri(resources, "ui://toolgate/nobody/board/main.html") is None
    assert locate_uri(resources, "ui://toolgate/b/") is None


def test_no_server_has_a_page_that_looks_like_that_of_another() -> None:
    assert list(Naming("a").uris("ui://toolgate/b/x")) == ["ui://toolgate/a/toolgate/b/x"]


def test_texts_naming_a_resource_of_their_server_are_exposed() -> None:
    resources = routes(
        item("resource", PAGE, "a"),
        item("resource", PAGE, "b", "ui://toolgate/b/board/main.html"),
        item("resource", "urn:x", "b", "toolgate://b/urn:x"),
        item("template", "x:/{p}", "b", "toolgate://b/x:/{p}"),
    )
    assert resources.refer("a", PAGE) == PAGE
    assert resources.refer("b", PAGE) == "ui://toolgate/b/board/main.html"
    assert resources.refer("b", "ui://not/listed") == "ui://toolgate/b/not/listed"
    assert resources.refer("b", "urn:x") == "toolgate://b/urn:x"
    assert resources.refer("b", "x:/{p}") == "toolgate://b/x:/{p}"
    for text in ("urn:y", "x:/1", "https://b.example", "urn:x and more"):
        assert resources.refer("b", text) == text
    assert resources.refer("a", "urn:x") == "urn:x"


def test_the_only_server_with_resources_has_all_uris() -> None:
    resources = CatalogResources([], {"a": source("a", **RESOURCES), "b": source("b", tools={})})
    assert locate_uri(resources, "x:y") == ("a", "x:y")
    assert locate_uri(routes(sources=["a"]), "x:y") == ("a", "x:y")
    assert locate_uri(routes(sources=[]), "x:y") is None


def test_a_resource_goes_before_templates() -> None:
    resources = routes(item("resource", "x:/a/b", "b"), item("template", "x:/{+p}", "a"))
    assert locate_uri(resources, "x:/a/b") == ("b", "x:/a/b")
    assert locate_uri(resources, "x:/a/c") == ("a", "x:/a/c")


@pytest.mark.parametrize("later", ["db://users{+x}", "db://{+any}", "db://{table}", "db://users"])
def test_a_later_template_takes_no_addresses_of_an_earlier_template(later: str) -> None:
    good = replace(item("template", "db://{table}", "b"), since=1.0)
    evil = replace(item("template", later + "{?q}", "a"), since=2.0)
    for items in ((good, evil), (evil, good)):
        assert locate_uri(routes(*items), "db://users") == ("b", "db://users")
    assert locate_uri(routes(good, replace(evil, since=0.5)), "db://users") == ("a", "db://users")


def test_of_servers_that_had_their_templates_at_once_the_first_by_name_has_the_uri() -> None:
    one, other = item("template", "x:/{p}", "b"), item("template", "x:{+p}", "a")
    assert locate_uri(routes(one, other), "x:/") == ("a", "x:/")
    assert locate_uri(routes(other, one), "x:/") == ("a", "x:/")


def test_within_one_server_the_longest_template_gives_the_uri() -> None:
    resources = routes(
        SnapshotItem("template", "x:/{+p}", "x:/{+p}", Raw(b"{}"), "a", "handshake"),
        SnapshotItem("template", "x:/a/{p}", "x:/a/{p}", Raw(b"{}"), "a", "stateless", since=9.0),
    )
    for uri, eras in (("x:/a/b", "stateless"), ("x:/a/b/c", "handshake"), ("x:/", "handshake")):
        located = resources.locate(uri)
        assert located is not None
        assert located.eras == eras


def test_thousands_of_templates_do_not_hide_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    may_match = Template.may_match

    def count_match(template: Template, uri: str) -> bool:  # each of them takes time
        compared.append(template)
        return may_match(template, uri)

    monkeypatch.setattr(Template, "may_match", count_match)
    many = [item("template", f"x:{{a}}/{n}/{'{+b}' * 15}z", "a") for n in range(5000)]
    other = [item("template", f"y{n}:{{a}}", "b") for n in range(5000)]
    resources = routes(*many, *other, item("template", "x:/{+p}", "b"))
    assert locate_uri(resources, "x:/1") == ("b", "x:/1")
    assert len(compared) == TEMPLATES_COMPARED + 1


def test_a_template_that_is_known_by_a_wrapped_name_takes_no_plain_uris() -> None:
    resources = routes(item("template", "x:{p}", "b", "toolgate://b/x:{p}"))
    assert locate_uri(resources, "x:1") is None
    assert locate_uri(resources, "toolgate://b/x:1") == ("b", "x:1")


def test_the_eras_of_a_uri_come_from_its_definition() -> None:
    old = item("template", "x:{p}", "a")
    resources = routes(
        SnapshotItem("template", "y:{p}", "y:{p}", old.definition, "a", "stateless"), old
    )
    for uri, eras in (("y:1", "stateless"), ("toolgate://a/y:1", "stateless"), ("x:1", "both")):
        located = resources.locate(uri)
        assert located is not None
        assert located.eras == eras


def test_a_uri_longer_than_any_should_be_is_of_no_template() -> None:
    resources = routes(item("template", "x:{p}", "a"))
    assert locate_uri(resources, "x:" + "a" * (URI_LIMIT - 2)) is not None
    assert locate_uri(resources, "x:" + "a" * (URI_LIMIT - 1)) is None


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
def test_exposed_addresses_lead_back_to_their_resource(of: str, uri: str, known_as: str) -> None:
    resources = routes(*SAME)
    assert resources.expose(of, uri) == known_as
    assert resources.expose(of, known_as) == known_as
    located = resources.locate(known_as)
    assert located is not None
    assert located.source.name == of


def test_an_item_of_a_source_that_is_gone_is_nowhere() -> None:
    assert locate_uri(routes(item("resource", "x:y", "gone")), "x:y") is None


def test_a_template_of_a_later_release_is_passed_over() -> None:
    assert locate_uri(routes(item("template", "x:{!new}", "a")), "x:y") is None


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The literal characters of each template that a URI was matched against bit by bit."""
    sizes = []
    matches = Template.matches

    def count_letters(template: Template, bits: UriBits) -> bool:
        sizes.append(template.size)
        return matches(template, bits)

    monkeypatch.setattr(Template, "matches", count_letters)
    return sizes


def costly(of: str) -> CatalogResources:
    """Resources of two servers, one with templates as long as they may be."""
    many = [item("template", "ui://{+v}" + "a" * 1900 + "{+w}" + "a" * n, of) for n in range(250)]
    return routes(*many, item("resource", "file:///x", "b"))


LONG = "ui://" + "a" * (URI_LIMIT - 5)


def test_long_templates_cost_at_most_as_much_as_short_templates(letters: list[int]) -> None:
    """A URI of 2 KB that fits 250 templates of 2 KB took 0.4 s of the event loop."""
    resources = costly("a")
    assert locate_uri(resources, LONG) is not None
    assert sum(letters) <= LETTERS


def test_metadata_of_a_server_is_referred_to_without_a_look_at_templates(
    letters: list[int],
) -> None:
    resources = costly("a")
    assert resources.refer("a", LONG) == wrap_uri("a", LONG)
    assert locate_uri(resources, wrap_uri("a", LONG)) == ("a", LONG)
    assert routes(item("template", "ui://{v}", "a"), sources=["a"]).refer("a", PAGE) == PAGE
    assert len(letters) <= LETTERS / 1900  # of `found` alone


def test_links_of_one_result_are_looked_up_a_limited_number_of_times(letters: list[int]) -> None:
    resources = routes(item("template", "x:{p}", "a"), item("resource", "file:///x", "b"))
    lookups = count()
    names = [resources.expose("a", f"x:{number}", lookups) for number in range(LOOKUPS + 50)]
    assert len(letters) == LOOKUPS
    assert names[LOOKUPS - 1] == f"x:{LOOKUPS - 1}"
    assert names[LOOKUPS] == wrap_uri("a", f"x:{LOOKUPS}")
    assert locate_uri(resources, names[-1]) == ("a", f"x:{LOOKUPS + 49}")
