"""The supervisor survives what happens to its workers, to the machine and to its replacement."""

import asyncio
import os
import resource
import signal
import socket
import sys
from asyncio import create_subprocess_exec, subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from config.load import load
from gateway.cli.serve.worker_channel import WorkerLink
from tests import polling
from tests.gateway.cli.processes import DEADLINE_S, Served, environment, serve_process
from tests.gateway.cli.test_workers import until, wait_until_gone

pytestmark = pytest.mark.anyio

TWO = """
server: {workers: 2, drain_s: 1}
embedding: {provider: disabled}
database: {url: "postgresql://127.0.0.1:1/none"}
"""


@asynccontextmanager
async def supervise(work: str, config: Path, **settings: str) -> AsyncIterator[Served]:
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "tests.gateway.cli.supervised", work, str(config)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**settings),
    )
    async with serve_process(process) as supervisor:
        yield supervisor


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "toolgate.yaml"
    file.write_text(TWO)
    return file


def workers(served: Served) -> list[int]:
    parent = served.process.pid
    return [*map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]


def descriptors(served: Served) -> int:
    return len([*Path(f"/proc/{served.process.pid}/fd").iterdir()])


async def test_a_worker_that_fails_takes_nothing_of_the_supervisor_along(
    config: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("short")
    async with supervise("raises", config, TMPDIR=str(folder)) as served:
        assert (await served.event("worker_failed"))["slot"] == 1
        assert (await served.event("worker_died"))["code"] == 1
        assert len([*folder.glob("toolgate-workers-*")]) == 1
        code, _ = await served.stop()
        assert code == 0
    assert [*folder.glob("toolgate-workers-*")] == []


async def test_workers_that_die_at_once_are_all_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "toolgate.yaml"  # reading it keeps the supervisor busy meanwhile
    os.mkfifo(fifo)
    async with supervise("waits", fifo) as served:
        await served.ready()
        before = workers(served)
        served.process.send_signal(signal.SIGHUP)
        with fifo.open("w") as config:
            os.kill(before[0], signal.SIGKILL)
            await wait_until_gone({before[0]})
            os.kill(before[1], signal.SIGKILL)
            await wait_until_gone({before[1]})
            config.write(TWO)
        for _ in before:
            await served.event("worker_died")
        await until(lambda: len(workers(served)) == 2)
        assert (await served.stop())[0] == 0


async def test_a_program_that_cannot_be_started_anew_goes_on(config: Path) -> None:
    async with supervise("vanishes", config) as served:
        await served.ready()
        for _ in range(2):
            served.process.send_signal(signal.SIGUSR2)
            assert "No such file" in (await served.event("upgrade_failed"))["reason"]
        assert len(workers(served)) == 2
        assert (await served.stop())[0] == 0


async def test_a_stop_ends_a_new_program_that_is_not_ready(config: Path) -> None:
    async with supervise("lingers", config) as served:
        await served.ready()
        served.process.send_signal(signal.SIGUSR2)
        new = (await served.event("upgrade_started"))["pid"]
        served.process.send_signal(signal.SIGUSR2)  # changes nothing
        code, log = await served.stop()
        assert code == 0
        assert "upgrade_started" not in log
        await wait_until_gone({new})


async def test_a_new_program_that_is_ready_outlives_the_old_program(config: Path) -> None:
    async with supervise("waits", config) as served:
        await served.ready()
        old = workers(served)
        served.process.send_signal(signal.SIGUSR2)
        new = (await served.event("upgrade_started"))["pid"]
        await served.line()
        await served.ready()
        await wait_until_gone({served.process.pid, *old})
        os.kill(new, signal.SIGTERM)
        await wait_until_gone({new})


async def test_a_storm_of_hangups_is_few_reloads_and_loses_no_stop(config: Path) -> None:
    async with supervise("waits", config) as served:
        await served.ready()
        for _ in range(1000):
            served.process.send_signal(signal.SIGHUP)
        assert (await served.stop())[0] == 0


async def test_a_worker_that_does_not_leave_is_killed(config: Path) -> None:
    async with supervise("stays", config) as served:
        await served.ready()
        [_, stays] = workers(served)
        config.write_text(config.read_text().replace("workers: 2", "workers: 1"))
        served.process.send_signal(signal.SIGHUP)
        assert (await served.event("worker_unresponsive"))["pid"] == stays
        await wait_until_gone({stays})
        assert (await served.stop())[0] == 0


async def test_a_stop_does_not_signal_a_draining_worker_again(config: Path) -> None:
    """A worker that a reload has drain is not told a second time by the first stop, which would
    cut its calls off (mending 18)."""
    config.write_text(config.read_text().replace("drain_s: 1", "drain_s: 60"))
    async with supervise("counts", config) as served:
        await served.ready()
        stays, leaves = workers(served)
        config.write_text(config.read_text().replace("workers: 2", "workers: 1"))
        served.process.send_signal(signal.SIGHUP)
        await served.event("terminated")
        served.process.send_signal(signal.SIGTERM)
        await served.event("stopping")
        await wait_until_gone({stays})
        config.write_text("server: mistaken")
        served.process.send_signal(signal.SIGHUP)
        await served.event("settings_rejected")  # it has done with the stop
        os.kill(leaves, signal.SIGCONT)
        assert (await served.event("left"))["terminations"] == 1


async def test_a_worker_without_a_supervisor_stops_once(tmp_path: Path) -> None:
    """Heartbeats that reach nobody are no second signal to stop, which would cut calls off
    (mending 18)."""
    ours, theirs = socket.socketpair()
    settings = load(None, {"TOOLGATE_SERVER__WORKER_TIMEOUT_S": "0.04"}).server
    link = WorkerLink(theirs, 0, tmp_path, settings)
    loop = asyncio.get_running_loop()
    stops: list[int] = []
    stopped, settled = anyio.Event(), anyio.Event()

    def stop() -> None:
        stops.append(signal.SIGTERM)
        stopped.set()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGCONT, settled.set)
    running = asyncio.create_task(link.run({}))
    try:
        with anyio.fail_after(DEADLINE_S):
            await asyncio.to_thread(ours.recv, 100)  # it runs
            ours.close()
            await stopped.wait()
            for _ in range(3):
                link.ready(0)  # as a heartbeat would
            os.kill(os.getpid(), signal.SIGCONT)
            await settled.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGCONT)
        theirs.close()
    assert stops == [signal.SIGTERM]


