"""Settings of the librarian wing. Their defaults, units and reasons are in `defaults.yaml`."""

from msgspec import Struct

from config.models import Currency, Rate
from config.value_types import Amount, Bytes, Count, CronSchedule, Seconds, Share

AUTO = "auto"  # the default strategy of `models`


class LibrarianQuerySettings(Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    candidates: Count
    filter: bool
    findings: Count
    answer_tokens: Count
    audit_days: Count


class AnswerCacheSettings(Struct, frozen=True, forbid_unknown_fields=True):
    answers: Amount
    ttl_s: Seconds


class RunLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Upper bounds of one query or run."""

    depth: Amount
    iterations: Count
    calls: Count
    lookups: Count
    tokens: Count
    cost: Rate
    seconds: Seconds
    concurrency: Count


class ResearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    model: str
    sub_model: str
    without_recursion: tuple[str, ...]
    auto_share: Share
    limits: RunLimits
    cell_tokens: Count
    cell_s: Seconds
    memory_bytes: Bytes
    output_characters: Count
    frame_bytes: Bytes
    answer_bytes: Bytes
    context_bytes: Bytes
    runs: Count
    runs_per_hour: Count
    keep_days: Count


class IndexLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Upper bounds of a code index."""

    files: Count
    occurrences: Count
    fields: Count
    names: Count
    name_bytes: Bytes


class LibrarianSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    read_bytes: Bytes
    map_tokens: Count
    index_bytes: Bytes
    index: IndexLimits
    sources: Count
    refresh_schedule: CronSchedule
    min_interval_s: Count
    lease_s: Seconds
    query: LibrarianQuerySettings
    answers: AnswerCacheSettings
    research: ResearchSettings
    currency: Currency

    @property
    def strategies(self) -> dict[tuple[str, ...], str]:
        """The names of strategies, by their place in this section."""
        research = self.research
        named = {
            ("query", "model"): self.query.model,
            ("research", "model"): research.model,
            ("research", "sub_model"): research.sub_model,
        }
        return {path: name for path, name in named.items() if name not in ("", AUTO)}
