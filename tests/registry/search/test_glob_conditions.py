"""Patterns in SQL pick what those in Python do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection, sql

from registry.database.postgres import Database
from registry.search.glob_conditions import condition
from schemas.globs import Globs
from tests.properties import examples
from tests.registry.shared import anyio_backend, database

__all__ = ["anyio_backend", "database"]
pytestmark = pytest.mark.anyio

ALPHABET = "ab_-.\\%[]!^*?|(){}+$/\n\u00e9\u4f7f:=&~#Z0"
PATTERNS = [
    "*", "?", "a*b", "a.b", "a%b", "a_b", "[ab]*", "[!a]*", "[]a]", "[!]a]", "[a-b]", "[b-a]",
    "[!b-a]", "[a-]", "[-a]", "[a", "[]", "[!]", "[^a]", "[[:alpha:]]", "[a\\]b]", "a\\*b",
    "[a-b-z]", "(a|b)", "[.a.]", "**a", "[\\d]", "[&&a]", "[a--]", "\u4f7f?", "a$", "^a", "",
    "A*", "[A-Z]*", "[A-b]", "[!A]", "[Z-a]",
]  # fmt: skip
NAMES = [
    "a", "b", "ab", "a.b", "aXb", "a%b", "a_b", "a-b", "]", "-", "^", "[", "\\", "\u4f7f\u7528",
    "a\n", "[a", "[]", "\u00e9", "", "d", "&", "(a|b)", "a$", "^a", "a\\*b", "Ab", "z",
]  # fmt: skip


async def match_names(connection: AsyncConnection, names: list[str], pattern: str) -> list[bool]:
    text, values = condition("p", [pattern])
    rows = await connection.execute(
        sql.SQL(
            "SELECT {} FROM unnest(%(names)s::text[]) WITH ORDINALITY AS doc (name, n) ORDER BY n"
        ).format(text),
        {"names": names, **values},
    )
    return [found async for (found,) in rows]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
async def test_a_pattern_picks_the_same_names_in_sql(database: Database, pattern: str) -> None:
    async with database.connect() as connection:
        found = await match_names(connection, NAMES, pattern)
    assert dict(zip(NAMES, found, strict=True)) == {n: Globs([pattern]).match(n) for n in NAMES}


async def test_no_pattern_picks_other_names_in_sql(database: Database) -> None:
    words = st.text(ALPHABET, max_size=8)
    async with database.connect() as connection:
        found: list[tuple[str, list[str]]] = []

        @settings(max_examples=examples(300), database=None, deadline=None)
        @given(words, st.lists(words, min_size=1, max_size=8))
        def collect(pattern: str, names: list[str]) -> None:
            found.append((pattern, [*names, pattern]))

        collect()
        for pattern, names in found:
            expected = [Globs([pattern]).match(name) for name in names]
            assert await match_names(connection, names, pattern) == expected, (pattern, names)


async def test_patterns_with_impossible_characters_match_nothing(database: Database) -> None:
    async with database.connect() as connection:
        assert await match_names(connection, NAMES, "a\0*") == [False] * len(NAMES)
        assert await match_names(connection, NAMES, "[\ud800]") == [False] * len(NAMES)


async def test_all_that_none_of_several_patterns_picks(database: Database) -> None:
    text, values = condition("p", ["a*", "[z]"], negated=True)
    async with database.connect() as connection:
        rows = await connection.execute(
            sql.SQL("SELECT name FROM unnest(%(names)s::text[]) AS doc (name) WHERE {}").format(
                text
            ),
            {"names": ["a", "z", "q"], **values},
        )
        assert await rows.fetchall() == [("q",)]