async def test_a_worker_that_never_begins_is_killed(config: Path) -> None:
    async with supervise("hangs", config) as served:
        assert (await served.event("worker_unresponsive"))["slot"] == 1
        assert (await served.event("worker_died"))["slot"] == 1
        assert (await served.stop())[0] == 0


async def test_fifty_replacements_leave_no_descriptors_open(config: Path) -> None:
    async with supervise("mortal", config) as served:
        await served.ready()
        before = descriptors(served)
        for _ in range(50):
            victim = workers(served)[-1]
            os.kill(victim, signal.SIGKILL)
            await served.event("worker_died", pid=victim)
            await polling.until(lambda: len(workers(served)) == 2)
        await polling.until(lambda: descriptors(served) == before)  # it may be at the last fork
        assert (await served.stop())[0] == 0


async def test_a_worker_that_cannot_be_forked_is_tried_again(config: Path) -> None:
    async with supervise("waits", config) as served:
        await served.ready()
        _, hard = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (4, hard))
        os.kill(workers(served)[0], signal.SIGKILL)
        assert "Too many open files" in (await served.event("worker_not_started"))["reason"]
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        await until(lambda: len(workers(served)) == 2)
        assert (await served.stop())[0] == 0


async def test_a_folder_too_deep_for_sockets_is_named(config: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    async with supervise("waits", config, TMPDIR=str(deep)) as served:
        code, log = await served.stop(0)
    assert code == 1
    assert "set TMPDIR to a shorter path" in log
