"""What is found in memory, by plain words."""

import pytest

from registry.catalog.lookup import by_words

TOOLS = {
    "deletePet": "Removes a pet from the shop.",
    "createOrder": "Orders a pet, or food for one.",
    "sendMail": "Sends a message to somebody.",
}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Remove a PET", ["deletePet"]),
        ("send a message", ["sendMail"]),
        ("order", ["createOrder"]),
        ("pet", ["deletePet", "createOrder"]),
        ("", []),
        ("a ? \0 %s", []),
        ("\u5bb6" * 5, []),
        ("nothing like it", []),
    ],
    ids=["words", "text", "name", "named-first", "empty", "signs", "other", "none"],
)
def test_tools_with_the_words_of_a_query_are_found(query: str, found: list[str]) -> None:
    hits = by_words(TOOLS, query, 5)
    assert [name for name, _ in hits][: len(found)] == found
    assert bool(hits) == bool(found)
    assert all(0 < score <= 1 for _, score in hits)


def test_no_more_are_found_than_are_wanted_and_long_queries_end() -> None:
    assert len(by_words(TOOLS, "pet " * 100_000, 1)) == 1
    assert by_words({}, "pet", 5) == []
