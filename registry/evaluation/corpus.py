"""The searched corpus: the registry itself, or a catalog loaded into a temporary registry."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import LiteralString

import msgspec

from config.settings import Settings
from registry.database.postgres import Database, borrow
from registry.embedding.embedder import Embedder
from registry.embedding.embedder_factory import ServingEmbedder, make_embedder
from registry.embedding.target_models import register
from registry.embedding.worker import Worker
from registry.evaluation.improvements import DescribedTool
from registry.evaluation.mode_searches import CachingEmbedder
from registry.evaluation.request_sets import CatalogTool, Index
from registry.evaluation.temporary_catalog import HOST, load, scratch_database
from registry.search import Filters, Search
from registry.search.indexes import ensure_indexes
from registry.sources.tool_store import ToolStore
from schemas.errors import ToolgateError
from schemas.tool import Tool

Progress = Callable[[str, int, int], None]  # stage, done, total


class NotEmbedded(ToolgateError):
    """Tools have no vectors, so an evaluation is impossible."""


@dataclass(frozen=True, slots=True)
class Corpus:
    search: Search
    filters: Filters
    names: Mapping[str, str]  # ids in results, by tool_id
    index: Index
    tools: Sequence[DescribedTool]
    embedder: CachingEmbedder | None


async def of_registry(database: Database, settings: Settings, serving: ServingEmbedder) -> Corpus:
    """The tools of the registry, searched with the gateway's query embedder."""
    host_id = settings.tenant.host_id
    tools = await ToolStore(database.pool).tools(host_id)
    remembering = CachingEmbedder(serving.embedder) if serving.embedder else None
    return Corpus(
        _search(database, settings, remembering, serving.note),
        Filters(host_id),
        {tool.id: tool.id for tool in tools},
        Index([(tool.id, tool.name, tool.source) for tool in tools]),
        list(map(describe_tool, tools)),
        remembering,
    )


@asynccontextmanager
async def of_catalog(
    tools: Sequence[CatalogTool], settings: Settings, progress: Progress
) -> AsyncIterator[Corpus]:
    """`tools` as tools of a gateway with these settings, in a temporary database."""
    embedder = make_embedder(settings.embedding)
    try:
        async with scratch_database(settings.database) as database:
            yield await load_corpus(database, tools, settings, embedder, progress=progress)
    finally:
        if embedder:
            await embedder.close()


async def load_corpus(
    database: Database,
    tools: Sequence[CatalogTool],
    settings: Settings,
    embedder: Embedder | None,
    *,
    progress: Progress,
) -> Corpus:
    """`tools` as the only ones of an empty `database`, written and embedded like imported ones.

    Raises NotEmbedded when the model fails.
    """
    await register(database.pool, embedder)
    progress("loading", 0, len(tools))
    names = await load(database, tools)
    if embedder:
        await _embed(database, Worker(database.pool, embedder, settings.embedding), progress)
        await ensure_indexes(database, settings.search.exact_limit)
    remembering = CachingEmbedder(embedder) if embedder else None
    return Corpus(
        _search(database, settings, remembering),
        Filters(HOST),
        names,
        Index([(tool.id, tool.name, tool.server) for tool in tools]),
        [
            DescribedTool(
                *(tool.id, tool.name, tool.description, tool.title, tool.server, tool.input_schema)
            )
            for tool in tools
        ],
        remembering,
    )


def describe_tool(tool: Tool) -> DescribedTool:
    """A tool of the registry as evaluations read it."""
    return DescribedTool(
        *(tool.id, tool.name, tool.description, tool.title, tool.source),
        msgspec.json.decode(tool.input_schema),
        msgspec.json.decode(tool.output_schema) if tool.output_schema else None,
    )


def _search(
    database: Database, settings: Settings, embedder: CachingEmbedder | None, why: str | None = None
) -> Search:
    return Search(
        lambda: database.pool,
        lambda _: embedder,
        settings.search,
        when_down=settings.disclosure.when_down,
        why=lambda _: why,
    )


async def _embed(database: Database, worker: Worker, progress: Progress) -> None:
    """Process the queue; a permanently failed text is an error, since its tool could not be
    found."""
    total = await _count(database, "SELECT count(*) FROM embedding_task_t")
    while await worker.step():
        progress("embedding", worker.done, total)
    failed = await _count(
        database, "SELECT count(*) FROM entity_embedding_t WHERE status IN ('pending', 'failed')"
    )
    if failed:
        raise NotEmbedded(
            f"{failed} of {total} tools could not be embedded: {await _why(database)}"
        )
    async with borrow(database.pool) as connection:
        await connection.execute("ANALYZE")


async def _count(database: Database, query: LiteralString) -> int:
    async with borrow(database.pool) as connection:
        rows = await connection.execute(query)
        (count,) = await rows.fetchone() or (0,)
    return int(count)


async def _why(database: Database) -> str:
    async with borrow(database.pool) as connection:
        rows = await connection.execute("SELECT max(last_error) FROM embedding_task_t")
        (reason,) = await rows.fetchone() or (None,)
    return str(reason or "no reason was given")
