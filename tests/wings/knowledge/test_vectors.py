"""Searching by meaning: all vectors of few chunks, an index on those of many."""

import base64
import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import numpy
import pytest
from anyio.lowlevel import checkpoint
from numpy.typing import NDArray

from config.load import load
from config.value_types import VECTOR_DIMENSION
from gateway.context import Context
from gateway.wings.knowledge import chunk_search
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_filters import ChunkFilter
from gateway.wings.knowledge.chunk_search import KIND, ChunkQuery
from registry.database.postgres import Database
from registry.embedding.backfills import queue_missing
from registry.embedding.embedder_factory import make_embedder
from registry.embedding.search_kinds import search_kinds
from registry.embedding.target_models import models_by_purpose, register, settle
from registry.embedding.worker import Worker
from registry.search import transaction
from registry.search.indexes import ensure_indexes
from registry.search.languages import NO_WORDS
from registry.search.transaction import Transaction
from schemas.mcp.revisions import JSON_RPC
from tests.fixtures_database import HOST
from tests.fixtures_servers import Serve
from tests.registry.embedding.services import settings as embedding
from tests.registry.embedding.services import vector
from tests.servers.rest import Recorder, Silent
from tests.wings.identities import OTHER, identity_of
from tests.wings.knowledge.rig import SCOPES, KnowledgeRig, knowledge_settings, open_rig
from tests.wings.knowledge.test_ingestion import archive

pytestmark = pytest.mark.anyio

PENDING = int(os.environ.get("TOOLGATE_KNOWLEDGE_PENDING", "3000"))
COLOURS = ("red", "green", "blue", "grey")
READER = KnowledgeReader(HOST, "ann", ("*", "user:ann"))


class Colours:
    """A model that knows colours, also as a "crimson" that no text has, and else nothing."""

    model, dimension = "test/colours", VECTOR_DIMENSION

    async def embed(self, texts: Any, *, query: bool = False) -> NDArray[Any]:
        await checkpoint()
        found = numpy.full((len(texts), VECTOR_DIMENSION), 0.01, dtype=numpy.float32)
        for row, text in zip(found, texts, strict=True):
            for place, colour in enumerate(COLOURS):
                row[place] += colour in text.lower().replace("crimson", "red")
            row[10 + len(text) % 50] += 0.05
        return found / numpy.linalg.norm(found, axis=1, keepdims=True)

    async def close(self) -> None:
        pass


async def add_coloured_chunks(rig: KnowledgeRig, count: int) -> None:
    """Chunks of two tenants and of two owners, with vectors."""
    await register(rig.database.pool, Colours(), KIND.purpose)
    for tenant, subject in ((HOST, "ann"), (HOST, "bo"), (OTHER, "ann")):
        caller = rig.caller(subject, tenant=tenant)
        for number in range(count):
            colour = COLOURS[number % len(COLOURS)]
            text = f"It is {colour}{' ' * number}."
            await caller.add(text, f"of-{subject}", path=f"{colour}/{number}.md")
    kinds = search_kinds([KIND])
    worker = Worker(rig.database.pool, Colours(), load(None, {}).embedding, kinds=kinds)
    while await worker.step():
        pass


@pytest.mark.parametrize("exact_limit", [1000, 4])
async def test_vector_search_agrees_with_and_without_an_index(
    database: Database, exact_limit: int
) -> None:
    """Vector search agrees with and without an index (L26)."""
    settings = knowledge_settings(exact_limit=exact_limit, semantic_share=1.0)
    async with open_rig(database, settings, lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 12)
        built = await ensure_indexes(database, exact_limit)
        assert len(built) == (2 if exact_limit == 4 else 0)
        query = ChunkQuery(reader=READER, text="crimson", limit=3, mode="naive")
        found = await rig.parts.searcher.search(query)
        assert {one.path for one in found.passages} == {"red/0.md", "red/4.md", "red/8.md"}
        assert {one.collection for one in found.passages} == {"of-ann"}
        for narrow in ({"paths": ["green/*", "blue/**"]}, {"paths": ["*/1.md", "*/2.md"]}):
            chosen = replace(query, filter=ChunkFilter(**{k: tuple(v) for k, v in narrow.items()}))
            found = await rig.parts.searcher.search(chosen)
            assert {one.path.partition("/")[0] for one in found.passages} <= {"green", "blue"}
            assert found.passages
        nobody = replace(query, reader=KnowledgeReader(HOST, "eve", ("*",)))
        assert not (await rig.parts.searcher.search(nobody)).passages


