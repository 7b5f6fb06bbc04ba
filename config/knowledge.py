"""Settings of the knowledge wing. Their defaults, units and reasons are in `defaults.yaml`."""

from typing import Annotated

from msgspec import Meta, Struct

from config.value_types import END, Bytes, Count, CronSchedule, Port, Seconds, Share

AUTO = "auto"
CollectionName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}" + END,
        description="the name of a collection, of A-Z, a-z, 0-9, . _ and -",
    ),
]


class KnowledgeChunking(Struct, frozen=True, forbid_unknown_fields=True):
    size: Count
    overlap: Count


class KnowledgeExtraction(Struct, frozen=True, forbid_unknown_fields=True):
    schedule: CronSchedule
    requests: Count
    concurrency: Count
    answer_tokens: Count
    tokens_per_day: Count
    attempts: Count
    backoff_s: Seconds
    backoff_max_s: Seconds
    cache_days: Count


class KnowledgeAnswers(Struct, frozen=True, forbid_unknown_fields=True):
    deadline_s: Seconds
    tokens: Count
    tokens_per_day: Count


class KnowledgeChunkers(Struct, frozen=True, forbid_unknown_fields=True):
    count: Count
    module_bytes: Bytes
    fuel: Count
    fuel_per_byte: Count
    memory_bytes: Bytes
    memory_per_byte: Count
    time_s: Seconds
    time_per_mb_s: Seconds
    chunks: Count


class KnowledgeLightRag(Struct, frozen=True, forbid_unknown_fields=True):
    port: Port
    collection: CollectionName
    allow_clear: bool


class KnowledgeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    semantic_share: Share
    candidates: Count
    exact_limit: Count
    postings_limit: Count
    context_tokens: Count
    document_bytes: Bytes
    upload_bytes: Bytes
    reader_processes: Count
    private_networks: bool
    metadata_bytes: Bytes
    collections: Count
    owner_documents: Count
    owner_bytes: Bytes
    tenant_documents: Count
    tenant_bytes: Bytes
    trivial_characters: Count
    encode_timeout_s: Seconds
    grep_bytes: Bytes
    grep_timeout_s: Seconds
    grep_pattern_steps: Count
    grep_threads: Count
    no_context_reply: str
    agent_claim: str
    chunking: KnowledgeChunking
    chunkers: KnowledgeChunkers
    model: str
    extraction: KnowledgeExtraction
    answers: KnowledgeAnswers
    lightrag: KnowledgeLightRag

    @property
    def strategy(self) -> str:
        """The strategy of `models` that is asked, "" for the default one."""
        return "" if self.model == AUTO else self.model
