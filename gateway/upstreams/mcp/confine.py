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
NOT_FOUND = 127  # as shells say it


def main(memory_bytes: int, parent: int, command: list[str]) -> int:
    """Returns only when the command cannot be started."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # elsewhere the end of its standard input has to do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1  # the gateway ended before it could be tied to it
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        os.execvp(command[0], command)  # noqa: S606 (a shell is what is not wanted)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
