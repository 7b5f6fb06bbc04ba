"""The settings, as types. Their defaults, units and reasons stand in `defaults.yaml`.

Every constructor in the product gets the two or three values that it needs; only
`gateway/app.py` sees the whole `Settings`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Millis = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=1)]
HttpPath = Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._~/-]*$")]
HttpUrl = Annotated[str, Meta(pattern=r"^https?://[^\s]+$")]
SourceName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    host: str
    port: Port
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    body_limit_bytes: Bytes
    drain_s: Seconds
    keep_alive_s: Seconds


class Database(Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    data_dir: str
    system_user: str
    shared_buffers: str
    maintenance_work_mem: str
    max_connections: Annotated[int, Meta(ge=5, le=1000)]
    options: Mapping[str, str]
    pool_max: Count
    connect_timeout_s: Seconds
    retry_max_s: Seconds


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    host_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class Mcp(Struct, frozen=True, forbid_unknown_fields=True):
    path: HttpPath
    page_size: Count
    list_ttl_ms: Millis
    instructions: str
    session_idle_s: Seconds
    session_limit: Count
    stream_limit: Count
    keep_alive_s: Seconds


class Rpc(Struct, frozen=True, forbid_unknown_fields=True):
    path: HttpPath
    batch_limit: Count
    batch_concurrency: Count
    batch_timeout_s: Seconds


class Upstream(Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: Seconds
    connect_timeout_s: Seconds
    connections: Count
    response_limit_bytes: Bytes
    retries: Annotated[int, Meta(ge=0, le=10)]
    retry_backoff_s: Seconds


class Imports(Struct, frozen=True, forbid_unknown_fields=True):
    document_limit_bytes: Bytes
    fetch_timeout_s: Seconds
    private_networks: bool


class Logging(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json"]
    access: bool


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sources`. Without `openapi` it only adjusts a source imported by command."""

    openapi: str | None = None
    base_url: HttpUrl | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    headers: Mapping[str, str] = MappingProxyType({})
    timeout_s: Seconds | None = None
    retries: Annotated[int, Meta(ge=0, le=10)] | None = None


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    server: Server
    database: Database
    tenant: Tenant
    mcp: Mcp
    rpc: Rpc
    upstream: Upstream
    imports: Imports
    logging: Logging
    sources: Mapping[SourceName, SourceSettings]
