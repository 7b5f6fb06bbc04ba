"""Large tenants have an index of their own; which path a search takes is decided, not guessed."""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from uuid import UUID

import numpy as np
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from registry.database.postgres import Database, borrow
from registry.embedding.embedder import Vectors
from registry.embedding.texts import sentences
from registry.embedding.vectors import with_whole
from registry.search import Filters, Search, SearchQuery, SearchResult, ToolsetFilter
from registry.search.indexes import LOCK, ensure_indexes, predicate
from registry.search.search_run import effort
from registry.search.statements import PLACES, Shape, candidates
from tests.registry.search.finding import SETTINGS
from tests.registry.search.large import Tenant, tenant
from tests.registry.search.meaning import MODEL, embed_tools, store_vectors

pytestmark = pytest.mark.anyio

PARSED_ONCE_BYTES = 4096  # of a statement whose parsed form psycopg keeps
LIMIT = 300  # `search.exact_limit` here
OWN = replace(SETTINGS, exact_limit=LIMIT, query_timeout_s=60.0)


class Given:
    """An embedder that gives the vector that a test set."""

    model, dimension = MODEL, 384

    def __init__(self) -> None:
        self.vector = np.zeros(384, dtype=np.float32)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        return np.tile(self.vector, (len(texts), 1))

    async def close(self) -> None:
        pass


class Asking:
    def __init__(self, database: Database, **fields: object) -> None:
        self.given = Given()
        self.search = Search(lambda: database.pool, lambda _: self.given, replace(OWN, **fields))

    async def near(self, one: Tenant, at: int, **narrowing: object) -> SearchResult:
        """What is found near the tool of this number."""
        rng = np.random.default_rng(at)
        vector = list(one.vectors.values())[at] + 0.02 * rng.standard_normal(384)
        self.given.vector = (vector / np.linalg.norm(vector)).astype(np.float32)
        filters = Filters(one.host_id, **narrowing)  # type: ignore[arg-type]
        asked = f"the {at}th of {one.host_id}"  # other texts, or the vector is remembered
        return await self.search.run(SearchQuery(asked, 10, "dense", filters))

    async def recall(self, one: Tenant, queries: int) -> float:
        found = 0
        for at in range(queries):
            hits = (await self.near(one, at)).hits
            assert {hit.id for hit in hits} <= one.vectors.keys()  # nobody else's
            found += len({hit.id for hit in hits} & set(one.nearest(self.given.vector, 10)))
        return found / (10 * queries)


async def indexes(database: Database) -> list[str]:
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT relname::text FROM pg_class WHERE relname LIKE 'search_hnsw%' ORDER BY relname"
        )
        return [name async for (name,) in rows]


async def test_an_index_has_the_vectors_of_its_model_whatever_that_is_called(
    database: Database,
) -> None:
    await tenant(database, 1, LIMIT + 1)
    await ensure_indexes(database, LIMIT)
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT pg_get_expr(indpred, indrelid) FROM pg_index"
            " WHERE starts_with(indexrelid::regclass::text, 'search_hnsw_')"
        )
        (condition,) = [text async for (text,) in rows]
    assert f"'{MODEL}'" in condition


async def test_only_large_tenants_get_an_index(database: Database) -> None:
    large, small = await tenant(database, 1, 900), await tenant(database, 2, 60)
    before = await Asking(database).near(large, 0)
    assert before.path == "exact"  # not built yet
    (built,) = await ensure_indexes(database, LIMIT)
    assert await indexes(database) == [built]
    asking = Asking(database)
    assert (await asking.near(large, 0)).path == "hnsw"
    assert (await asking.near(small, 0)).path == "exact"
    assert await ensure_indexes(database, LIMIT) == []
    assert await asking.recall(large, 40) >= 0.98
    assert await asking.recall(small, 20) == 1.0


async def test_a_tenant_with_few_of_many_vectors_misses_none(database: Database) -> None:
    """As a shared index would: it gives 4% of them (reference: pgvector's README, filtering). The
    first five searches on a connection may be planned otherwise than the rest."""
    await tenant(database, 1, 1500)
    small = await tenant(database, 2, 15)
    await ensure_indexes(database, LIMIT)
    assert await Asking(database).recall(small, 15) == 1.0


