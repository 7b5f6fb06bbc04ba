"""Tools in a database, and workers for their texts."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from config.load import load
from config.settings import EmbeddingSettings
from registry.database.postgres import Database
from registry.embedding.embedder import Embedder
from registry.embedding.target_models import register
from registry.embedding.worker import Worker
from registry.sources.import_plan import SourceDraft
from registry.sources.tool_store import ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import ToolDraft
from tests.fixtures_database import HOST
from tests.registry.embedding.fakes import HashEmbedder

DEADLINE_S = 300
SETTINGS: EmbeddingSettings = changed(load(None, {}).embedding, backoff_s=0.01, backoff_max_s=0.01)


def draft(name: str, **fields: Any) -> ToolDraft:
    given = ToolDraft(
        key=f"/{name}@get",
        name=name,
        description=f"Does {name}.",
        input_schema={"type": "object", "properties": {}},
        binding=OpenAPIBinding("GET", f"/{name}"),
    )
    return replace(given, **fields)


@dataclass
class Queued:
    """A database with tools whose texts go to `fake`."""

    database: Database
    store: ToolStore
    fake: HashEmbedder

    async def save(self, *drafts: ToolDraft, source: str = "pets", host_id: str = HOST) -> None:
        await self.store.save(host_id, SourceDraft(source, "openapi", "x.json"), drafts)

    async def execute(self, statement: str, *values: object) -> None:
        async with self.database.pool.connection() as connection:
            await connection.execute(statement.encode(), values)

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        async with self.database.pool.connection() as connection:
            found = await connection.execute(statement.encode(), values)
            return await found.fetchall()

    async def vectors(self) -> dict[str, tuple[str, str]]:
        """(status, model) by name of tool."""
        found = await self.rows(
            "SELECT name, status, model FROM entity_embedding_t JOIN tool_t"
            " ON entity_id = tool_id ORDER BY name, model"
        )
        return {name: (status, model) for name, status, model in found}

    async def statuses(self) -> dict[str, str]:
        return {name: status for name, (status, _) in (await self.vectors()).items()}

    async def tasks(self) -> list[tuple[str, str]]:
        """Name of tool, status."""
        return await self.rows(
            "SELECT name, status FROM embedding_task_t JOIN tool_t ON entity_id = tool_id"
            " ORDER BY name"
        )

    def worker(self, embedder: Embedder | None = None, **settings: Any) -> Worker:
        wanted = changed(SETTINGS, **settings)
        return Worker(self.database.pool, embedder or self.fake, wanted)

    async def work(self, **settings: Any) -> Worker:
        """Work as long as something is due."""
        worker = self.worker(**settings)
        while await worker.step():
            pass
        return worker


@pytest.fixture
def unregistered_queue(database: Database, store: ToolStore) -> Queued:
    """With embeddings disabled."""
    return Queued(database, store, HashEmbedder())


@pytest.fixture
async def embedding_queue(unregistered_queue: Queued) -> Queued:
    await register(unregistered_queue.database.pool, unregistered_queue.fake)
    return unregistered_queue
