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
    """A source's `exchange`: the caller's token is exchanged for one of the source's (RFC 8693)."""

    token_url: HttpUrl
    client_id: Text
    client_secret: Text = ""
    client_auth: Literal["header", "body"] = "header"
    audience: Text = ""
    resource: ResourceUri = ""
    scopes: tuple[Text, ...] = ()  # besides those of the operation
    actor: Literal["none", "client"] = "none"  # "client": with a token of the gateway's own
    subject_token_type: Text = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
    requested_token_type: Text = ""
    cached_bytes: Bytes = 16_777_216  # of tokens in memory


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """A source's `tls`: trusted CA certificates, and the client certificate (mTLS)."""

    ca_file: File = ""
    cert_file: File = ""
    key_file: File = ""


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `sources`, with at most one of `openapi`, `graphql`, `hybrid`, `python`,
    `mcp` and `command`. With none of them it only adjusts a source imported by command."""

    openapi: Location | None = None  # an absolute path once loaded, or a URL
    graphql: Location | None = None
    hybrid: Location | None = None
    python: PythonModule | None = None  # an absolute path once loaded, or a module
    mcp: McpUrl | None = None
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
    example: bool = False

    @property
    def is_imported(self) -> bool:
        """Whether the settings say where its tools come from."""
        named = (self.openapi, self.graphql, self.hybrid, self.python, self.mcp, self.command)
        return any(named)
