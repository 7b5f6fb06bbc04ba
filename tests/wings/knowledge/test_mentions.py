"""What texts mention, found by rules."""

import pytest

from gateway.wings.documents.chunking.chunks import Chunk
from gateway.wings.documents.chunking.chunks_by_kind import cut
from gateway.wings.documents.chunking.mentions import (
    MENTIONS,
    NAME,
    Alias,
    aliases,
    link_target,
    mentions,
    normal,
)
from gateway.wings.knowledge.chunk_rows import mentions_of


def find_mentions(text: str) -> list[tuple[str, str]]:
    return [(one.name, one.type) for one in mentions(text, 0, len(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She met Marie Curie in Paris.", [
            ("Marie Curie in Paris", "name"), ("Marie Curie", "name"), ("Paris", "name"),
        ]),
        ("The University of the Arts London", [("University of the Arts London", "name")]),
        ("It was J. R. R. Tolkien's book.", [("J. R. R. Tolkien", "name")]),
        ("In 1990 the St. Louis team", [("St. Louis", "name")]),
        ("We saw it. Then the end. However, no.", []),
        ("Visit Köln, or Řím.", [("Visit Köln", "name"), ("Řím", "name")]),
        ("built by NASA", [("NASA", "acronym")]),
        ('her single "You Don\'t Love Me (No, No, No)," which', [
            ("You Don't Love Me (No, No, No)", "name"), ("Don't Love Me", "name"),
        ]),
        ("see \u201cIf Only\u201d, a 'Hit' or \"hit\"", [("If Only", "name"), ("Hit", "name")]),
        ('the film "Brazil" is not 5" wide', [("Brazil", "name")]),
        ("Moved to New\nYork City", [("Moved", "name"), ("New York City", "name")]),
        ("see `load` and Flask.run or make_app, parseHtml", [
            ("load", "identifier"), ("Flask.run", "identifier"), ("make_app", "identifier"),
            ("parseHtml", "identifier"),
        ]),
        ("ask a.b@example.com or https://example.com/x?y.", [
            ("a.b@example.com", "email"), ("https://example.com/x?y", "url"),
        ]),
        ("since v1.2.3, see CVE-2026-1234 and ABC-12", [
            ("v1.2.3", "version"), ("CVE-2026-1234", "id"), ("ABC-12", "id"),
        ]),
        ("read [this](../a.md#b), [x](#y) and ![i](data:image/png)", [("../a.md#b", "path")]),
    ],
)  # fmt: skip
def test_mentions(text: str, expected: list[tuple[str, str]]) -> None:
    assert find_mentions(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Word " * 20_000, "Aa" * 50_000, "A." * 50_000, "[" * 50_000, "a_" * 50_000,
        "a.b" * 50_000, "`" * 50_000, "(A" * 50_000, "1." * 50_000, "@" * 50_000,
        "\u8a9e" * 50_000, "https://" * 10_000, "\u202e\u200b\U000e0041" * 1000,
        pytest.param("Alice" + " " * 2_000_000 + "- Bob", id="blanks"),
    ],
)  # fmt: skip
def test_hostile_texts_have_a_bounded_number_of_short_names(text: str) -> None:
    for chunk in cut(text):
        assert len(chunk.mentions) <= MENTIONS
        assert all(len(one.name) <= NAME for one in chunk.mentions)
    assert len(list(aliases(text))) <= len(text)


def test_names_that_fit_into_no_index_are_not_recorded() -> None:
    ligatures = "\ufdfa" * 200  # eighteen times as long in the normal form
    chunk = Chunk(0, 600, subjects=(ligatures, "Heron"))
    assert [one["norm"] for one in mentions_of([{"id": "1"}], [chunk])] == ["heron"]


def test_names_are_compared_in_a_normal_form() -> None:
    forms = ("The  Beatles", "beatles", "BEATLES", "Beatles\u2019s", "\uff22eatles", "Beatles.")
    assert {normal(form) for form in forms} == {"beatles"}
    assert normal("the") == "the"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the Personalised PageRank (PPR) of", [Alias("Personalised PageRank", "PPR")]),
        ("National Aeronautics and Space Administration (NASA)",
         [Alias("National Aeronautics and Space Administration", "NASA")]),
        ("it is (ABC) and (x) and Foo (Bar)", []),
    ],
)  # fmt: skip
def test_short_names_in_brackets_are_aliases(text: str, expected: list[Alias]) -> None:
    assert list(aliases(text)) == expected


def test_targets_of_links_are_paths_of_documents() -> None:
    assert link_target("docs/guide.md", "../tools.md#list") == "tools.md"
    assert link_target("docs/guide.md", "#here") == "docs/guide.md"
    assert link_target("guide.md", "a/b.md?x=1") == "a/b.md"
