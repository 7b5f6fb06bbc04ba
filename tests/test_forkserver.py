"""Forked commands, beside those that a new interpreter runs."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from asyncio import create_subprocess_exec
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reading_limits import DEFAULT_LIMITS
from tests import forkserver

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="children are adopted on Linux only"),
]

STATE = (sys.executable, "-m", "tests.process_state")
PARENT = """
import asyncio, os, signal, sys
from pathlib import Path
from subprocess import PIPE

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
    command = (sys.executable, "-m", "tests.process_state", "7")
    child = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, start_new_session=True, preexec_fn=os.getpid
    )
    command = Path(f"/proc/{child.pid}/cmdline").read_text()
    state, _ = await child.communicate(b"abc")
    print(child.returncode, os.getpid(), repr(command), state.decode(), sep="\\n", end="")

print("begun")
asyncio.run(main())
"""
REAL = {"PYTHONFAULTHANDLER": ""}  # which a new interpreter has to read


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of the forks of a test."""
    pids: list[int] = []
    fork = forkserver.server.fork

    def record_fork(given: Any) -> int:
        pids.append(fork(given))
        return pids[-1]

    monkeypatch.setattr(forkserver.server, "fork", record_fork)
    return pids


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cwd": "/"},
        {"env": {"PATH": "/bin", "TOOLGATE_SERVER__PORT": "1", "PYTHONUNBUFFERED": "1"}},
        {"start_new_session": True},
        {"process_group": 0},
    ],
    ids=" ".join,
)
def test_state_of_forked_and_new_processes_is_equal(
    forks: list[int], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    states = []
    for own in ({}, REAL):
        env = forkserver.early_variables(os.environ) | options.get("env", os.environ) | own
        run = partial(subprocess.run, **{**options, "env": env}, capture_output=True, text=True)
        done = run([*STATE, "7"], input="abc")
        assert (done.returncode, done.stderr) == (7, "")
        states.append(json.loads(done.stdout))
    assert len(forks) == 1
    for name in REAL:
        states[1]["environment"].pop(name)
    assert states[0] == states[1]
    assert states[0]["parent"] == os.getpid()


def test_terminals_of_forked_and_new_processes_are_equal(forks: list[int]) -> None:
    states = []
    for own in ({"TERM": "xterm"}, REAL):
        master, slave = pty.openpty()
        run = partial(subprocess.run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        states.append(json.loads(run(STATE, stderr=slave, env=os.environ | own).stdout))
        os.close(slave)
        os.close(master)
    assert len(forks) == 1
    assert states[0]["streams"] == states[1]["streams"]
    assert [is_terminal for *_, is_terminal in states[0]["streams"]] == [False, False, True]


def test_state_of_a_script_is_that_of_a_new_interpreter(forks: list[int]) -> None:
    script = str(Path(__file__).with_name("process_state.py"))
    run = partial(subprocess.run, capture_output=True, text=True, env=dict(os.environ))
    states = []
    for command in (("-m", "tests.script", script, "7"), (script, "7")):
        done = run([sys.executable, *command], input="abc")
        assert (done.returncode, done.stderr) == (7, "")
        states.append(json.loads(done.stdout))
        states[-1].pop("orig_argv")
    assert len(forks) == 1
    assert states[0] == states[1]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a fork starts interpreters there")
def test_fork_starts_forks_that_are_its_own_children(forks: list[int], tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    program = [sys.executable, "-m", "tests.script", str(script)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    begun, code, pid, command, state = done.stdout.splitlines()
    assert (begun, code, forks) == ("begun", "7", [int(pid)])
    assert "tests.forkserver" in command
    states = [json.loads(state)]
    real = subprocess.run([*STATE, "7"], input=b"abc", capture_output=True, env=os.environ | REAL)
    states.append(json.loads(real.stdout))
    for each in states:
        del each["parent"], each["environment"], each["leads_session"], each["leads_group"]
    assert states[0] == states[1]
    assert json.loads(state)["parent"] == int(pid)
    assert json.loads(state)["leads_session"]


def test_settings_of_a_test_reach_its_commands_alone(
    forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolgate.yaml").write_text("server: {port: 1234}")
    command = [sys.executable, "-m", "gateway", "config", "show", "--json"]
    ports = []
    for own in ({"TOOLGATE_SERVER__PORT": "1235"}, {}):
        shown = subprocess.run(command, env=os.environ | own, check=True, capture_output=True)
        ports.append(json.loads(shown.stdout)["server"]["port"])
    assert (ports, len(forks)) == ([1235, 1234], 2)


async def test_signals_and_streams_of_a_forked_process_are_its_own(forks: list[int]) -> None:
    process = await create_subprocess_exec(
        *STATE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with anyio.fail_after(20):
        assert process.pid == forks[0]
        process.send_signal(signal.SIGKILL)
        assert await process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "command",
    [
        ("-c", "print(1)"),
        ("-m", "this"),
        ("-I", "-m", "this"),
    ],
    ids=" ".join,
)
def test_other_commands_get_an_interpreter(forks: list[int], command: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    assert not forks


async def test_process_that_reads_files_is_forked_with_its_own_limits(
    forks: list[int],
) -> None:
    """Its folder, session and limit of memory are those of a new interpreter."""
    workers = ReadingWorkers(1)
    with anyio.fail_after(60):
        read = await workers.read("a.txt", b"Herons eat fish.")
        [pid] = forks
        process = psutil.Process(pid)
        assert (process.cwd(), os.getsid(pid), process.ppid()) == ("/", pid, os.getpid())
        assert resource.prlimit(pid, resource.RLIMIT_AS)[0] == DEFAULT_LIMITS.memory_bytes
        await workers.close()
    assert read.text == "Herons eat fish."


def test_unusual_start_is_left_to_the_system(forks: list[int]) -> None:
    subprocess.run(STATE, input=b"", check=True, preexec_fn=os.getpid)
    with pytest.raises(FileNotFoundError, match="/nonexistent"):
        subprocess.run(STATE, cwd="/nonexistent")
    assert not forks
