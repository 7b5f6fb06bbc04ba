"""How pages are recognised."""

from typing import Any

import pytest

from schemas.binding import Pagination
from tests.registry.importers.describe import components, describe, only, query

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
ITEMS = {"type": "array", "items": {"type": "object"}}


def paging(
    parameters: dict[str, Any],
    properties: dict[str, Any] | None,
    headers: dict[str, Any] | None = None,
    **rest: Any,
) -> Pagination | None:
    schema = ITEMS if properties is None else {"type": "object", "properties": properties}
    answer = {"description": "", "content": {"application/json": {"schema": schema}}}
    operation = {
        "parameters": [query(name, one) for name, one in parameters.items()],
        "responses": {"200": {**answer, **({"headers": headers} if headers else {})}},
    }
    binding = only(describe(operation, "GET /things", **rest)).draft.binding
    return binding.pagination  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parameters", "properties", "found"),
    [
        (
            {"cursor": TEXT},
            {"next_cursor": TEXT},
            Pagination("cursor", "cursor", ("next_cursor",)),
        ),
        (
            {"pageToken": TEXT},
            {"nextPageToken": TEXT, "items": ITEMS},
            Pagination("cursor", "pageToken", ("nextPageToken",)),
        ),
        (  # Kubernetes
            {"continue": TEXT, "limit": NUMBER},
            {"items": ITEMS, "metadata": {"type": "object", "properties": {"continue": TEXT}}},
            Pagination("cursor", "continue", ("metadata", "continue")),
        ),
        (  # Slack
            {"cursor": TEXT},
            {"response_metadata": {"type": "object", "properties": {"next_cursor": TEXT}}},
            Pagination("cursor", "cursor", ("response_metadata", "next_cursor")),
        ),
        (  # HubSpot
            {"after": TEXT},
            {
                "paging": {
                    "type": "object",
                    "properties": {"next": {"type": "object", "properties": {"after": TEXT}}},
                }
            },
            Pagination("cursor", "after", ("paging", "next", "after")),
        ),
        (  # Stripe
            {"starting_after": TEXT, "limit": NUMBER},
            {"data": ITEMS, "has_more": FLAG},
            Pagination("last", "starting_after", ("data",), more=("has_more",)),
        ),
        (
            {"page": NUMBER},
            {"next_page": NUMBER, "has_more": FLAG},
            Pagination("cursor", "page", ("next_page",), more=("has_more",), integers=("page",)),
        ),
        (  # Spotify
            {"offset": NUMBER, "limit": NUMBER},
            {"next": TEXT, "total": NUMBER, "items": ITEMS},
            Pagination("link", "offset", ("next",), integers=("offset",)),
        ),
        (  # HAL
            {"page": NUMBER},
            {
                "_links": {
                    "type": "object",
                    "properties": {"next": {"type": "object", "properties": {"href": TEXT}}},
                }
            },
            Pagination("link", "page", ("_links", "next", "href"), integers=("page",)),
        ),
        (  # TMDB
            {"page": {"type": "integer", "default": 1}},
            {"results": ITEMS, "total_pages": NUMBER},
            Pagination("page", "page", total=("total_pages",), integers=("page",)),
        ),
        (  # Spring
            {"page": {"type": "integer", "minimum": 0}},
            {"content": ITEMS, "totalPages": NUMBER},
            Pagination("page", "page", total=("totalPages",), first=0, integers=("page",)),
        ),
        (
            {"offset": NUMBER, "limit": NUMBER},
            {"items": ITEMS, "total": NUMBER},
            Pagination(
                "offset",
                "offset",
                ("items",),
                limit="limit",
                total=("total",),
                first=0,
                integers=("offset",),
            ),
        ),
        (
            {"page": NUMBER, "per_page": NUMBER},
            None,
            Pagination("link", "page", integers=("page",)),
        ),
    ],
)
def test_common_pagination_is_recognised(
    parameters: dict[str, Any], properties: dict[str, Any] | None, found: Pagination
) -> None:
    assert paging(parameters, properties) == found


def test_a_described_link_header_is_recognised() -> None:
    assert paging({"since": NUMBER}, None) is None
    found = paging({"since": NUMBER}, None, {"Link": {"schema": TEXT}})
    assert found == Pagination("link", "since", integers=("since",))


@pytest.mark.parametrize(
    ("parameters", "properties"),
    [
        ({}, {"next_cursor": TEXT}),
        ({"cursor": TEXT}, {"items": ITEMS}),
        ({"limit": NUMBER}, {"next_page_token": TEXT}),
        ({"continue": TEXT}, {"continue": TEXT}),  # not below `metadata`
        ({"starting_after": TEXT}, {"data": ITEMS}),
        ({"page": NUMBER}, {"total_pages": NUMBER}),  # counted from 0, or from 1?
        ({"offset": NUMBER, "limit": NUMBER}, {"items": ITEMS}),  # who knows how many there are
        ({"offset": NUMBER}, {"items": ITEMS, "total": NUMBER}),
        ({"offset": NUMBER, "limit": NUMBER}, {"a": ITEMS, "b": ITEMS, "total": NUMBER}),
        ({"page": NUMBER}, None),
        ({"q": TEXT}, {"next": {"type": "object", "properties": {"id": NUMBER}}}),
    ],
)
def test_ambiguous_pagination_is_not_recognised(
    parameters: dict[str, Any], properties: dict[str, Any] | None
) -> None:
    assert paging(parameters, properties) is None


def test_the_answer_may_refer_and_include() -> None:
    schemas = components(
        Base={"type": "object", "properties": {"next_cursor": TEXT}},
        Page={"allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"x": TEXT}}]},
        Loop={"allOf": [{"$ref": "#/components/schemas/Loop"}]},
    )
    for name, path in (("Page", ("next_cursor",)), ("Loop", None)):
        answer = {"schema": {"$ref": f"#/components/schemas/{name}"}}
        operation = {
            "parameters": [query("cursor")],
            "responses": {"200": {"description": "", "content": {"application/json": answer}}},
        }
        binding = only(describe(operation, "GET /x", components=schemas)).draft.binding
        found = binding.pagination  # type: ignore[union-attr]
        assert (found and found.path) == path


def test_a_cursor_may_travel_in_the_body() -> None:
    body = {"type": "object", "properties": {"start_cursor": TEXT, "filter": TEXT}}
    answer = {"schema": {"type": "object", "properties": {"next_cursor": TEXT, "has_more": FLAG}}}
    operation = {
        "requestBody": {"content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "", "content": {"application/json": answer}}},
    }
    binding = only(describe(operation, "POST /search")).draft.binding
    expected = Pagination("cursor", "start_cursor", ("next_cursor",), more=("has_more",))
    assert binding.pagination == expected  # type: ignore[union-attr]
