"""The knowledge as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.wings.abc import Offer, Wing, WingParts
from gateway.wings.knowledge.calls import ToolCalls
from gateway.wings.knowledge.lightrag import PATH, LightRag
from gateway.wings.knowledge.parts import KnowledgeParts
from gateway.wings.knowledge.search import KIND
from gateway.wings.knowledge.uploads import FILES, FileUploads
from registry.database.migrate import Component

MIGRATIONS = Component(
    "knowledge", importlib.resources.files("gateway.wings.knowledge").joinpath("sql")
)


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    knowledge = KnowledgeParts(parts.pool, parts.embedder, parts.settings, parts.keys)
    calls = ToolCalls(parts)
    uploads = FileUploads(calls, knowledge.ingestion)
    try:
        yield Offer(
            operations=knowledge.operations,
            apps={PATH: LightRag(calls, parts.settings).app, FILES: uploads.app},
        )
    finally:
        await knowledge.workers.close()


WING = Wing(
    name="knowledge",
    title="Knowledge",
    open=opened,
    migrations=MIGRATIONS,
    kinds=(KIND,),
    mounts=(PATH, FILES),
    body_limits={FILES: "upload_bytes"},
    commands={
        "eval": ("gateway.cli.knowledge:evaluate", "Measure how well documents are found."),
        "upload": ("gateway.cli.knowledge:upload", "Store files and directories."),
        "export": ("gateway.cli.knowledge:export", "Export a collection as JSON Lines."),
    },
)
