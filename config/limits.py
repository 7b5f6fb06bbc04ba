"""Settings of how much is too much: rates, quotas, concurrency, breakers."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from config.types import Amount, Bytes, Count, JsonDepth, Seconds, Share, SourceName


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `limits.tools` or `limits.sources`; 0 is no limit."""

    calls: Amount = 0  # in `per_s`
    per_s: Seconds = 60.0
    concurrent: Amount = 0


class BreakerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    window_s: Seconds
    calls: Count  # in the window, before a share of failures tells anything
    failures: Share
    open_s: Seconds
    longest_s: Seconds
    probes: Count


class LimitsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    principal_calls: Amount
    tenant_calls: Amount
    per_s: Seconds
    principal_daily: Amount
    tenant_daily: Amount
    when_away: Literal["local", "refuse"]
    principal_concurrent: Amount
    concurrent: Amount
    principal_sessions: Amount
    principal_streams: Amount
    tools: Mapping[str, Rate]
    sources: Mapping[SourceName, Rate]
    json_depth: JsonDepth
    headers: Count
    header_bytes: Bytes
    header_timeout_s: Seconds
    body_timeout_s: Seconds
    send_timeout_s: Seconds
    connections: Amount
    stranger_body_bytes: Bytes
    bodies_bytes: Amount
    client_bodies_bytes: Amount
    memory_bytes: Amount
    lag_s: Seconds
