"""Two things at a time: their results, or what one of them raised."""

import anyio
import pytest

from registry.search.search import both

pytestmark = pytest.mark.anyio


async def test_both_run_at_the_same_time() -> None:
    met = [anyio.Event(), anyio.Event()]

    async def meet(own: int) -> int:
        met[own].set()
        await met[1 - own].wait()
        return own

    with anyio.fail_after(60):
        assert await both(lambda: meet(0), lambda: meet(1)) == (0, 1)


@pytest.mark.parametrize("failing", [0, 1])
async def test_an_error_of_one_side_is_raised_and_cancels_the_other_side(failing: int) -> None:
    ended = []

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise LookupError("gone")

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    pair = (fail, wait) if failing == 0 else (wait, fail)
    with anyio.fail_after(60), pytest.raises(LookupError, match="gone"):
        await both(*pair)
    assert ended == [True]


async def test_whoever_cancels_cancels_both() -> None:
    with anyio.move_on_after(0.01) as scope:
        await both(anyio.sleep_forever, anyio.sleep_forever)
    assert scope.cancelled_caught
