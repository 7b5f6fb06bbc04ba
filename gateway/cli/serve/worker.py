"""A worker's connections: to its supervisor, readiness and heartbeats out, the end of file in; and
to the other workers."""

import asyncio
import os
import signal
import socket
from pathlib import Path

from config.settings import ServerSettings
from gateway.admin.siblings import Answers, Siblings

READY, ALIVE = b"ready ", b"alive"
BEATS = 4  # heartbeats within server.worker_timeout_s


class WorkerLink:
    def __init__(
        self, link: socket.socket, slot: int, directory: Path, settings: ServerSettings
    ) -> None:
        """`directory`: of the sockets between the workers."""
        self.siblings = Siblings(directory, slot, settings.processes)
        self._link = link
        self._beat_s = settings.worker_timeout_s / BEATS

    async def run(self, answers: Answers) -> None:
        """Send heartbeats, and answer the other workers, until cancelled. Stops this process once
        the supervisor is gone."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._link, self._left)
        try:
            async with self.siblings.answering(answers):
                while True:
                    await asyncio.sleep(self._beat_s)
                    self._send(ALIVE)
        finally:
            loop.remove_reader(self._link)

    def ready(self, tools: int) -> None:
        self._send(READY + b"%d" % tools)

    def _send(self, line: bytes) -> None:
        try:
            self._link.sendall(line + b"\n")
        except OSError:
            self._left()

    def _left(self) -> None:
        asyncio.get_running_loop().remove_reader(self._link)
        os.kill(os.getpid(), signal.SIGTERM)
