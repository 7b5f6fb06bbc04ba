"""Commands as processes: stopped half-way, at a terminal, without a database."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import psycopg
import pytest

from config.settings import DatabaseSettings
from tests.fixtures_gateway import Recorder
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import DEADLINE_S, command, environment

WAITING = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
IMPORT = ("import", "openapi", "pets.json", "--name", "pets", "--base-url", "http://127.0.0.1:9")


@contextmanager
def stuck_import(url: str) -> Iterator[subprocess.Popen[str]]:
    """An import that has begun to write, and cannot go on before the block ends."""
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
        holder.execute("LOCK TABLE tool_t IN SHARE MODE")
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", *IMPORT],
            env=environment(TOOLGATE_DATABASE__URL=url),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not watcher.execute(WAITING).fetchall():
                assert time.monotonic() < deadline, "it never began to write"
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def before(with_pets: Toolgate, description: Path) -> str:
    """What the tools are, before the description changes."""
    description.write_text(description.read_text().replace("List pets", "List all pets"))
    return with_pets("tools", "list").out


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGKILL, -9, ""),
        (signal.SIGINT, 130, "\ntoolgate: interrupted\n"),
        (signal.SIGTERM, 143, "toolgate: terminated\n"),
    ],
    ids=["SIGKILL", "SIGINT", "SIGTERM"],
)
def test_an_import_that_is_stopped_has_written_nothing(
    database_settings: DatabaseSettings,
    toolgate: Toolgate,
    before: str,
    number: int,
    code: int,
    said: str,
) -> None:
    with stuck_import(database_settings.url) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (code, "", said)
    assert toolgate("tools", "list").out == before


def test_an_import_that_loses_its_database_says_so_and_has_written_nothing(
    database_settings: DatabaseSettings, toolgate: Toolgate, before: str
) -> None:
    url = database_settings.url
    with stuck_import(url) as process:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid) {WAITING.removeprefix('SELECT')}")
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3, err
    assert err == (
        "toolgate: the database server stopped or cut the work off: "
        "terminating connection due to administrator command. Try again\n"
    )
    assert toolgate("tools", "list").out == before


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "list"],
        ["sources", "list"],
        ["migrate"],
        ["tools", "call", "getPet"],
        IMPORT,
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_commands_without_a_database_say_how_to_reach_a_database(
    bare: Toolgate, description: Path, words: list[str]
) -> None:
    ran = bare(*words, TOOLGATE_DATABASE__URL="postgresql://me:hidden@127.0.0.1:9/x")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("toolgate: cannot reach the database: ")
    assert "Check that it runs, and database.url" in ran.err
    assert "hidden" not in ran.err


@pytest.mark.anyio
async def test_a_call_prints_the_answer_and_converts_values_by_schema(
    database_settings: DatabaseSettings, description: Path, service: Recorder
) -> None:
    settings = {"TOOLGATE_DATABASE__URL": database_settings.url}
    code, _, err = await command(*IMPORT, "--base-url", service.url, **settings)
    assert code == 0, err
    code, out, err = await command("tools", "call", "createPet", "name=123", "age=4", **settings)
    assert (code, err) == (0, "")
    assert service.requests[-1]["body"] == '{"name":"123","age":4}'
    assert '"path": "/pets"' in out
    code, out, _ = await command(
        "tools", "call", "getPet", "--args", '{"id": 404}', "--json", **settings
    )
    assert service.requests[-1]["path"] == "/pets/404"
    assert code == 1
    assert '"isError": true' in out


async def at_a_terminal(*args: str, columns: int = 80, **settings: str) -> tuple[int, str]:
    """Exit code and all that a terminal of this width would show."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *args),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(TERM="xterm-256color", **settings),
        start_new_session=True,
    )
    os.close(slave)
    shown = asyncio.create_task(asyncio.to_thread(_read_all, master))
    async with asyncio.timeout(DEADLINE_S):
        code = await process.wait()
        return code, await shown


def _read_all(master: int) -> str:
    data = b""
    try:
        while more := os.read(master, 65536):
            data += more
    except OSError:  # what Linux says when the other side has closed the terminal
        pass
    os.close(master)
    return data.decode()


@pytest.mark.anyio
async def test_at_a_terminal_an_import_shows_its_progress(
    database_settings: DatabaseSettings, description: Path
) -> None:
    code, shown = await at_a_terminal(*IMPORT, TOOLGATE_DATABASE__URL=database_settings.url)
    assert code == 0
    assert "Reading pets" in shown
    assert "Saving pets" in shown
    assert shown.rstrip().endswith("Calls go to http://127.0.0.1:9")


@pytest.mark.anyio
async def test_terminals_get_colours_unless_disabled(
    database_settings: DatabaseSettings, description: Path
) -> None:
    url = database_settings.url
    coloured = re.compile(r"\x1b\[(?!0|1m|2m)[0-9;]*m")
    commands = (["doctor"], ["config", "check", "-c", "nowhere.yaml"])
    shown = await asyncio.gather(
        *(at_a_terminal(*args, TOOLGATE_DATABASE__URL=url) for args in commands),
        *(at_a_terminal(*args, TOOLGATE_DATABASE__URL=url, NO_COLOR="1") for args in commands),
    )
    found = [coloured.search(text) is not None for _, text in shown]
    assert found == [True, True, False, False]
