"""Run as a program: limits itself, then becomes the command.

A step of its own, because code between fork and exec of a process with threads may hang, and uvloop
and asyncio fork differently. Imports only what Python brings.

    python -I -S confine.py MEMORY_BYTES PARENT_PID COMMAND [ARGUMENT...]
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
OPEN_FILES = 1024
NOT_FOUND = 127  # as shells say it


def main(memory_bytes: int, parent: int, command: list[str]) -> int:
    """Returns only when the command cannot be started."""
    # uvloop passes on what the gateway itself was started with, whoever opened that
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # elsewhere the end of its standard input has to do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1  # the gateway ended before it could be tied to it
    _limit(resource.RLIMIT_AS, memory_bytes)
    try:
        os.execvp(command[0], command)  # noqa: S606 (a shell is what is not wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND


def _limit(what: int, wanted: int) -> None:
    """To `wanted`, or to what we are limited to."""
    _, most = resource.getrlimit(what)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
