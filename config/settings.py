"""The settings, as types. Their defaults, units and reasons stand in `defaults.yaml`.

Every constructor in the product gets the two or three values that it needs; only
`gateway/app/` sees the whole `Settings`.

The description of a type completes the sentence "expected ..." in an error message.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

# Python's `$` also matches before a final newline, which would let "X-A\n" pass.
END = r"$(?!\n)"

Port = Annotated[int, Meta(ge=0, le=65535, description="a TCP port from 0 to 65535")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Amount = Annotated[int, Meta(ge=0, description="a whole number of at least 0")]
Levels = Annotated[int, Meta(ge=1, le=10, description="a whole number from 1 to 10")]
Connections = Annotated[int, Meta(ge=5, le=1000, description="a whole number from 5 to 1000")]
Retries = Annotated[int, Meta(ge=0, le=10, description="a whole number from 0 to 10")]
Bytes = Annotated[int, Meta(ge=1, description="a whole number of bytes, at least 1")]
Millis = Annotated[int, Meta(ge=0, description="a whole number of milliseconds, at least 0")]
# A year: anything longer, infinity included, breaks timers of the event loop.
Seconds = Annotated[
    float, Meta(gt=0, le=31_536_000, description="a number of seconds, above 0 and within a year")
]
Host = Annotated[str, Meta(pattern=r"^[^\s/]+" + END, description="a host name or an IP address")]
HostHeader = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)" + END,
        description="a host name or an IP address without port, as in gateway.example.com",
    ),
]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9+.-]*://[^\s/?#@]+" + END,
        description="an origin such as https://app.example.com, without a path",
    ),
]
HttpPath = Annotated[
    str,
    Meta(
        pattern=r"^(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)+" + END,
        description='a path such as /mcp, neither "/" nor with a "/" at its end',
    ),
]
HttpUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?" + END,
        description="an http:// or https:// URL without credentials, query and fragment "
        "(credentials go into `headers`)",
    ),
]
DatabaseUrl = Annotated[
    str,
    Meta(
        pattern=r"^(embedded|postgres(ql)?://\S*)" + END,
        description='"embedded" or a postgresql:// URL',
    ),
]
MemorySize = Annotated[
    str,
    Meta(pattern=r"^[1-9][0-9]* ?(kB|MB|GB|TB)" + END, description="a size such as 128MB"),
]
SystemUser = Annotated[
    str,
    Meta(pattern=r"^[a-z_][a-z0-9_-]{0,31}" + END, description="the name of a system user"),
]
HostId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}" + END,
        description="a UUID in lower case",
    ),
]
SourceName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9, "_" and "-"',
    ),
]
# Verbatim: text that may be written like a number or a switch, and stays as it was written.
VERBATIM = {"verbatim": True}
# Arguments and environments of processes end at a NUL.
Text = Annotated[
    str,
    Meta(
        pattern=r"^[^\0]*" + END,
        description="text without NUL characters",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
VariableName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*" + END,
        description="the name of an environment variable",
        extra={"capitals": True},  # what TOOLGATE_... variables mean that name a new one
    ),
]
Secret = Annotated[
    str,
    Meta(
        pattern=r"^(.{16,})?" + END,
        description="at least 16 characters, or nothing",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
RedisUrl = Annotated[
    str,
    Meta(
        pattern=r"^((rediss?|unix)://\S+)?" + END,
        description="a redis://, rediss:// or unix:// URL, or nothing",
    ),
]
# Below the MCP endpoint, where `sse` and `message` are taken.
ToolsetName = Annotated[
    str,
    Meta(
        pattern=r"^(?!(sse|message)$)[a-z0-9][a-z0-9_-]{0,62}" + END,
        description='a name of at most 63 characters out of a-z, 0-9, "_" and "-", and not "sse" '
        'or "message"',
    ),
]
ProfileName = SourceName
# It stands inside the names of functions.
ServerName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,32}" + END,
        description='a name of at most 32 characters out of A-Z, a-z, 0-9, "_" and "-"',
    ),
]
# Less leaves no room for a name beside a hash, or for a summary.
NameLimit = Annotated[int, Meta(ge=48, le=128, description="a whole number from 48 to 128")]
ToolTokens = Annotated[int, Meta(ge=250, description="a whole number of at least 250")]
TextLength = Annotated[int, Meta(ge=80, description="a whole number of at least 80")]
# RFC 9110, 5.1 and 5.5: a token; visible characters, spaces and tabs.
HeaderName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+" + END,
        description="the name of an HTTP header",
        extra={"dashes": True},  # no "-" in a variable's name: there `_` stands for it
    ),
]
HeaderValue = Annotated[
    str,
    Meta(
        pattern=r"^[\t\x20-\x7e\x80-\xff]*" + END,
        description="the value of an HTTP header, on one line",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
# As a description names them: mostly identifiers; a ":" is a value that lost its space.
SchemeName = Annotated[
    str,
    Meta(
        pattern=r"^[^\s:{}]([^\n\r:{}]{0,98}[^\s:{}])?" + END,
        description='the name of a security scheme, without ":"',
    ),
]
# `jit: off` is what people write, and what PostgreSQL wants to read.
ServerOption = Annotated[
    str,
    Meta(
        description="text, a number or a switch",
        extra=VERBATIM,
        extra_json_schema=VERBATIM,
    ),
]
# Signatures by a private key only: whoever can check an HS* signature can also make one.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]  # fmt: skip
Leeway = Annotated[float, Meta(ge=0, le=600, description="a number of seconds from 0 to 600")]
File = Annotated[str, Meta(description="a path", extra={"file": True})]
PythonModule = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py)" + END,
        description="a module such as company.rules, or the path of a .py file",
        extra={"module": True},
    ),
]
Directory = Annotated[str, Meta(description="a directory", extra={"file": True})]
EntryName = Annotated[
    str,
    Meta(
        pattern=r"^(?!/|\.\.(/|$))[^\0]+" + END,
        description="the path of a file inside the directory or the archive",
    ),
]
Location = Annotated[str, Meta(pattern=r"\S", description="a path or a URL", extra={"file": True})]
OptionalUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?" + END,
        description="an http:// or https:// URL without credentials, query and fragment, "
        "or nothing",
    ),
]
Dimension = Annotated[int, Meta(ge=384, le=384, description="384, the length of stored vectors")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
DisclosureMode = Literal["direct", "search", "auto"]
FunctionName = SourceName
EntryPoint = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*" + END,
        description="a function such as company.tools:count_words",
    ),
]


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    host: Host
    port: Port
    allowed_hosts: tuple[HostHeader, ...]
    allowed_origins: tuple[Origin, ...]
    body_limit_bytes: Bytes
    drain_s: Seconds
    keep_alive_s: Seconds


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


class Auth(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["none", "jwt"]
    key_file: File
    jwks_file: File
    algorithms: tuple[Algorithm, ...]
    issuer: str
    audience: str
    leeway_s: Leeway
    verify_scope: bool
    cached_tokens: Count
    token_limit_bytes: Bytes


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
