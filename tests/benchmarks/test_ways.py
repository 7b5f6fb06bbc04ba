"""What counts as entering a module, and that the measurement runs."""

import anyio
import pytest

from benchmarks.ways import Recorder, Way
from config.networks import is_loopback
from schemas.retry_after import whole_seconds

pytestmark = pytest.mark.anyio


def test_a_module_is_entered_once_and_re_entered_after_another() -> None:
    way = Way(tuple((module, "f") for module in "aabaca"))
    assert (way.calls, way.entered, way.reentered) == (6, 3, 2)


async def test_only_calls_of_the_product_count_in_their_order() -> None:
    async def walk() -> None:
        whole_seconds(1.0)
        whole_seconds(2.0)
        await anyio.lowlevel.checkpoint()
        is_loopback("127.0.0.1")
        whole_seconds(3.0)

    recorder = Recorder()
    recorder.install()
    try:
        way = await recorder.least(walk)
    finally:
        recorder.uninstall()
    assert way.modules == ("schemas.retry_after", "config.networks", "schemas.retry_after")
