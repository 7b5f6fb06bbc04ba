"""The parts of the memory on a database, without a gateway, and readers of them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from config.load import load
from config.memory import MemorySettings
from gateway.context import Identity
from gateway.operations.operation import Operation, OperationOutput
from gateway.wings.memory.readers import READ, WRITE
from gateway.wings.memory.wing import operations_of
from gateway.wings.memory.wiring import MemoryParts
from gateway.wings.models.abc import ChatModels
from registry.database.postgres import Database
from registry.embedding.abc import Embedder
from tests.fixtures_database import HOST
from tests.wings.identities import identity_of, input_of

SCOPES = frozenset({READ, WRITE})


def memory_settings(**changes: Any) -> MemorySettings:
    defaults = replace(load(None, {}).memory, enabled=True)
    nested = {
        name: replace(getattr(defaults, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return replace(defaults, **nested)


@dataclass(frozen=True)
class Caller:
    """Calls operations as one principal, as tools do."""

    operations: Mapping[str, Operation]
    identity: Identity

    async def __call__(self, name: str, **arguments: Any) -> Any:
        """The body of the answer. Raises ProblemDetails."""
        operation = self.operations[f"memory_{name}"]
        asked = input_of(operation, self.identity, arguments)
        answer = await operation.handle(asked)
        return answer.value if isinstance(answer, OperationOutput) else answer

    async def add(self, content: str, scope: str = "user", **more: Any) -> str:
        """The id of a new memory."""
        added = await self("add", content=content, scope=scope, **more)
        return str(added.items[0].id)

    async def found(self, query: str, **more: Any) -> list[str]:
        """Contents of what a search finds."""
        return [one.content for one in (await self("search", query=query, **more)).items]


@dataclass(frozen=True)
class Rig:
    database: Database
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
        return Caller({one.id: one for one in operations_of(self.parts)}, identity)

    async def run(self, statement: str, **values: Any) -> None:
        async with self.database.pool.connection() as connection:
            await connection.execute(statement.encode(), values)

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.database.pool.connection() as connection:
            return await (await connection.execute(statement.encode(), values)).fetchall()


@asynccontextmanager
async def rigged(
    database: Database,
    settings: MemorySettings | None = None,
    embedder: Callable[[str], Embedder | None] = lambda _: None,
    models: ChatModels | None = None,
) -> AsyncIterator[Rig]:
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, 'a') ON CONFLICT DO NOTHING", [HOST]
        )
    settings = settings or memory_settings()
    yield Rig(database, MemoryParts(database.pool, embedder, settings, models=models), settings)
