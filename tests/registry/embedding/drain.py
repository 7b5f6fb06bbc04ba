"""A process with workers, for a test that kills it: python -m tests.registry.embedding.drain URL N.

Its embedder is no model: ten thousand texts would take the bundled one minutes, and it is the queue
that is tested.
"""

import asyncio
import sys
from pathlib import Path

import anyio
from msgspec.structs import replace

from registry.database.postgres import Database
from registry.embedding.worker import Worker
from tests.fixtures_database import settings_for
from tests.registry.embedding.conftest import SETTINGS
from tests.registry.embedding.fakes import HashEmbedder


async def main(url: str, workers: int) -> None:
    settings = replace(settings_for(Path("/nowhere")), url=url)
    async with Database.open(settings, migrate=False) as database:
        wanted = replace(SETTINGS, lease_s=2, poll_s=0.2)
        crew = [Worker(database.pool, HashEmbedder(), wanted) for _ in range(workers)]
        async with anyio.create_task_group() as tasks:
            for worker in crew:
                tasks.start_soon(worker.run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
