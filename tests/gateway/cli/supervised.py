"""The supervisor with workers that do what a test names, instead of serving:

python -m tests.gateway.cli.supervised WORK CONFIG_FILE
"""

import logging
import os
import signal
import socket
import sys

from config.load import load
from config.logging import configure
from config.settings import Settings
from gateway.cli.common.failure import CommandFailure
from gateway.cli.serve import supervisor
from gateway.cli.serve.supervisor import LISTENER, Supervisor, inherited_listener
from gateway.cli.serve.worker_channel import WorkerLink

log = logging.getLogger("toolgate.supervised")
supervisor.KILL_AFTER_S = 0.0
# those of a file are those of a reload
FIRST = {
    "TOOLGATE_SERVER__WORKERS": "2",
    "TOOLGATE_SERVER__DRAIN_S": "1",
    "TOOLGATE_EMBEDDING__PROVIDER": "disabled",
    "TOOLGATE_DATABASE__URL": "postgresql://127.0.0.1:1/none",
}
ANEW = LISTENER in os.environ


def waits(_settings: Settings, link: WorkerLink) -> int:
    link.ready(0)
    link._link.recv(1)  # until the supervisor has gone
    return 0


def raises(settings: Settings, link: WorkerLink) -> int:
    if link.slot == 1:
        raise RuntimeError("a mistake in a worker")
    return waits(settings, link)


def stays(settings: Settings, link: WorkerLink) -> int:
    if link.slot == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return waits(settings, link)


def lingers(settings: Settings, link: WorkerLink) -> int:
    """The new program never becomes ready."""
    if ANEW:
        link._link.recv(1)
    return waits(settings, link)


def vanishes(settings: Settings, link: WorkerLink) -> int:
    """The interpreter is not there any more, as after an update."""
    return waits(settings, link)


def mortal(settings: Settings, link: WorkerLink) -> int:
    """The replacement of a killed worker starts at once, however young it was."""
    return waits(settings, link)


def hangs(settings: Settings, link: WorkerLink) -> int:
    """The second worker never begins to serve."""
    if link.slot == 1:
        link._link.recv(1)
    return waits(settings, link)


def counts(settings: Settings, link: WorkerLink) -> int:
    """The second worker counts the SIGTERMs that it gets, and leaves when a test says so."""
    if link.slot == 1:
        got: list[int] = []

        def terminate(number: int, _frame: object) -> None:
            got.append(number)
            log.info("terminated")

        def leave(_number: int, _frame: object) -> None:
            log.info("left", extra={"terminations": len(got)})
            os._exit(0)

        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGCONT, leave)  # a higher number: its handler runs after the other
    return waits(settings, link)


WORK = {
    work.__name__: work for work in (waits, raises, stays, lingers, vanishes, mortal, hangs, counts)
}


def main(work: str, config_file: str) -> int:
    settings = load(None, os.environ | FIRST)
    configure(settings.logging)
    if work == "vanishes":
        sys.executable = "/nonexistent/python"
    if work == "mortal":
        supervisor.STABLE_AFTER_S = 0.0
    if work == "hangs":
        supervisor.STARTING = 0.05
    listener = inherited_listener() or socket.create_server(("127.0.0.1", 0))
    try:
        return Supervisor(settings, listener, config_file, WORK[work]).run()
    except CommandFailure as failure:
        failure.show()
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
