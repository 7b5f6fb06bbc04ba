"""A process whose children do research, and kill themselves before a write that they are told:

    python -m tests.wings.librarian.victim DATABASE_URL MODEL_URL

Each line of its input, a run and a number of writes, makes one child, whose process id it prints,
and then how it ended. A run is begun, or gone on with, as a job does it.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from msgspec.structs import replace

from gateway.operations.job_declarations import NoJob
from gateway.wings.librarian.library_access import LibraryAccess
from gateway.wings.librarian.question_operations import QuestionOperations
from gateway.wings.librarian.research_runs import RunStore
from registry.database.postgres import Database
from tests.wings.identities import WingCaller, identity_of
from tests.wings.knowledge.rig import SCOPES, open_rig
from tests.wings.librarian.rig import SETTINGS, librarian_settings, scripted_models

QUESTION = "On which port does Redis listen?"


class Mortal(RunStore):
    """Kills its process before a write, counted from 0."""

    left = 0

    async def create(self, *args: Any, **more: Any) -> bool:
        self.die()
        return await super().create(*args, **more)

    async def put(self, *args: Any) -> None:
        self.die()
        await super().put(*args)

    async def end_step(self, *args: Any) -> None:
        self.die()
        await super().end_step(*args)

    async def end(self, *args: Any) -> None:
        self.die()
        await super().end(*args)

    def die(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


async def research(database_url: str, model_url: str, run: str, writes: int) -> None:
    settings = librarian_settings(answers={"answers": 0})
    opened = Database.open(replace(SETTINGS.database, url=database_url), migrate=False)
    async with opened as database, open_rig(database) as rig, scripted_models(model_url) as models:
        shelves = LibraryAccess(lambda: rig.parts.library)
        questions = QuestionOperations(database.pool, models, settings, shelves)
        questions._runs = Mortal(database.pool, settings.research)
        questions._runs.left = writes
        operations = {one.id: one for one in questions.operations}
        ann = WingCaller("librarian", operations, identity_of("ann", SCOPES))
        await ann("research", question=QUESTION, strategy="recursive", job=NoJob(), request_id=run)


def main(database_url: str, model_url: str) -> None:
    for line in sys.stdin:
        run, writes = line.split()
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(research(database_url, model_url, run, int(writes)))
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
