"""Which model embeds, and which one's vectors are searched, while one takes over from another."""

from functools import partial

import anyio
import pytest
from msgspec.structs import replace

from registry.database.postgres import Database, borrow
from registry.embedding.backfills import queue_missing
from registry.embedding.embedder import EmbeddingFailed
from registry.embedding.embedder_factory import DISABLED_TEXT, NONE_YET, ServingEmbedder
from registry.embedding.status import status
from registry.embedding.target_models import Models, models, purge, register, settle
from registry.embedding.worker_pool import WorkerPool
from tests.fixtures_database import HOST
from tests.polling import until
from tests.registry.embedding.conftest import SETTINGS, Queued, draft
from tests.registry.embedding.fakes import HashEmbedder

pytestmark = pytest.mark.anyio

OLD, NEW = HashEmbedder("fake/old"), HashEmbedder("fake/new")


async def known_models(queued: Queued) -> Models:
    async with borrow(queued.database.pool) as connection:
        return await models(connection)


async def settle_model(queued: Queued) -> bool:
    async with borrow(queued.database.pool) as connection:
        return await settle(connection)


async def ready(queued: Queued) -> list[tuple[str, int]]:
    return await queued.rows(
        "SELECT model, count(*) FROM entity_embedding_t WHERE status = 'ready'"
        " GROUP BY model ORDER BY model"
    )


@pytest.fixture
async def old(unregistered_queue: Queued) -> Queued:
    """Three tools with vectors of the old model."""
    unregistered_queue.fake = HashEmbedder("fake/old")
    await register(unregistered_queue.database.pool, unregistered_queue.fake)
    await unregistered_queue.save(*(draft(name) for name in "abc"))
    await unregistered_queue.work()
    return unregistered_queue


async def test_the_first_model_serves_at_once(unregistered_queue: Queued) -> None:
    assert await register(unregistered_queue.database.pool, OLD)
    assert await known_models(unregistered_queue) == Models("fake/old", "fake/old")
    assert not await register(unregistered_queue.database.pool, OLD)


async def test_old_vectors_serve_until_the_new_vectors_are_complete(old: Queued) -> None:
    pool, new = old.database.pool, old.worker(NEW, batch_size=1)
    await register(pool, NEW)
    assert not await settle_model(old), "nothing is queued yet"
    assert await queue_missing(pool) == 3
    assert not await settle_model(old)
    await new._queue.claim(1, 1000)
    assert await ready(old) == [("fake/old", 3)]
    assert await known_models(old) == Models("fake/new", "fake/old")
    await old.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")
    while await new.step():
        pass
    assert await ready(old) == [("fake/new", 3), ("fake/old", 3)]
    assert await settle_model(old)
    assert await known_models(old) == Models("fake/new", "fake/new")
    assert await purge(pool) == 3
    assert await ready(old) == [("fake/new", 3)]
    assert await old.rows("SELECT model FROM embedding_model_t") == [("fake/new",)]


async def test_a_text_edited_meanwhile_loses_its_old_vector(old: Queued) -> None:
    await register(old.database.pool, NEW)
    await old.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'a'")
    assert await ready(old) == [("fake/old", 2)]
    assert await old.vectors() == {
        "a": ("pending", "fake/new"), "b": ("ready", "fake/old"), "c": ("ready", "fake/old")
    }  # fmt: skip


async def test_a_model_that_fails_does_not_take_over(old: Queued) -> None:
    bad = HashEmbedder("fake/new", poison="Does")
    await register(old.database.pool, bad)
    await queue_missing(old.database.pool)
    worker = old.worker(bad)
    while await worker.step():
        pass
    assert not await settle_model(old)
    assert await known_models(old) == Models("fake/new", "fake/old")


async def test_a_model_that_does_not_work_is_not_even_the_target(old: Queued) -> None:
    with pytest.raises(EmbeddingFailed, match="nobody answers"):
        await register(old.database.pool, HashEmbedder("fake/broken", down=True))
    assert await known_models(old) == Models("fake/old", "fake/old")


async def test_the_old_model_can_come_back(old: Queued) -> None:
    pool = old.database.pool
    await register(pool, NEW)
    await queue_missing(pool)
    await register(pool, OLD)
    assert await queue_missing(pool) == 0
    assert await old.tasks() == []
    assert await known_models(old) == Models("fake/old", "fake/old")
    await purge(pool)
    assert await ready(old) == [("fake/old", 3)]


async def test_switched_off_nothing_is_queued_and_vectors_stay(old: Queued) -> None:
    pool = old.database.pool
    await old.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'a'")
    await register(pool, None)
    await old.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'b'")
    assert await old.tasks() == []
    assert await old.statuses() == {"a": "disabled", "b": "disabled", "c": "ready"}
    assert await known_models(old) == Models(None, "fake/old")
    await register(pool, OLD)
    assert await queue_missing(pool) == 2
    await old.work()
    assert await old.vectors() == dict.fromkeys("abc", ("ready", "fake/old"))


async def test_only_vectors_of_the_columns_size_can_be_stored(unregistered_queue: Queued) -> None:
    with pytest.raises(EmbeddingFailed, match=r"fake/big makes vectors of 768 numbers; only 384"):
        await register(unregistered_queue.database.pool, HashEmbedder("fake/big", dimension=768))
    assert await known_models(unregistered_queue) == Models(None, None)


