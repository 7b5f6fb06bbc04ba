"""The word tables follow every write of tools, in its transaction, and nobody waits for them."""

import random

import anyio
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from registry.database.postgres import Database
from registry.search import Filters, Search, SearchQuery
from tests.fixtures_database import HOST
from tests.registry.search.finding import SETTINGS, found_by_words
from tests.registry.search.meaning import Words, embed_tools

pytestmark = pytest.mark.anyio

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
OTHER = "00000000-0000-0000-0000-000000000002"


async def insert(connection: AsyncConnection, name: str, text: str, host_id: str = HOST) -> None:
    await connection.execute(
        "INSERT INTO host_t (host_id, name) VALUES (%s, 'x') ON CONFLICT DO NOTHING", [host_id]
    )
    await connection.execute(
        "INSERT INTO tool_t (host_id, name, description, input_schema, binding) VALUES"
        ' (%s, %s, %s, \'{}\', \'{"type": "openapi", "method": "GET", "path": "/"}\')',
        [host_id, name, text],
    )


async def consistent(database: Database) -> None:
    """What is stored is what the tools give now, and counts are those of the postings."""
    async with database.connect() as connection:
        found = await connection.execute(
            """
            WITH expected AS (
                SELECT part.part_id, doc.doc_id, word.term, word.tf,
                    sum(word.tf) OVER (PARTITION BY doc.doc_id) AS length
                FROM tool_search_v AS source
                JOIN search_part_t AS part USING (host_id)
                JOIN search_kind_t AS kind USING (entity_type)
                JOIN search_doc_t AS doc USING (part_id, entity_id)
                CROSS JOIN LATERAL search_terms(source.name, source.title, source.description,
                    source.source, source.tags, source.parameters, source.parameter_texts,
                    kind.field_weights) AS word
                WHERE source.live
            ), stored AS (
                SELECT part_id, doc_id, term, tf, length FROM search_posting_t
            )
            SELECT
                (SELECT count(*) FROM (TABLE expected EXCEPT TABLE stored) AS missing),
                (SELECT count(*) FROM (TABLE stored EXCEPT TABLE expected) AS left_over),
                (SELECT count(*) FROM tool_search_v WHERE live)
                    - (SELECT count(*) FROM search_doc_t),
                (SELECT count(*) FROM (
                    SELECT part_id, term, sum(docs) FROM search_count_t WHERE term <> ''
                    GROUP BY part_id, term
                    EXCEPT SELECT part_id, term, count(*) FROM search_posting_t
                    GROUP BY part_id, term) AS wrong),
                (SELECT count(DISTINCT (part_id, term)) FROM search_posting_t)
                    - (SELECT count(DISTINCT (part_id, term)) FROM search_count_t WHERE term <> ''),
                (SELECT coalesce(sum(docs), 0) FROM search_count_t WHERE term = '')
                    - (SELECT count(*) FROM search_doc_t),
                (SELECT round(coalesce(sum(length), 0)::numeric, 2) FROM search_count_t
                    WHERE term = '')
                    - (SELECT round(coalesce(sum(tf), 0)::numeric, 2) FROM search_posting_t)
            """
        )
        assert await found.fetchone() == (0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_postings_agree_with_the_tools_after_any_writes(
    database: Database, seed: int
) -> None:
    rng = random.Random(seed)
    async with database.connect() as connection:
        for n in range(120):
            some = f"name LIKE '%{rng.choice(WORDS)}%'"
            text = " ".join(rng.choices(WORDS, k=rng.randrange(6)))
            change = rng.choice(
                [
                    f"UPDATE tool_t SET description = '{text}' WHERE {some}",
                    f"UPDATE tool_t SET active = NOT active WHERE {some}",
                    f"UPDATE tool_t SET tags = ARRAY['{text}'] WHERE {some}",
                    f"UPDATE tool_t SET title = '{text}', held = '{{}}' WHERE {some}",
                    f"UPDATE tool_t SET held = NULL, semantic_weight = 2 WHERE {some}",
                    f"UPDATE tool_t SET lifecycle_status = 'retired' WHERE {some}",
                    "UPDATE tool_t SET lifecycle_status = 'active'",
                    f"DELETE FROM tool_t WHERE {some} AND random() < 0.3",
                ]
            )
            await insert(connection, f"{rng.choice(WORDS)}_{n}", text, rng.choice([HOST, OTHER]))
            await connection.execute(change.encode())
    await consistent(database)
    async with database.connect() as connection:
        await connection.execute("DELETE FROM tool_t")
        found = await connection.execute(
            "SELECT (SELECT count(*) FROM search_doc_t), (SELECT count(*) FROM search_posting_t),"
            " (SELECT count(*) FROM search_count_t)"
        )
        assert await found.fetchone() == (0, 0, 0)


async def test_a_write_that_is_undone_leaves_no_words(database: Database) -> None:
    async with database.connect() as connection:
        await insert(connection, "kept", "alpha")
        await connection.execute("BEGIN")
        await insert(connection, "undone", "alpha beta")
        await connection.execute("ROLLBACK")
    await consistent(database)
    assert await found_by_words(database, "alpha beta") == ["kept"]


async def test_writers_of_the_same_words_do_not_wait_for_each_other(database: Database) -> None:
    async with database.connect() as connection:
        await insert(connection, "before", "alpha beta")
    async with database.connect() as one, database.connect() as two:
        await one.execute("BEGIN")
        await insert(one, "first", "alpha beta")
        with anyio.fail_after(60):  # it would wait for ever
            await insert(two, "second", "alpha beta")
        await one.execute("COMMIT")
    await consistent(database)
    assert sorted(await found_by_words(database, "alpha")) == ["before", "first", "second"]


async def test_counts_are_folded_and_do_not_pile_up(database: Database) -> None:
    async with database.connect() as connection:
        for n in range(30):
            await insert(connection, f"tool{n}", "alpha beta gamma")
        found = await connection.execute("SELECT count(*) FROM search_count_t WHERE term = 'alpha'")
        assert await found.fetchone() == (1,)


async def test_the_same_again_writes_nothing(database: Database) -> None:
    async with database.connect() as connection:
        await insert(connection, "one", "alpha")
        before = await connection.execute("SELECT ctid, xmin FROM search_posting_t ORDER BY ctid")
        rows = await before.fetchall()
        await connection.execute("UPDATE tool_t SET semantic_weight = 0.5, title = title")
        after = await connection.execute("SELECT ctid, xmin FROM search_posting_t ORDER BY ctid")
        assert await after.fetchall() == rows


@pytest.mark.parametrize("by_hand", [False, True], ids=["imported", "by-hand"])
async def test_a_source_that_is_renamed_is_found_by_its_new_name(
    database: Database, by_hand: bool
) -> None:
    through = "source_api_id = api_id" if by_hand else "endpoint_id = endpoint.endpoint_id"
    async with database.connect() as connection:
        await insert(connection, "plain", "alpha")
        await connection.execute(
            "WITH api AS (INSERT INTO api_t (host_id, name, kind, location) VALUES"
            " (%(h)s, 'forge', 'openapi', 'x') RETURNING api_id), version AS ("
            " INSERT INTO api_version_t (host_id, api_id, spec) SELECT %(h)s, api_id, '{}' FROM api"
            " RETURNING api_id, api_version_id), endpoint AS (INSERT INTO api_endpoint_t"
            " (host_id, endpoint_id, api_id, api_version_id, endpoint, endpoint_name,"
            " endpoint_desc, digest) SELECT %(h)s, gen_random_uuid(), api_id, api_version_id,"
            " '/x@get', 'x', '', '' FROM version RETURNING endpoint_id, api_id)"
            f" UPDATE tool_t SET {through} FROM endpoint".encode(),
            {"h": HOST},
        )
        assert await found_by_words(database, "forge") == ["plain"]
        await connection.execute("UPDATE api_t SET name = 'smithy'")
    assert await found_by_words(database, "forge") == []
    assert await found_by_words(database, "smithy") == ["plain"]
    await consistent(database)


async def test_pruning_keeps_candidates_of_rare_words_or_meaning(database: Database) -> None:
    """With a small budget common words propose nothing, but add to the scores as they should."""
    rng = random.Random(5)
    async with database.connect() as connection:
        for n in range(150):
            rare = f" rare{n % 30}" if n % 3 == 0 else ""
            text = " ".join(rng.choices(WORDS, k=12)) + rare
            await insert(connection, f"tool{n}", text)
    await embed_tools(database)
    filters, query = Filters(HOST), "alpha beta gamma rare3 rare6"

    async def scores(postings_limit: int) -> dict[str, tuple[float, float]]:
        settings = replace(SETTINGS, postings_limit=postings_limit, query_timeout_s=60.0)
        search = Search(lambda: database.pool, lambda _: Words(), settings)
        found = await search.run(SearchQuery(query, 150, "hybrid", filters))
        return {hit.name: (hit.score, hit.lexical) for hit in found.hits}

    exact, pruned = await scores(10**6), await scores(20)
    assert list(pruned)[:10] == list(exact)[:10]
    for name, (score, bm25) in pruned.items():
        assert (score, bm25) == pytest.approx(exact[name], abs=1e-6), name


@pytest.mark.parametrize("narrowing", [{}, {"sources": ("", "x")}], ids=["all", "narrowed"])
async def test_no_search_reads_all_tools_or_words(
    database: Database, narrowing: dict[str, tuple[str, ...]]
) -> None:
    """Vectors and documents of a tenant that owns them all are rightly read in sequence."""
    async with database.connect() as connection:
        for n in range(40):
            await insert(connection, f"tool{n}", "alpha beta gamma delta")
    await embed_tools(database)
    search = Search(
        lambda: database.pool, lambda _: Words(), replace(SETTINGS, query_timeout_s=60.0)
    )

    async def scans(connection: AsyncConnection) -> dict[str, int]:
        rows = await connection.execute(
            "SELECT relname, seq_scan FROM pg_stat_user_tables"
            " WHERE relname ~ '^(tool|api|search_(posting|count|part)|usage)'"
        )
        return {name: count async for name, count in rows}

    async with database.pool.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    async with database.connect() as watching:
        before = await scans(watching)
        await search.run(SearchQuery("alpha beta", 5, "hybrid", Filters(HOST, **narrowing)))  # type: ignore[arg-type]
        async with database.pool.connection() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
        assert await scans(watching) == before
