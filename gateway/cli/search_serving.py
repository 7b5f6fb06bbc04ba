"""What `toolgate search` embeds queries with: what a gateway with the same settings does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from config.settings import Settings
from gateway.cli.database import Registry
from registry.embedding.abc import EmbeddingFailed
from registry.embedding.providers import make_embedder
from registry.embedding.serving import Serving


@asynccontextmanager
async def open_serving(settings: Settings, registry: Registry) -> AsyncIterator[Serving]:
    target, refused = None, None
    try:
        target = make_embedder(settings.embedding)
    except EmbeddingFailed as error:
        refused = str(error)
    serving = Serving(lambda: registry.database.pool, settings.embedding, target)
    if refused:
        serving.note = refused
    else:
        await serving.refresh()
    try:
        yield serving
    finally:
        await serving.close()
        if target is not None:
            await target.close()
