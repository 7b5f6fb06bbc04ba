"""A process whose children store a file, and kill themselves before a statement that they are told:

    python -m tests.wings.knowledge.victim DATABASE_URL

Each line of its input, a number of statements, makes one child; how that ended is printed.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from msgspec.structs import replace
from psycopg import AsyncConnection

from config.load import load
from gateway.wings.documents.chunking.chunks_by_kind import cut
from gateway.wings.documents.reading.reader_messages import ReadDocument
from gateway.wings.documents.reading.source_files import SourceFile
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.ingestion import IngestReport
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig, open_rig

PATH = "heron.md"


def text_of(version: int) -> str:
    """Most of its parts are other ones in each version."""
    parts = (
        f"# Part {part}\n\nHeron {part} of version{version if part else 0}.\n\n" + "It wades. " * 99
        for part in range(4)
    )
    return "\n\n".join(parts)


async def store(rig: KnowledgeRig, version: int) -> None:
    """Store a version of the file as those do that read it elsewhere."""
    text = text_of(version)
    found = ReadDocument(text, "text/markdown", cut(text, path=PATH, media_type="text/markdown"))
    reader, target = KnowledgeReader(HOST, "ann", ("*",)), NewCollection("files")
    file = SourceFile.of(PATH, text.encode())
    await rig.parts.ingestion.take(reader, target, file, found, report=IngestReport())


async def end_before(statements: int, url: str) -> None:
    execute, left = AsyncConnection.execute, statements

    async def mortal(*args: Any, **more: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await execute(*args, **more)

    settings = replace(load(None, {}).database, url=url)
    async with Database.open(settings, migrate=False) as database, open_rig(database) as rig:
        AsyncConnection.execute = mortal  # type: ignore[method-assign]
        await store(rig, 1)


def main(url: str) -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(end_before(int(line), url))
                code = 0
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
