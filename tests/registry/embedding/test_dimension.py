"""The length of vectors is written down once in SQL and once in Python."""

import re
from pathlib import Path

import pytest

from config.value_types import VECTOR_DIMENSION
from registry.database.postgres import Database

ROOT = Path(__file__).parents[3]
ROOMS = ("config", "gateway", "registry", "schemas")
TYPE = re.compile(r"\b(?:half)?vec(?:tor)?\(\s*(?:\d|\{)")
NUMBER = re.compile(rf"\b{VECTOR_DIMENSION}\b")


def lines(pattern: re.Pattern[str]) -> list[str]:
    """Lines of the product with it, without the training of the model, as "file: line"."""
    files = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*")))
    return [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        if path.suffix in (".py", ".sql") and "training" not in path.parts
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]


def test_the_dimension_stands_in_one_place() -> None:
    domain = (
        "registry/migrations/0006_embeddings.sql: CREATE DOMAIN embedding_vector AS vector(384);"
    )
    constant = "config/value_types.py: VECTOR_DIMENSION = 384  # of the domain embedding_vector"
    assert sorted(lines(NUMBER)) == [constant, domain]
    cast = 'return sql.SQL("{vector}::halfvec({dimension})").format('
    half = f"registry/embedding/vectors.py: {cast}"
    assert sorted(lines(TYPE)) == [half, domain]


@pytest.mark.anyio
async def test_the_database_agrees(database: Database) -> None:
    async with database.connect() as connection:
        found = await connection.execute(
            "SELECT typtypmod FROM pg_type WHERE typname = 'embedding_vector'"
        )
        assert await found.fetchone() == (VECTOR_DIMENSION,)
        columns = await connection.execute(
            "SELECT attrelid::regclass::text FROM pg_attribute JOIN pg_class ON oid = attrelid"
            " WHERE relkind = 'r' AND atttypid = 'vector'::regtype"
        )
        assert await columns.fetchall() == [], "columns are of the domain"
