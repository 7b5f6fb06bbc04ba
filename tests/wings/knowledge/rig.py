"""The parts of the knowledge on a database, without a gateway, and callers of them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from config.knowledge import KnowledgeSettings
from config.load import load
from gateway.context import Identity
from gateway.operations.operation import Operation, OperationOutput
from gateway.wings.abc import Screen
from gateway.wings.knowledge.model import KnowledgeModel
from gateway.wings.knowledge.readers import READ, WRITE
from gateway.wings.knowledge.wiring import KnowledgeParts
from gateway.wings.models.abc import ChatModels
from registry.access.secrets import Keys
from registry.database.postgres import Database
from registry.embedding.abc import Embedder
from schemas.tool import ToolResult
from tests.fixtures_database import HOST
from tests.wings.identities import identity_of, input_of

SCOPES = frozenset({READ, WRITE})
KEYS = Keys(b"k" * 32)
OTHER = "00000000-0000-4000-8000-00000000beef"


def knowledge_settings(**changes: Any) -> KnowledgeSettings:
    return replace(load(None, {}).knowledge, enabled=True, **changes)


@dataclass(frozen=True)
class KnowledgeCaller:
    """Calls operations as one principal, as tools do."""

    operations: Mapping[str, Operation]
    identity: Identity

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        """The body of the answer. Raises ProblemDetails."""
        output = await self.output(name, **arguments)
        return output.value if isinstance(output, OperationOutput) else output

    async def output(self, name: str, /, **arguments: Any) -> Any:
        operation = self.operations[f"knowledge_{name}"]
        asked = input_of(operation, self.identity, arguments)
        return await operation.handle(asked)

    async def add(self, text: str, collection: str = "notes", **more: Any) -> Any:
        return await self("add", collection=collection, text=text, **more)

    async def found(self, query: str, **more: Any) -> list[str]:
        """Texts of what a query finds."""
        return [one.text for one in (await self("query", query=query, **more)).evidence]


@dataclass(frozen=True)
class KnowledgeRig:
    database: Database
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
        return KnowledgeCaller({one.id: one for one in self.parts.operations}, identity)

    @asynccontextmanager
    async def busy_readers(self, owner: str) -> AsyncIterator[None]:
        """All places for reading files are taken, by files of this owner."""
        slots = self.parts.workers._slots
        async with AsyncExitStack() as stack:
            while slots._has_place(HOST, owner):
                await stack.enter_async_context(slots.turn(HOST, owner))
            yield

    async def run(self, statement: str, **values: Any) -> None:
        async with self.database.pool.connection() as connection:
            await connection.execute(statement.encode(), values)

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.database.pool.connection() as connection:
            return await (await connection.execute(statement.encode(), values)).fetchall()

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
async def rigged(
    database: Database,
    settings: KnowledgeSettings | None = None,
    embedder: Callable[[str], Embedder | None] = lambda _: None,
    models: ChatModels | None = None,
    screen: Screen = lambda _principal, _tool, value: value,
) -> AsyncIterator[KnowledgeRig]:
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, 'a'), (%s, 'b') ON CONFLICT DO NOTHING",
            [HOST, OTHER],
        )
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
