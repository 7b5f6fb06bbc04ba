"""Lists of other servers' things, as each revision shows them."""

from typing import Any

import pytest
from msgspec.json import decode

from registry.catalog.catalog import Catalog
from schemas.mcp.revisions import HANDSHAKE, V2024_11_05, V2026_07_28, Revision
from schemas.tool import Annotations
from tests.registry.servers import item, listed_tool, source
from tests.revisions import REVISIONS, by_revision

TASKS = {"tasks": {"requests": {"tools": {"call": {}}}}}
FULL = listed_tool(
    "t",
    annotations=Annotations(title="T"),
    output_schema={"type": "array"},
    definition={
        "icons": [{"src": "x"}],
        "execution": {"taskSupport": "optional"},
        "_meta": {"a": 1},
        "later": {"b": 2},
        "annotations": {"title": "T", "laterHint": True},
    },
)


def show_listing(revision: Revision, **capabilities: Any) -> dict[str, Any]:
    catalog = Catalog([FULL], [source("up", **capabilities)])
    [listed] = decode(catalog.lists.page(revision, None, 9).entries)
    return dict(listed)


@by_revision
def test_a_tool_has_the_members_that_a_revision_knows(revision: Revision) -> None:
    tool = show_listing(revision, **TASKS)
    assert ("icons" in tool) == (revision.name >= "2025-11-25")
    assert ("execution" in tool) == (revision.name == "2025-11-25")
    assert ("annotations" in tool) == (revision.name >= "2025-03-26")
    assert ("_meta" in tool) == ("outputSchema" in tool) == (revision.name >= "2025-06-18")
    assert tool["later"] == {"b": 2}
    assert tool.get("annotations", {}).get("laterHint", True)


def test_tasks_are_not_promised_for_a_server_that_has_none() -> None:
    assert "execution" not in show_listing(HANDSHAKE["2025-11-25"])
    assert "execution" not in show_listing(HANDSHAKE["2025-11-25"], tasks={"list": {}})


@pytest.mark.parametrize("revision", [r for r in REVISIONS if r.titles], ids=lambda r: r.name)
def test_an_output_schema_matches_the_structured_content_of_its_revision(
    revision: Revision,
) -> None:
    schema = show_listing(revision)["outputSchema"]
    assert schema["type"] == ("array" if revision.any_structure else "object")


@by_revision
@pytest.mark.parametrize(
    ("kind", "member"), [("prompt", "name"), ("resource", "uri"), ("template", "uriTemplate")]
)
def test_an_item_has_its_own_name_and_the_members_that_a_revision_knows(
    revision: Revision, kind: Any, member: str
) -> None:
    one = item(kind, "x:y", "up", "known", title="T", icons=[], _meta={}, later=[1.5, None])
    [listed] = decode(
        Catalog(items=[one]).lists.item_page(kind, revision, after=None, limit=9).entries
    )
    assert listed[member] == "known"
    assert ("title" in listed) == (revision.name >= "2025-06-18")
    assert ("icons" in listed) == (revision.name >= "2025-11-25")
    assert listed["later"] == [1.5, None]


def test_items_are_listed_page_by_page_in_the_order_of_their_names() -> None:
    catalog = Catalog(items=[item("prompt", name) for name in "dbca"])
    first = catalog.lists.item_page("prompt", V2026_07_28, after=None, limit=3)
    assert [one["name"] for one in decode(first.entries)] == ["a", "b", "c"]
    assert first.last == "c"
    rest = catalog.lists.item_page("prompt", V2026_07_28, after=first.last, limit=3)
    assert (bytes(rest.entries), rest.last) == (b'[{"name":"d"}]', None)
    assert catalog.lists.item_page("prompt", V2026_07_28, after="c", limit=3) is rest
    assert (
        bytes(catalog.lists.item_page("resource", V2026_07_28, after=None, limit=3).entries)
        == b"[]"
    )


def test_a_page_after_a_name_that_nothing_has_is_not_kept() -> None:
    catalog = Catalog(items=[item("prompt", name) for name in "ac"])
    page = catalog.lists.item_page("prompt", V2024_11_05, after="b", limit=3)
    assert bytes(page.entries) == b'[{"name":"c"}]'
    assert catalog.lists.item_page("prompt", V2024_11_05, after="b", limit=3) is not page
