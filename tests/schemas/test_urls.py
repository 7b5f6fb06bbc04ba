"""Queries of URLs in texts."""

import pytest

from schemas.errors import ImportRejected
from schemas.urls import without_queries


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a.example/x?key=k1", "https://a.example/x?***"),
        ("https://a.example/x?key=k1:k2,k3;k4 fails", "https://a.example/x?*** fails"),
        ("https://a.example/x?key=k1: it fails", "https://a.example/x?***: it fails"),
        ("(HTTPS://a.example?key=k1), then b", "(HTTPS://a.example?***, then b"),
        (
            '{"url": "https://a.example/x?key=k1", "b": 1}',
            '{"url": "https://a.example/x?***", "b": 1}',
        ),
        ("https://a.example/x and what?", "https://a.example/x and what?"),
    ],
)
def test_queries_of_urls_are_left_out(text: str, shown: str) -> None:
    """A query with punctuation is masked to its end (mending 14)."""
    assert without_queries(text) == shown


def test_a_rejected_import_names_its_location_without_the_query() -> None:
    assert str(ImportRejected("https://a.example/x?key=k1: HTTP 404")) == (
        "https://a.example/x?***: HTTP 404"
    )