class Newer(Colours):
    model = "test/newer"


async def test_old_vectors_serve_until_a_new_model_has_embedded_every_text(
    database: Database,
) -> None:
    """No text has the word of the query: vectors alone find it (K21)."""
    by_label = {one.model: one for one in (Colours(), Newer())}
    serving, kinds = [Colours.model], search_kinds([KIND])

    async def find_texts() -> set[str]:
        async with database.pool.connection() as connection:
            models = (await models_by_purpose(connection))[KIND.purpose]
        serving[0] = str(models.serving)
        query = ChunkQuery(reader=READER, text="crimson", limit=2, mode="naive")
        return {one.path for one in (await rig.parts.searcher.search(query)).passages}

    settings = knowledge_settings(semantic_share=1.0)
    async with open_rig(database, settings, lambda _: by_label[serving[0]]) as rig:
        await add_coloured_chunks(rig, 8)
        await register(database.pool, Newer(), KIND.purpose)
        await queue_missing(database.pool, kinds)
        assert await find_texts() == {"red/0.md", "red/4.md"}
        assert serving == ["test/colours"]
        worker = Worker(database.pool, Newer(), load(None, {}).embedding, kinds=kinds)
        while await worker.step():
            pass
        async with database.pool.connection() as connection:
            assert await settle(connection, KIND.purpose, kinds)
        assert await find_texts() == {"red/0.md", "red/4.md"}
        assert serving == ["test/newer"]


