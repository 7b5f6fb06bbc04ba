"""The state of a process as JSON, for comparison: `python -m tests.process_state [EXIT CODE]`."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def list_descriptors() -> list[int]:
    """Open descriptors without those of libraries: libffi maps its own file for each callback."""
    *files, _listing = sorted(Path("/proc/self/fd").iterdir(), key=lambda file: int(file.name))
    return [int(file.name) for file in files if ".so" not in file.readlink().name]


def describe_process() -> dict[str, Any]:
    return {
        "name": __name__,
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "executable": sys.executable,
        "environment": dict(os.environ),
        "cwd": str(Path.cwd()),
        "parent": os.getppid(),
        "leads_group": os.getpgid(0) == os.getpid(),
        "leads_session": os.getsid(0) == os.getpid(),
        "descriptors": list_descriptors(),
        "signals": [str(signal.getsignal(number)) for number in SIGNALS],
        "blocked": [*signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "threads": threading.active_count(),
        "streams": [
            (one.name, one.encoding, one.errors, one.line_buffering, one.isatty())
            for one in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "input": sys.stdin.read(),
    }


if __name__ == "__main__":
    print(json.dumps(describe_process()))
    sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
