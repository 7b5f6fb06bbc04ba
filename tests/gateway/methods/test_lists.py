"""What all lists have in common, whatever they list."""

import anyio
import pytest

from gateway.protocol import cursors
from registry.catalog.catalog import Catalog
from schemas.errors import InvalidParams, Unreachable
from schemas.mcp.revisions import JSON_RPC, V2025_11_25, V2026_07_28
from tests.gateway.methods.federation import (
    context,
    decode_result,
    item,
    lists,
    request,
    source,
    tool,
)
from tests.revisions import by_revision

KINDS = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "resourceTemplates",
}
by_kind = pytest.mark.parametrize("kind", KINDS)
CATALOG = Catalog(
    tools=[tool(name) for name in "abcde"],
    sources=[source("one"), source("two")],
    items=[item(kind, f"x://{name}") for kind in list(KINDS)[1:] for name in "abcde"],
)


def listed_by(served, around, params, kind):
    asked = request("x/list", params)
    if kind == "tool":
        return anyio.run(served.tools, around, asked)
    return served.page(around, asked, kind)


def page(served, revision, kind, **params):
    return decode_result(listed_by(served, context(revision), params, kind))


@by_revision
@by_kind
def test_every_list_can_be_read_to_its_end(revision, kind):
    served, pages, cursor = lists(CATALOG), [], {}
    while cursor is not None:
        pages.append(page(served, revision, kind, **cursor))
        cursor = {"cursor": pages[-1]["nextCursor"]} if "nextCursor" in pages[-1] else None
    assert [len(one[KINDS[kind]]) for one in pages] == [2, 2, 1]
    listed = [str(sorted(entry.items())) for one in pages for entry in one[KINDS[kind]]]
    assert len(set(listed)) == 5
    assert listed == sorted(listed)


@by_revision
@by_kind
@pytest.mark.parametrize("cursor", ["", "zzz!", "x", "b", 1, [], {}])
def test_a_cursor_that_we_never_gave_is_refused(revision, kind, cursor):
    with pytest.raises(InvalidParams):
        page(lists(CATALOG), revision, kind, cursor=cursor)


@by_kind
def test_no_cursor_may_be_written_as_null(kind):
    assert page(lists(CATALOG), V2025_11_25, kind, cursor=None) == page(
        lists(CATALOG), V2025_11_25, kind
    )


@by_kind
def test_a_cursor_at_a_removed_entry_continues_behind_the_entry(kind):
    gone = cursors.seal("x://bb" if kind != "tool" else "bb", KINDS[kind])
    listed = page(lists(CATALOG), V2025_11_25, kind, cursor=gone)[KINDS[kind]]
    assert len(listed) == 2
    assert "c" in str(listed[0])


@by_revision
@by_kind
def test_only_2026_07_28_is_told_how_long_a_list_holds(revision, kind):
    first = page(lists(CATALOG), revision, kind)
    if revision.result_type:
        assert (first["resultType"], first["ttlMs"]) == ("complete", 1000)
        assert first["cacheScope"] == "private"
        assert first["_meta"]
    else:
        assert set(first) == {KINDS[kind], "nextCursor"}


@by_kind
def test_while_a_server_is_down_its_entries_stay_and_no_list_holds(kind):
    healthy, ill = lists(CATALOG), lists(CATALOG, down=["one"])
    before, during = page(healthy, V2026_07_28, kind), page(ill, V2026_07_28, kind)
    assert during == {**before, "ttlMs": 0}
    assert page(healthy, V2026_07_28, kind)["ttlMs"] == 1000  # of the same catalog, encoded once
    assert page(ill, V2025_11_25, kind) == page(healthy, V2025_11_25, kind)


@by_revision
@by_kind
def test_fail_closed_refuses_incomplete_lists(revision, kind):
    with pytest.raises(Unreachable, match=r"incomplete: one, two cannot be reached$"):
        page(lists(CATALOG, down=["two", "one"], fail_closed=True), revision, kind)
    assert page(lists(CATALOG, fail_closed=True), revision, kind)[KINDS[kind]]


def test_a_list_is_serialized_once_for_all_callers():
    served = lists(CATALOG)
    first, second = (listed_by(served, context(V2026_07_28), {}, "tool") for _ in range(2))
    assert first is second
    assert listed_by(served, context(JSON_RPC), {}, "tool") is not first