async def test_a_search_by_index_reads_its_candidates_alone(database: Database) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    async with database.connect() as connection:
        await connection.execute("VACUUM ANALYZE")
    asking = Asking(database)
    await asking.near(large, 0)  # sets the vector
    before = await documents_read(database)
    for number in range(6):  # planned once for the first ones, and for all after them
        asked = f"One of the third kind, number {number}. Then another of the first kind, please."
        found = await asking.search.run(SearchQuery(asked, 10, "dense", Filters(large.host_id)))
        assert found.path == "hnsw"
    assert await documents_read(database) - before < 6 * LIMIT


async def documents_read(database: Database) -> int:
    """Rows of all documents that statements on the pool's connections have read."""
    async with AsyncExitStack() as stack:
        for _ in range(database.pool.get_stats()["pool_size"]):
            connection = await stack.enter_async_context(database.pool.connection())
            await connection.execute("SELECT pg_stat_force_next_flush()")
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables"
            " WHERE relname = 'search_doc_t'"
        )
        ((count,),) = await rows.fetchall()
        return int(count)


async def test_a_filter_that_leaves_few_is_searched_exactly(database: Database) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    asking = Asking(database)
    few = ToolsetFilter("few", include=("tool_1?",))
    found = await asking.near(large, 0, toolset=few)
    assert (found.path, len(found.hits)) == ("exact", 10)
    assert all(re.fullmatch(r"tool_1.", hit.name) for hit in found.hits)
    most = ToolsetFilter("most", exclude=("tool_1*",))
    found = await asking.near(large, 0, toolset=most)
    assert (found.path, len(found.hits)) == ("hnsw", 10)
    assert not any(hit.name.startswith("tool_1") for hit in found.hits)


async def test_the_index_finds_no_hidden_tools(database: Database) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    asking = Asking(database)
    nearest = [hit.id for hit in (await asking.near(large, 7)).hits]
    async with database.connect() as connection:
        await connection.execute(
            "UPDATE tool_t SET lifecycle_status = 'retired' WHERE tool_id = ANY(%s::uuid[])",
            [nearest[:5]],
        )
    found = await asking.near(large, 7)
    assert found.path == "hnsw"
    assert [hit.id for hit in found.hits][:5] == nearest[5:]


class Several(Given):
    """One that gives several vectors: of the sentences of a query."""

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__()
        self.vectors = vectors

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        assert len(texts) == len(self.vectors)
        return self.vectors


def _several(vectors: np.ndarray, _purpose: str) -> Several:
    return Several(vectors)


async def test_sentences_of_a_query_find_tools_by_the_index(
    database: Database,
) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    ids, rows = list(large.vectors), np.stack(list(large.vectors.values()))
    for at in range(10):
        first, second = rows[at], rows[at + 450]
        text = "First do this thing. Then do that other thing."
        asked = np.stack([first, second]).astype(np.float32)
        whole, *each = with_whole(asked, [len(part) for part in sentences(text)])
        best = np.argsort(-(0.3 * rows @ whole + 0.7 * np.max([rows @ one for one in each], 0)))[:5]
        search = Search(lambda: database.pool, partial(_several, asked), OWN)
        found = await search.run(SearchQuery(text, 5, "dense", Filters(large.host_id)))
        assert found.path == "hnsw"
        assert [hit.id for hit in found.hits] == [ids[one] for one in best]


async def test_queries_of_several_sentences_share_one_prepared_statement(
    database: Database, database_settings: DatabaseSettings
) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    rows = np.stack(list(large.vectors.values())).astype(np.float32)
    single_settings = replace(database_settings, pool_max=1)
    async with Database.open(single_settings, wait=False, migrate=False) as single:
        for count in (2, 3, 8):
            search = Search(lambda: single.pool, partial(_several, rows[:count]), OWN)
            query = SearchQuery("Do this thing. " * count, 5, "dense", Filters(large.host_id))
            assert (await search.run(query)).path == "hnsw"
        async with borrow(single.pool) as connection:
            cursor = await connection.execute(
                "SELECT FROM pg_prepared_statements WHERE position('near AS' IN statement) > 0"
            )
            assert cursor.rowcount == 1


def test_psycopg_parses_the_statement_of_several_sentences_once() -> None:
    indexed = predicate(str(UUID(int=1)), "tool", MODEL)
    statement = candidates(Shape(vectors="hnsw", sentences=PLACES, indexed=indexed))
    assert len(statement) <= PARSED_ONCE_BYTES


