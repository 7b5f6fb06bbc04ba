"""A worker's connections: to its supervisor, readiness and heartbeats out, the end of file in; and
to the other workers."""

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path

import anyio
from msgspec.structs import replace

from config.conflicts import pool_of_worker
from config.settings import ServerSettings, Settings
from gateway.admin.worker_peers import Answers, WorkerPeers
from registry.embedding.embedder_factory import LOCAL, local_embedder
from registry.embedding.model_server import model_server

MODEL = -1  # slot of the process with the embedding model that the workers share
MODEL_SOCKET = "model.sock"
READY, ALIVE = b"ready ", b"alive"
LOOK_S = 0.5  # between two looks for workers that drain
SLACK_S = 10.0  # beyond server.drain_s, in which workers end
BEATS = 4  # heartbeats within server.worker_timeout_s


class WorkerLink:
    def __init__(
        self, link: socket.socket, slot: int, directory: Path, settings: ServerSettings
    ) -> None:
        """`directory`: of the sockets between the workers."""
        self.slot = slot
        self.model_socket = directory / MODEL_SOCKET
        self.siblings = WorkerPeers(directory, slot, settings.processes)
        self.orphaned = False  # the supervisor has gone
        self._link = link
        self._beat_s = settings.worker_timeout_s / BEATS

    async def run(self, answers: Answers) -> None:
        """Send heartbeats, and answer the other workers, until cancelled. Stops this process once
        the supervisor is gone."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._link, self._on_supervisor_end)
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
            self._on_supervisor_end()

    def _on_supervisor_end(self) -> None:
        """Stop this process, once: heartbeats fail from then on, and a second SIGTERM would cut
        calls off."""
        if self.orphaned:
            return
        self.orphaned = True
        asyncio.get_running_loop().remove_reader(self._link)
        os.kill(os.getpid(), signal.SIGTERM)


def shares_model(settings: Settings) -> bool:
    """Whether there is a local model, of which one copy is enough for all workers."""
    embedding = settings.embedding
    model_settings = (embedding, *map(embedding.of, embedding.purposes))
    return not embedding.socket and any(model.provider in LOCAL for model in model_settings)


def of_worker(settings: Settings, link: WorkerLink) -> Settings:
    """The settings of one of several workers: its share of the embedded server's connections, and
    the shared model. Texts are embedded by the first one."""
    database = replace(settings.database, pool_max=pool_of_worker(settings))
    embedding = settings.embedding
    if shares_model(settings):
        embedding = replace(embedding, socket=str(link.model_socket))
    if link.slot > 0:
        embedding = replace(embedding, workers=0)
    return replace(settings, database=database, embedding=embedding)


async def serve_model(settings: Settings, link: WorkerLink) -> None:
    """Be the process with the embedding model, until SIGTERM; without a supervisor, until the
    workers have drained, whose calls search."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with model_server(link.model_socket, partial(local_embedder, settings.embedding)):
        link.ready(0)
        running = asyncio.create_task(link.run({}))
        await stopped.wait()
        if link.orphaned:
            with anyio.move_on_after(settings.server.drain_s + SLACK_S):
                await _workers_gone(link.siblings)
        running.cancel()


async def _workers_gone(siblings: WorkerPeers) -> None:
    """Wait until no worker answers."""
    answers = [True]
    while any(answers):
        await anyio.sleep(LOOK_S)
        answers = [answer is not None for answer in (await siblings.ask("status")).values()]
