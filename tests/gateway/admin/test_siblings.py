"""Workers of one machine ask each other, whatever else arrives at their sockets."""

from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from gateway.admin.health import exposition
from gateway.admin.worker_peers import LINE_BYTES, WorkerPeers, registry_of_all
from gateway.telemetry.histograms import Histogram
from gateway.telemetry.traces import SpanContext
from gateway.wings.models.model_metrics import ModelUse

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("line", [b"\xff\n", b"x" * (LINE_BYTES + 1), b"unknown\n"])
async def test_a_line_that_is_no_question_ends_its_connection_alone(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    directory: Path = tmp_path_factory.mktemp("workers")
    one, other = (WorkerPeers(directory, slot, 2) for slot in range(2))
    with anyio.fail_after(30):
        async with one.answering({"status": lambda _: b"ok"}):
            async with await anyio.connect_unix(directory / "worker-0.sock") as stream:
                await stream.send(line)
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
            assert await other.ask("status") == {0: b"ok"}


async def test_the_workers_of_new_settings_are_asked(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory: Path = tmp_path_factory.mktemp("workers")
    one, other, third = (WorkerPeers(directory, slot, 2) for slot in range(3))
    async with other.answering({"status": lambda _: b"ok"}):
        assert await one.ask("status") == {1: b"ok"}
        one.resize(3)
        assert await one.ask("status") == {1: b"ok", 2: None}
        async with third.answering({"status": lambda _: b"starting"}):
            assert await one.ask("status") == {1: b"ok", 2: b"starting"}


def test_the_metrics_of_all_workers_keep_their_exemplars() -> None:
    registries = [CollectorRegistry(), CollectorRegistry()]
    for registry in registries:
        registry.register(use := ModelUse())
        with use.observing("deepseek_single", "m"):
            pass
        [times] = use._times.values()
        assert isinstance(times, Histogram)
        times.exemplify(0.01, SpanContext(5, 7))
    whole = registry_of_all({n: generate_latest(one) for n, one in enumerate(registries)})
    lines = bytes(exposition(whole, "application/openmetrics-text; version=1.0.0").body).decode()
    named = [line for line in lines.splitlines() if f'trace_id="{5:032x}"' in line]
    assert [f'worker="{slot}"' in line for slot, line in enumerate(named)] == [True, True]
    assert "trace_id" not in bytes(exposition(whole, "text/plain").body).decode()
