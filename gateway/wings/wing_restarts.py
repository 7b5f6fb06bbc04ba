"""The life of a wing in a process: it is opened, and opened again after each failure."""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal

import anyio

from gateway.wings.interface import Task, Wing, WingContributions, WingParts
from registry.database.postgres import AWAY
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.wings")

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0  # before a wing that failed is opened again

WingState = Literal["opening", "ok", "failed"]


class WingLife(ABC):
    def __init__(self, wing: Wing) -> None:
        self.name = wing.name
        self.state: WingState = "opening"
        self.attempted = anyio.Event()  # opened for the first time, or failed to
        self.opened = anyio.Event()  # for the first time; it may have failed since
        self._wing = wing
        self._begun = anyio.Event()
        self._stopping = anyio.Event()
        self._closed = anyio.Event()

    @abstractmethod
    async def parts(self) -> WingParts:
        """The parts of the wing. Raises ToolgateError and psycopg.Error, also for migrations that
        fail."""

    @abstractmethod
    def serving(self, offer: WingContributions) -> AbstractAsyncContextManager[None]:
        """Serve what the wing offers. Raises ToolgateError if it offers what it may not."""

    def tasks(self, offer: WingContributions) -> Sequence[Task]:
        """The tasks that run in this process."""
        return offer.tasks

    def begin(self) -> None:
        self._begun.set()

    async def run(self) -> None:
        try:
            await self._begun.wait()
            pause_s = FIRST_RETRY_S
            while not self._stopping.is_set():
                if await self._open_until_stopped() > LONGEST_RETRY_S:
                    pause_s = FIRST_RETRY_S
                self.attempted.set()
                with anyio.move_on_after(pause_s):
                    await self._stopping.wait()
                pause_s = min(pause_s * 2, LONGEST_RETRY_S)
        finally:
            self._closed.set()

    async def stop(self) -> None:
        """Stop the wing, and wait until it is closed."""
        self._stopping.set()
        if self._begun.is_set():
            await self._closed.wait()

    async def _open_until_stopped(self) -> float:
        """Open the wing and wait until it is stopped or fails; returns for how many seconds it was
        open."""
        since = math.inf
        try:
            async with self._wing.open(await self.parts()) as offer, self.serving(offer):
                since, self.state = time.monotonic(), "ok"
                log.info("wing_open", extra={"wing": self.name})
                self.opened.set()
                self.attempted.set()
                await self._work(offer)
        except (ToolgateError, *AWAY) as error:
            self.state = "failed"
            log.error("wing_failed", extra={"wing": self.name, "reason": str(error)})
        except Exception:
            self.state = "failed"
            log.exception("wing_failed", extra={"wing": self.name})
        return max(0.0, time.monotonic() - since)

    async def _work(self, offer: WingContributions) -> None:
        async with anyio.create_task_group() as tasks:
            for task in self.tasks(offer):
                tasks.start_soon(task)
            await self._stopping.wait()
            tasks.cancel_scope.cancel()
