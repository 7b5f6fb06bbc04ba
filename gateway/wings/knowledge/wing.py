"""The knowledge as a wing."""

import importlib.resources
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from config.knowledge import KnowledgeSettings
from gateway.wings.abc import Finding, Offer, Wing, WingParts
from gateway.wings.knowledge.calls import ToolCalls
from gateway.wings.knowledge.ingestion import reading_limits
from gateway.wings.knowledge.lightrag import PATH, LightRag
from gateway.wings.knowledge.parts import KnowledgeParts
from gateway.wings.knowledge.reading.limits import ReadingRefused
from gateway.wings.knowledge.reading.workers import ReadingWorkers
from gateway.wings.knowledge.search import KIND
from gateway.wings.knowledge.uploads import FILES, FileUploads
from registry.database.migrate import Component
from registry.database.postgres import Pool

if TYPE_CHECKING:
    from gateway.wings.knowledge.modelled import KnowledgeModel

MIGRATIONS = Component(
    "knowledge", importlib.resources.files("gateway.wings.knowledge").joinpath("sql")
)


@asynccontextmanager
async def opened(parts: WingParts) -> AsyncIterator[Offer]:
    model = _model(parts) if parts.settings.model else None
    knowledge = KnowledgeParts(parts.pool, parts.embedder, parts.settings, parts.keys, model=model)
    calls = ToolCalls(parts)
    uploads = FileUploads(calls, knowledge.ingestion)
    lightrag = LightRag(calls, knowledge.ingestion, parts.settings, model)
    try:
        yield Offer(
            operations=knowledge.operations,
            library=knowledge.library,
            apps={PATH: lightrag.app, FILES: uploads.app},
        )
    finally:
        await knowledge.workers.close()


async def checked(
    settings: KnowledgeSettings, _tenant: str, _pool: Pool | None
) -> AsyncIterator[Finding]:
    """Whether files, which are not trusted, are read without network."""
    workers = ReadingWorkers(1, reading_limits(settings))
    try:
        isolated = await workers.isolated()
    except ReadingRefused as error:
        yield Finding("failed", f"{error}; is the extra toolgate[knowledge] installed?")
        return
    finally:
        await workers.close()
    if isolated:
        yield Finding("ok", "files are read in processes without network")
    else:
        yield Finding(
            "warning",
            "processes that read files have the network of the gateway; without it they need"
            " Linux with user namespaces (sysctl user.max_user_namespaces)",
        )


def _model(parts: WingParts) -> "KnowledgeModel":
    """Imports nothing where no chat model is asked."""
    from gateway.wings.knowledge.modelled import KnowledgeModel

    return KnowledgeModel(parts.pool, parts.models, parts.call, parts.settings)


WING = Wing(
    name="knowledge",
    title="Knowledge",
    open=opened,
    migrations=MIGRATIONS,
    kinds=(KIND,),
    mounts=(PATH, FILES),
    checks=checked,
    body_limits={FILES: "upload_bytes", PATH: "upload_bytes"},
    commands={
        "eval": ("gateway.cli.knowledge:evaluate", "Measure how well documents are found."),
        "upload": ("gateway.cli.knowledge:upload", "Store files and directories."),
        "export": ("gateway.cli.knowledge:export", "Export a collection as JSON Lines."),
    },
)
