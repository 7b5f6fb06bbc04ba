"""Settings of one source: location of its description, calls, and credentials."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from config.value_types import (
    Bytes,
    Count,
    EntryName,
    File,
    HeaderName,
    HeaderValue,
    HostAndPort,
    HttpUrl,
    Levels,
    Location,
    McpUrl,
    PythonModule,
    ResourceUri,
    Retries,
    SchemeName,
    Seconds,
    Text,
    VariableName,
)


class SchemeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a source's `credentials`: what satisfies one security scheme. It holds one of
    `value`, `token`, `username` and `client_id`; an empty entry or text counts as no entry.
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
    """A source's `exchange`: the caller's token is exchanged for one of the source's (RFC 8693, or
    the on-behalf-of flow of Entra ID)."""

    token_url: HttpUrl
    client_id: Text
    client_secret: Text = ""
    client_auth: Literal["header", "body"] = "header"
    audience: Text = ""  # of entra_obo: the Application ID URI of the API
    resource: ResourceUri = ""
    scopes: tuple[Text, ...] = ()  # besides those of the operation; of entra_obo: all
    actor: Literal["none", "client"] = "none"  # "client": with a token of the gateway's own
    subject_token_type: Text = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
    requested_token_type: Text = ""
    cached_bytes: Bytes = 16_777_216  # of tokens in memory
    profile: Literal["rfc8693", "entra_obo"] = "rfc8693"
    certificate: Text = ""  # PEM, with its private key: instead of client_secret, of entra_obo


PresetName = Literal[
    "github",
    "google",
    "microsoft-graph",
    "slack",
    "atlassian",
    "linear",
    "notion",
    "gitlab",
    "stripe",
    "salesforce",
]


class ConnectClient(Struct, frozen=True, forbid_unknown_fields=True):
    """`connect.client`: the gateway as it is registered at the service's authorization server."""

    id: Text
    secret: Text = ""
    auth: Literal["basic", "post", "private_key_jwt", "none"] | None = None  # None: negotiated


class Connect(Struct, frozen=True, forbid_unknown_fields=True):
    """A source's `connect`: callers use accounts of their own at the service. Two lines suffice
    where people have keys; the rest is for OAuth."""

    mode: Literal["off", "user", "shared", "user_or_shared", "id_jag"] = "off"
    preset: PresetName | None = None  # a well-known service, whose members all others replace
    tasks: tuple[Text, ...] = ()  # of the preset, whose scopes are asked for; empty: its first one
    sharers: tuple[Text, ...] = ()  # roles whose people may share their account
    schemes: tuple[SchemeName, ...] = ()  # that people satisfy; empty: all
    header: HeaderName = "Authorization"  # of a source that declares no schemes
    prefix: HeaderValue | None = None  # before its value; None: "Bearer " in Authorization
    title: Text = ""  # on pages; "": the name of the source
    help: HttpUrl | None = None  # where people make a key
    check: Text = ""  # a tool without required arguments, which a new key must be able to call
    oauth: bool | None = None  # None: where the source or these settings name a server
    issuer: HttpUrl | None = None
    authorization_url: HttpUrl | None = None
    token_url: HttpUrl | None = None
    revocation_url: HttpUrl | None = None
    client: ConnectClient | None = None
    scopes: tuple[Text, ...] = ()  # besides those of the operation
    resource: Text = "auto"  # "auto", "off" or a URL (RFC 8707)
    authorize: Mapping[Text, Text] = field(default_factory=dict)  # further parameters
    token: Mapping[Text, Text] = field(default_factory=dict)
    absent: Literal["deny", "allow"] = "deny"  # work while its person is absent

    @property
    def is_shared(self) -> bool:
        """Whether an account may be shared."""
        return self.mode in ("shared", "user_or_shared")

    @property
    def has_page(self) -> bool:
        """Whether people connect accounts on a page."""
        return self.mode not in ("off", "id_jag")


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """A source's `tls`: trusted CA certificates, and the client certificate (mTLS)."""

    ca_file: File = ""
    cert_file: File = ""
    key_file: File = ""


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sources`, with at most one of `openapi`, `graphql`, `hybrid`, `python`,
    `mcp`, `command` and `a2a`. With none of them it only adjusts a source imported by command."""

    openapi: Location | None = None  # an absolute path once loaded, or a URL
    graphql: Location | None = None
    hybrid: Location | None = None
    python: PythonModule | None = None  # an absolute path once loaded, or a module
    mcp: McpUrl | None = None
    command: tuple[Text, ...] = ()
    a2a: HttpUrl | None = None
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
    connect: Connect = Connect()
    tls: Tls | None = None
    env: Mapping[VariableName, Text] = field(default_factory=dict)
    era: Literal["auto", "handshake", "stateless"] = "auto"
    prefix: Literal["always", "conditional", "never"] = "conditional"
    own_sessions: bool = False
    pin: bool = False
    allowed_hosts: tuple[HostAndPort, ...] = ()
    signed: File | None = None  # an absolute path once loaded
    per_skill: bool = False
    example: bool = False

    @property
    def is_imported(self) -> bool:
        """Whether the settings say where its tools come from."""
        named = (
            self.openapi,
            self.graphql,
            self.hybrid,
            self.python,
            self.mcp,
            self.command,
            self.a2a,
        )
        return any(named)
