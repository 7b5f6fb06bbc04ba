"""Workers: what they store, and what becomes of all that goes wrong."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import numpy as np
import psycopg
import pytest

from registry.embedding.backfills import backfill, refresh, retry
from registry.embedding.status import embedding_of, status
from registry.embedding.target_models import register
from registry.embedding.worker import FINAL_RETRY_S, Worker
from tests.fixtures_database import HOST
from tests.polling import until
from tests.registry.embedding.conftest import Queued, draft
from tests.registry.embedding.fakes import HashEmbedder, vector

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-4000-8000-00000000beef"
DUE = "SELECT status, attempt_count, isfinite(next_attempt_ts), last_error FROM embedding_task_t"


async def test_a_vector_is_stored_with_its_model_and_the_task_ends(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("getPet", tags=("pets",)))
    worker = await embedding_queue.work()
    assert worker.done == 1
    ((text,),) = embedding_queue.fake.batches
    assert "get pet" in text.lower()
    ((stored, dimension),) = await embedding_queue.rows(
        "SELECT embedding::text, dimension FROM entity_embedding_t"
    )
    assert np.allclose(np.fromstring(stored.strip("[]"), sep=","), vector(text), atol=1e-6)
    assert dimension == 384
    assert await embedding_queue.tasks() == []
    (tool,) = await embedding_queue.store.tools(HOST)
    found = await embedding_of(embedding_queue.database.pool, HOST, tool.id)
    assert (found.status, found.model, found.error) == ("ready", "fake/hash", None)
    assert found.embedded is not None


async def test_each_text_of_a_batch_gets_its_own_vector(embedding_queue: Queued) -> None:
    await embedding_queue.save(*(draft(f"tool{number}") for number in range(5)))
    await embedding_queue.work()
    (texts,) = embedding_queue.fake.batches
    stored = await embedding_queue.rows(
        "SELECT name, embedding::real[] FROM entity_embedding_t JOIN tool_t ON entity_id = tool_id"
    )
    assert len(stored) == len(texts) == 5
    for name, numbers in stored:
        (own,) = (text for text in texts if name in text)
        assert np.array_equal(np.float32(numbers), vector(own))


async def test_a_quick_worker_takes_more_at_a_time(embedding_queue: Queued) -> None:
    await embedding_queue.save(*(draft(f"tool{number}") for number in range(40)))
    await embedding_queue.work(batch_size=1)
    assert [len(batch) for batch in embedding_queue.fake.batches] == [4, 8, 16, 12]


async def test_a_text_of_one_tenant_does_not_wait_for_the_burst_of_another(
    embedding_queue: Queued,
) -> None:
    """Tenants share each claim, and the one with the fewest texts comes first (mending 5)."""
    await embedding_queue.save(*(draft(f"tool{number}") for number in range(40)))
    await embedding_queue.execute("INSERT INTO host_t (host_id, name) VALUES (%s, 'b')", OTHER)
    await embedding_queue.save(draft("small"), draft("late"), host_id=OTHER)
    worker = embedding_queue.worker(batch_size=1)
    assert await worker.step() == 4
    first = " ".join(embedding_queue.fake.batches[0])
    assert ("small" in first, "late" in first) == (True, True)
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


async def test_more_tenants_than_places_of_a_claim_are_all_served(embedding_queue: Queued) -> None:
    """A claim has a bounded number of tenants, whichever these are (mending 5)."""
    for number in range(12):
        tenant = str(uuid.UUID(int=number + 1))
        await embedding_queue.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, %s)", tenant, tenant
        )
        await embedding_queue.save(draft("a"), draft("b"), host_id=tenant)
    worker = embedding_queue.worker(batch_size=1)
    assert await worker.step() == 4
    await embedding_queue.work()
    assert await embedding_queue.rows(
        "SELECT count(*) FROM entity_embedding_t WHERE status = 'ready'"
    ) == [(24,)]


@pytest.mark.parametrize("owners", [2, 12])
async def test_owners_within_a_tenant_are_all_served(embedding_queue: Queued, owners: int) -> None:
    """A claim takes texts of several owners of a tenant, the fewest first (mending 5)."""
    await embedding_queue.save(*(draft(f"tool{number}") for number in range(20)))
    turns = [2**31 - 1, -(2**31), *range(owners - 2)]
    await embedding_queue.execute("UPDATE embedding_task_t SET turn = %s", turns[0])
    for turn in turns[1:]:
        await embedding_queue.save(draft("small"), source=f"source{turn}")
        await embedding_queue.execute("UPDATE embedding_task_t SET turn = %s WHERE turn = 0", turn)
    await embedding_queue.worker(batch_size=1).step()
    assert len(embedding_queue.fake.batches[0]) <= 4
    if owners == 2:
        assert "small" in embedding_queue.fake.batches[0][0]
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


async def test_a_slow_worker_takes_less_so_that_its_lease_lasts(
    embedding_queue: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.embedding.worker.QUICK_S", 0)
    monkeypatch.setattr("registry.embedding.worker.SLOW_S", 0)
    await embedding_queue.save(*(draft(f"tool{number}") for number in range(8)))
    await embedding_queue.work(batch_size=1)
    assert [len(batch) for batch in embedding_queue.fake.batches] == [4, 2, 1, 1]


async def test_a_vector_of_an_older_text_is_not_stored(embedding_queue: Queued) -> None:
    """A vector of an older text is not stored (E3)."""

    async def edit() -> None:
        await embedding_queue.execute("UPDATE tool_t SET description = 'Second edit.'")

    await embedding_queue.save(draft("a"))
    embedding_queue.fake.meanwhile = edit
    worker = embedding_queue.worker()
    await worker.step()
    assert worker.done == 0
    assert await embedding_queue.statuses() == {"a": "pending"}
    assert await embedding_queue.tasks() == [("a", "pending")]
    await embedding_queue.work()
    assert "Second edit" in embedding_queue.fake.batches[-1][0]
    assert await embedding_queue.statuses() == {"a": "ready"}


async def test_a_text_changed_back_during_embedding_is_embedded_again(
    embedding_queue: Queued,
) -> None:
    """The hash is the one that the worker has, but the task is not its own any more."""

    async def there_and_back() -> None:
        await embedding_queue.execute("UPDATE tool_t SET description = 'Other.'")
        await embedding_queue.execute("UPDATE tool_t SET description = 'Does a.'")

    await embedding_queue.save(draft("a"))
    embedding_queue.fake.meanwhile = there_and_back
    worker = embedding_queue.worker()
    assert await worker.step() == 1
    assert (worker.done, await embedding_queue.tasks()) == (0, [("a", "pending")])
    await embedding_queue.work()
    assert await embedding_queue.statuses() == {"a": "ready"}


@pytest.mark.parametrize("deletion", ["DELETE FROM tool_t", "UPDATE tool_t SET active = false"])
async def test_tools_deleted_during_embedding_get_no_vector(
    embedding_queue: Queued, deletion: str
) -> None:
    async def delete() -> None:
        await embedding_queue.execute(deletion)

    await embedding_queue.save(draft("a"), draft("b"))
    embedding_queue.fake.meanwhile = delete
    worker = await embedding_queue.work()
    assert worker.done == 0
    assert await embedding_queue.rows("SELECT FROM entity_embedding_t") == []
    assert await embedding_queue.rows("SELECT FROM embedding_task_t") == []


async def test_a_task_whose_tool_is_gone_is_dropped(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.execute("ALTER TABLE tool_t DISABLE TRIGGER tool_embedding_delete")
    await embedding_queue.execute("DELETE FROM tool_t")
    await embedding_queue.work()
    assert await embedding_queue.rows("SELECT FROM embedding_task_t") == []
    assert embedding_queue.fake.batches == []


async def test_tasks_queued_during_deletion_leave_nothing(embedding_queue: Queued) -> None:
    gone = "11111111-1111-1111-1111-111111111111"
    queue = (
        "SELECT embedding_queue('tool', ARRAY[%s::uuid], ARRAY[%s::uuid], ARRAY[source_hash('x')])"
    )
    await embedding_queue.execute(queue, HOST, gone)
    await embedding_queue.work()
    assert await embedding_queue.rows("SELECT entity_id FROM entity_embedding_t") == []
    assert await embedding_queue.rows("SELECT entity_id FROM embedding_task_t") == []


async def test_a_failed_embedding_keeps_its_reason_and_is_retried(embedding_queue: Queued) -> None:
    """A failed embedding keeps its reason and is retried (E5)."""
    await embedding_queue.save(draft("a"))
    embedding_queue.fake.down = True
    await embedding_queue.worker(retries=1).step()
    assert await embedding_queue.rows(DUE) == [("pending", 1, True, "nobody answers")]
    await embedding_queue.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")
    await embedding_queue.worker(retries=1).step()
    assert await embedding_queue.rows(DUE) == [("failed", 2, True, "nobody answers")]
    assert await embedding_queue.statuses() == {"a": "failed"}
    ((wait_s,),) = await embedding_queue.rows(
        "SELECT extract(epoch FROM next_attempt_ts - current_timestamp) FROM embedding_task_t"
    )
    assert FINAL_RETRY_S / 2 < wait_s <= FINAL_RETRY_S
    embedding_queue.fake.down = False
    ((tool_id,),) = await embedding_queue.rows("SELECT tool_id::text FROM tool_t")
    assert await refresh(embedding_queue.database.pool, HOST, [tool_id], force=False) == 1
    await embedding_queue.work()
    assert await embedding_queue.statuses() == {"a": "ready"}
    assert await refresh(embedding_queue.database.pool, HOST, [tool_id], force=False) == 0
    assert await refresh(embedding_queue.database.pool, HOST, [tool_id], force=True) == 1


async def test_pauses_grow_up_to_the_longest(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    embedding_queue.fake.down = True
    for attempt, longest_s in enumerate((100, 200, 300, 300), 1):
        await embedding_queue.worker(backoff_s=100, backoff_max_s=300).step()
        ((attempts, wait_s),) = await embedding_queue.rows(
            "SELECT attempt_count, extract(epoch FROM next_attempt_ts - clock_timestamp())"
            " FROM embedding_task_t"
        )
        assert attempts == attempt
        assert longest_s * 0.4 < wait_s <= longest_s
        await embedding_queue.execute(
            "UPDATE embedding_task_t SET next_attempt_ts = current_timestamp"
        )


async def test_a_provider_that_comes_back_finds_its_work(embedding_queue: Queued) -> None:
    await embedding_queue.save(*(draft(f"t{n}") for n in range(5)))
    embedding_queue.fake.down = True
    worker = embedding_queue.worker(poll_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: len(embedding_queue.fake.batches) > 1)
        embedding_queue.fake.down = False
        await until(lambda: worker.done == 5)
        worker.stop()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


@pytest.mark.parametrize(
    ("debounce_s", "debounce_max_s"),
    [(0.001, 3600), (3600, 0.001)],
    ids=["no_more_came", "it_lasts_too_long"],
)
async def test_an_idle_worker_begins_when_a_burst_of_texts_ends(
    embedding_queue: Queued, debounce_s: float, debounce_max_s: float
) -> None:
    worker = embedding_queue.worker(
        poll_s=3600, debounce_s=debounce_s, debounce_max_s=debounce_max_s
    )
    async with running(worker):
        await embedding_queue.save(draft("a"))
        worker.wake()
        await until(lambda: worker.done == 1)


async def test_an_idle_worker_takes_nothing_while_texts_come(embedding_queue: Queued) -> None:
    """Its threads would delay the calls that store them."""
    worker = embedding_queue.worker(poll_s=3600, debounce_s=3600, debounce_max_s=3600)
    async with running(worker) as claims:
        await embedding_queue.save(draft("a"))
        for _ in range(10):
            worker.wake()
            await anyio.wait_all_tasks_blocked()
        assert len(claims) == 1, "the one that found nothing"
    assert await embedding_queue.statuses() == {"a": "pending"}


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[list[int]]:
    """Inside, the worker runs and has found nothing to do yet. How much each claim found."""
    claims: list[int] = []
    step = worker.step

    async def count_step() -> int:
        claims.append(-1)
        claims[-1] = await step()
        return claims[-1]

    worker.step = count_step  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: claims == [0])
        await anyio.wait_all_tasks_blocked()
        yield claims
        worker.stop()


@pytest.mark.parametrize("retryable", [False, True], ids=["for_good", "for_now"])
async def test_one_bad_text_does_not_spoil_its_batch(
    embedding_queue: Queued, retryable: bool
) -> None:
    embedding_queue.fake.poison, embedding_queue.fake.retryable = "poison", retryable
    await embedding_queue.save(*(draft(n) for n in "abc"), draft("d", description="poison"))
    for _ in range(3):
        await embedding_queue.worker(retries=1).step()
        await embedding_queue.execute(
            "UPDATE embedding_task_t SET next_attempt_ts = current_timestamp"
            " WHERE status = 'pending'"
        )
    assert await embedding_queue.statuses() == {
        "a": "ready",
        "b": "ready",
        "c": "ready",
        "d": "failed",
    }
    assert await embedding_queue.rows(
        "SELECT error FROM entity_embedding_t WHERE error IS NOT NULL"
    ) == [("cannot read that",)]
    ((final,),) = await embedding_queue.rows(
        "SELECT NOT isfinite(next_attempt_ts) FROM embedding_task_t"
    )
    assert final is not retryable


@pytest.mark.parametrize("given", [3, 383, 768])
async def test_a_vector_of_a_wrong_dimension_fails(embedding_queue: Queued, given: int) -> None:
    """A vector of a wrong dimension fails (E7)."""
    embedding_queue.fake.given = given
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    assert await embedding_queue.statuses() == {"a": "failed"}
    ((error,),) = await embedding_queue.rows("SELECT error FROM entity_embedding_t")
    assert f"1 x {given}" in error
    assert "1 x 384 were expected" in error


@pytest.mark.parametrize("number", [np.nan, np.inf, 0.0, 2.0])
async def test_a_vector_that_is_none_fails(
    embedding_queue: Queued, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def odd(texts: list[str]) -> object:
        return np.full((len(texts), 384), number, dtype=np.float32)

    monkeypatch.setattr(embedding_queue.fake, "embed", odd)
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    assert await embedding_queue.statuses() == {"a": "failed"}
    assert await embedding_queue.rows("SELECT count(embedding) FROM entity_embedding_t") == [(0,)]


async def test_an_embedder_that_crashes_fails_its_texts_and_nothing_else(
    embedding_queue: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(texts: list[str]) -> object:
        raise ZeroDivisionError("postgresql://user:secret@db")

    monkeypatch.setattr(embedding_queue.fake, "embed", crash)
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    assert await embedding_queue.rows("SELECT status, error FROM entity_embedding_t") == [
        ("failed", "the embedding model crashed: ZeroDivisionError")
    ]


async def test_tasks_of_a_dead_worker_are_taken_over(embedding_queue: Queued) -> None:
    """It died after it had embedded them and before it could write."""
    await embedding_queue.save(draft("a"), draft("b"))
    dead = embedding_queue.worker()
    assert len(await dead._queue.claim(10, 1000)) == 2
    assert await embedding_queue.worker().step() == 0
    await embedding_queue.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")
    assert (await embedding_queue.work()).done == 2
    assert len(embedding_queue.fake.batches) == 2, "one by one, for one of them may have killed it"


async def test_a_text_that_kills_its_workers_comes_to_an_end(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    for _ in range(3):
        await embedding_queue.worker()._queue.claim(10, 0)
    assert await embedding_queue.worker(retries=2).step() == 1
    assert await embedding_queue.rows(DUE) == [
        ("failed", 4, False, "every worker that took it died")
    ]
    assert embedding_queue.fake.batches == []


async def test_a_worker_that_was_overtaken_stores_nothing(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    slow, fast = embedding_queue.worker(), embedding_queue.worker()
    (task,) = await slow._queue.claim(1, 0)
    assert await fast.step() == 1
    assert await slow._queue.finish([task], vector("late").reshape(1, 384)) == 0
    assert fast.done == 1


async def test_a_cancelled_worker_releases_its_tasks(embedding_queue: Queued) -> None:
    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep(1)

    await embedding_queue.save(draft("a"), draft("b"))
    embedding_queue.fake.meanwhile = cancel
    with anyio.CancelScope() as scope:
        await embedding_queue.worker().step()
    assert await embedding_queue.rows(
        "SELECT DISTINCT status, attempt_count, worker FROM embedding_task_t"
    ) == [("pending", 0, None)]
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


async def test_a_writer_of_tools_never_waits_for_a_worker(embedding_queue: Queued) -> None:
    """While an import holds rows a worker passes over them, or gives up; the import goes on."""
    await embedding_queue.save(draft("a"), draft("b"))
    worker = embedding_queue.worker()
    tasks = await worker._queue.claim(10, 1000)
    vectors = np.stack([vector(task.entity_id) for task in tasks])
    async with embedding_queue.database.connect() as connection, connection.transaction():
        await connection.execute("UPDATE tool_t SET description = 'New.' WHERE name = 'a'")
        with anyio.fail_after(60):
            assert await worker._queue.finish(tasks, vectors) == 1, "the other is passed over"
        await connection.execute("UPDATE tool_t SET description = 'New.' WHERE name = 'b'")
    assert await embedding_queue.tasks() == [("a", "pending"), ("b", "pending")]
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


async def test_a_worker_gives_up_a_row_that_is_held_for_long(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    worker = embedding_queue.worker()
    (task,) = await worker._queue.claim(1, 1000)
    async with embedding_queue.database.connect() as connection, connection.transaction():
        await connection.execute("SELECT FROM entity_embedding_t FOR UPDATE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await worker._queue.finish([task], vector("a").reshape(1, 384))


async def test_tasks_that_the_claim_of_another_worker_holds_for_a_moment_are_finished(
    embedding_queue: Queued,
) -> None:
    """A claim keeps its locks on tasks that another one took after its snapshot."""
    await embedding_queue.save(draft("a"), draft("b"))
    worker = embedding_queue.worker()
    tasks = await worker._queue.claim(10, 1000)
    vectors = np.stack([vector(task.entity_id) for task in tasks])
    finished: list[int] = []

    async def finish() -> None:
        finished.append(await worker._queue.finish(tasks, vectors))

    async def waits() -> bool:
        return bool(
            finished or await embedding_queue.rows("SELECT FROM pg_locks WHERE NOT granted")
        )

    async with (
        anyio.create_task_group() as beside,
        embedding_queue.database.connect() as other,
        other.transaction(),
    ):
        await other.execute("SELECT FROM embedding_task_t FOR UPDATE")
        beside.start_soon(finish)
        await until(waits)
    assert finished == [2]
    assert await embedding_queue.tasks() == []


async def test_retry_and_backfill_repair_failed_tasks(embedding_queue: Queued) -> None:
    pool = embedding_queue.database.pool
    await embedding_queue.save(draft("a"), draft("b"), draft("c"))
    embedding_queue.fake.poison = "Does"
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"failed"}
    assert [(one.error, one.count) for one in (await status(pool, HOST)).failed] == [
        ("cannot read that", 3)
    ]
    embedding_queue.fake.poison = None
    assert await retry(pool, HOST) == 3
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}
    await embedding_queue.execute("UPDATE entity_embedding_t SET source_hash = repeat('0', 64)")
    assert await backfill(pool) == 3
    await embedding_queue.execute("DELETE FROM embedding_task_t")  # by hand: nobody would come
    assert await backfill(pool) == 3
    await embedding_queue.work()
    assert await backfill(pool) == 0


async def test_kinds_of_newer_releases_are_left_to_their_workers(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.execute("UPDATE embedding_task_t SET entity_type = 'memory'")
    assert await embedding_queue.worker().step() == 0


async def test_workers_of_another_model_have_nothing_to_do(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    other = HashEmbedder(model="fake/other")
    assert await embedding_queue.worker(other).step() == 0
    await register(embedding_queue.database.pool, other)
    assert await embedding_queue.worker().step() == 0
