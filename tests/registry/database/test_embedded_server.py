"""The embedded server's life, with real processes that come, go and are killed."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest
from psycopg import pq

from config.settings import DatabaseSettings as Settings
from registry.database.embedded_server import DatabaseError, Embedded
from tests.fixtures_database import settings_for

ROOT = Path(__file__).parents[3]

# A process that uses the server until it is told to go.
USER = """
import sys, msgspec
from config.settings import DatabaseSettings
from registry.database.embedded_server import Embedded
embedded = Embedded.start(msgspec.json.decode(sys.argv[1], type=DatabaseSettings))
print(embedded.url, flush=True)
sys.stdin.readline()
embedded.stop()
"""


class User:
    def __init__(self, settings: Settings) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, msgspec.json.encode(settings).decode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """Once it uses the server."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.communicate("\n", timeout=60)

    def die(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@contextmanager
def using(settings: Settings) -> Iterator[Embedded]:
    embedded = Embedded.start(settings)
    try:
        yield embedded
    finally:
        embedded.stop()


@pytest.fixture(scope="module")
def settings(scratch: Path) -> Settings:
    """A data directory that all tests here use, one after the other."""
    return settings_for(scratch / "life")


def runs(url: str) -> bool:
    return pq.PGconn.ping(url.encode()) == pq.Ping.OK


def server_pid(settings: Settings) -> int:
    lines = (Path(settings.data_dir) / "postgres-18" / "postmaster.pid").read_text().splitlines()
    return int(lines[0])


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


def with_options(settings: Settings, **options: str) -> Settings:
    return msgspec.structs.replace(settings, options={**settings.options, **options})


def test_concurrent_processes_share_one_server_stopped_by_the_last(
    settings: Settings,
) -> None:
    users = [User(settings) for _ in range(3)]
    (url,) = {user.url() for user in users}
    pid = server_pid(settings)
    users.pop().leave()
    users.pop().leave()
    assert runs(url)
    assert server_pid(settings) == pid
    users.pop().leave()
    assert not runs(url)


def test_a_killed_user_does_not_keep_the_server_running(settings: Settings) -> None:
    killed, last = User(settings), User(settings)
    url = killed.url()
    assert last.url() == url
    killed.die()
    assert runs(url)
    last.leave()
    assert not runs(url)


def test_a_server_whose_users_were_all_killed_is_found_and_stopped(settings: Settings) -> None:
    killed = User(settings)
    url = killed.url()
    pid = server_pid(settings)
    killed.die()
    assert runs(url)
    with using(settings):
        assert server_pid(settings) == pid
    assert not runs(url)


def test_a_server_that_is_taken_over_is_named_in_the_log(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The start that takes over a left server says so, and no other start (mending 22)."""
    first, second = User(settings), User(settings)
    first.url()
    second.url()
    with caplog.at_level("WARNING", "toolgate.database"), using(settings):
        pass  # it has users
    assert "database_taken_over" not in caplog.messages
    first.die()
    second.die()
    with caplog.at_level("WARNING", "toolgate.database"), using(settings) as embedded:
        assert runs(embedded.url)
    records = [record for record in caplog.records if record.msg == "database_taken_over"]
    assert [vars(record)["data_dir"] for record in records] == [str(settings.data_dir)]


def test_a_killed_server_restarts_with_committed_data(settings: Settings) -> None:
    durable = msgspec.structs.replace(settings, options={})
    with using(durable) as killed:
        with psycopg.connect(killed.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(server_pid(settings), signal.SIGKILL)
        with using(durable) as next_one:
            assert ask(next_one.url, "SELECT answer FROM kept") == 42


def test_a_user_can_start_the_killed_server_again(settings: Settings) -> None:
    with using(settings) as embedded:
        os.kill(server_pid(settings), signal.SIGKILL)
        embedded.ensure()
        assert ask(embedded.url, "SELECT 1") == 1


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="told apart by /proc")
@pytest.mark.parametrize("content", [f"{os.getpid()}\n", ""], ids=["ours", "empty"])
def test_a_process_id_that_somebody_else_has_now_is_no_obstacle(
    settings: Settings, content: str
) -> None:
    with using(settings):
        pass
    stale = Path(settings.data_dir) / "postgres-18" / "postmaster.pid"
    stale.write_text(content)
    os.chown(stale, *(lambda s: (s.st_uid, s.st_gid))(stale.parent.stat()))
    with using(settings) as embedded:
        assert runs(embedded.url)


def test_the_server_is_private_and_out_of_reach_of_the_terminal(settings: Settings) -> None:
    hostile = with_options(settings, listen_addresses="*", unix_socket_permissions="0777")
    with using(hostile) as embedded:
        assert ask(embedded.url, "SHOW listen_addresses") == ""
        assert ask(embedded.url, "SHOW unix_socket_permissions") == "0700"
        assert os.getsid(server_pid(settings)) != os.getsid(0)
        for name in ("postgres-18", "run"):
            directory = Path(settings.data_dir) / name
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_parameters_come_from_the_settings_and_commits_are_durable(settings: Settings) -> None:
    chosen = msgspec.structs.replace(
        settings, shared_buffers="24MB", max_connections=33, options={"work_mem": "5MB"}
    )
    with using(chosen) as embedded:
        assert ask(embedded.url, "SHOW shared_buffers") == "24MB"
        assert ask(embedded.url, "SHOW max_connections") == "33"
        assert ask(embedded.url, "SHOW work_mem") == "5MB"
        assert ask(embedded.url, "SHOW fsync") == "on"
        assert ask(embedded.url, "SHOW server_encoding") == "UTF8"


def test_errors_of_the_server_are_shown(settings: Settings) -> None:
    with pytest.raises(DatabaseError, match=r'unrecognized configuration parameter "no_such"'):
        Embedded.start(with_options(settings, no_such="1"))
    with using(settings) as embedded:
        assert runs(embedded.url)


def test_options_reach_the_server_unread_by_a_shell(settings: Settings, scratch: Path) -> None:
    witness = scratch / "witness"
    value = f"x'; touch {witness}; $(touch {witness})"
    with using(with_options(settings, application_name=value)) as embedded:
        assert ask(f"{embedded.url}&application_name=", "SHOW fsync") == "off"
    assert not witness.exists()


def test_stopping_twice_is_stopping_once(settings: Settings) -> None:
    first, second = Embedded.start(settings), Embedded.start(settings)
    first.stop()
    first.stop()
    assert runs(second.url)
    second.stop()
    assert not runs(second.url)


def test_variables_for_other_servers_are_ignored(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PGPORT", "1"), ("PGDATA", "/nowhere"), ("PGDATABASE", "other")):
        monkeypatch.setenv(name, value)
    with using(settings) as embedded:
        assert ask(embedded.url, "SELECT current_database()") == "toolgate"


def test_a_path_too_long_for_a_socket_gets_a_short_directory(scratch: Path) -> None:
    settings = settings_for(scratch / ("long " * 24) / "data")
    with using(settings) as embedded:
        assert ask(embedded.url, "SELECT 1") == 1
        directory = Path(str(ask(embedded.url, "SHOW unix_socket_directories")).strip('"'))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert len(str(directory)) < 60
    directory.rmdir()
