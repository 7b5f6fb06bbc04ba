"""Known words that stand in for those that no document has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.database.postgres import Database
from registry.search.spelling import (
    LONG_PIECE,
    LONGEST,
    WORDS_CORRECTED,
    UnknownWord,
    is_within,
    meaning_left,
    replacements,
    unknown_words,
)
from registry.search.word_selection import Word
from registry.sources.tool_store import SourceDraft, ToolStore
from tests.fixtures_database import HOST
from tests.registry.search.finding import find, found_by_words
from tests.registry.search.test_words import draft
from tests.registry.shared import anyio_backend, database

__all__ = ["anyio_backend", "database"]

TOOLS = {
    "get_forecast": "Weather forecast for a place.",
    "getPetById": "One pet with its status.",
    "calendar_share": "Let another person see a calendar.",
    "rechnung_adresse": "Ändert die Adresse, an die eine Rechnung geht.",
    "add_child": "Register a child of the family.",
}


@pytest.fixture
async def tools_database(store: ToolStore, database: Database) -> Database:
    drafts = [draft(name, description) for name, description in TOOLS.items()]
    await store.save(HOST, SourceDraft("forge", "openapi", "forge.json"), drafts)
    return database


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("wether forcast", "get_forecast"),
        ("calen", "calendar_share"),
        ("getpetbyid", "getPetById"),
        ("Rechnungsadressen", "rechnung_adresse"),
        ("children", "add_child"),
    ],
)
async def test_unknown_words_are_replaced_by_similar_words(
    tools_database: Database, query: str, name: str
) -> None:
    assert (await found_by_words(tools_database, query))[:1] == [name]


@pytest.mark.anyio
async def test_a_word_unlike_all_known_words_finds_no_tool(tools_database: Database) -> None:
    assert (await find(tools_database, "zzyzx 4711 qqqqqqqqqq")).hits == []


@pytest.mark.anyio
async def test_words_of_a_long_query_are_not_replaced(tools_database: Database) -> None:
    several = [f"zq{letter * 3}" for letter in "abcdefgh"]
    assert (await find(tools_database, " ".join(["forcast", *several[1:]]))).hits != []
    assert (await find(tools_database, " ".join(["forcast", *several]))).hits == []


def words(*terms: str) -> list[Word]:
    return [Word(term, docs) for docs, term in enumerate(terms, 1)]


def find_replacements(word: UnknownWord, *near: str, pieces: tuple[str, ...] = ()) -> list[str]:
    known = {piece: Word(piece, 1) for piece in pieces}
    return [found.term for found in replacements(word, words(*near), known)]


def test_a_half_typed_word_gives_the_most_frequent_completions() -> None:
    many = [f"sec{letter}" for letter in "abcdefghijkl"]
    assert find_replacements(UnknownWord("sec", "sec", half=True), *many) == many[:3:-1]


def test_fewer_mistakes_are_preferred() -> None:
    assert find_replacements(UnknownWord("forcasst", "forcasst"), "forecast", "forcassts") == [
        "forcassts"
    ]


def test_a_compound_is_split_into_known_words() -> None:
    word = UnknownWord("lieferungsadresse", "lieferungsadress")
    assert find_replacements(word, "lieferung", pieces=("lieferung", "adresse")) == [
        "lieferung",
        "adresse",
    ]
    half = UnknownWord("lieferadresse", "lieferadress")
    assert find_replacements(half, "lieferung", pieces=("adresse",)) == ["adresse", "lieferung"]


def test_only_few_and_usual_words_of_a_query_are_looked_at() -> None:
    text = f"ab {'x' * (LONGEST + 1)} v1alpha abcd abcde abcdef abcdefg"
    unknown = unknown_words(text, text.split())
    assert [word.text for word in unknown] == ["abcdefg", "abcdef", "abcde"]
    assert len(unknown) == WORDS_CORRECTED
    assert [word.half for word in unknown] == [True, False, False]


def test_pieces_of_the_longest_word_are_bounded() -> None:
    pieces = UnknownWord("a" * LONGEST, "a").pieces
    assert len(pieces) <= LONGEST * LONG_PIECE


def test_meaning_keeps_its_weight_where_few_words_are_replaced() -> None:
    assert meaning_left(0.0) == meaning_left(1 / 3) == 1.0
    assert meaning_left(0.5) > meaning_left(1.0) == pytest.approx(0.4)


ABC = st.text("abc", max_size=7)


@given(ABC, ABC, st.integers(0, 2))
def test_mistakes_are_counted_as_by_the_full_table(left: str, right: str, mistakes: int) -> None:
    assert is_within(left, right, mistakes) == (distance(left, right) <= mistakes)


def distance(left: str, right: str) -> int:
    """Optimal string alignment, by the table of all prefixes."""
    table = {(-1, -1): 0}
    table |= {(at, -1): at + 1 for at in range(len(left))}
    table |= {(-1, at): at + 1 for at in range(len(right))}
    for row, first in enumerate(left):
        for column, second in enumerate(right):
            best = min(
                table[row - 1, column] + 1,
                table[row, column - 1] + 1,
                table[row - 1, column - 1] + (first != second),
            )
            if row and column and left[row - 1 : row + 1] == right[column - 1 : column + 1][::-1]:
                best = min(best, table[row - 2, column - 2] + 1)
            table[row, column] = best
    return table[len(left) - 1, len(right) - 1]
