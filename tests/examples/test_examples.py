"""`make run` serves, its printed call works, the example clients work, and nothing is left."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from config.load import load
from examples import clean
from examples.clean import directories
from examples.run import DATA_DIR, database_of, read_first_line
from registry.database.embedded_server import CLUSTER, directory_of
from tests.examples.conftest import ROOT, Run, data_directory, errors, program, python, running

PATIENCE_S = 30
USUAL = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture(scope="module")
def used_directory() -> Iterator[Path]:
    """The data of gateways that end, one after the other: only the first has to make a database."""
    with data_directory() as path:
        yield path


def output(*command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_first_address_is_the_gateway(run: Run) -> None:
    first, *_ = re.findall(r"http://\S+", run.printed)
    assert first == f"{run.url}/mcp"
    assert run.printed.startswith("Toolgate is ready: ")


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@needs_curl
def test_the_printed_calls_work_as_printed(run: Run) -> None:
    pets, rules = re.findall(r"^  curl .*?'\n\n", run.printed, re.DOTALL | re.MULTILINE)
    answer = json.loads(output("sh", "-c", pets))
    assert {pet["species"] for pet in answer["result"]["pets"]} == {"cat"}
    assert json.loads(output("sh", "-c", rules)) == {"rules": 0, "hosts": 0}


def test_the_official_client_lists_searches_and_calls(run: Run) -> None:
    printed = output(*python("examples/client.py", f"{run.url}/mcp", "photo"))
    assert "revision 2026-07-28" in printed
    assert re.search(r"22 tools\n(  \w+ .*\n){22}\n", printed)
    assert re.search(r'Tools about "photo"\n  getPetPhoto .*\n\n', printed)
    assert '"name":"Misty"' in printed
    assert re.search(r"createPet\(.*\)\n  \{\"id\":\d+,\"name\":\"Kit\"", printed)


def snippets(language: str) -> list[str]:
    """The blocks of the README in a language, from its first sections."""
    text = (ROOT / "README.md").read_text().partition("## Your own API")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@needs_curl
def test_the_curl_call_of_the_readme_works_as_pasted(run: Run) -> None:
    _, call = snippets("sh")
    assert USUAL in call
    answer = json.loads(output("sh", "-c", call.replace(USUAL, run.url)))
    assert {pet["species"] for pet in answer["result"]["pets"]} == {"cat"}


def test_the_python_of_the_readme_works_as_pasted(run: Run) -> None:
    [program] = snippets("python")
    assert USUAL in program
    printed = output(sys.executable, "-c", program.replace(USUAL, run.url))
    assert "listPets - " in printed
    assert "Misty" in printed


def test_the_python_of_the_readme_works_line_by_line_too(run: Run) -> None:
    """In an interactive Python, where a blank line ends a block."""
    [program] = snippets("python")
    command = (sys.executable, "-i", "-q")
    text = program.replace(USUAL, run.url)
    done = subprocess.run(
        command, input=text, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "Misty" in done.stdout
    assert "Error" not in done.stderr


def test_steps_are_told_before_the_address(run: Run) -> None:
    assert run.process.stderr is not None
    # not by `seek`: the programs write where the position of the file is
    said = os.pread(run.process.stderr.fileno(), 1_000_000, 0).decode()
    steps = [
        "Example services: ",
        "Gateway: starting",
        "database_initializing",
        "migrations_applied",
    ]
    places = [said.find(one) for one in (*steps, "source_importing", "source_imported")]
    assert -1 not in places, said
    assert places == sorted(places)


@needs_curl
def test_curl_calls_a_tool_sends_a_batch_and_discovers(run: Run) -> None:
    printed = output("sh", "examples/rpc.sh", f"{run.url}/rpc")
    single, batch, discovery = (
        answer for answer in printed.splitlines() if not answer.startswith("#")
    )
    assert json.loads(single)["result"]["name"] == "Rex"
    dogs, none, tool = json.loads(batch)
    assert [one["id"] for one in (dogs, none, tool)] == ["dogs", "none", "as a tool"]
    assert dogs["result"]["pets"][0]["species"] == "dog"
    assert none["error"]["data"]["body"]["detail"] == "There is no pet with the id 99."
    assert tool["result"]["structuredContent"]["name"] == "Ada Park"
    assert discovery.startswith('{"jsonrpc":"2.0","id":2,"result":{"openrpc"')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(number: signal.Signals, used_directory: Path) -> None:
    with running(used_directory) as run:
        family = run.family()
        assert len(family) > 2
        run.process.send_signal(number)
        assert run.process.wait(PATIENCE_S) == 0
        assert errors(run.process).count("Traceback") == 0
        assert still_there(family) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that they are alone")
def test_nothing_outlives_a_killed_parent(used_directory: Path) -> None:
    with running(used_directory) as run:
        family = run.family()
        run.process.kill()
        assert still_there(family) == []


def test_when_the_pet_shop_dies_the_gateway_stops(used_directory: Path) -> None:
    with running(used_directory) as run:
        family = run.family()
        petshop = min(psutil.Process(run.process.pid).children(), key=psutil.Process.create_time)
        petshop.send_signal(signal.SIGKILL)
        assert run.process.wait(PATIENCE_S) == 1
        assert "The pet shop ended with exit code -9." in errors(run.process)
        assert still_there(family) == []


def test_a_port_in_use_is_reported_with_advice(tmp_path: os.PathLike[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        env = {
            "TOOLGATE_SERVER__PORT": str(taken.getsockname()[1]),
            "TOOLGATE_DATABASE__DATA_DIR": str(tmp_path),
        }
        with program("examples/run.py", env=env) as process:
            assert process.wait(PATIENCE_S) == 1
            said = errors(process)
    assert "Choose another port" in said
    assert "The gateway ended with exit code 1." in said


@pytest.mark.anyio
async def test_a_start_that_takes_long_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("examples.run.SLOW_S", 0.01)
    gateway = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    assert gateway.stdin is not None
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        line = tasks.create_task(read_first_line(gateway))
        reports = ""
        while reports.count("Gateway: starting for") < 2:
            await asyncio.sleep(0.01)
            reports += capsys.readouterr().err
        gateway.stdin.write(b"Toolgate is ready\n")
        gateway.stdin.close()
    assert line.result() == "Toolgate is ready\n"
    assert await gateway.wait() == 0


def still_there(family: list[psutil.Process]) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    return alive


def test_an_example_has_a_database_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its pet shop would live on in the database of whoever tried it."""
    monkeypatch.delenv(DATA_DIR, raising=False)
    usual = directory_of(load(None, {}).database)
    assert database_of("petshop") == f"{usual}-petshop"
    monkeypatch.setenv(DATA_DIR, "/elsewhere")
    assert database_of("petshop") == "/elsewhere"


