"""Embeddings: progress and repair. Workers make them asynchronously, after requests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct

from config.settings import EmbeddingSettings
from gateway.admin.registry_parts import JobParts
from gateway.admin.resources.member_texts import EMBEDDINGS, FAILED_EMBEDDINGS
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationDependencies, OperationInput, ToolName
from gateway.operations.problems import not_found
from gateway.wings.table import wing_kinds
from registry.embedding import backfills
from registry.embedding.search_kinds import Kinds
from registry.embedding.status import EmbeddingCounts, EmbeddingStatus, status
from registry.sources.tool_store import ToolStore

READ, WRITE = "admin:registry:read", "admin:registry:write"

Names = Annotated[tuple[ToolName, ...], Meta(max_length=1000)]


class Refresh(Struct, frozen=True, forbid_unknown_fields=True):
    """Names of tools, and whether embeddings that are ready are made again."""

    tools: Annotated[tuple[ToolName, ...], Meta(min_length=1, max_length=1000)]
    force: Annotated[bool, Meta(description="make embeddings that are ready again, too")] = False


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """Names of tools to retry; without `tools` all that have failed."""

    tools: Names = ()


class Queued(Struct, frozen=True):
    """Number of texts that this request queued."""

    queued: int


class EmbeddingOperations:
    def __init__(
        self, dependencies: OperationDependencies, kinds: Kinds, settings: EmbeddingSettings
    ) -> None:
        self._dependencies = dependencies
        self._kinds = kinds
        self._settings = settings

    @classmethod
    def of(cls, parts: JobParts) -> "EmbeddingOperations":
        return cls(parts.dependencies, wing_kinds(parts.settings), parts.settings.embedding)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "getEmbeddings", "GET", "/embeddings", "Show the state of embeddings.", READ,
                self.status, EmbeddingStatus,
            ),
            Operation(
                "refreshEmbeddings", "POST", "/embeddings/refresh",
                "Queue tools for new embeddings.", WRITE, self.refresh, Queued, body=Refresh,
                members=EMBEDDINGS,
                problems=(404,),
            ),
            Operation(
                "retryEmbeddings", "POST", "/embeddings/retry", "Retry failed embeddings.",
                WRITE, self.retry, Queued, body=Retry, members=FAILED_EMBEDDINGS,
                optional_body=True, problems=(404,),
            ),
            Operation(
                "backfillEmbeddings", "POST", "/embeddings/backfill",
                "Create missing embeddings of all tenants.", WRITE, self.backfill, Queued,
                job=AsJob(always=True, lock="embeddings", once=True),
            ),
        )  # fmt: skip

    async def status(self, request: OperationInput) -> EmbeddingStatus:
        state = await status(self._dependencies.pool, request.tenant)
        return replace(state, counts=tuple(self._with_pending(row, state) for row in state.counts))

    def _with_pending(self, row: EmbeddingCounts, state: EmbeddingStatus) -> EmbeddingCounts:
        """With embeddings on, entities without a model are pending: they wait for the first."""
        is_enabled = self._settings.of(row.purpose).provider != "disabled"
        if state.models[row.purpose].target is None and is_enabled:
            return replace(row, pending=row.pending + row.disabled, disabled=0)
        return row

    async def refresh(self, request: OperationInput) -> Queued:
        body: Refresh = request.body
        ids = await self._ids(request, body.tools)
        pool = self._dependencies.pool
        return Queued(await backfills.refresh(pool, request.tenant, ids, force=body.force))

    async def retry(self, request: OperationInput) -> Queued:
        names = request.body.tools if request.body else ()
        ids = await self._ids(request, names) if names else None
        return Queued(await backfills.retry(self._dependencies.pool, request.tenant, ids))

    async def backfill(self, request: OperationInput) -> Queued:
        self._dependencies.require_operator(request)
        pool, progress = self._dependencies.pool, request.job.progress
        return Queued(await backfills.backfill(pool, self._kinds, progress))

    async def _ids(self, request: OperationInput, names: Sequence[str]) -> list[str]:
        """Ids of the named tools. Raises Problem for tools that are not served."""
        tools = await ToolStore(self._dependencies.pool).tools(request.tenant)
        ids_by_name = {tool.name: tool.id for tool in tools}
        for name in names:
            if name not in ids_by_name:
                raise not_found("tool", name)
        return [ids_by_name[name] for name in dict.fromkeys(names)]
