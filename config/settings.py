"""The settings, as types. Their defaults, units and reasons are in `defaults.yaml`.

Every constructor in the product gets the two or three values that it needs; only
`gateway/app/` sees the whole `Settings`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from config.a2a import A2ASettings
from config.access import (
    Admin,
    Audit,
    Auth,
    BreakerSettings,
    ConsoleSettings,
    GuardrailsSettings,
    LimitsSettings,
    OAuth,
    Policy,
    SecretsSettings,
)
from config.agent import AgentSettings
from config.backups import BackupsSettings
from config.code import CALL_WAYS, CodeSettings
from config.connections import ConnectionsSettings
from config.cores import usable_cores
from config.events import EventsSettings
from config.hooks import HookSettings
from config.knowledge import KnowledgeSettings
from config.librarian import LibrarianSettings
from config.login import LoginSettings
from config.memory import MemorySettings
from config.models import ModelsSettings
from config.notifications import NotificationsSettings
from config.registries import PackageSettings, RegistrySettings
from config.sources import SourceSettings
from config.subregistry import SubregistrySettings
from config.value_types import (
    Amount,
    Bytes,
    CallWays,
    CodeDisclosure,
    Connections,
    Count,
    CronSchedule,
    DatabaseUrl,
    Day,
    Dimension,
    Directory,
    DisclosureMode,
    EntryPoint,
    File,
    FunctionName,
    Host,
    HostHeader,
    HostId,
    HttpPath,
    HttpUrl,
    MemorySize,
    Millis,
    NameLimit,
    Network,
    OptionalInstance,
    OptionalUrl,
    Origin,
    Port,
    ProfileName,
    PurposeName,
    RedisPrefix,
    RedisUrl,
    ReplicaUrl,
    Retries,
    Seconds,
    Secret,
    ServerName,
    ServerOption,
    Share,
    ShortDescription,
    SocketPath,
    SourceName,
    SourceNames,
    SystemUser,
    Text,
    TextLength,
    ToolPatterns,
    ToolsetName,
    ToolTokens,
    TopicName,
    Workers,
)


class ListenerTls(Struct, frozen=True, forbid_unknown_fields=True):
    """`server.tls`; empty paths: the listener speaks plain HTTP."""

    cert: File
    key: File


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    host: Host
    port: Port
    workers: Workers
    worker_timeout_s: Seconds
    allowed_hosts: tuple[HostHeader, ...]
    allowed_origins: tuple[Origin, ...]
    body_limit_bytes: Bytes
    drain_s: Seconds
    keep_alive_s: Seconds
    public_url: OptionalUrl
    trusted_proxies: tuple[Network, ...]
    tls: ListenerTls

    @property
    def processes(self) -> int:
        """Number of workers; 1 serves without a supervisor."""
        return usable_cores() if self.workers == "auto" else int(self.workers)


class MetricsOtlp(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    endpoint: HttpUrl
    headers: Mapping[str, Text]
    interval_s: Seconds
    timeout_s: Seconds


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    public: bool
    token: Secret
    tools: Amount
    otlp: MetricsOtlp


class CostsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    flush_s: Seconds
    rows: Count
    retention_days: Count


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
    client_request_timeout_s: Seconds
    client_requests: Count
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
    legacy_deprecated: Day
    legacy_sunset: Day
    legacy_link: OptionalUrl


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """Features of tool definitions that a client, or its model's provider, accepts; by default
    everything."""

    clients: tuple[str, ...] = ()
    name_limit: NameLimit = 64
    name_prefix: str = ""
    name_letter: bool = False
    names_fold: bool = False
    arguments: str = ""
    root_unions: bool = True
    unions: tuple[Literal["anyOf", "oneOf", "allOf"], ...] = ("anyOf", "oneOf", "allOf")
    references: bool = True
    nullable: bool = False
    text_enums: bool = False
    items: bool = False
    describes: bool = False
    patterns: Literal["any", "portable"] = "any"
    formats: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    depth: Count | None = None


class ProfilesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    default: ProfileName
    server_name: ServerName
    custom: Mapping[ProfileName, Profile]
    tool_tokens: Mapping[ProfileName, ToolTokens]


class DatabaseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    url: DatabaseUrl
    data_dir: Directory
    instance: OptionalInstance
    system_user: SystemUser
    shared_buffers: MemorySize
    maintenance_work_mem: MemorySize
    max_connections: Connections
    options: Mapping[str, ServerOption]
    pool_max: Count
    connect_timeout_s: Seconds
    answer_timeout_s: Seconds
    lock_timeout_s: Seconds
    retry_max_s: Seconds
    read_url: ReplicaUrl
    read_pool_max: Count
    read_timeout_s: Seconds


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    host_id: HostId


class StateSettings(Struct, frozen=True, forbid_unknown_fields=True):
    backend: Literal["auto", "memory", "postgres", "redis"]
    redis_url: RedisUrl
    redis_prefix: RedisPrefix
    secret: Secret
    heartbeat_s: Seconds
    change_wait_s: Seconds
    timeout_s: Seconds
    connections: Count
    memory_bytes: Bytes


class UpstreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: Seconds
    connect_timeout_s: Seconds
    connections: Count
    connection_idle_s: Seconds
    dns_ttl_s: Seconds
    response_limit_bytes: Bytes
    head_limit_bytes: Bytes
    headers_limit: Count
    retries: Retries
    retry_backoff_s: Seconds
    upload_limit_bytes: Bytes
    upload_private_networks: bool
    token_private_networks: bool
    python_threads: Count
    python_calls: Count
    mcp_sessions: Count
    mcp_idle_s: Seconds
    mcp_call_max_s: Seconds
    mcp_probe_s: Seconds
    mcp_refresh_s: Seconds
    mcp_list_pages: Count
    mcp_list_items: Count
    mcp_list_bytes: Bytes
    mcp_client_requests: Count
    mcp_cookies_bytes: Amount
    a2a_task_s: Seconds
    a2a_poll_s: Seconds
    a2a_poll_max_s: Seconds
    a2a_events: Count
    a2a_refresh_s: Seconds
    stdio: bool
    stdio_processes: Count
    stdio_memory_bytes: Bytes
    stdio_restart_max_s: Seconds


class AnswersSettings(Struct, frozen=True, forbid_unknown_fields=True):
    inline_bytes: Bytes
    download_bytes: Bytes
    tokens: Amount
    fields: Literal["hidden", "shown"]
    ttl_s: Seconds
    caller_bytes: Bytes
    stored_bytes: Bytes
    tenant_share: Share


class Budgets(Struct, frozen=True, forbid_unknown_fields=True):
    tool_tokens: ToolTokens
    catalog_tokens: Amount
    description_characters: TextLength
    argument_characters: TextLength
    output_schemas: bool
    describe: Literal["auto", "always", "never"]


class Imports(Struct, frozen=True, forbid_unknown_fields=True):
    document_limit_bytes: Bytes
    files_limit: Count
    local_files_limit: Count
    schemas_limit_bytes: Bytes
    fetch_timeout_s: Seconds
    card_limit_bytes: Bytes
    card_timeout_s: Seconds
    concurrency: Count
    tenant_concurrency: Count
    private_networks: bool
    versions_kept: Count
    prune: bool


EmbeddingProvider = Literal[
    "bundled",
    "multilingual",
    "sentence-transformers",
    "openai-compatible",
    "local-http",
    "disabled",
]


class PurposeModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `embedding.purposes`: the model of one purpose."""

    provider: EmbeddingProvider
    model: str = ""
    endpoint: str = ""
    url: OptionalUrl = ""
    api_key: str = ""
    connections: Amount = 8
    query_prefix: str = ""


class EmbeddingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    provider: EmbeddingProvider
    model: str
    endpoint: str
    url: OptionalUrl
    api_key: str
    connections: Amount
    dimension: Dimension
    query_prefix: str
    batch_size: Count
    timeout_s: Seconds
    retries: Retries
    backoff_s: Seconds
    backoff_max_s: Seconds
    lease_s: Seconds
    poll_s: Seconds
    debounce_s: Seconds
    debounce_max_s: Seconds
    workers: Amount
    threads: Count
    socket: SocketPath
    purposes: Mapping[PurposeName, PurposeModel]

    def of(self, purpose: str) -> "EmbeddingSettings":
        """The settings with the model of this purpose."""
        purpose_settings = self.purposes.get(purpose)
        return replace(self, purposes={}, **(asdict(purpose_settings) if purpose_settings else {}))


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    semantic_share: Share
    min_fit: Share
    limit: Count
    limit_max: Count
    answer_tokens: ToolTokens
    query_characters: Count
    query_timeout_s: Seconds
    cached_queries: Count
    sentences: Count
    candidates: Count
    exact_limit: Count
    hnsw_ef: Count
    postings_limit: Count
    rerank: Literal["off", "on", "auto"]
    rerank_model: str
    rerank_tools: Count
    rerank_share: Share
    feedback: bool
    feedback_share: Share
    usage_log: bool
    usage_log_days: Count


