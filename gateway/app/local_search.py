"""Search in the process of a command, with a gateway's settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from config.settings import Settings
from registry.database.postgres import Pool
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import ServingEmbedder, make_embedder
from registry.embedding.search_kinds import TOOLS
from registry.search import Search, SearchQuery, SearchResult


async def find_tools(
    settings: Settings, pool: Callable[[], Pool | None], query: SearchQuery
) -> SearchResult:
    """The search result, whose note has the failure of the model. Raises Unreachable if required
    embeddings are unavailable."""
    async with open_serving(settings, pool) as serving:
        failure = None
        if query.mode != "lexical" and serving.embedder is not None:
            failure = await _warmed_up(serving.embedder)
        search = Search(
            pool,
            lambda _: serving.embedder,
            settings.search,
            when_down=settings.disclosure.when_down,
            why=lambda _: serving.note,
        )
        result = await search.run(query)
    if result.note is None or failure is None:
        return result
    return replace(result, note=f"{result.note}. {failure}")


async def _warmed_up(embedder: Embedder) -> str | None:
    """Load the model before the timed query; returns the reason of a failure."""
    try:
        await embedder.embed(["warm up"], query=True)
    except EmbeddingFailed as error:
        return str(error)
    return None


@asynccontextmanager
async def open_serving(
    settings: Settings, pool: Callable[[], Pool | None]
) -> AsyncIterator[ServingEmbedder]:
    """The embedder of queries for tools."""
    embedding = settings.embedding.of(TOOLS)
    target, refused = None, None
    try:
        target = make_embedder(embedding)
    except EmbeddingFailed as error:
        refused = str(error)
    serving = ServingEmbedder(pool, embedding, target)
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
