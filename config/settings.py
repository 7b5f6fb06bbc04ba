"""The settings, as types. Their defaults, units and reasons stand in `defaults.yaml`.

Every constructor in the product gets the two or three values that it needs; only
`gateway/app/` sees the whole `Settings`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from config.audit import Audit
from config.auth import Admin, Auth, OAuth
from config.limits import Breaker, Limits
from config.policy import Guardrails, Policy
from config.secrets import Secrets
from config.types import (
    Amount,
    Bytes,
    Connections,
    Count,
    DatabaseUrl,
    Dimension,
    Directory,
    DisclosureMode,
    EntryName,
    EntryPoint,
    File,
    FunctionName,
    HeaderName,
    HeaderValue,
    Host,
    HostHeader,
    HostId,
    HttpPath,
    HttpUrl,
    Levels,
    Location,
    MemorySize,
    Millis,
    NameLimit,
    OptionalUrl,
    Origin,
    Port,
    ProfileName,
    PythonModule,
    RedisUrl,
    ResourceUri,
    Retries,
    SchemeName,
    Seconds,
    Secret,
    ServerName,
    ServerOption,
    Share,
    SourceName,
    SystemUser,
    Text,
    TextLength,
    ToolsetName,
    ToolTokens,
    VariableName,
)


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    host: Host
    port: Port
    allowed_hosts: tuple[HostHeader, ...]
    allowed_origins: tuple[Origin, ...]
    body_limit_bytes: Bytes
    drain_s: Seconds
    keep_alive_s: Seconds
    public_url: OptionalUrl


class Database(Struct, frozen=True, forbid_unknown_fields=True):
    url: DatabaseUrl
    data_dir: Directory
    system_user: SystemUser
    shared_buffers: MemorySize
    maintenance_work_mem: MemorySize
    max_connections: Connections
    options: Mapping[str, ServerOption]
    pool_max: Count
    connect_timeout_s: Seconds
    retry_max_s: Seconds


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    host_id: HostId


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


class State(Struct, frozen=True, forbid_unknown_fields=True):
    backend: Literal["memory", "postgres", "redis"]
    redis_url: RedisUrl
    secret: Secret
    beat_s: Seconds
    timeout_s: Seconds
    connections: Count
    memory_bytes: Bytes


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


class Upstream(Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: Seconds
    connect_timeout_s: Seconds
    connections: Count
    response_limit_bytes: Bytes
    retries: Retries
    retry_backoff_s: Seconds
    upload_limit_bytes: Bytes
    upload_private_networks: bool
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
    mcp_asks: Count
    stdio: bool
    stdio_processes: Count
    stdio_memory_bytes: Bytes
    stdio_restart_max_s: Seconds


class Answers(Struct, frozen=True, forbid_unknown_fields=True):
    inline_bytes: Bytes
    download_bytes: Bytes
    tokens: Amount
    fields: Literal["hidden", "shown"]
    keep_s: Seconds
    caller_bytes: Bytes
    kept_bytes: Bytes


class Budgets(Struct, frozen=True, forbid_unknown_fields=True):
    tool_tokens: ToolTokens
    catalog_tokens: Amount
    description_characters: TextLength
    argument_characters: TextLength
    output_schemas: bool
    describe: Literal["auto", "always", "never"]


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client, or the provider of its model, accepts of a tool; everything, unless it says
    otherwise."""

    clients: tuple[str, ...] = ()
    name_limit: NameLimit = 64
    name_prefix: str = ""
    name_letter: bool = False
    arguments: str = ""
    root_unions: bool = True
    unions: tuple[Literal["anyOf", "oneOf", "allOf"], ...] = ("anyOf", "oneOf", "allOf")
    references: bool = True
    nullable: bool = False
    text_enums: bool = False
    items: bool = False
    describes: bool = False
    formats: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    depth: Count | None = None


class Profiles(Struct, frozen=True, forbid_unknown_fields=True):
    default: ProfileName
    server_name: ServerName
    own: Mapping[ProfileName, Profile]


class Imports(Struct, frozen=True, forbid_unknown_fields=True):
    document_limit_bytes: Bytes
    files_limit: Count
    fetch_timeout_s: Seconds
    private_networks: bool
    versions_kept: Count


