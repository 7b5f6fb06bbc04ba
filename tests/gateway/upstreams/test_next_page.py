"""The arguments of the next page."""

import json

import pytest
from multidict import CIMultiDict

from gateway.upstreams.rest.next_page import following
from schemas.binding import OpenAPIBinding, Pagination, Parameter


def query(argument, name=None):
    return Parameter(argument, name or argument, "query", "form", True)


def after(pagination, arguments, answer=None, headers=None, parameters=()):
    binding = OpenAPIBinding("GET", "/", tuple(parameters), pagination=pagination)
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return following(binding, arguments, headers or {}, body)


CURSOR = Pagination("cursor", "cursor", ("meta", "next_cursor"))
NUMBER = Pagination("cursor", "page", ("next_page",), integers=("page",))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"meta": {"next_cursor": "abc"}}, {"q": 1, "cursor": "abc"}),
        ({"meta": {"next_cursor": 7}}, {"q": 1, "cursor": "7"}),
        ({"meta": {"next_cursor": ""}}, None),
        ({"meta": {"next_cursor": None}}, None),
        ({"meta": {"next_cursor": False}}, None),
        ({"meta": {"next_cursor": ["x"]}}, None),
        ({"meta": {"next_cursor": "http://inside/x"}}, None),
        ({"meta": {}}, None),
        ({"meta": None}, None),
        ({"meta": 7}, None),
        ([], None),
        (b"{", None),
        (b"", None),
    ],
)
def test_a_cursor_is_handed_on(answer, found):
    assert after(CURSOR, {"q": 1}, answer) == found


def test_an_unchanged_cursor_ends_paging():
    assert after(CURSOR, {"cursor": "a"}, {"meta": {"next_cursor": "a"}}) is None


@pytest.mark.parametrize(
    ("said", "page"), [(3, 3), ("3", 3), ("x", None), ("-1", None), (1.5, None)]
)
def test_numeric_cursors_are_followed(said, page):
    found = after(NUMBER, {}, {"next_page": said})
    assert found == (None if page is None else {"page": page})


def test_a_cursor_is_of_no_use_when_nothing_follows():
    paging = Pagination("cursor", "page", ("next_page",), more=("has_more",))
    assert after(paging, {}, {"next_page": "x", "has_more": False}) is None
    assert after(paging, {}, {"next_page": "x"}) is None
    assert after(paging, {}, {"next_page": "x", "has_more": True}) == {"page": "x"}


LAST = Pagination("last", "starting_after", ("data",), more=("has_more",))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"has_more": True, "data": [{"id": "a"}, {"id": "b"}]}, {"starting_after": "b"}),
        ({"has_more": False, "data": [{"id": "a"}]}, None),
        ({"has_more": "true", "data": [{"id": "a"}]}, None),
        ({"has_more": True, "data": []}, None),
        ({"has_more": True, "data": [7]}, None),
        ({"has_more": True, "data": [{"name": "x"}]}, None),
        ({"has_more": True}, None),
        ({"has_more": True, "data": {}}, None),
    ],
)
def test_the_last_entry_is_where_the_next_page_begins(answer, found):
    assert after(LAST, {}, answer) == found


PAGE = Pagination("page", "page", total=("total_pages",), integers=("page",))


@pytest.mark.parametrize(
    ("arguments", "total", "page"),
    [
        ({}, 3, 2),
        ({"page": 2}, 3, 3),
        ({"page": 3}, 3, None),
        ({"page": 9}, 3, None),
        ({}, 1, None),
        ({}, 0, None),
        ({}, None, None),
        ({}, "3", None),
        ({"page": "2"}, 3, None),
        ({"page": True}, 3, None),
    ],
)
def test_pages_are_counted_up_to_the_last(arguments, total, page):
    found = after(PAGE, arguments, {"total_pages": total})
    assert found == (None if page is None else {"page": page})


@pytest.mark.parametrize(("arguments", "page"), [({}, 1), ({"page": 1}, 2), ({"page": 2}, None)])
def test_pages_may_be_counted_from_zero(arguments, page):
    paging = Pagination("page", "page", total=("total",), first=0)
    assert after(paging, arguments, {"total": 3}) == (None if page is None else {"page": page})