def test_every_example_has_an_instance_of_its_own() -> None:
    """What examples leave behind is known to `make clean` (mending 42)."""
    found = list(directories())
    assert len(found) == len(set(found)) == len(list(Path("examples").glob("*/toolgate.yaml")))
    usual = directory_of(load(None, {}).database)
    assert {str(path).startswith(f"{usual}-") for path in found} == {True}


def test_clean_removes_the_databases_of_examples_that_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make clean` names what it removes, and leaves what runs (mending 42)."""
    idle, audit, used = tmp_path / "a", tmp_path / "a-audit", tmp_path / "b"
    for path in (idle, audit, used / CLUSTER):
        path.mkdir(parents=True)
    (used / CLUSTER / "postmaster.pid").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(clean, "directories", lambda: iter((idle, used)))
    clean.main()
    assert not idle.exists()
    assert not audit.exists()
    assert used.exists()
    assert capsys.readouterr().out.splitlines() == [
        f"removed: {idle}", f"removed: {audit}", f"left: {used}, whose database runs",
    ]  # fmt: skip


def test_the_command_to_inspect_the_example_is_printed_and_works(run: Run) -> None:
    [command] = re.findall(
        rf"^  ({DATA_DIR}=.* -c examples/petshop/toolgate.yaml tools list)$",
        run.printed,
        re.MULTILINE,
    )
    assert f"{DATA_DIR}={run.data_dir} " in command
    assert "listPets" in output("sh", "-c", command)
