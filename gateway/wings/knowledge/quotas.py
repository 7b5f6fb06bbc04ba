"""Quotas of documents: how many, and of how many bytes of text, a tenant and an owner may have.

What is in a collection counts as its owner's, whoever wrote it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from psycopg import AsyncConnection

from config.knowledge import KnowledgeSettings
from gateway.operations.problems import ProblemDetails
from gateway.state.quotas import Quota, Usage, UsageQuotas


class DocumentQuotas(Collector):
    def __init__(self, settings: KnowledgeSettings) -> None:
        self._usage = UsageQuotas()
        self._quotas = (
            Quota("knowledge.owner_documents", "number", settings.owner_documents, shared=False),
            Quota("knowledge.owner_bytes", "bytes", settings.owner_bytes, shared=False),
            Quota("knowledge.tenant_documents", "number", settings.tenant_documents, shared=True),
            Quota("knowledge.tenant_bytes", "bytes", settings.tenant_bytes, shared=True),
        )

    async def take(
        self, connection: AsyncConnection, values: Mapping[str, Any], added: Usage
    ) -> None:
        """Count what is about to be stored in a collection. `values` are those of
        `CollectionStore.ensure_in`; a new document, of the id `new`, is not counted yet. Raises
        ProblemDetails."""

        async def count() -> dict[str, Usage]:
            rows = await connection.execute(_USAGE, {"new": None, **values})
            return {owner: Usage(*usage) for owner, *usage in await rows.fetchall()}

        excess = await self._usage.take(
            values["host"], values["collection_owner"], added, quotas=self._quotas, count=count
        )
        if excess is not None:
            text = f"{excess.sentence('owner', 'documents')} ({excess.quota.setting})"
            raise ProblemDetails(413, "quota", f"Not stored: {text}; delete some, or ask for more.")

    def collect(self) -> Iterator[Metric]:
        shares = GaugeMetricFamily(
            "toolgate_knowledge_quota_share",
            "Largest share of a quota that a tenant or owner uses, as last counted here.",
            labels=("quota",),
        )
        for quota, share in self._usage.shares.items():
            shares.add_metric((quota,), share)
        yield shares


_USAGE = b"""
    SELECT collection.owner, count(*), sum(document.bytes)::bigint
    FROM knowledge_collection_t AS collection JOIN knowledge_document_t AS document
        ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
    WHERE collection.host_id = %(host)s
        AND (%(new)s::uuid IS NULL OR document.document_id <> %(new)s::uuid)
    GROUP BY collection.owner
"""