OFFSET = Pagination("offset", "offset", ("items",), total=("total",), limit="limit", first=0)


@pytest.mark.parametrize(
    ("arguments", "count", "total", "offset"),
    [
        ({}, 10, 25, 10),
        ({"offset": 10}, 10, 25, 20),
        ({"offset": 20}, 5, 25, None),
        ({"offset": 20}, 0, 25, None),
        ({}, 25, 25, None),
        ({}, 10, None, None),
    ],
)
def test_an_offset_grows_by_the_received_items(arguments, count, total, offset):
    found = after(OFFSET, arguments, {"items": [0] * count, "total": total})
    assert found == (None if offset is None else {"offset": offset})


def test_a_one_based_offset_ends_with_the_last_item():  # SCIM, RFC 7644, section 3.4.2.4
    paging = Pagination("offset", "startIndex", ("Resources",), total=("totalResults",), first=1)
    page = {"Resources": [0] * 10, "totalResults": 20}
    assert after(paging, {}, page) == {"startIndex": 11}
    assert after(paging, {"startIndex": 11}, page) is None


LINK = Pagination("link", "page", also=("after",), integers=("page",))
FED = [query("page"), query("after"), query("per_page")]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('<https://a/x?page=2&per_page=5>; rel="next"', {"q": 1, "page": 2}),
        ('<https://a/x?page=1>; rel="prev", <https://a/x?page=3>; rel="next"', {"q": 1, "page": 3}),
        ('<https://a/x?a=1,2;3&page=4>;title="a,b;c" ; rel="last next"', {"q": 1, "page": 4}),
        ("<?page=2>;rel=next", {"q": 1, "page": 2}),
        ("<?page=2>; REL=Next", {"q": 1, "page": 2}),
        ("<https://a/x?after=abc%3D>; rel=next", {"q": 1, "after": "abc="}),
        ("<https://a/x?page=2>; rel=last", None),
        ("<https://a/x?other=2>; rel=next", None),
        ("<https://a/x?page=2&page=3>; rel=next", None),
        ("<https://a/x?page=two>; rel=next", None),
        ("<https://a/x?page=2", None),
        ("nonsense", None),
        ("", None),
        ("<" * 5000, None),
    ],
)
def test_a_link_header_sets_the_query_of_the_next_page(header, found):
    arguments = {"q": 1, "page": 1} if found is None else {"q": 1}
    assert after(LINK, arguments, b"[]", {"Link": header}, FED) == found


def test_links_may_stand_in_several_lines():
    lines = [("Link", "<?page=9>; rel=last"), ("link", "<?page=2>; rel=next")]
    assert after(LINK, {}, b"[]", CIMultiDict(lines), FED) == {"page": 2}


def test_a_link_replaces_the_position_before():
    link = {"Link": "<https://a/x?after=z>; rel=next"}
    assert after(LINK, {"page": 4, "per_page": 5}, b"[]", link, FED) == {
        "per_page": 5,
        "after": "z",
    }


def test_a_url_in_the_answer_is_read_for_its_query_alone():
    paging = Pagination("link", "Page", ("next_page_uri",), also=("PageToken",), integers=("Page",))
    fed = [query("Page"), query("PageToken")]
    answer = {"next_page_uri": "http://10.0.0.1/inside?PageSize=2&Page=1&PageToken=PT9&key=secret"}
    assert after(paging, {}, answer, parameters=fed) == {"Page": 1, "PageToken": "PT9"}
    assert after(paging, {}, {"next_page_uri": None}, parameters=fed) is None
    assert after(paging, {}, {"next_page_uri": "http://["}, parameters=fed) is None


def test_an_argument_may_have_another_name_than_the_parameter():
    paging = Pagination("link", "page_number", ("next",))
    fed = [query("page_number", "page[number]")]
    answer = {"next": "/x?page%5Bnumber%5D=2"}
    assert after(paging, {}, answer, parameters=fed) == {"page_number": "2"}


def test_without_pagination_nothing_follows():
    assert after(None, {}, {"next": "/x?page=2"}) is None
