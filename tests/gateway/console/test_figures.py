"""Figures of the workers of a machine."""

from collections.abc import Mapping

import msgspec
import pytest

from gateway.console.figures import Figures, WorkerCounts
from gateway.middleware.message_metrics import Metrics
from gateway.telemetry.histograms import BUCKETS_S

pytestmark = pytest.mark.anyio


def counts(calls: int, errors: int = 0) -> bytes:
    buckets = (calls, *(0 for _ in BUCKETS_S))
    return msgspec.json.encode(WorkerCounts(calls, {"-32602": errors}, buckets, 2, 1))


async def test_figures_are_of_all_workers_that_answer_also_when_one_begins_anew() -> None:
    told: dict[int, bytes | None] = {}

    async def others() -> Mapping[int, bytes | None]:
        return told

    figures = Figures(Metrics(), lambda: 3, lambda: 0, every_s=5, others=others)
    for one in ({1: counts(10, 4), 2: None}, {1: counts(14, 5), 2: counts(7)}, {1: counts(2, 1)}):
        told.clear()
        told |= one
        await figures.sample()
    assert [one.calls for one in figures._samples] == [10, 21, 23]
    assert [one.sessions for one in figures._samples] == [5, 7, 5]
    assert figures.errors() == {"-32602": 2}
    assert figures.workers == 2
    assert all(one.calls_s >= 0 for one in figures.points())
    alone = Figures(Metrics(), lambda: 0, lambda: 0, every_s=5)
    await alone.sample()
    assert (alone.workers, alone.now(), alone.errors()) == (1, None, {})