async def test_words_find_beside_the_index(database: Database) -> None:
    large = await tenant(database, 1, 900)
    await ensure_indexes(database, LIMIT)
    asking = Asking(database)
    asking.given.vector = next(iter(large.vectors.values()))
    found = await asking.search.run(
        SearchQuery("tool_77 please", 120, "hybrid", Filters(large.host_id))
    )
    assert found.path == "hnsw"
    assert all(hit.semantic is not None for hit in found.hits)
    assert "tool_77" in [hit.name for hit in found.hits]


async def test_an_index_goes_with_its_tenant_and_with_its_model(database: Database) -> None:
    large = await tenant(database, 1, 400)
    (first,) = await ensure_indexes(database, LIMIT)
    await store_vectors(database, dict(large.vectors), large.host_id, "test/next")
    both = await ensure_indexes(database, LIMIT)
    assert len(both) == 1
    assert sorted([first, *both]) == await indexes(database)
    async with database.connect() as connection:
        await connection.execute("DELETE FROM embedding_model_t WHERE model = %s", [MODEL])
    await ensure_indexes(database, LIMIT)
    assert await indexes(database) == both
    async with database.connect() as connection:
        await connection.execute("DELETE FROM tool_t")
    await ensure_indexes(database, LIMIT)
    assert await indexes(database) == []


async def test_an_index_does_not_come_and_go_at_the_limit(database: Database) -> None:
    await tenant(database, 1, LIMIT + 20)
    (built,) = await ensure_indexes(database, LIMIT)
    async with database.connect() as connection:
        await connection.execute("DELETE FROM tool_t WHERE name LIKE 'tool_1%'")
    assert await ensure_indexes(database, LIMIT) == []
    assert await indexes(database) == [built]


async def test_a_build_that_was_cut_short_is_repeated(database: Database) -> None:
    await tenant(database, 1, LIMIT + 20)
    (built,) = await ensure_indexes(database, LIMIT)
    async with database.connect() as connection:
        await connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [built]
        )
    assert await ensure_indexes(database, LIMIT) == [built]


async def test_one_node_builds_at_a_time(database: Database) -> None:
    await tenant(database, 1, LIMIT + 20)
    async with database.connect() as connection:
        await connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        assert await ensure_indexes(database, LIMIT) == []
    assert len(await ensure_indexes(database, LIMIT)) == 1


async def test_labels_of_models_are_quoted(database: Database) -> None:
    odd = 'local-http/it\'s 100% "mine"'
    large = await tenant(database, 1, LIMIT + 20)
    await store_vectors(database, dict(large.vectors), large.host_id, odd)
    await ensure_indexes(database, LIMIT)
    asking = Asking(database)
    asking.given.model = odd
    found = await asking.near(large, 3)
    assert (found.path, len(found.hits)) == ("hnsw", 10)


async def test_queries_of_past_models_are_forgotten(database: Database) -> None:
    one = await tenant(database, 1, 3)
    await embed_tools(database, one.host_id)
    async with database.connect() as connection:
        for table, rest in (("query", "principal, slot,"), ("embedding", "principals,")):
            values = "'a', 0, " if rest.startswith("principal,") else "1, "
            await connection.execute(
                f"INSERT INTO usage_{table}_t (host_id, entity_type, entity_id, model,"
                f" {rest} embedding) SELECT host_id, entity_type, entity_id, model, {values}"
                " embedding FROM entity_embedding_t WHERE model = 'test/words'".encode()
            )
        await connection.execute("UPDATE embedding_model_t SET model = 'test/next'")
    await ensure_indexes(database, LIMIT)
    async with database.connect() as connection:
        found = await connection.execute(
            "SELECT (SELECT count(*) FROM usage_query_t), (SELECT count(*) FROM usage_embedding_t)"
        )
        assert await found.fetchone() == (0, 0)


@pytest.mark.parametrize(
    ("docs", "candidates"),
    [(0, 64), (12_000, 64), (100_000, 100), (300_000, 193), (1_000_000, 398), (10**8, 1000)],
)
def test_larger_indexes_keep_more_candidates(docs: int, candidates: int) -> None:
    assert effort(100, docs, 64) == candidates
