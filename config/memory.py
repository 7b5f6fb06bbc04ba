"""Settings of the memory. Their defaults, units and reasons are in `defaults.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import (
    Amount,
    Bytes,
    Count,
    CronSchedule,
    OptionalEntryPoint,
    Seconds,
    Share,
)

Masking = Literal["off", "mask", "refuse"]
Capture = Literal["off", "calls"]
Script = Literal[
    "latin", "cjk", "hiragana", "katakana", "hangul", "cyrillic", "greek", "arabic", "hebrew",
    "devanagari", "thai",
]  # fmt: skip
HalfLife = Annotated[float, Meta(ge=0, description="a number of seconds, or 0 for none")]
Dialect = Literal["graph", "files"]


class MemorySession(Struct, frozen=True, forbid_unknown_fields=True):
    ttl_s: Seconds
    ttl_max_s: Seconds
    max: Count


class MemoryResults(Struct, frozen=True, forbid_unknown_fields=True):
    session: Amount
    user: Amount
    agent: Amount
    org: Amount


class MemoryMasking(Struct, frozen=True, forbid_unknown_fields=True):
    session: Masking
    user: Masking
    agent: Masking
    org: Masking
    hook: OptionalEntryPoint


class MemoryRanking(Struct, frozen=True, forbid_unknown_fields=True):
    neighbours: Share
    replies: Share
    questions: Share
    session: Share
    speakers: Share
    dates: Share
    times: Share
    importance: Share
    recency: Share
    uses: Share
    half_life_session_s: HalfLife
    half_life_user_s: HalfLife
    half_life_agent_s: HalfLife
    half_life_org_s: HalfLife
    trust_agent: Share
    trust_tool: Share
    trust_inferred: Share
    similar_cosine: Share
    similar_words: Share


class MemoryPromotion(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    min_importance: Share
    sessions: Count
    recalls: Count
    max: Count


class MemoryExtraction(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    strategy: str
    tokens: Count
    sessions: Count


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    session: MemorySession
    results: MemoryResults
    semantic_share: Share
    scripts: tuple[Script, ...]
    candidates: Count
    exact_limit: Count
    answer_tokens: Count
    context_tokens: Count
    content_bytes: Bytes
    metadata_bytes: Bytes
    graph_bytes: Bytes
    owner_rows: Count
    owner_bytes: Bytes
    tenant_rows: Count
    writes_per_minute: Count
    history_s: Seconds
    purge_schedule: CronSchedule
    masking: MemoryMasking
    capture: Capture
    promotion: MemoryPromotion
    extraction: MemoryExtraction
    ranking: MemoryRanking
    agent_claim: str
    compat: tuple[Dialect, ...]
    overwrite_files: bool