class Embedding(Struct, frozen=True, forbid_unknown_fields=True):
    provider: Literal[
        "bundled", "sentence-transformers", "openai-compatible", "local-http", "disabled"
    ]
    model: str
    url: OptionalUrl
    api_key: str
    dimension: Dimension
    query_prefix: str
    batch_size: Count
    timeout_s: Seconds
    retries: Retries
    backoff_s: Seconds
    backoff_max_s: Seconds
    lease_s: Seconds
    poll_s: Seconds
    workers: Amount
    threads: Count


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    semantic_share: Share
    limit: Count
    limit_max: Count
    answer_tokens: ToolTokens
    query_characters: Count
    query_timeout_s: Seconds
    sentences: Count
    candidates: Count
    exact_limit: Count
    hnsw_ef: Count
    postings_limit: Count
    feedback: bool
    feedback_share: Share


class Disclosure(Struct, frozen=True, forbid_unknown_fields=True):
    mode: DisclosureMode
    list_tokens: Count
    when_down: Literal["lexical", "fail_closed"]


class Skills(Struct, frozen=True, forbid_unknown_fields=True):
    listed: bool
    instructions_tokens: ToolTokens
    handle_s: Seconds
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


class Logging(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json"]
    access: bool


class SchemeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a source's `credentials`: what satisfies one security scheme. It holds one of
    `value`, `token`, `username` and `client_id`; nothing, or an empty text, is as good as no entry.
    """

    value: HeaderValue | None = None
    username: Text | None = None
    password: Text | None = None
    token: HeaderValue | None = None
    client_id: Text | None = None
    client_secret: Text | None = None
    token_url: HttpUrl | None = None
    scopes: tuple[Text, ...] = ()
    client_auth: Literal["header", "body"] = "header"


class TokenExchange(Struct, frozen=True, forbid_unknown_fields=True):
    """A source's `exchange`: the caller's token is exchanged for one of the source's (RFC 8693)."""

    token_url: HttpUrl
    client_id: Text
    client_secret: Text = ""
    client_auth: Literal["header", "body"] = "header"
    audience: Text = ""
    resource: ResourceUri = ""
    scopes: tuple[Text, ...] = ()  # besides those that the operation wants
    actor: Literal["none", "client"] = "none"  # "client": with a token of the gateway's own
    subject_token_type: Text = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
    requested_token_type: Text = ""
    cached_bytes: Bytes = 16_777_216  # of tokens in memory


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """A source's `tls`: whom it believes, and who it says it is."""

    ca_file: File = ""
    cert_file: File = ""
    key_file: File = ""


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sources`, with at most one of `openapi`, `graphql`, `hybrid`, `python`,
    `mcp` and `command`. Without any it only adjusts a source imported by command."""

    openapi: Location | None = None  # an absolute path once loaded, or a URL
    graphql: Location | None = None
    hybrid: Location | None = None
    python: PythonModule | None = None  # an absolute path once loaded, or a module
    mcp: HttpUrl | None = None
    command: tuple[Text, ...] = ()
    base_url: HttpUrl | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    entry: EntryName | None = None
    overlay: Location | None = None  # an absolute path once loaded, or a URL
    only_marked: bool = False
    depth: Levels = 3
    cost: Count = 60
    media_types: tuple[str, ...] = ()
    headers: Mapping[HeaderName, HeaderValue] = field(default_factory=dict)
    credentials: Mapping[SchemeName, SchemeSettings] = field(default_factory=dict)
    require_credentials: bool = True
    validate_answers: Literal["off", "report"] = "off"
    timeout_s: Seconds | None = None
    retries: Retries | None = None
    side: Literal["query", "command"] | None = None
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"
    batch: Count = 1
    forward_token: bool = False
    same_trust_domain: bool = False
    exchange: TokenExchange | None = None
    tls: Tls | None = None
    env: Mapping[VariableName, Text] = field(default_factory=dict)
    era: Literal["auto", "handshake", "stateless"] = "auto"
    prefix: Literal["always", "conditional", "never"] = "conditional"
    own_sessions: bool = False
    pin: bool = False


class Toolset(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `toolsets`: the tools of some sources, picked by their names."""

    sources: tuple[SourceName, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    instructions: str = ""
    mode: DisclosureMode | None = None


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    server: Server
    database: Database
    tenant: Tenant
    mcp: Mcp
    rpc: Rpc
    portal: Portal
    auth: Auth
    oauth: OAuth
    policy: Policy
    guardrails: Guardrails
    limits: Limits
    breaker: Breaker
    audit: Audit
    admin: Admin
    secrets: Secrets
    upstream: Upstream
    answers: Answers
    budgets: Budgets
    profiles: Profiles
    embedding: Embedding
    search: Search
    disclosure: Disclosure
    skills: Skills
    scripts: Scripts
    imports: Imports
    logging: Logging
    state: State
    functions: Mapping[FunctionName, EntryPoint]
    sources: Mapping[SourceName, SourceSettings]
    toolsets: Mapping[ToolsetName, Toolset]
