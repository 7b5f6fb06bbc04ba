"""The peer: FastMCP 4 in a virtual environment of its own, because its pins clash with ours."""

import functools
import subprocess
import sys
from pathlib import Path

from benchmarks.request import Unavailable

REQUIREMENTS = ("fastmcp>=4.1,<4.2", "uvicorn>=0.37,<1", "uvloop>=0.21,<1", "httptools>=0.6.4,<1")
ENVIRONMENT = Path(__file__).resolve().parent.parent / ".bench" / "fastmcp-venv"
PYTHON = ENVIRONMENT / "bin" / "python"
INSTALL_TIMEOUT_S = 600.0


@functools.cache
def prepare() -> Path:
    """Interpreter of the peer's environment, created on the first run."""
    if installed() is None:
        _install()
    if installed() is None:
        raise Unavailable("not available: fastmcp is installed but cannot be imported")
    return PYTHON


def installed() -> str | None:
    """FastMCP's version; None while it is not there."""
    if not PYTHON.exists():
        return None
    code = "import importlib.metadata as m, fastmcp, uvloop; print(m.version('fastmcp'))"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _install() -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)])
    _run([str(PYTHON), "-m", "pip", "install", "--quiet", *REQUIREMENTS])


def _run(arguments: list[str]) -> None:
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"not available: installing took over {INSTALL_TIMEOUT_S} s") from late
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().rsplit("\n", 1)[-1]
        raise Unavailable(f"not available: {reason[:200]}")