class Disclosure(Struct, frozen=True, forbid_unknown_fields=True):
    mode: DisclosureMode
    list_tokens: Count
    when_down: Literal["lexical", "fail_closed"]


class JobsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    concurrency: Amount
    tenant_waiting: Count
    timeout_s: Seconds
    poll_s: Seconds
    grace_s: Seconds
    stalled_s: Seconds
    retry_s: Seconds
    keep_days: Count
    removal_schedule: CronSchedule


class SkillsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    listed: bool
    instructions_tokens: ToolTokens
    handle_ttl_s: Seconds
    depth: Count
    agent_claim: str
    document_bytes: Bytes
    files: Count
    files_bytes: Bytes
    versions_kept: Count


class Scripts(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    time_s: Seconds
    memory_bytes: Bytes
    output_bytes: Bytes
    source_bytes: Bytes
    concurrency: Count


class LoggingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json"]
    access: bool


class Tracing(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    endpoint: HttpUrl
    headers: Mapping[str, Text]
    service_name: TopicName
    ratio: Share
    slow_s: Seconds
    queue: Count
    flush_s: Seconds
    timeout_s: Seconds


class ToolsetDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools of some sources, selected by name, with an endpoint of their own; stored ones have
    these members."""

    sources: SourceNames = ()
    include: ToolPatterns = ()
    exclude: ToolPatterns = ()
    roles: tuple[str, ...] = ()
    instructions: str = ""
    mode: DisclosureMode | None = None
    code: CodeDisclosure | None = None
    signatures: Literal["python", "typescript"] | None = None
    tool_tokens: ToolTokens | None = None
    description: ShortDescription = ""


class Toolset(ToolsetDefinition, frozen=True, forbid_unknown_fields=True):
    """One entry of `toolsets`."""

    callers: CallWays = CALL_WAYS
    listed: bool = False


WingName = Literal[
    "memory", "events", "agent", "knowledge", "librarian", "code", "a2a", "subregistry",
    "notifications",
]  # fmt: skip


class WingsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    optional: tuple[WingName, ...]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    server: ServerSettings
    metrics: MetricsSettings
    database: DatabaseSettings
    backups: BackupsSettings
    tenant: Tenant
    mcp: Mcp
    rpc: Rpc
    portal: Portal
    auth: Auth
    oauth: OAuth
    login: LoginSettings
    connections: ConnectionsSettings
    policy: Policy
    guardrails: GuardrailsSettings
    limits: LimitsSettings
    breaker: BreakerSettings
    audit: Audit
    costs: CostsSettings
    admin: Admin
    console: ConsoleSettings
    jobs: JobsSettings
    wings: WingsSettings
    events: EventsSettings
    secrets: SecretsSettings
    upstream: UpstreamSettings
    answers: AnswersSettings
    budgets: Budgets
    profiles: ProfilesSettings
    embedding: EmbeddingSettings
    models: ModelsSettings
    search: SearchSettings
    disclosure: Disclosure
    skills: SkillsSettings
    memory: MemorySettings
    agent: AgentSettings
    knowledge: KnowledgeSettings
    librarian: LibrarianSettings
    code: CodeSettings
    a2a: A2ASettings
    subregistry: SubregistrySettings
    notifications: NotificationsSettings
    scripts: Scripts
    imports: Imports
    logging: LoggingSettings
    tracing: Tracing
    state: StateSettings
    functions: Mapping[FunctionName, EntryPoint]
    sources: Mapping[SourceName, SourceSettings]
    toolsets: Mapping[ToolsetName, Toolset]
    hooks: Mapping[SourceName, HookSettings]
    registries: Mapping[SourceName, RegistrySettings]
    packages: PackageSettings
