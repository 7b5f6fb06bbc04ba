"""Work that goes on when who asked for it has gone."""

import asyncio
import gc
import time
from dataclasses import dataclass, field

import anyio
import pytest

from gateway.state.background_tasks import ShieldedTasks
from schemas.hybrid import StatusFault

pytestmark = pytest.mark.anyio


@dataclass
class Work:
    """Says that it has begun, waits for `release`, and fails if it is to."""

    failure: Exception | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    done: bool = False

    async def __call__(self) -> str:
        self.begun.set()
        await self.release.wait()
        self.done = True
        if self.failure is not None:
            raise self.failure
        return "done"


@pytest.fixture
async def work(anyio_backend: str) -> Work:
    return Work()


def soon() -> float:
    return time.monotonic() + 30


async def begin_and_leave(finishing: ShieldedTasks, work: Work) -> None:
    """Begin the work, and go away."""
    client = asyncio.create_task(finishing.run(work()))
    await work.begun.wait()
    client.cancel()
    await asyncio.wait([client])
    assert client.cancelled()


async def test_a_waiting_caller_gets_the_result(work: Work) -> None:
    work.release.set()
    assert await ShieldedTasks(1).run(work()) == "done"


async def test_a_waiting_caller_gets_the_failure(work: Work) -> None:
    work.release.set()
    work.failure = ValueError("bad")
    with pytest.raises(ValueError, match="bad"):
        await ShieldedTasks(1).run(work())


async def test_work_is_finished_after_its_caller_left(work: Work) -> None:
    finishing = ShieldedTasks(1)
    with anyio.fail_after(30):
        await begin_and_leave(finishing, work)
        work.release.set()
        await finishing.settle(soon())
    assert work.done


async def test_one_piece_too_much_is_refused_and_not_begun(work: Work) -> None:
    finishing, other = ShieldedTasks(1), Work()
    with anyio.fail_after(30):
        await begin_and_leave(finishing, work)  # it counts although nobody waits
        with pytest.raises(StatusFault, match="1 actions run already") as refused:
            await finishing.run(other())
        assert (refused.value.status, refused.value.as_status.code) == (503, "ERR18503")
        assert not other.begun.is_set()
        work.release.set()
        await finishing.settle(soon())
        other.release.set()
        assert await finishing.run(other()) == "done"


async def test_settling_waits_only_until_its_deadline(work: Work) -> None:
    finishing = ShieldedTasks(1)
    with anyio.fail_after(30):
        await begin_and_leave(finishing, work)
        await finishing.settle(time.monotonic() - 1)
        await finishing.settle(time.monotonic() + 0.01)
        assert not work.done
        work.release.set()
        await finishing.settle(soon())
    assert work.done


async def test_nothing_is_waited_for_when_nothing_runs() -> None:
    with anyio.fail_after(30):
        await ShieldedTasks(1).settle(time.monotonic() + 600)


async def test_a_failure_that_nobody_waits_for_is_no_complaint_of_the_event_loop(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    finishing = ShieldedTasks(1)
    work.failure = ValueError("bad")
    with anyio.fail_after(30):
        await begin_and_leave(finishing, work)
        work.release.set()
        await finishing.settle(soon())
    gc.collect()  # where asyncio would say "Task exception was never retrieved"
    assert work.done
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
