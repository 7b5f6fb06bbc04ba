"""A kind of search that the product does not know: notes of people, with tables of their own."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import anyio
import psycopg
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from registry.database.migrate import REGISTRY, Component
from registry.database.postgres import Database
from registry.embedding.backfills import backfill, queue_missing
from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import ServingEmbedder
from registry.embedding.search_kinds import TOOL, SearchKind, search_kinds
from registry.embedding.status import status
from registry.embedding.target_models import Models, check_kinds, models, purge, register, settle
from registry.embedding.worker import BATCHES_LIMIT, Worker
from registry.embedding.worker_pool import WorkerPool
from registry.search import Filters, Mode, Search, SearchQuery
from registry.sources.import_plan import SourceDraft
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST, TEMPLATE, Cluster, lend_database, own_database
from tests.polling import until
from tests.recycling import Recycling
from tests.registry.embedding.conftest import SETTINGS as EMBEDDING
from tests.registry.embedding.conftest import draft
from tests.registry.embedding.fakes import HashEmbedder
from tests.registry.search.finding import SETTINGS
from tests.registry.search.meaning import Words

NOTES = Component("notes", Path(__file__).parents[1] / "database" / "toy_migrations" / "notes")
NOTE = SearchKind("note", "passages", owned=True, expires=True, semantic_share=0.5)
KINDS = search_kinds([NOTE])
pytestmark = pytest.mark.anyio
LATER, BEFORE = "2999-01-01", "2001-01-01"


@dataclass
class Notes:
    database: Database
    words: Words

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        async with self.database.connect() as connection:
            found = await connection.execute(statement.encode(), values)
            return await found.fetchall() if found.description else []

    async def add(
        self, owner: str, content: str, *, expires: str | None = None, topics: Sequence[str] = ()
    ) -> str:
        ((id_,),) = await self.rows(
            "INSERT INTO note_t (host_id, owner, content, expires_ts, topics)"
            " VALUES (%s, %s, %s, %s, %s) RETURNING note_id::text",
            *(HOST, owner, content, expires, list(topics)),
        )
        return str(id_)

    async def embed(self) -> None:
        worker = Worker(self.database.pool, self.words, EMBEDDING, KINDS)
        while await worker.step():
            pass

    async def find(
        self, text: str, *owners: str, mode: Mode = "hybrid", limit: int = 10, **more: Any
    ) -> list[str]:
        search = Search(lambda: self.database.pool, lambda _: self.words, SETTINGS)
        filters = Filters(HOST, owners=owners, **more)
        found = await search.run(SearchQuery(text, limit, mode, filters, NOTE))
        return [hit.description for hit in found.hits]


@pytest.fixture(scope="module")
def template(cluster: Cluster) -> Iterator[str]:
    """The name of a database with the tables of notes."""
    for settings in own_database(cluster, TEMPLATE):
        asyncio.run(_migrate(settings))
        yield urlsplit(settings.url).path[1:]


async def _migrate(settings: DatabaseSettings) -> None:
    async with Database.open(settings, wait=False, components=(REGISTRY, NOTES)):
        pass


@pytest.fixture(scope="module")
def recycling_of_notes(cluster: Cluster, template: str) -> Iterator[Recycling]:
    recycling = Recycling(cluster.url, cluster.execute, template)
    yield recycling
    recycling.close()


@pytest.fixture
def own_settings(cluster: Cluster, recycling_of_notes: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, recycling_of_notes)


@pytest.fixture
async def notes(own_settings: DatabaseSettings) -> AsyncIterator[Notes]:
    async with Database.open(own_settings, wait=False, migrate=False) as database:
        words = Words()
        await register(database.pool, words, "passages")
        notes = Notes(database, words)
        await notes.rows("INSERT INTO host_t VALUES (%s, 'ours') ON CONFLICT DO NOTHING", HOST)
        yield notes


MODES: tuple[Mode, ...] = ("lexical", "hybrid", "dense")


@pytest.mark.parametrize("mode", MODES)
async def test_an_owner_finds_the_own_notes_by_words_and_by_meaning(
    notes: Notes, mode: Mode
) -> None:
    await notes.add("ann", "The invoice goes to the office in Bern.")
    await notes.add("bob", "The invoice of Bob goes to Paris.")
    await notes.add("", "The invoice rules of the house.")
    await notes.embed()
    assert await notes.find("invoice", "ann", mode=mode) == [
        "The invoice goes to the office in Bern."
    ]
    assert len(await notes.find("invoice", "ann", "", mode=mode)) == 2
    assert len(await notes.find("invoice", "ann", "bob", "", mode=mode)) == 3
    assert await notes.find("invoice", "carl", mode=mode) == []
    assert await notes.find("invoice", mode=mode) == []


async def test_meaning_finds_notes_without_shared_words(notes: Notes) -> None:
    await notes.add("ann", "Money for the landlord.")
    await notes.embed()
    assert await notes.find("bill", "ann", mode="lexical") == []
    assert await notes.find("bill", "ann") == ["Money for the landlord."]


@pytest.mark.parametrize("mode", MODES)
async def test_a_note_is_found_until_expiry(notes: Notes, mode: Mode) -> None:
    id_ = await notes.add("ann", "The door code is secret.", expires=LATER)
    await notes.embed()
    assert len(await notes.find("door code", "ann", mode=mode)) == 1
    await notes.rows("UPDATE note_t SET expires_ts = %s WHERE note_id = %s", BEFORE, id_)
    assert await notes.find("door code", "ann", mode=mode) == []


@pytest.mark.parametrize("mode", MODES)
async def test_facets_narrow(notes: Notes, mode: Mode) -> None:
    await notes.add("ann", "Call the plumber.", topics=["home", "urgent"])
    await notes.add("ann", "Call the bank.", topics=["money"])
    await notes.embed()
    for topics, count in (([["home"]], 1), ([["home"], ["money"]], 2), ([["home", "money"]], 0)):
        facets = [{"topics": some} for some in topics]
        assert len(await notes.find("call", "ann", mode=mode, facets=facets)) == count


ODD = ("ann", "", "ann' OR true --", "%(owners)s", "{ann,bob}", "*", 'a"n\\n', "ANN", "ann ", "änn")
TOPICS = ("home", "' || true || '", "%s", "$.**", "{}")


async def test_only_notes_permitted_by_filters_are_found(notes: Notes) -> None:
    random, all_ = Random(5), list[tuple[str, str, str | None, list[str]]]()
    for number in range(60):
        topics = random.sample(TOPICS, random.randint(0, 3))
        expires = random.choice((None, LATER, BEFORE))
        all_.append((random.choice(ODD), f"Bill number {number}.", expires, topics))
        await notes.add(*all_[-1][:2], expires=expires, topics=topics)
    await notes.embed()
    for mode in MODES * 25:
        owners = random.sample(ODD, random.randint(0, 4))
        wanted = random.choice((None, random.sample(TOPICS, 1), random.sample(TOPICS, 2)))
        at = random.choice(
            (None, datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC))
        )
        facets = None if wanted is None else [{"topics": wanted}]
        moment = (at or datetime.now(UTC)).date().isoformat()
        found = await notes.find("bill", *owners, mode=mode, limit=100, facets=facets, at=at)
        assert sorted(found) == sorted(
            content
            for owner, content, expires, topics in all_
            if owner in owners
            and (expires is None or expires > moment)
            and (wanted is None or set(wanted) <= set(topics))
        ), (mode, owners, wanted, at)


async def test_a_note_moves_to_another_owner(notes: Notes) -> None:
    id_ = await notes.add("ann", "The spare key is under the mat.")
    await notes.embed()
    await notes.rows("UPDATE note_t SET owner = 'bob' WHERE note_id = %s", id_)
    assert await notes.find("spare key", "ann") == []
    assert len(await notes.find("spare key", "bob")) == 1


async def test_scores_do_not_depend_on_notes_of_other_owners(notes: Notes) -> None:
    await notes.add("ann", "One garden.")
    alone = await _lexical_score(notes)
    for number in range(20):
        await notes.add("bob", f"Garden number {number}.")
    assert await _lexical_score(notes) == alone


async def _lexical_score(notes: Notes) -> float:
    search = Search(lambda: notes.database.pool, lambda _: None, SETTINGS)
    query = SearchQuery("garden", 5, "lexical", Filters(HOST, owners=["ann"]), NOTE)
    (hit,) = (await search.run(query)).hits
    return hit.lexical


async def test_a_note_that_is_deleted_leaves_nothing_behind(notes: Notes) -> None:
    await notes.add("ann", "Forget me.")
    await notes.add("ann", "Keep me.")
    await notes.embed()
    await notes.add("ann", "Forget me too.")  # queued, not embedded
    await notes.rows("DELETE FROM note_t WHERE content LIKE 'Forget%%'")
    for table in ("entity_embedding_t", "search_doc_t"):
        assert await notes.rows(f"SELECT count(*) FROM {table}") == [(1,)]
    assert await notes.rows("SELECT count(*) FROM embedding_task_t") == [(0,)]
    assert await notes.rows("SELECT term FROM search_count_t WHERE term <> ''") == [("keep",)]
    assert await notes.find("forget", "ann") == ["Keep me."]


async def test_a_note_out_of_service_is_neither_found_nor_queued(notes: Notes) -> None:
    await notes.add("ann", "Dormant note.")
    await notes.rows("UPDATE note_t SET active = false")
    assert await notes.rows("SELECT FROM embedding_task_t") == []
    assert await notes.find("dormant", "ann") == []


async def test_a_backfill_queues_notes_that_lost_their_vectors(notes: Notes) -> None:
    await notes.add("ann", "Once embedded.")
    await notes.embed()
    await notes.rows("DELETE FROM entity_embedding_t")
    assert await backfill(notes.database.pool) == 0  # a process without this kind
    assert await backfill(notes.database.pool, KINDS) == 1


async def test_a_process_that_does_not_know_the_kind_leaves_its_tasks_alone(notes: Notes) -> None:
    await notes.add("ann", "Not for everybody's workers.")
    assert await Worker(notes.database.pool, notes.words, EMBEDDING).step() == 0
    assert await notes.rows("SELECT status FROM embedding_task_t") == [("pending",)]


async def test_owners_are_required_exactly_for_kinds_with_owners(notes: Notes) -> None:
    search = Search(lambda: notes.database.pool, lambda _: None, SETTINGS)
    with pytest.raises(ValueError, match="note takes the owners"):
        await search.run(SearchQuery("x", 5, "lexical", Filters(HOST), NOTE))
    with pytest.raises(ValueError, match="tool takes no owners"):
        await search.run(SearchQuery("x", 5, "lexical", Filters(HOST, owners=["ann"]), TOOL))


def test_two_kinds_of_one_name_and_odd_names_are_refused() -> None:
    with pytest.raises(ValueError, match="two kinds of search of the name 'tool'"):
        search_kinds([SearchKind("tool")])
    for name in ("Note", "note; DROP", "", "x" * 33):
        with pytest.raises(ValueError, match="is not a name"):
            SearchKind(name)


async def test_a_kind_that_no_migration_added_is_refused(notes: Notes) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="no kind of entity memo"):
        await notes.rows("SELECT search_refresh('memo', '{}', '{}')")


async def test_a_purpose_has_a_model_of_its_own(notes: Notes) -> None:
    pool, tools = notes.database.pool, HashEmbedder("fake/tools")
    await register(pool, tools)
    await ToolStore(pool).save(HOST, SourceDraft("pets", "openapi", "x.json"), [draft("getPet")])
    await notes.add("ann", "Feed the cat.")
    queued = "SELECT entity_type, model FROM embedding_task_t ORDER BY 1"
    assert await notes.rows(queued) == [("note", notes.words.model), ("tool", "fake/tools")]
    worker = Worker(pool, tools, EMBEDDING, KINDS)
    while await worker.step():
        pass
    assert await notes.rows(queued) == [("note", notes.words.model)]
    await notes.embed()
    assert await purge(pool) == 0
    found = await status(pool, HOST)
    assert found.models == {
        "passages": Models(notes.words.model, notes.words.model),
        "tools": Models("fake/tools", "fake/tools"),
    }
    assert [(one.entity_type, one.model, one.ready) for one in found.counts] == [
        ("tool", "fake/tools", 1),
        ("note", notes.words.model, 1),
    ]


async def test_queries_are_encoded_by_the_model_of_the_purpose(notes: Notes) -> None:
    await notes.add("ann", "Feed the cat.")
    await notes.embed()
    asked: list[str] = []

    def embedder(purpose: str) -> Words:
        asked.append(purpose)
        return notes.words

    search = Search(lambda: notes.database.pool, embedder, SETTINGS)
    await search.run(SearchQuery("cat", 5, "hybrid", Filters(HOST, owners=["ann"]), NOTE))
    await search.run(SearchQuery("cat", 5, "hybrid", Filters(HOST), TOOL))
    assert asked == ["passages", "tools"]


async def test_a_new_model_of_one_purpose_does_not_affect_other_purposes(notes: Notes) -> None:
    pool, tools, new = notes.database.pool, HashEmbedder("fake/tools"), Words("test/new")
    await register(pool, tools)
    await notes.add("ann", "Feed the cat.")
    await notes.embed()
    await register(pool, new, "passages")
    assert await queue_missing(pool, KINDS) == 1
    async with notes.database.connect() as connection:
        assert not await settle(connection, "passages", KINDS)
        await Worker(pool, new, EMBEDDING, KINDS).step()
        assert await settle(connection, "passages", KINDS)
        assert await models(connection) == Models("fake/tools", "fake/tools")
    assert await purge(pool) == 1, "of the old model"
    notes.words = new
    assert await notes.find("cat", "ann") == ["Feed the cat."]


async def test_a_purpose_may_be_disabled_alone(notes: Notes) -> None:
    pool = notes.database.pool
    await register(pool, HashEmbedder("fake/tools"))
    await notes.add("ann", "Feed the cat.")
    await register(pool, None, "passages")
    assert await notes.rows("SELECT status FROM entity_embedding_t") == [("disabled",)]
    assert await queue_missing(pool, KINDS) == 0
    async with notes.database.connect() as connection:
        assert (await models(connection)).target == "fake/tools"


async def test_a_crew_refuses_a_kind_with_another_purpose_than_its_migration(notes: Notes) -> None:
    with pytest.raises(EmbeddingFailed, match="note has the purpose passages in the database"):
        await check_kinds(notes.database.pool, search_kinds([SearchKind("note")]))
    with pytest.raises(EmbeddingFailed, match="memo is missing in the database"):
        await check_kinds(notes.database.pool, search_kinds([SearchKind("memo")]))


async def test_crews_of_two_purposes_work_side_by_side(notes: Notes) -> None:
    pool, tools = notes.database.pool, HashEmbedder("fake/tools")
    settings = replace(EMBEDDING, workers=1, poll_s=0.02)
    pairs = (("tools", tools), ("passages", notes.words))
    crews = [
        WorkerPool(
            notes.database,
            embedder,
            settings=settings,
            serving=ServingEmbedder(lambda: pool, settings, embedder, purpose),
            kinds=KINDS,
        )
        for purpose, embedder in pairs
    ]
    await notes.add("ann", "Feed the cat.")
    await ToolStore(pool).save(HOST, SourceDraft("pets", "openapi", "x.json"), [draft("getPet")])
    async with anyio.create_task_group() as tasks:
        for crew in crews:
            tasks.start_soon(crew.run)
        await until(lambda: [crew.stored_count for crew in crews] == [1, 1])
        for crew in crews:
            crew.stop()
    assert await notes.find("cat", "ann") == ["Feed the cat."]


LONG_QUEUE = """
SET LOCAL session_replication_role = replica;
INSERT INTO note_t (host_id, owner, content)
SELECT '{host}', 'ann', 'Note number ' || n FROM generate_series(1, 10000) AS n;
INSERT INTO entity_embedding_t (host_id, entity_type, entity_id, model, source_hash, status)
SELECT host_id, 'note', note_id, '{model}', source_hash(content), 'pending' FROM note_t;
INSERT INTO embedding_task_t (host_id, entity_type, entity_id, model, source_hash)
SELECT host_id, entity_type, entity_id, model, source_hash FROM entity_embedding_t;
"""


async def test_a_long_queue_of_one_kind_delays_no_other(notes: Notes) -> None:
    """Of one model and purpose; with two, their workers have nothing to do with each other."""
    pool, fake = notes.database.pool, HashEmbedder()
    for purpose in ("tools", "passages"):
        await register(pool, fake, purpose)
    async with pool.connection() as connection:
        await connection.execute(LONG_QUEUE.format(host=HOST, model=fake.model).encode())
    worker = Worker(pool, fake, EMBEDDING, KINDS)
    await worker.step()

    async def edit() -> None:
        await ToolStore(pool).save(HOST, SourceDraft("pets", "openapi", "x"), [draft("getPet")])
        fake.batches.clear()

    fake.meanwhile = edit  # while a claim of notes is in hand
    claimed = await worker.step()
    assert claimed <= EMBEDDING.batch_size * BATCHES_LIMIT
    await worker.step()
    before = list(takewhile(lambda texts: "get pet" not in texts[0], fake.batches))
    assert (before, len(fake.batches[0])) == ([], 1), "texts between the claim in hand and the tool"
    assert await notes.rows("SELECT count(*) > 9000 FROM embedding_task_t") == [(True,)]
