"""Statements composed once."""

from psycopg import sql

from registry.database.sql_fragments import compose


def test_lines_lose_their_indentation_outside_quoted_texts() -> None:
    statement = compose(
        """
        SELECT 'a
            b', {name}
            FROM t
    """,
        name=sql.Literal("it's\n  c"),
    )
    assert statement == b"\nSELECT 'a\n            b', 'it''s\n  c'\nFROM t\n"
