"""Launcher program: sets resource limits on itself, then execs the command.

A step of its own, because code between fork and exec of a process with threads may hang, and uvloop
and asyncio fork differently. Imports only the standard library.

    python -I -S launcher.py MEMORY_BYTES PARENT_PID COMMAND [ARGUMENT...]
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
OPEN_FILES = 1024
NOT_FOUND = 127  # exit status of shells for a command that is not found


def main(memory_bytes: int, parent: int, command: list[str]) -> int:
    """Launch the command; returns only when it cannot be started."""
    # uvloop lets the child inherit descriptors that the gateway itself inherited
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # elsewhere the process ends on EOF of its standard input
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1  # the gateway ended before the death signal was set
    # not RLIMIT_AS: V8 reserves 10 GB of addresses for each memory of WebAssembly, as in fetch()
    _limit(resource.RLIMIT_DATA, memory_bytes)
    try:
        os.execvp(command[0], command)  # noqa: S606 (a shell is what is not wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND


def _limit(kind: int, value: int) -> None:
    """Set the limit to `value`, or to the hard limit if that is lower."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
