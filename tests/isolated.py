"""A command in a network of its own, where each name that it looks up and each connection to the
web is recorded and refused: `isolated(...)` of tests. Run as a program it is that network.

Every address belongs to its loopback interface, so that a connection to anywhere arrives here.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread

WEB = (80, 443)
DEADLINE_S = 240
_ROOT = os.geteuid() == 0
_NETWORK = ("unshare", *(() if _ROOT else ("--user", "--map-current-user", "--keep-caps")), "-nm")


@dataclass(frozen=True)
class Isolated:
    code: int
    output: str
    contacts: list[str]


@cache
def networks() -> bool:
    """Whether this machine lets tests have networks of their own."""
    if not all(shutil.which(name) for name in ("unshare", "ip", "mount")):
        return False
    script = "ip link set lo up && mount -t tmpfs none /mnt"
    return subprocess.run([*_NETWORK, "sh", "-c", script], capture_output=True).returncode == 0


def run_isolated(words: list[str], env: Mapping[str, str]) -> Isolated:
    """Run a command to its end."""
    with tempfile.NamedTemporaryFile("r") as report:
        done = subprocess.run(
            [*_NETWORK, sys.executable, __file__, report.name, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
            timeout=DEADLINE_S,
        )
        contacts = json.loads(report.read() or "[]")
    return Isolated(done.returncode, done.stdout, contacts)


def _name(query: bytes) -> tuple[str, int]:
    """The name that a query of DNS asks for, and where the question ends."""
    labels, at = [], 12
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels), at + 5


def _refuse_names(server: socket.socket, contacts: list[str]) -> None:
    while True:
        query, asker = server.recvfrom(4096)
        name, end = _name(query)
        contacts.append(name)
        head = query[:2] + b"\x81\x83" + query[4:6] + bytes(6)  # NXDOMAIN
        server.sendto(head + query[12:end], asker)


def _refuse_connections(server: socket.socket, contacts: list[str]) -> None:
    while True:
        connection, _ = server.accept()
        contacts.append("{}:{}".format(*connection.getsockname()[:2]))
        connection.close()


def _serve(kind: socket.SocketKind, port: int) -> socket.socket:
    server = socket.socket(socket.AF_INET, kind)
    server.bind(("0.0.0.0", port))
    if kind is socket.SOCK_STREAM:
        server.listen()
    return server


def main(report: Path, words: list[str], env: Mapping[str, str]) -> int:
    contacts: list[str] = []
    with tempfile.NamedTemporaryFile("w") as resolver:
        resolver.write("nameserver 127.0.0.1\n")
        resolver.flush()
        for command in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"),
            ("mount", "--bind", resolver.name, "/etc/resolv.conf"),
        ):
            subprocess.run(command, check=True)
        names = _serve(socket.SOCK_DGRAM, 53)
        Thread(target=_refuse_names, args=(names, contacts), daemon=True).start()
        for port in WEB:
            web = _serve(socket.SOCK_STREAM, port)
            Thread(target=_refuse_connections, args=(web, contacts), daemon=True).start()
        code = subprocess.run(words, env=env).returncode
    report.write_text(json.dumps(contacts))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:], os.environ))
