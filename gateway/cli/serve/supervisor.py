"""The supervisor of several workers behind one socket (`server.workers`).

It has imported the gateway and forks the workers, which therefore share the memory of its code; it
serves nothing itself. Each worker has a socket pair with it: the worker writes a line when it is
ready, and heartbeats; when the supervisor's end closes, the worker drains and stops, so that a
killed supervisor leaves no workers behind.

SIGTERM, SIGINT  drains all workers, then stops; the second one cuts calls off
SIGHUP           reloads the settings in all workers, and adjusts their number
SIGUSR2          starts the program anew on the same socket, as after an update; once it is ready,
                 which it writes to a pipe, these workers drain
"""

import gc
import logging
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from config.load import load
from config.logging import configure
from config.settings import Settings
from config.yaml_document import SettingsError
from gateway.cli.common.failure import FAILED, fail
from gateway.cli.serve.process import READY_PIPE, STOPPING, announce, has_terminal
from gateway.cli.serve.worker_channel import ALIVE, MODEL, READY, WorkerLink, shares_model

log = logging.getLogger("toolgate.supervisor")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)
LISTENER = "GATEWAY_LISTENER_FD"  # environment of a replacement: descriptor of the socket
TICK_S = 1.0
STABLE_AFTER_S = 10.0  # a worker that lived this long is replaced at once
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
KILL_AFTER_S = 10.0  # beyond server.drain_s
STARTING = 5  # times server.worker_timeout_s until the first heartbeat: services in Python load
SOCKET_PATH_BYTES = 103  # of a Unix socket, on all systems

Work = Callable[[Settings, WorkerLink], int]
"""Serve as a worker, in the forked process; returns the exit code."""


@dataclass(slots=True)
class _Worker:
    slot: int
    pid: int
    link: socket.socket
    started: float  # monotonic time
    heard: float  # of its last line
    received: bytes = b""  # the beginning of a line
    ready: bool = False
    alive: bool = False  # it has sent a heartbeat
    leaving: bool = False
    kill_at: float = math.inf  # if it has not left


@dataclass(slots=True)
class _Slot:
    """The place of one worker and of its replacements."""

    backoff_s: float = 0.0  # before the next replacement, doubled while they die early
    due: float = 0.0  # time of the next start

    def delay(self, reset: bool = False) -> None:
        self.backoff_s = 0.0 if reset else _next(self.backoff_s)
        self.due = time.monotonic() + self.backoff_s


