"""The parts of the knowledge on a database, without a gateway, and callers of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from config.knowledge import KnowledgeSettings
from config.load import load
from gateway.wings.interface import Screen
from gateway.wings.knowledge.caller_access import READ, WRITE
from gateway.wings.knowledge.chat_model_uses import KnowledgeModel
from gateway.wings.knowledge.wiring import KnowledgeParts
from gateway.wings.models.messages import ChatModels
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.embedding.embedder import Embedder
from schemas.tool import ToolResult
from tests.fixtures_database import HOST
from tests.wings.identities import WingCaller, WingDatabase, add_tenants, identity_of

SCOPES = frozenset({READ, WRITE})
KEYS = Keys(b"k" * 32)


def knowledge_settings(**changes: Any) -> KnowledgeSettings:
    return replace(load(None, {}).knowledge, enabled=True, **changes)


class KnowledgeCaller(WingCaller):
    async def add(self, text: str, collection: str = "notes", **more: Any) -> Any:
        return await self("add", collection=collection, text=text, **more)

    async def find_texts(self, query: str, **more: Any) -> list[str]:
        """Texts of what a query finds."""
        return [one.text for one in (await self("query", query=query, **more)).evidence]


@dataclass(frozen=True)
class KnowledgeRig(WingDatabase):
    parts: KnowledgeParts
    settings: KnowledgeSettings

    def caller(
        self,
        subject: str | None = "ann",
        *,
        tenant: str = HOST,
        agent: str | None = None,
        scopes: Sequence[str] = (),
    ) -> KnowledgeCaller:
        """A verified caller; `subject` None: an anonymous one."""
        identity = identity_of(subject, SCOPES | frozenset(scopes), tenant=tenant, agent=agent)
        operations = {operation.id: operation for operation in self.parts.operations}
        return KnowledgeCaller("knowledge", operations, identity)

    @asynccontextmanager
    async def busy_readers(self, owner: str) -> AsyncIterator[None]:
        """All places for reading files are taken, by files of this owner."""
        slots = self.parts.workers._slots
        async with AsyncExitStack() as stack:
            while slots.has_place(HOST, owner):
                await stack.enter_async_context(slots.turn(HOST, owner))
            yield

    async def rows_read(self, tables: str) -> int:
        """Rows of tables, named by a regular expression, that the connections have read."""
        async with AsyncExitStack() as stack:
            for _ in range(self.database.pool.get_stats()["pool_size"]):
                connection = await stack.enter_async_context(self.database.pool.connection())
                await connection.execute("SELECT pg_stat_force_next_flush()")
        async with self.database.connect() as connection:
            rows = await connection.execute(
                "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
                " WHERE relname ~ %s",
                [f"^{tables}$"],
            )
            ((count,),) = await rows.fetchall()
            return int(count)


async def no_call(*_: Any) -> ToolResult:
    raise AssertionError("without a gateway")


@asynccontextmanager
async def open_rig(
    database: Database,
    settings: KnowledgeSettings | None = None,
    embedder: Callable[[str], Embedder | None] = lambda _: None,
    models: ChatModels | None = None,
    screen: Screen = lambda _principal, _tool, value: value,
) -> AsyncIterator[KnowledgeRig]:
    await add_tenants(database)
    settings = settings or knowledge_settings()
    pool = database.pool
    model = (
        None if models is None else KnowledgeModel(pool, models, no_call, settings, screen=screen)
    )
    parts = KnowledgeParts(pool, embedder, settings, KEYS, model=model)
    try:
        yield KnowledgeRig(database, parts, settings)
    finally:
        await parts.workers.close()
