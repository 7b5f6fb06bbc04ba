"""Settings of the server and of its endpoints, by protocol."""

from typing import Literal

from msgspec import Struct

from config.types import (
    Bytes,
    Count,
    Host,
    HostHeader,
    HttpPath,
    Millis,
    Network,
    OptionalUrl,
    Origin,
    Port,
    Seconds,
    Secret,
)


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    host: Host
    port: Port
    allowed_hosts: tuple[HostHeader, ...]
    allowed_origins: tuple[Origin, ...]
    body_limit_bytes: Bytes
    drain_s: Seconds
    keep_alive_s: Seconds
    public_url: OptionalUrl
    trusted_proxies: tuple[Network, ...]


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    open: bool
    token: Secret


class Mcp(Struct, frozen=True, forbid_unknown_fields=True):
    path: HttpPath
    page_size: Count
    list_ttl_ms: Millis
    instructions: str
    session_idle_s: Seconds
    session_limit: Count
    session_calls: Count
    session_rate: Count
    stream_limit: Count
    keep_alive_s: Seconds
    sessionless: bool
    get_opens_sse: bool
    retry_ms: Millis
    replay_s: Seconds
    replay_events: Count
    ask_timeout_s: Seconds
    asks: Count
    parked_s: Seconds
    parked_calls: Count
    debounce_ms: Millis
    when_down: Literal["fail_open", "fail_closed"]


class Rpc(Struct, frozen=True, forbid_unknown_fields=True):
    path: HttpPath
    batch_limit: Count
    batch_concurrency: Count
    batch_timeout_s: Seconds
    batch_answer_limit_bytes: Bytes
    legacy: bool


class Portal(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    query_path: HttpPath
    command_path: HttpPath
    query_legacy: bool
    command_legacy: bool
    compat: Literal["strict", "spec"]
    pre_handler_errors: Literal["wrapped", "raw"]
    auth_first: bool
    void_body: Literal["empty", "object"]
    anonymous_list: bool
    idempotency_ttl_s: Seconds