class Supervisor:
    def __init__(
        self, settings: Settings, listener: socket.socket, config_file: str | None, work: Work
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._config_file = config_file
        self._work = work
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # ignored, as under nohup
        self._terminal = has_terminal() and not ignored
        # The first worker starts without the others: it migrates the database.
        self._slots = {slot: _Slot() for slot in _wanted_slots(settings) if slot <= 0}
        self._workers: dict[int, _Worker] = {}  # by process id
        self._upgrade: subprocess.Popen[bytes] | None = None
        self._announced = self._stopping = False
        self._upgraded = False
        self._looked = time.monotonic()
        self._code = 0

    def run(self) -> int:
        """Supervise until a signal; returns the exit code."""
        gc.collect()
        gc.freeze()  # the collector would write to all objects, and so copy them into each worker
        with (
            selectors.DefaultSelector() as self._selector,
            tempfile.TemporaryDirectory(prefix="toolgate-workers-") as directory,
            _signals() as woken,
        ):
            self._directory = _short(Path(directory))
            self._selector.register(woken, selectors.EVENT_READ, self._signals_arrived)
            while not self._stopping or self._workers:
                self._care()
                for key, _ in self._selector.select(TICK_S):
                    if self._selector.get_map().get(key.fd) is key:  # not closed by one before it
                        key.data(key.fileobj)
        return self._code

    def _signals_arrived(self, woken: int) -> None:
        """Handle signals; of those that came meanwhile one of each kind, but all that stop."""
        received = os.read(woken, 65536)
        for number in (*dict.fromkeys(received), *_repeated_stops(received)):
            self._handle_signal(signal.Signals(number))

    def _handle_signal(self, number: signal.Signals) -> None:
        if number is signal.SIGCHLD:
            self._reap()
        elif number is signal.SIGUSR2:
            self._replace_program()
        elif number is not signal.SIGHUP:
            self._stop(number)
        elif not (self._terminal and not has_terminal()):
            self._reload()
        elif not self._stopping:  # shell and kernel both tell of the closed terminal
            self._stop(number)

    def _stop(self, number: signal.Signals) -> None:
        """Drain all workers; the second time, they cut calls off."""
        again = self._stopping
        if not again:
            log.info("stopping", extra={"signal": number.name, "processes": len(self._workers)})
        self._stopping = True
        if self._upgrade is not None and not self._upgraded:
            os.kill(self._upgrade.pid, signal.SIGTERM)  # else it would serve after the stop
        for worker in self._workers.values():
            # To one that drains already, as after a reload, this stop is no second one.
            if worker.slot != MODEL and (again or not worker.leaving):
                self._end(worker)
        self._end_model()

    def _end_model(self) -> None:
        """End the process with the model, once no worker can ask it."""
        if all(worker.slot == MODEL for worker in self._workers.values()):
            for worker in self._workers.values():
                self._end(worker)

    def _end(self, worker: _Worker) -> None:
        if not worker.leaving:
            worker.kill_at = time.monotonic() + self._settings.server.drain_s + KILL_AFTER_S
        worker.leaving = True
        os.kill(worker.pid, signal.SIGTERM)

    def _reload(self) -> None:
        """Reload every worker; a file with mistakes changes nothing."""
        try:
            settings = load(self._config_file, os.environ)
        except SettingsError as error:
            log.error("settings_rejected", extra={"reason": str(error)})
            return
        self._settings = settings
        configure(settings.logging)
        for worker in self._workers.values():
            if worker.slot != MODEL:  # its settings need a restart
                os.kill(worker.pid, signal.SIGHUP)
        self._resize()

    def _resize(self) -> None:
        self._slots = {
            slot: self._slots.get(slot, _Slot()) for slot in _wanted_slots(self._settings)
        }
        for worker in self._workers.values():
            if worker.slot not in self._slots and not worker.leaving:
                self._end(worker)

    def _replace_program(self) -> None:
        if self._stopping or self._upgrade is not None:
            return
        try:
            self._upgrade = self._started_anew()
        except OSError as error:
            log.error("upgrade_failed", extra={"reason": str(error)})
            return
        log.info("upgrade_started", extra={"pid": self._upgrade.pid})

    def _started_anew(self) -> "subprocess.Popen[bytes]":
        ready, write_ready = os.pipe()
        listener = self._listener.fileno()
        variables = {LISTENER: str(listener), READY_PIPE: str(write_ready)}
        try:
            program = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                pass_fds=(listener, write_ready),
                env={**os.environ, **variables},
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(write_ready)
        self._selector.register(ready, selectors.EVENT_READ, self._upgrade_ready)
        return program

    def _upgrade_ready(self, pipe: int) -> None:
        """The new program serves, or has ended: `_reap` has the reason."""
        self._upgraded = bool(os.read(pipe, 1))
        self._selector.unregister(pipe)
        os.close(pipe)
        if self._upgraded and not self._stopping:
            self._stop(signal.SIGTERM)

    def _care(self) -> None:
        """Timed duties: starts, and the end of workers that stand still."""
        now = time.monotonic()
        if now - self._looked > 3 * TICK_S:  # the whole machine stood still
            for worker in self._workers.values():
                worker.heard = now
        self._looked = now
        self._kill_stuck(now)
        if self._stopping:
            return
        busy_slots = {worker.slot for worker in self._workers.values() if not worker.leaving}
        for number, slot in self._slots.items():
            if number not in busy_slots and now >= slot.due:
                try:
                    self._start(number)
                except OSError as error:  # too many processes or files, or too little memory
                    slot.delay()
                    log.error("worker_not_started", extra={"slot": number, "reason": str(error)})

    def _kill_stuck(self, now: float) -> None:
        timeout_s = self._settings.server.worker_timeout_s
        for worker in self._workers.values():
            patience_s = timeout_s if worker.alive else STARTING * timeout_s
            stuck = not worker.leaving and now - worker.heard > patience_s
            if stuck or now > worker.kill_at:
                log.error("worker_unresponsive", extra={"pid": worker.pid, "slot": worker.slot})
                os.kill(worker.pid, signal.SIGKILL)

    def _start(self, slot: int) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        # a signal to the child must not run the handlers of the supervisor
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._be_worker(slot, theirs)
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            theirs.close()
        now = time.monotonic()
        worker = self._workers[pid] = _Worker(slot, pid, ours, now, now)
        self._selector.register(ours, selectors.EVENT_READ, partial(self._hear, worker))

    def _be_worker(self, slot: int, link: socket.socket) -> NoReturn:
        """Never leaves the forked process: what it would unwind is the supervisor's."""
        code = FAILED
        try:
            code = self._run_worker(slot, link)
        except Exception:
            log.exception("worker_failed", extra={"slot": slot})
        finally:
            os._exit(code)

    def _run_worker(self, slot: int, link: socket.socket) -> int:
        """The life of a worker; returns its exit code."""
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        # SIGHUP waits for its handler: it would end a worker that is starting
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP})
        os.setpgid(0, 0)  # Ctrl-C of the terminal is the supervisor's
        self._selector.close()
        for peer in self._workers.values():
            peer.link.close()
        code = self._work(
            self._settings, WorkerLink(link, slot, self._directory, self._settings.server)
        )
        logging.shutdown()
        sys.stdout.flush()
        return code

    def _hear(self, worker: _Worker, _link: socket.socket) -> None:
        received = worker.link.recv(4096)
        if not received:  # it is ending; `_reap` has the rest
            self._selector.unregister(worker.link)
            return
        worker.heard, worker.alive = time.monotonic(), True
        *lines, worker.received = (worker.received + received).split(b"\n")
        for line in lines:
            if line != ALIVE:
                self._became_ready(worker, int(line.removeprefix(READY)))

    def _became_ready(self, worker: _Worker, tools: int) -> None:
        worker.ready = True
        if self._announced or worker.slot == MODEL:
            return
        self._resize()  # the first one was alone
        if sum(worker.ready for worker in self._workers.values()) < len(self._slots):
            return
        self._announced = True
        announce(self._settings, self._listener, tools)

    def _reap(self) -> None:
        while self._workers or self._upgrade is not None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            worker = self._workers.pop(pid, None)
            if worker is not None:
                self._on_worker_end(worker, code)
            elif self._upgrade is not None and pid == self._upgrade.pid:
                self._upgrade = None
                log.error("upgrade_failed", extra={"code": code})

    def _on_worker_end(self, worker: _Worker, code: int) -> None:
        if worker.link in self._selector.get_map():
            self._selector.unregister(worker.link)
        worker.link.close()
        if self._stopping:
            self._end_model()
        if self._stopping or worker.leaving:
            return
        if not self._announced and worker.slot == 0:
            self._code = code if code > 0 else FAILED
            self._stop(signal.SIGTERM)
            return
        lived = time.monotonic() - worker.started
        slot = self._slots.get(worker.slot, _Slot())
        slot.delay(reset=lived > STABLE_AFTER_S)
        log.error(
            "worker_died",
            extra={"pid": worker.pid, "slot": worker.slot, "code": code, "retry_s": slot.backoff_s},
        )


