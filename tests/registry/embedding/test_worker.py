"""Workers: what they store, and what becomes of all that goes wrong."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import numpy as np
import psycopg
import pytest

from registry.embedding.backfills import backfill, refresh, retry
from registry.embedding.models import register
from registry.embedding.status import embedding_of, status
from registry.embedding.worker import FINAL_RETRY_S, Worker
from tests.fixtures_database import HOST
from tests.polling import until
from tests.registry.embedding.conftest import Queued, draft
from tests.registry.embedding.fakes import HashEmbedder, vector

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-4000-8000-00000000beef"
DUE = "SELECT status, attempt_count, isfinite(next_attempt_ts), last_error FROM embedding_task_t"


async def test_a_vector_is_stored_with_its_model_and_the_task_ends(queued: Queued) -> None:
    await queued.save(draft("getPet", tags=("pets",)))
    worker = await queued.work()
    assert worker.done == 1
    ((text,),) = queued.fake.batches
    assert "get pet" in text.lower()
    ((stored, dimension),) = await queued.rows(
        "SELECT embedding::text, dimension FROM entity_embedding_t"
    )
    assert np.allclose(np.fromstring(stored.strip("[]"), sep=","), vector(text), atol=1e-6)
    assert dimension == 384
    assert await queued.tasks() == []
    (tool,) = await queued.store.tools(HOST)
    found = await embedding_of(queued.database.pool, HOST, tool.id)
    assert (found.status, found.model, found.error) == ("ready", "fake/hash", None)
    assert found.embedded is not None


async def test_each_text_of_a_batch_gets_its_own_vector(queued: Queued) -> None:
    await queued.save(*(draft(f"tool{number}") for number in range(5)))
    await queued.work()
    (texts,) = queued.fake.batches
    stored = await queued.rows(
        "SELECT name, embedding::real[] FROM entity_embedding_t JOIN tool_t ON entity_id = tool_id"
    )
    assert len(stored) == len(texts) == 5
    for name, numbers in stored:
        (own,) = (text for text in texts if name in text)
        assert np.array_equal(np.float32(numbers), vector(own))


async def test_a_quick_worker_takes_more_at_a_time(queued: Queued) -> None:
    await queued.save(*(draft(f"tool{number}") for number in range(40)))
    await queued.work(batch_size=1)
    assert [len(batch) for batch in queued.fake.batches] == [4, 8, 16, 12]


async def test_a_text_of_one_tenant_does_not_wait_for_the_burst_of_another(queued: Queued) -> None:
    """Tenants share each claim, and the one with the fewest texts comes first (mending 5)."""
    await queued.save(*(draft(f"tool{number}") for number in range(40)))
    await queued.execute("INSERT INTO host_t (host_id, name) VALUES (%s, 'b')", OTHER)
    await queued.save(draft("small"), draft("late"), host_id=OTHER)
    worker = queued.worker(batch_size=1)
    assert await worker.step() == 4
    first = " ".join(queued.fake.batches[0])
    assert ("small" in first, "late" in first) == (True, True)
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}


async def test_more_tenants_than_places_of_a_claim_are_all_served(queued: Queued) -> None:
    """A claim has a bounded number of tenants, whichever these are (mending 5)."""
    for number in range(12):
        tenant = str(uuid.UUID(int=number + 1))
        await queued.execute("INSERT INTO host_t (host_id, name) VALUES (%s, %s)", tenant, tenant)
        await queued.save(draft("a"), draft("b"), host_id=tenant)
    worker = queued.worker(batch_size=1)
    assert await worker.step() == 4
    await queued.work()
    assert await queued.rows("SELECT count(*) FROM entity_embedding_t WHERE status = 'ready'") == [
        (24,)
    ]


@pytest.mark.parametrize("owners", [2, 12])
async def test_owners_within_a_tenant_are_all_served(queued: Queued, owners: int) -> None:
    """A claim takes texts of several owners of a tenant, the fewest first (mending 5)."""
    await queued.save(*(draft(f"tool{number}") for number in range(20)))
    turns = [2**31 - 1, -(2**31), *range(owners - 2)]
    await queued.execute("UPDATE embedding_task_t SET turn = %s", turns[0])
    for turn in turns[1:]:
        await queued.save(draft("small"), source=f"source{turn}")
        await queued.execute("UPDATE embedding_task_t SET turn = %s WHERE turn = 0", turn)
    await queued.worker(batch_size=1).step()
    assert len(queued.fake.batches[0]) <= 4
    if owners == 2:
        assert "small" in queued.fake.batches[0][0]
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}


async def test_a_slow_worker_takes_less_so_that_its_lease_lasts(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.embedding.worker.QUICK_S", 0)
    monkeypatch.setattr("registry.embedding.worker.SLOW_S", 0)
    await queued.save(*(draft(f"tool{number}") for number in range(8)))
    await queued.work(batch_size=1)
    assert [len(batch) for batch in queued.fake.batches] == [4, 2, 1, 1]


async def test_a_vector_of_an_older_text_is_not_stored(queued: Queued) -> None:
    """A vector of an older text is not stored (E3)."""

    async def edit() -> None:
        await queued.execute("UPDATE tool_t SET description = 'Second edit.'")

    await queued.save(draft("a"))
    queued.fake.meanwhile = edit
    worker = queued.worker()
    await worker.step()
    assert worker.done == 0
    assert await queued.statuses() == {"a": "pending"}
    assert await queued.tasks() == [("a", "pending")]
    await queued.work()
    assert "Second edit" in queued.fake.batches[-1][0]
    assert await queued.statuses() == {"a": "ready"}


async def test_a_text_changed_back_during_embedding_is_embedded_again(queued: Queued) -> None:
    """The hash is the one that the worker has, but the task is not its own any more."""

    async def there_and_back() -> None:
        await queued.execute("UPDATE tool_t SET description = 'Other.'")
        await queued.execute("UPDATE tool_t SET description = 'Does a.'")

    await queued.save(draft("a"))
    queued.fake.meanwhile = there_and_back
    worker = queued.worker()
    assert await worker.step() == 1
    assert (worker.done, await queued.tasks()) == (0, [("a", "pending")])
    await queued.work()
    assert await queued.statuses() == {"a": "ready"}


@pytest.mark.parametrize("deletion", ["DELETE FROM tool_t", "UPDATE tool_t SET active = false"])
async def test_tools_deleted_during_embedding_get_no_vector(queued: Queued, deletion: str) -> None:
    async def delete() -> None:
        await queued.execute(deletion)

    await queued.save(draft("a"), draft("b"))
    queued.fake.meanwhile = delete
    worker = await queued.work()
    assert worker.done == 0
    assert await queued.rows("SELECT FROM entity_embedding_t") == []
    assert await queued.rows("SELECT FROM embedding_task_t") == []


async def test_a_task_whose_tool_is_gone_is_dropped(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.execute("ALTER TABLE tool_t DISABLE TRIGGER tool_embedding_delete")
    await queued.execute("DELETE FROM tool_t")
    await queued.work()
    assert await queued.rows("SELECT FROM embedding_task_t") == []
    assert queued.fake.batches == []


async def test_tasks_queued_during_deletion_leave_nothing(queued: Queued) -> None:
    gone = "11111111-1111-1111-1111-111111111111"
    queue = (
        "SELECT embedding_queue('tool', ARRAY[%s::uuid], ARRAY[%s::uuid], ARRAY[source_hash('x')])"
    )
    await queued.execute(queue, HOST, gone)
    await queued.work()
    assert await queued.rows("SELECT entity_id FROM entity_embedding_t") == []
    assert await queued.rows("SELECT entity_id FROM embedding_task_t") == []


async def test_a_failed_embedding_keeps_its_reason_and_is_retried(queued: Queued) -> None:
    """A failed embedding keeps its reason and is retried (E5)."""
    await queued.save(draft("a"))
    queued.fake.down = True
    await queued.worker(retries=1).step()
    assert await queued.rows(DUE) == [("pending", 1, True, "nobody answers")]
    await queued.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")
    await queued.worker(retries=1).step()
    assert await queued.rows(DUE) == [("failed", 2, True, "nobody answers")]
    assert await queued.statuses() == {"a": "failed"}
    ((wait_s,),) = await queued.rows(
        "SELECT extract(epoch FROM next_attempt_ts - current_timestamp) FROM embedding_task_t"
    )
    assert FINAL_RETRY_S / 2 < wait_s <= FINAL_RETRY_S
    queued.fake.down = False
    ((tool_id,),) = await queued.rows("SELECT tool_id::text FROM tool_t")
    assert await refresh(queued.database.pool, HOST, [tool_id], force=False) == 1
    await queued.work()
    assert await queued.statuses() == {"a": "ready"}
    assert await refresh(queued.database.pool, HOST, [tool_id], force=False) == 0
    assert await refresh(queued.database.pool, HOST, [tool_id], force=True) == 1


async def test_pauses_grow_up_to_the_longest(queued: Queued) -> None:
    await queued.save(draft("a"))
    queued.fake.down = True
    for attempt, longest_s in enumerate((100, 200, 300, 300), 1):
        await queued.worker(backoff_s=100, backoff_max_s=300).step()
        ((attempts, wait_s),) = await queued.rows(
            "SELECT attempt_count, extract(epoch FROM next_attempt_ts - clock_timestamp())"
            " FROM embedding_task_t"
        )
        assert attempts == attempt
        assert longest_s * 0.4 < wait_s <= longest_s
        await queued.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")


async def test_a_provider_that_comes_back_finds_its_work(queued: Queued) -> None:
    await queued.save(*(draft(f"t{n}") for n in range(5)))
    queued.fake.down = True
    worker = queued.worker(poll_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: len(queued.fake.batches) > 1)
        queued.fake.down = False
        await until(lambda: worker.done == 5)
        worker.stop()
    assert set((await queued.statuses()).values()) == {"ready"}


@pytest.mark.parametrize(
    ("debounce_s", "debounce_max_s"),
    [(0.001, 3600), (3600, 0.001)],
    ids=["no_more_came", "it_lasts_too_long"],
)
async def test_an_idle_worker_begins_when_a_burst_of_texts_ends(
    queued: Queued, debounce_s: float, debounce_max_s: float
) -> None:
    worker = queued.worker(poll_s=3600, debounce_s=debounce_s, debounce_max_s=debounce_max_s)
    async with running(worker):
        await queued.save(draft("a"))
        worker.wake()
        await until(lambda: worker.done == 1)


async def test_an_idle_worker_takes_nothing_while_texts_come(queued: Queued) -> None:
    """Its threads would delay the calls that store them."""
    worker = queued.worker(poll_s=3600, debounce_s=3600, debounce_max_s=3600)
    async with running(worker) as claims:
        await queued.save(draft("a"))
        for _ in range(10):
            worker.wake()
            await anyio.wait_all_tasks_blocked()
        assert len(claims) == 1, "the one that found nothing"
    assert await queued.statuses() == {"a": "pending"}


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[list[int]]:
    """Inside, the worker runs and has found nothing to do yet. How much each claim found."""
    claims: list[int] = []
    step = worker.step

    async def counted() -> int:
        claims.append(-1)
        claims[-1] = await step()
        return claims[-1]

    worker.step = counted  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: claims == [0])
        await anyio.wait_all_tasks_blocked()
        yield claims
        worker.stop()


@pytest.mark.parametrize("retryable", [False, True], ids=["for_good", "for_now"])
async def test_one_bad_text_does_not_spoil_its_batch(queued: Queued, retryable: bool) -> None:
    queued.fake.poison, queued.fake.retryable = "poison", retryable
    await queued.save(*(draft(n) for n in "abc"), draft("d", description="poison"))
    for _ in range(3):
        await queued.worker(retries=1).step()
        await queued.execute(
            "UPDATE embedding_task_t SET next_attempt_ts = current_timestamp"
            " WHERE status = 'pending'"
        )
    assert await queued.statuses() == {"a": "ready", "b": "ready", "c": "ready", "d": "failed"}
    assert await queued.rows("SELECT error FROM entity_embedding_t WHERE error IS NOT NULL") == [
        ("cannot read that",)
    ]
    ((final,),) = await queued.rows("SELECT NOT isfinite(next_attempt_ts) FROM embedding_task_t")
    assert final is not retryable


@pytest.mark.parametrize("given", [3, 383, 768])
async def test_a_vector_of_a_wrong_dimension_fails(queued: Queued, given: int) -> None:
    """A vector of a wrong dimension fails (E7)."""
    queued.fake.given = given
    await queued.save(draft("a"))
    await queued.work()
    assert await queued.statuses() == {"a": "failed"}
    ((error,),) = await queued.rows("SELECT error FROM entity_embedding_t")
    assert f"1 x {given}" in error
    assert "1 x 384 were expected" in error


@pytest.mark.parametrize("number", [np.nan, np.inf, 0.0, 2.0])
async def test_a_vector_that_is_none_fails(
    queued: Queued, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def odd(texts: list[str]) -> object:
        return np.full((len(texts), 384), number, dtype=np.float32)

    monkeypatch.setattr(queued.fake, "embed", odd)
    await queued.save(draft("a"))
    await queued.work()
    assert await queued.statuses() == {"a": "failed"}
    assert await queued.rows("SELECT count(embedding) FROM entity_embedding_t") == [(0,)]


async def test_an_embedder_that_crashes_fails_its_texts_and_nothing_else(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(texts: list[str]) -> object:
        raise ZeroDivisionError("postgresql://user:secret@db")

    monkeypatch.setattr(queued.fake, "embed", crash)
    await queued.save(draft("a"))
    await queued.work()
    assert await queued.rows("SELECT status, error FROM entity_embedding_t") == [
        ("failed", "the embedding model crashed: ZeroDivisionError")
    ]


async def test_tasks_of_a_dead_worker_are_taken_over(queued: Queued) -> None:
    """It died after it had embedded them and before it could write."""
    await queued.save(draft("a"), draft("b"))
    dead = queued.worker()
    assert len(await dead._queue.claim(10, 1000)) == 2
    assert await queued.worker().step() == 0
    await queued.execute("UPDATE embedding_task_t SET next_attempt_ts = current_timestamp")
    assert (await queued.work()).done == 2
    assert len(queued.fake.batches) == 2, "one by one, for one of them may have killed it"


async def test_a_text_that_kills_its_workers_comes_to_an_end(queued: Queued) -> None:
    await queued.save(draft("a"))
    for _ in range(3):
        await queued.worker()._queue.claim(10, 0)
    assert await queued.worker(retries=2).step() == 1
    assert await queued.rows(DUE) == [("failed", 4, False, "every worker that took it died")]
    assert queued.fake.batches == []


async def test_a_worker_that_was_overtaken_stores_nothing(queued: Queued) -> None:
    await queued.save(draft("a"))
    slow, fast = queued.worker(), queued.worker()
    (task,) = await slow._queue.claim(1, 0)
    assert await fast.step() == 1
    assert await slow._queue.finish([task], vector("late").reshape(1, 384)) == 0
    assert fast.done == 1


async def test_a_cancelled_worker_releases_its_tasks(queued: Queued) -> None:
    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep(1)

    await queued.save(draft("a"), draft("b"))
    queued.fake.meanwhile = cancel
    with anyio.CancelScope() as scope:
        await queued.worker().step()
    assert await queued.rows(
        "SELECT DISTINCT status, attempt_count, worker FROM embedding_task_t"
    ) == [("pending", 0, None)]
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}


async def test_a_writer_of_tools_never_waits_for_a_worker(queued: Queued) -> None:
    """While an import holds rows a worker passes over them, or gives up; the import goes on."""
    await queued.save(draft("a"), draft("b"))
    worker = queued.worker()
    tasks = await worker._queue.claim(10, 1000)
    vectors = np.stack([vector(task.entity_id) for task in tasks])
    async with queued.database.connect() as connection, connection.transaction():
        await connection.execute("UPDATE tool_t SET description = 'New.' WHERE name = 'a'")
        with anyio.fail_after(60):
            assert await worker._queue.finish(tasks, vectors) == 1, "the other is passed over"
        await connection.execute("UPDATE tool_t SET description = 'New.' WHERE name = 'b'")
    assert await queued.tasks() == [("a", "pending"), ("b", "pending")]
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}


async def test_a_worker_gives_up_a_row_that_is_held_for_long(queued: Queued) -> None:
    await queued.save(draft("a"))
    worker = queued.worker()
    (task,) = await worker._queue.claim(1, 1000)
    async with queued.database.connect() as connection, connection.transaction():
        await connection.execute("SELECT FROM entity_embedding_t FOR UPDATE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await worker._queue.finish([task], vector("a").reshape(1, 384))


async def test_tasks_that_the_claim_of_another_worker_holds_for_a_moment_are_finished(
    queued: Queued,
) -> None:
    """A claim keeps its locks on tasks that another one took after its snapshot."""
    await queued.save(draft("a"), draft("b"))
    worker = queued.worker()
    tasks = await worker._queue.claim(10, 1000)
    vectors = np.stack([vector(task.entity_id) for task in tasks])
    finished: list[int] = []

    async def finish() -> None:
        finished.append(await worker._queue.finish(tasks, vectors))

    async def waits() -> bool:
        return bool(finished or await queued.rows("SELECT FROM pg_locks WHERE NOT granted"))

    async with (
        anyio.create_task_group() as beside,
        queued.database.connect() as other,
        other.transaction(),
    ):
        await other.execute("SELECT FROM embedding_task_t FOR UPDATE")
        beside.start_soon(finish)
        await until(waits)
    assert finished == [2]
    assert await queued.tasks() == []


async def test_retry_and_backfill_repair_failed_tasks(queued: Queued) -> None:
    pool = queued.database.pool
    await queued.save(draft("a"), draft("b"), draft("c"))
    queued.fake.poison = "Does"
    await queued.work()
    assert set((await queued.statuses()).values()) == {"failed"}
    assert [(one.error, one.count) for one in (await status(pool, HOST)).failed] == [
        ("cannot read that", 3)
    ]
    queued.fake.poison = None
    assert await retry(pool, HOST) == 3
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}
    await queued.execute("UPDATE entity_embedding_t SET source_hash = repeat('0', 64)")
    assert await backfill(pool) == 3
    await queued.execute("DELETE FROM embedding_task_t")  # by hand: nobody would come
    assert await backfill(pool) == 3
    await queued.work()
    assert await backfill(pool) == 0


async def test_kinds_of_newer_releases_are_left_to_their_workers(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.execute("UPDATE embedding_task_t SET entity_type = 'memory'")
    assert await queued.worker().step() == 0


async def test_workers_of_another_model_have_nothing_to_do(queued: Queued) -> None:
    await queued.save(draft("a"))
    other = HashEmbedder(model="fake/other")
    assert await queued.worker(other).step() == 0
    await register(queued.database.pool, other)
    assert await queued.worker().step() == 0
