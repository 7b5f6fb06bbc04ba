"""The parts of the memory on a database, without a gateway, and readers of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from config.load import load
from config.memory import MemorySettings
from gateway.wings.memory.caller_owners import READ, WRITE
from gateway.wings.memory.wing import operations_of
from gateway.wings.memory.wiring import MemoryParts
from gateway.wings.models.messages import ChatModels
from registry.database.postgres import Database
from registry.embedding.embedder import Embedder
from tests.fixtures_database import HOST
from tests.wings.identities import WingCaller, WingDatabase, add_tenants, identity_of

SCOPES = frozenset({READ, WRITE})


def memory_settings(**changes: Any) -> MemorySettings:
    defaults = replace(load(None, {}).memory, enabled=True)
    nested = {
        name: replace(getattr(defaults, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return replace(defaults, **nested)


class Caller(WingCaller):
    async def add(self, content: str, scope: str = "user", **more: Any) -> str:
        """The id of a new memory."""
        added = await self("add", content=content, scope=scope, **more)
        return str(added.items[0].id)

    async def find_contents(self, query: str, **more: Any) -> list[str]:
        """Contents of what a search finds."""
        return [one.content for one in (await self("search", query=query, **more)).items]


@dataclass(frozen=True)
class Rig(WingDatabase):
    parts: MemoryParts
    settings: MemorySettings

    def caller(
        self,
        subject: str | None = "ann",
        *,
        tenant: str = HOST,
        agent: str | None = None,
        scopes: Sequence[str] = (),
    ) -> Caller:
        """A verified caller; `subject` None: an anonymous one."""
        identity = identity_of(subject, SCOPES | frozenset(scopes), tenant=tenant, agent=agent)
        operations = {operation.id: operation for operation in operations_of(self.parts)}
        return Caller("memory", operations, identity)


@asynccontextmanager
async def open_rig(
    database: Database,
    settings: MemorySettings | None = None,
    embedder: Callable[[str], Embedder | None] = lambda _: None,
    models: ChatModels | None = None,
) -> AsyncIterator[Rig]:
    await add_tenants(database)
    settings = settings or memory_settings()
    yield Rig(database, MemoryParts(database.pool, embedder, settings, models=models), settings)
