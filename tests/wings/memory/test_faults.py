"""Models and databases that are away, writers at the same time, and work that is cut off."""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import anyio
import numpy as np
import psycopg
import pytest
from anyio.lowlevel import checkpoint

from config.load import load
from config.value_types import VECTOR_DIMENSION
from config.yaml_document import SettingsError
from gateway.wings.memory.caller_owners import WRITE_ORG
from gateway.wings.memory.memory_search import KIND, KINDS
from registry.database.postgres import Database
from registry.embedding.embedder import EmbeddingFailed, Vectors
from registry.embedding.search_kinds import search_kinds
from registry.embedding.target_models import register, settle
from registry.embedding.worker import Worker
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.wings.memory.rig import Caller, Rig, memory_settings, open_rig

pytestmark = pytest.mark.anyio

ONE = {"session": "talk-1"}
LIKE = {"automobile": "car", "vehicle": "car"}


@dataclass
class Words:
    """A model that knows a few synonyms: each word has a direction."""

    model: str = "test/words"
    dimension: int = VECTOR_DIMENSION
    away: bool = False
    queries: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if self.away:
            raise EmbeddingFailed("the service does not answer", retryable=True)
        (self.queries if query else self.texts).extend(texts)
        vectors = np.full((len(texts), VECTOR_DIMENSION), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                row[crc32((self.model + LIKE.get(word, word)).encode()) % VECTOR_DIMENSION] += 1
            row /= math.sqrt(float(row @ row))
        return vectors

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Modelled:
    rig: Rig
    serving: list[Words]  # one: the model of queries

    async def use(self, model: Words) -> None:
        """Make it the model of new texts."""
        await register(self.rig.database.pool, model, KIND.purpose)

    async def embed(self, model: Words) -> None:
        """Embed what is queued, as a worker does."""
        settings = load(None, {}).embedding
        worker = Worker(self.rig.database.pool, model, settings, search_kinds(KINDS))
        while await worker.step():
            pass


@pytest.fixture
async def model_rig(database: Database) -> AsyncIterator[Modelled]:
    serving = [Words()]
    async with open_rig(database, embedder=lambda _: serving[0]) as rig:
        modelled = Modelled(rig, serving)
        await modelled.use(serving[0])
        yield modelled


async def test_memories_without_a_vector_are_found_by_words(model_rig: Modelled) -> None:
    """Memories without a vector are found by words (M13)."""
    ann = model_rig.rig.caller("ann")
    await ann.add("the car is red")
    tasks = "SELECT entity_type, model FROM embedding_task_t"
    assert await model_rig.rig.rows(tasks) == [("memory", "test/words")]
    assert await ann.find_contents("car") == ["the car is red"]
    await model_rig.embed(model_rig.serving[0])
    await ann.add("the sky is blue")
    assert (await ann.find_contents("automobile"))[0] == "the car is red"


async def test_texts_of_a_person_have_one_turn_in_whatever_session(model_rig: Modelled) -> None:
    """Persons of a tenant take turns where memories are embedded (mending 5)."""
    ann, bo = model_rig.rig.caller("ann"), model_rig.rig.caller("bo")
    for number in range(3):
        await ann.add(f"the car is red {number}", scope="session", session=f"talk-{number}")
    await ann.add("the sky is blue")
    turns = "SELECT count(DISTINCT turn), count(*) FROM embedding_task_t WHERE turn <> 0"
    assert await model_rig.rig.rows(turns) == [(1, 4)]
    await bo.add("the grass is green")
    assert await model_rig.rig.rows(turns) == [(2, 5)]


async def test_an_old_model_serves_until_a_new_model_has_embedded_everything(
    model_rig: Modelled,
) -> None:
    """An old model serves until a new model has embedded everything (M14)."""
    ann, old, new = model_rig.rig.caller("ann"), model_rig.serving[0], Words("test/other")
    await ann.add("the car is red")
    await model_rig.embed(old)
    await model_rig.use(new)
    await ann.add("the vehicle is blue")  # with the new model alone
    await model_rig.embed(new)
    [red, blue] = (await ann("search", query="automobile", explain=True)).items
    assert (red.content, red.parts["meaning"] > 0.1) == ("the car is red", True)
    assert blue.parts["meaning"] == 0.0  # vectors of two models are never compared
    await model_rig.rig.run(
        "SELECT embedding_queue('memory', array_agg(host_id), array_agg(entity_id),"
        " array_agg(source_hash(source_text))) FROM memory_source_v"
    )
    await model_rig.embed(new)
    async with model_rig.rig.database.pool.connection() as connection:
        await settle(connection, KIND.purpose, search_kinds(KINDS))
    model_rig.serving[0] = new
    found = (await ann("search", query="automobile", explain=True)).items
    assert all(one.parts["meaning"] > 0.1 for one in found)


async def test_queries_are_embedded_as_queries_and_memories_as_texts(
    model_rig: Modelled,
) -> None:
    """Queries are embedded as queries and memories as texts (M15)."""
    ann, model = model_rig.rig.caller("ann"), model_rig.serving[0]
    await ann("add", scope="user", content="the car is red", similar=False)
    await model_rig.embed(model)
    await ann.find_contents("which car?")
    assert (model.texts, model.queries) == (["the car is red"], ["which car?"])


async def test_vectors_of_another_size_are_refused_at_start(model_rig: Modelled) -> None:
    """Vectors of another size are refused at start (M16)."""
    with pytest.raises(SettingsError, match=r"dimension: expected 384, .*, found 512"):
        load(None, {"TOOLGATE_EMBEDDING__DIMENSION": "512"})
    ann = model_rig.rig.caller("ann")
    await ann.add("the car is red")
    await model_rig.embed(model_rig.serving[0])
    with pytest.raises(EmbeddingFailed, match=r"512 numbers; only 384 .*: choose another model"):
        await model_rig.use(Words("test/large", 512))
    found = await ann("search", query="automobile")  # by the vectors of the model that it has
    assert [one.content for one in found.items] == ["the car is red"]


async def test_search_without_the_model_uses_words_and_says_so(model_rig: Modelled) -> None:
    """Search without the model uses words and says so (M32)."""
    ann, model = model_rig.rig.caller("ann"), model_rig.serving[0]
    await ann.add("the car is red")
    await model_rig.embed(model)
    model.away = True
    added = await ann("add", scope="user", content="the car was sold")
    assert added.items[0].created
    found = await ann("search", query="car")
    assert {one.content for one in found.items} == {"the car is red", "the car was sold"}
    assert "by words only" in found.note


async def test_queries_in_a_script_unknown_to_the_model_use_words(
    model_rig: Modelled,
) -> None:
    """Queries in a script unknown to the model use words (M17)."""
    ann = model_rig.rig.caller("ann")
    await ann.add("the car is red", similar=False)
    await ann.add("汽车是红色的", similar=False)
    found = await ann("search", query="汽车")
    assert [one.content for one in found.items] == ["汽车是红色的"]
    assert "script" in found.note
    assert model_rig.serving[0].queries == []


async def test_concurrent_writes_of_equal_content_make_one_memory(rig: Rig) -> None:
    """Concurrent writes of equal content make one memory (M20)."""
    ann, ids = rig.caller("ann"), set()

    async def add() -> None:
        ids.add(await ann.add("Ann prefers tea"))

    await together(*[add] * 8)
    assert len(ids) == 1
    assert await rig.rows("SELECT count(*) FROM memory_t") == [(1,)]


async def test_writers_of_one_slot_leave_one_value_and_all_in_history(rig: Rig) -> None:
    """Writers of one slot leave one value and all in history (M21)."""
    ann = rig.caller("ann")

    numbers = iter(range(8))

    async def add() -> None:
        await ann.add(f"lives in city number {next(numbers)}", slot="home.city")

    await together(*[add] * 8)
    [present] = (await ann("list")).items
    assert len((await ann("history", memory=present.id)).items) == 8
    assert len(await ann.find_contents("lives in city number")) == 1
    assert await rig.rows("SELECT rows FROM memory_owner_t") == [(1,)]


async def test_concurrent_updates_of_one_version_conflict(rig: Rig) -> None:
    """Concurrent updates of one version conflict (M23)."""
    ann, outcomes = rig.caller("ann"), []
    id_ = await ann.add("has a cat")

    async def update() -> None:
        try:
            await ann("update", memory=id_, version=1, content=f"has a dog {len(outcomes)}")
            outcomes.append("changed")
        except Exception as error:
            outcomes.append(getattr(error, "kind", "?"))

    await together(update, update)
    assert sorted(outcomes) == ["changed", "conflict"]


async def cut_off(rig: Rig, table: str, work: Caller, name: str, **arguments: object) -> None:
    """Call an operation, and kill its connection once it is to write to this table."""
    async with rig.database.connect() as holder, holder.transaction():
        await holder.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE".encode())
        async with anyio.create_task_group() as tasks:

            async def call_operation() -> None:
                with pytest.raises(psycopg.OperationalError):
                    await work(name, **arguments)

            tasks.start_soon(call_operation)
            with anyio.fail_after(DEADLINE_S):
                while not await rig.rows(
                    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
                ):
                    await checkpoint()


ERASED = (  # in the order of an erasure
    "memory_tombstone_t", "memory_t", "memory_owner_t", "memory_word_t", "memory_use_t",
    "embedding_task_t", "entity_embedding_t", "memory_relation_t", "command_idempotency_t",
)  # fmt: skip


@pytest.mark.parametrize("table", ERASED)
async def test_an_interrupted_erasure_is_atomic(rig: Rig, table: str) -> None:
    """An interrupted erasure is atomic (M28)."""
    ann = rig.caller("ann")
    await ann.add("Ann prefers tea")
    await ann.add("The session says so", "session", **ONE)
    await cut_off(rig, table, ann, "forget", subject="ann")
    assert await rig.rows("SELECT count(*) FROM memory_tombstone_t") == [(0,)]
    assert len(await ann.find_contents("tea session", **ONE)) == 2
    assert (await ann("forget", subject="ann")).memories == 2


@pytest.mark.parametrize("table", ["memory_owner_t", "memory_t", "memory_word_t"])
async def test_an_interrupted_promotion_is_repeated(rig: Rig, table: str) -> None:
    """An interrupted promotion is repeated (M18)."""
    ann = rig.caller("ann")
    await ann.add("Ann prefers milk")
    for drink in ("tea", "coffee"):
        await ann.add(f"Ann prefers {drink}", "session", keep=True, **ONE)
    await cut_off(rig, table, ann, "promote", **ONE)
    assert len((await ann("list", scope="user")).items) == 1
    assert len((await ann("promote", **ONE)).ids) == 2
    assert len((await ann("promote", **ONE)).ids) == 2  # the same two
    assert len((await ann("list", scope="user")).items) == 3


async def test_the_time_of_the_database_counts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = rig.caller("ann")
    monkeypatch.setattr("time.time_ns", lambda: 946_684_800_000_000_000)  # a node in 2000
    old = await ann.add("lives in Bern", slot="home.city", expires_s=3600)
    monkeypatch.setattr("time.time_ns", lambda: 4_102_444_800_000_000_000)  # one in 2100
    new = await ann("add", content="lives in Basel", scope="user", slot="home.city")
    assert new.items[0].superseded == old
    assert await ann.find_contents("where lives") == ["lives in Basel"]
    [(near,)] = await rig.rows("SELECT bool_and(abs(extract(epoch FROM now() - created_ts)) < 600)"
                               " FROM memory_t WHERE host_id = %s", HOST)  # fmt: skip
    assert near


async def together(*work: object) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for one in work:
                tasks.start_soon(one)  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", ["user", "org"])
async def test_candidates_are_proposed_by_words_meaning_and_recency(
    database: Database, scope: str
) -> None:
    """With filters inside, as where all are compared (M10)."""
    model = Words()
    settings = memory_settings(exact_limit=4, candidates=6)
    async with open_rig(database, settings, lambda _: model) as rig:
        modelled = Modelled(rig, [model])
        await modelled.use(model)
        writer = rig.caller("ann", scopes=[WRITE_ORG])
        await writer.add("the vehicle is red", scope)
        await writer.add("an old teapot", scope, metadata={"a": 1})
        await writer.add("a hidden teapot", scope, audience=["nobody"])
        items = [{"content": f"number {number} of many"} for number in range(20)]
        await writer("add", scope=scope, items=items)
        await modelled.embed(model)
        ann = rig.caller("ann")
        assert (await ann.find_contents("teapot"))[0] == "an old teapot"
        assert await ann.find_contents("many", filter={"metadata.a": 1}) in ([], ["an old teapot"])
        assert "a hidden teapot" not in await ann.find_contents("hidden teapot", limit=50)
        assert len(await ann.find_contents("", limit=50)) in (4, 6)
        assert "19" in (await ann.find_contents("number 19"))[0]
        if scope == "org":
            assert (await ann.find_contents("automobile"))[0] == "the vehicle is red"
            assert await rig.rows(
                "SELECT sum(docs)::int FROM search_count_t JOIN search_part_t USING (part_id)"
                " WHERE entity_type = 'memory_org'"
            ) == [(23,)]


async def test_an_erasure_during_embedding_leaves_no_vector(model_rig: Modelled) -> None:
    """An erasure during embedding leaves no vector (M30)."""
    ann, model = model_rig.rig.caller("ann"), model_rig.serving[0]
    await ann("add", scope="user", content="the car is red", similar=False)

    class Erasing(Words):
        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            await ann("forget", subject="ann")
            return await model.embed(texts, query=query)

    await model_rig.embed(Erasing())
    for table in ("entity_embedding_t", "embedding_task_t", "memory_word_t"):
        assert await model_rig.rig.rows(f"SELECT count(*) FROM {table}") == [(0,)]