@pytest.mark.timeout(600)
async def test_changing_the_model_requeues_waiting_chunks(
    database: Database,
) -> None:
    """The old model embeds no waiting chunk; none is queued twice, lost or in the way (F1.16)."""
    kinds = search_kinds([KIND])
    async with open_rig(database, knowledge_settings(), lambda _: None) as rig:
        await register(database.pool, Colours(), KIND.purpose)
        ann = rig.caller()
        await ann.add("It is red.", path="red.md")
        [(first,)] = await rig.rows("SELECT count(*) FROM embedding_task_t")
        await rig.run("SET session_replication_role = replica; INSERT INTO knowledge_chunk_t"
            " (host_id, chunk_id, collection_id, document_id, ordinal, kind, start_byte, end_byte,"
            " start_line, end_line, sha256) SELECT host_id, gen_random_uuid(), collection_id,"
            " document_id, n, 'text', 0, 9, 1, 1, sha256 FROM knowledge_chunk_t,"
            f" generate_series(1, {PENDING}) AS n; RESET session_replication_role")  # fmt: skip
        assert await queue_missing(database.pool, kinds) == PENDING
        await register(database.pool, Newer(), KIND.purpose)
        assert await queue_missing(database.pool, kinds) == PENDING + first
        counted = "SELECT model, count(*) FROM embedding_task_t GROUP BY model"
        assert await rig.rows(counted) == [("test/newer", PENDING + first)]
        old, new = (
            Worker(database.pool, model, load(None, {}).embedding, kinds=kinds)
            for model in (Colours(), Newer())
        )
        assert not await old.step()
        await ann.add("It is green.", path="green.md")
        assert await ann.find_texts("green") == ["It is green."]
        while await new.step():
            if await rig.rows("SELECT FROM embedding_task_t HAVING count(*) <= %s", PENDING // 2):
                break
        ready = "SELECT DISTINCT model FROM entity_embedding_t WHERE status = 'ready'"
        assert await rig.rows(ready) == [("test/newer",)]


@pytest.mark.parametrize("kind", ["text", "definition"])
async def test_missing_vectors_are_queued_by_key_without_planner_statistics(
    database: Database, kind: str
) -> None:
    """Without statistics the planner compared each chunk with each text, read all documents for
    each, and sorted all chunks for each batch."""
    documents, each = 150, 20
    kinds, count = search_kinds([KIND]), documents * each
    async with open_rig(database, knowledge_settings(), lambda _: None) as rig:
        await register(database.pool, Colours(), KIND.purpose)
        await rig.caller().add("It is red.", path="0")
        await rig.run(
            "SET session_replication_role = replica; INSERT INTO knowledge_blob_t"
            " (host_id, sha256, content) SELECT host_id, sha256(n::text::bytea), content"
            f" FROM knowledge_blob_t, generate_series(1, {documents}) AS n;"
            " INSERT INTO knowledge_document_t (host_id, document_id, collection_id, path, sha256)"
            " SELECT host_id, gen_random_uuid(), collection_id, n, sha256(n::text::bytea)"
            f" FROM knowledge_document_t, generate_series(1, {documents}) AS n;"
            " INSERT INTO knowledge_chunk_t (host_id, chunk_id, collection_id, document_id,"
            " ordinal, kind, start_byte, end_byte, start_line, end_line, sha256) SELECT host_id,"
            f" gen_random_uuid(), collection_id, document_id, n, '{kind}', 0, 9, 1, 1, sha256"
            f" FROM knowledge_document_t, generate_series(1, {each}) AS n WHERE path <> '0';"
            " RESET session_replication_role"
        )  # fmt: skip
        tables = "knowledge_(chunk|document|blob)_t"
        before = await rig.rows_read(tables)
        assert await queue_missing(database.pool, kinds) == count
        assert await rig.rows_read(tables) - before < 6 * count  # one for its owner


def service_of(vectors: list[Any]) -> Recorder:
    return Recorder(body=msgspec.json.encode(vectors))


@pytest.mark.parametrize(
    "service",
    [
        service_of([[0.5] * 383]),
        service_of([]),
        service_of([vector("a")] * 3),
        Recorder(body=b"[[NaN" + b", 0.5" * 383 + b"]]"),
        Recorder(status=500),
        Silent(),
    ],
    ids=["short", "fewer", "more", "NaN", "500", "silent"],
)
async def test_a_query_without_a_vector_is_answered_by_words(
    database: Database, serve: Serve, service: Any
) -> None:
    """A query without a vector is answered by words (F1.16)."""
    given = embedding(provider="local-http", url=await serve(service), model="m", timeout_s=1.0)
    embedder = make_embedder(given)
    settings = knowledge_settings(semantic_share=0.5, encode_timeout_s=1.0)
    async with open_rig(database, settings, lambda _: embedder) as rig:
        assert embedder is not None
        await register(database.pool, embedder, KIND.purpose)
        ann = rig.caller()
        await ann.add("The heron nests in reeds.")
        found = await ann("query", query="where do herons nest?")
        assert [one.text for one in found.evidence] == ["The heron nests in reeds."]
        assert "words only" in found.note
        await embedder.close()


async def test_documents_are_stored_and_found_during_reembedding_and_reindexing(
    database: Database,
) -> None:
    """Documents are stored and found during reembedding and reindexing (F1.30)."""
    kinds = search_kinds([KIND])
    async with open_rig(database, knowledge_settings(exact_limit=4), lambda _: Newer()) as rig:
        await add_coloured_chunks(rig, 8)
        await register(database.pool, Newer(), KIND.purpose)
        ann, posted = rig.caller(), anyio.Event()

        async def index_again() -> None:
            while not posted.is_set():
                await queue_missing(database.pool, kinds)
                worker = Worker(database.pool, Newer(), load(None, {}).embedding, kinds=kinds)
                while await worker.step():
                    pass
                await ensure_indexes(database, 4)
                async with database.connect() as connection:
                    await connection.execute("REINDEX TABLE CONCURRENTLY knowledge_chunk_t")
                    await connection.execute("REINDEX TABLE CONCURRENTLY search_wordlist_t")

        async def store_again() -> None:
            files = {f"{number}.txt": b"It is grey." for number in range(20)}
            while not posted.is_set():
                packed = base64.b64encode(archive(files)).decode()
                await ann("add_file", collection="bot", path="birds.zip", data=packed)
                files[f"{len(files)}.txt"] = b"It is blue."

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(index_again)
            tasks.start_soon(store_again)
            for number in range(40):
                text = f"User: What is {number}?\nAssistant: It is number{number}."
                added = await ann.add(text, "bot", path=f"conv_{number}.txt", kind="conversation")
                assert added.changed
                found = await ann("query", query=f"number{number}", limit=1)
                assert [one.text for one in found.evidence] == [text]
                assert found.note is None
            posted.set()


async def test_texts_without_a_vector_are_found_by_words(database: Database) -> None:
    """Texts without a vector are found by words (K06)."""
    settings = knowledge_settings(semantic_share=0.5)
    async with open_rig(database, settings, lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 4)
        await rig.caller().add("It is violet, or red.", path="new.md")
        found = await rig.caller()("query", query="violet")
        assert found.evidence[0].path == "new.md"


async def test_passages_are_listed_with_their_vectors(database: Database) -> None:
    """Passages are listed with their vectors (L07)."""
    async with open_rig(database, knowledge_settings(), lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 1)
        await rig.caller().add("It has none yet.", "of-ann", path="z.md")
        ann, library = Context(identity_of("ann", SCOPES), JSON_RPC, "1"), rig.parts.library
        red, new = await library.chunks(ann, "of-ann", embeddings=True)
        (vector,) = await Colours().embed([red.text])
        assert (red.model, len(red.embedding)) == ("test/colours", VECTOR_DIMENSION)
        assert numpy.argmax(red.embedding) == numpy.argmax(vector)
        assert (new.model, list(new.embedding)) == ("", [])
        assert not any(one.embedding for one in await library.chunks(ann, "of-ann"))


@pytest.mark.parametrize(
    ("glob", "matches", "others"),
    [
        ("docs/*.md", ["docs/a.md"], ["docs/b/a.md", "docs/a.txt", "docs/a.md.txt"]),
        ("docs/**", ["docs/a.md", "docs/b/a.md"], ["other/docs/a.md"]),
        ("**/a.md", ["a.md", "docs/a.md", "docs/b/a.md"], ["docs/ba.md"]),
        ("a?c.md", ["abc.md"], ["ac.md", "a/c.md"]),
        ("a+(b)|[c]$.{2}^", ["a+(b)|[c]$.{2}^"], ["aab", "c"]),
        ("\\d*", ["\\d1"], ["1"]),
    ],
)
async def test_patterns_of_paths(
    rig: KnowledgeRig, glob: str, matches: list[str], others: list[str]
) -> None:
    ann = rig.caller()
    for path in (*matches, *others):
        await ann.add(f"A heron at {len(path)}.", path=path)
    found = await ann("query", query="heron", limit=50, filter={"paths": [glob]})
    assert sorted(one.path for one in found.evidence) == sorted(matches)


async def test_a_query_that_shares_nothing_is_told_and_scores_low(database: Database) -> None:
    """A query of which no word is known has a note, and no passage with a score near 1
    (mending 45)."""
    async with open_rig(database, knowledge_settings(), lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 8)
        asked = ChunkQuery(reader=READER, text="wqrt xqzv")
        for mode in ("naive", "local", "mix", "global", "hybrid"):
            found = await rig.parts.searcher.search(replace(asked, mode=mode))
            assert (found.note, max(one.score for one in found.passages) < 0.7) == (NO_WORDS, True)
            known = await rig.parts.searcher.search(replace(asked, mode=mode, text="It is red"))
            assert (known.note, known.passages[0].path.partition("/")[0]) == (None, "red")


def collect_plans(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The plans of the following searches for candidates."""
    plans: list[dict[str, Any]] = []
    run = Transaction.rows

    async def explain(self: Transaction, planner: Any, statement: bytes, values: Any) -> Any:
        rows = await run(self, planner, statement, values)
        if b"worded_best" in statement:  # planned as the statement itself, by its settings
            explained = b"EXPLAIN (ANALYZE, FORMAT JSON) " + statement
            ((plan,),) = await run(self, planner, explained, values)
            plans.append(plan[0]["Plan"])
        return rows

    monkeypatch.setattr(Transaction, "rows", explain)
    return plans


def joins_of_subplans(plan: dict[str, Any], *, inside: bool = False) -> int:
    """Joins that a plan makes for each row of another table."""
    inside = inside or plan.get("Parent Relationship") == "SubPlan"
    own = int(inside and "Join Type" in plan)
    return own + sum(joins_of_subplans(inner, inside=inside) for inner in plan.get("Plans", ()))


FILTERS: dict[str, ChunkFilter] = {
    "paths": ChunkFilter(paths=("**/*.md", "*.md")),
    "kinds": ChunkFilter(kinds=("text", "section")),
    "since": ChunkFilter(since=datetime(2020, 1, 1, tzinfo=UTC)),
    "heading": ChunkFilter(heading="a"),
}


async def test_filters_are_one_join(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter is one join, not a plan for many rows that is run for each chunk (mending 44)."""
    plans = collect_plans(monkeypatch)
    async with open_rig(database, knowledge_settings(), lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 40)
        for name, narrow in FILTERS.items():
            query = ChunkQuery(reader=READER, text="crimson", filter=narrow)
            await rig.parts.searcher.search(query)
            assert joins_of_subplans(plans.pop()) == 0, name
            assert not plans, name


async def test_filters_are_planned_for_their_values(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for one pattern of paths is not kept for others, which leave more (mending 44)."""
    planners: list[str] = []
    run = Transaction.rows

    async def record(self: Transaction, planner: Any, statement: bytes, values: Any) -> Any:
        if b"worded_best" in statement:
            planners.append(planner["plans"])
        return await run(self, planner, statement, values)

    monkeypatch.setattr(Transaction, "rows", record)
    async with open_rig(database, knowledge_settings(), lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 4)
        query = ChunkQuery(reader=READER, text="red", filter=ChunkFilter(paths=("**/*.md",)))
        assert (await rig.parts.searcher.search(query)).passages
    assert planners == ["force_custom_plan"]


async def test_filters_beside_the_index_are_a_list(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that leaves some thousand chunks of an index is evaluated once, not for each chunk
    that the index proposes (mending 44)."""
    plans = collect_plans(monkeypatch)
    settings = knowledge_settings(exact_limit=4, semantic_share=1.0)
    async with open_rig(database, settings, lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 28)
        await ensure_indexes(database, 4)
        query = ChunkQuery(reader=READER, text="green", filter=ChunkFilter(paths=("green/*",)))
        found = await rig.parts.searcher.search(replace(query, mode="naive"))
    assert len(found.passages) == 7
    [plan] = plans
    assert joins_of_subplans(plan) == 0


async def test_chunks_far_from_the_query_are_found_where_the_index_ends_early(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that a filter leaves are compared one by one if a scan of the index, which is bounded,
    has not come to them (mending 44)."""
    once = transaction.PLANNER.replace(b"'relaxed_order'", b"'off'")
    monkeypatch.setattr(transaction, "PLANNER", once)
    monkeypatch.setattr(chunk_search, "EF", 1)
    settings = knowledge_settings(exact_limit=4, semantic_share=1.0, candidates=2)
    async with open_rig(database, settings, lambda _: Colours()) as rig:
        await add_coloured_chunks(rig, 28)
        await ensure_indexes(database, 4)
        narrow = ChunkFilter(paths=("green/*",))
        query = ChunkQuery(reader=READER, text="crimson", filter=narrow, limit=2, mode="naive")
        assert len((await rig.parts.searcher.search(query)).passages) == 2


async def test_a_text_of_one_owner_does_not_wait_for_the_burst_of_another(
    database: Database,
) -> None:
    """Owners of collections share what a claim has for their tenant, however many collections one
    of them has (mending 5)."""
    async with open_rig(database) as rig:
        await register(rig.database.pool, Colours(), KIND.purpose)
        ann, bo = rig.caller("ann"), rig.caller("bo")
        for number in range(30):
            await ann.add(f"It is red, {number}.", f"burst-{number % 6}", path=f"{number}.md")
        await bo.add("It is blue.", "small", path="blue.md")
        settings = msgspec.structs.replace(load(None, {}).embedding, batch_size=1)
        worker = Worker(rig.database.pool, Colours(), settings, kinds=search_kinds([KIND]))
        assert 2 <= await worker.step() < 10
        left = (
            "SELECT count(*) FROM embedding_task_t JOIN knowledge_chunk_t ON entity_id = chunk_id"
        )
        left += " JOIN knowledge_collection_t USING (collection_id) WHERE owner = 'user:bo'"
        assert await rig.rows(left) == [(0,)]
        while await worker.step():
            pass
        assert await rig.rows("SELECT count(*) FROM embedding_task_t") == [(0,)]