async def test_counts_are_by_kind_and_model(old: Queued) -> None:
    await register(old.database.pool, NEW)
    await old.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'a'")
    found = await status(old.database.pool, HOST)
    assert [(one.model, one.role, one.total, one.ready, one.pending) for one in found.counts] == [
        ("fake/new", "target", 3, 0, 3),
        ("fake/old", "serving", 3, 2, 1),
    ]


async def test_queries_go_to_the_model_that_serves(old: Queued) -> None:
    def serving(target: HashEmbedder | None) -> ServingEmbedder:
        return ServingEmbedder(lambda: old.database.pool, SETTINGS, target)

    assert serving_state(serving(OLD)) == (None, None, NONE_YET)
    mine, others, none = serving(OLD), serving(NEW), serving(None)
    for one in (mine, others, none):
        await one.refresh()
    assert serving_state(mine) == ("fake/old", "fake/old", None)
    unreachable = "The vectors are of fake/old, which these settings cannot reach."
    assert serving_state(others) == (None, "fake/old", unreachable)
    assert serving_state(none) == (None, "fake/old", DISABLED_TEXT)
    bundled = HashEmbedder("bundled/toolgate-minilm-2")
    await old.execute("UPDATE embedding_model_t SET model = %s", bundled.model)
    await others.refresh()
    assert serving_state(others) == (bundled.model, bundled.model, None), "it is always there"


async def test_a_crew_takes_over_by_itself(old: Queued) -> None:
    asked: list[str] = []

    async def after(_database: Database) -> None:
        asked.append("after")

    serving = ServingEmbedder(lambda: old.database.pool, SETTINGS, NEW)
    settings = replace(SETTINGS, workers=2, poll_s=0.05)
    crew = WorkerPool(old.database, NEW, settings=settings, serving=serving, after=after)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crew.run)
        await until(lambda: serving.label == "fake/new")
        await old.execute("UPDATE tool_t SET description = 'Edited.'")
        await until(lambda: crew.stored_count == 6)
        crew.stop()
    assert serving.embedder is NEW
    assert asked
    assert (await ready(old))[0] == ("fake/new", 3)


@pytest.mark.parametrize("retryable", [True, False])
async def test_a_crew_goes_on_when_its_model_is_mended(
    old: Queued, retryable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    new = HashEmbedder("fake/new", poison="begin", retryable=retryable)
    serving = ServingEmbedder(lambda: old.database.pool, SETTINGS, new)
    crew = WorkerPool(old.database, new, settings=replace(SETTINGS, poll_s=0.02), serving=serving)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crew.run)
        await until(lambda: len(new.batches) >= 3)
        assert (serving.models, crew.is_displaced) == (Models("fake/old", "fake/old"), False)
        new.poison, new.down = None, True
        await until(lambda: len(new.batches) >= 6)
        new.down = False
        await until(lambda: serving.label == "fake/new")
        crew.stop()
    refused = [one.reason for one in caplog.records if one.message == "embedding_model_refused"]
    assert refused == ["cannot read that", "nobody answers"]
    assert (await ready(old))[0] == ("fake/new", 3)


async def test_a_model_that_was_refused_is_not_asked_again_at_once(old: Queued) -> None:
    new = HashEmbedder("fake/new", poison="begin")
    serving = ServingEmbedder(lambda: old.database.pool, SETTINGS, new)
    settings = replace(SETTINGS, poll_s=0.02, backoff_max_s=1000)
    crew = WorkerPool(old.database, new, settings=settings, serving=serving)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crew.run)
        await until(lambda: serving.label == "fake/old" and new.batches)
        await old.execute("UPDATE embedding_model_t SET serving = false")
        await until(lambda: serving.label is None)
        crew.stop()
    assert len(new.batches) == 1


async def test_a_worker_pool_counts_tasks_claimed_elsewhere(old: Queued) -> None:
    serving = ServingEmbedder(lambda: old.database.pool, SETTINGS, old.fake)
    crew = WorkerPool(old.database, old.fake, settings=SETTINGS, serving=serving)
    await old.execute("UPDATE tool_t SET description = 'Edited.'")
    await old.worker()._queue.claim(2, 1000)
    await crew._workers[0]._queue.claim(1, 1000)
    assert await crew.elsewhere() == 2


async def test_a_notice_wakes_a_crew_that_polls_seldom(embedding_queue: Queued) -> None:
    serving = ServingEmbedder(lambda: embedding_queue.database.pool, SETTINGS, embedding_queue.fake)
    crew = WorkerPool(
        embedding_queue.database,
        embedding_queue.fake,
        settings=replace(SETTINGS, poll_s=1000),
        serving=serving,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crew.run)
        for number in range(1, 4):
            await embedding_queue.save(draft("a", description=f"Edit {number}."))
            await until(partial(has_stored, crew, number))
        crew.stop()


def has_stored(crew: WorkerPool, count: int) -> bool:
    return crew.stored_count == count


def serving_state(serving: ServingEmbedder) -> tuple[str | None, str | None, str | None]:
    model = serving.embedder.model if serving.embedder else None
    return model, serving.label, serving.note