def _wanted_slots(settings: Settings) -> list[int]:
    """The slots of the processes that these settings ask for."""
    return [*([MODEL] if shares_model(settings) else []), *range(settings.server.processes)]


def inherited_listener() -> socket.socket | None:
    """The socket of the supervisor that this process replaces."""
    descriptor = os.environ.pop(LISTENER, "")
    return socket.socket(fileno=int(descriptor)) if descriptor else None


def _next(backoff_s: float) -> float:
    return min(max(FIRST_BACKOFF_S, 2 * backoff_s), LONGEST_BACKOFF_S)


def _repeated_stops(received: bytes) -> bytes:
    """All signals to stop but the first of each kind."""
    return b"".join(bytes([number]) * (received.count(number) - 1) for number in STOPPING)


def _short(directory: Path) -> Path:
    """Fail if no socket can lie in `directory`."""
    if len(os.fsencode(directory / "worker-000.sock")) > SOCKET_PATH_BYTES:
        fail(f"the sockets of the workers cannot lie in {directory}: set TMPDIR to a shorter path")
    return directory


@contextmanager
def _signals() -> Iterator[int]:
    """Yields a descriptor to which signals are written inside: a pipe, which holds far more of them
    than a socket does."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    before = {number: signal.signal(number, _ignore_signal) for number in SIGNALS}
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(wake)


def _ignore_signal(_number: int, _frame: object) -> None:
    """A signal handler: the selector is woken by the wakeup descriptor."""
