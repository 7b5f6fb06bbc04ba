"""Settings of the knowledge wing. Their defaults, units and reasons are in `defaults.yaml`."""

from msgspec import Struct

from config.types import Bytes, Count, CronSchedule, Seconds, Share

AUTO = "auto"


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


class KnowledgeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    semantic_share: Share
    candidates: Count
    exact_limit: Count
    postings_limit: Count
    context_tokens: Count
    document_bytes: Bytes
    upload_bytes: Bytes
    readers: Count
    private_networks: bool
    metadata_bytes: Bytes
    collections: Count
    trivial_characters: Count
    encode_s: Seconds
    grep_bytes: Bytes
    grep_s: Seconds
    no_context_reply: str
    agent_claim: str
    chunking: KnowledgeChunking
    chunkers: KnowledgeChunkers
    model: str
    extraction: KnowledgeExtraction
    answers: KnowledgeAnswers

    @property
    def strategy(self) -> str:
        """The strategy of `models` that is asked, "" for the default one."""
        return "" if self.model == AUTO else self.model
