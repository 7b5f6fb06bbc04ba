"""Conflicts between settings of sources: kinds, credentials, accounts."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from config.networks import is_unencrypted
from config.settings import Settings
from config.sources import Connect, SchemeSettings, SourceSettings, TokenExchange
from config.yaml_document import Problem, Where, dotted_path
from schemas.urls import is_below

SOURCE_KINDS = ("openapi", "graphql", "hybrid", "python", "mcp", "command", "a2a")
A2A_KEYS = ("allowed_hosts", "signed", "per_skill")
MCP_KEYS = ("era", "prefix", "own_sessions", "pin")
OPENAPI_KEYS = (
    *("entry", "overlay", "only_marked", "media_types"),
    *("credentials", "require_credentials"),
)
GRAPHQL_KEYS = ("depth", "cost")
HYBRID_KEYS = ("side", "dialect", "batch")
# Keys of sources that are called over HTTP.
HTTP_KEYS = ("forward_token", "same_trust_domain", "exchange", "connect", "tls")

# Headers that each request sets itself (RFC 9110 and 9112); settings must not.
FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"}
    | {"upgrade", "expect", "proxy-connection"}
)

DEFAULT_SOURCE = SourceSettings()  # all its defaults
DEFAULT_SCHEME = SchemeSettings()
# The ways to satisfy a security scheme, and the companion keys of each.
CREDENTIALS = {
    "value": (),
    "token": (),
    "username": ("password",),
    "client_id": ("client_secret", "token_url", "scopes", "client_auth"),
}

# Keys without effect for a kind. An entry without a kind adjusts a source of any kind.
KEYS_WITHOUT_EFFECT = {
    "openapi": (*GRAPHQL_KEYS, *HYBRID_KEYS, *MCP_KEYS, *A2A_KEYS, "env"),
    "graphql": (
        *("entry", "media_types", "credentials", "require_credentials"),
        *(*HYBRID_KEYS, *MCP_KEYS, *A2A_KEYS, "env"),
    ),
    "hybrid": (*OPENAPI_KEYS, *GRAPHQL_KEYS, *MCP_KEYS, *A2A_KEYS, "env"),
    "python": (
        *("base_url", "headers", "dialect", "batch", *HTTP_KEYS),
        *(*OPENAPI_KEYS, *GRAPHQL_KEYS, *MCP_KEYS, *A2A_KEYS, "env"),
    ),
    "mcp": ("base_url", "retries", *OPENAPI_KEYS, *GRAPHQL_KEYS, *HYBRID_KEYS, *A2A_KEYS, "env"),
    "command": (
        *("base_url", "headers", "retries", *HTTP_KEYS),
        *(*OPENAPI_KEYS, *GRAPHQL_KEYS, *HYBRID_KEYS, *A2A_KEYS, "era"),
    ),
    "a2a": (
        *("base_url", "include", "exclude", "retries", "pin", "env"),
        *(*OPENAPI_KEYS, *GRAPHQL_KEYS, *HYBRID_KEYS, *MCP_KEYS),
    ),
}


def source_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Conflicts among the sources. `where` returns the location of the first of some key paths that
    is not at its default."""
    yield from _ambiguous_sources(settings, where)
    yield from _unclear_credentials(settings, where)
    yield from _forbidden_commands(settings, where)
    for name, source in settings.sources.items():
        kinds = _kinds(source)
        kind = kinds[0] if len(kinds) == 1 else None
        conflicts = [
            *_unusable_keys(source, kind),
            *_several_authentications(source, kind),
            *_unusable_exchange(source),
            *(_keys_without_token(source, kind) if settings.auth.mode != "jwt" else ()),
            *_unusable_connect(source, kind, login=settings.login.enabled),
            *_framing_headers(source),
            *_own_agent(source, settings.server.public_url),
            *_incomplete_tls(source),
        ]
        for key, text in conflicts:
            path = ("sources", name, *key.split("."))
            yield Problem(where(path), dotted_path(path), text)


def _own_agent(source: SourceSettings, public_url: str) -> Iterator[tuple[str, str]]:
    if source.a2a and is_below(source.a2a, public_url):
        yield "a2a", "expected an agent elsewhere, found one below server.public_url"


def _kinds(source: SourceSettings) -> list[str]:
    return [kind for kind in SOURCE_KINDS if getattr(source, kind)]


def _ambiguous_sources(settings: Settings, where: Where) -> list[Problem]:
    problems = []
    for name, source in settings.sources.items():
        kinds = _kinds(source)
        if len(kinds) > 1:
            key = ("sources", name, kinds[1])
            text = f"expected one of {', '.join(SOURCE_KINDS)}, found {' and '.join(kinds)}"
            problems.append(Problem(where(key), dotted_path(key), text))
    return problems


def _unusable_keys(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot work, and why."""
    if kind == "hybrid" and source.base_url is None:
        yield "hybrid", "expected base_url beside it: a description has no address of calls"
    calls_hybrid = kind not in ("openapi", "graphql", "python")
    if source.dialect == "legacy" and source.batch > 1 and calls_hybrid:
        yield (
            "batch",
            f"expected 1 with dialect: legacy, which has no batches, found {source.batch}",
        )
    for key in KEYS_WITHOUT_EFFECT.get(kind or "", ()):
        if getattr(source, key) != getattr(DEFAULT_SOURCE, key):
            yield key, f"expected no such key beside {kind}, where it means nothing"


def _unclear_credentials(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, source in settings.sources.items():
        for scheme, credential in source.credentials.items():
            if text := credential_problem(credential):
                path = ("sources", name, "credentials", scheme)
                yield Problem(where(path), dotted_path(path), text)


def credential_kind(entry: SchemeSettings) -> str | None:
    """The key that determines how a scheme is satisfied; None where none is usable."""
    return next((scheme_key for scheme_key in CREDENTIALS if getattr(entry, scheme_key)), None)


def credential_problem(entry: SchemeSettings) -> str | None:
    """Problem of the credentials: a message with what is expected instead, without the values given
    (secrets); None: valid."""
    schemes = [scheme_key for scheme_key in CREDENTIALS if getattr(entry, scheme_key) is not None]
    if len(schemes) > 1:
        return f"expected one of {', '.join(CREDENTIALS)}, found {' and '.join(schemes)}"
    for scheme_key, companions in CREDENTIALS.items():
        others = [key for key in companions if getattr(entry, key) != getattr(DEFAULT_SCHEME, key)]
        if scheme_key not in schemes and others:
            return f"expected {scheme_key} beside {others[0]}"
    if entry.client_id is not None and not (entry.client_secret is not None and entry.token_url):
        return "expected client_secret and token_url beside client_id"
    return None


def _forbidden_commands(settings: Settings, where: Where) -> Iterator[Problem]:
    if settings.upstream.stdio:
        return
    for name, source in settings.sources.items():
        if source.command:
            key = ("sources", name, "command")
            text = "expected no command while upstream.stdio is false, which allows none to be run"
            yield Problem(where(key), dotted_path(key), text)


def _several_authentications(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Sources with several ways of authenticating the caller: only one is possible."""
    methods = []
    if source.exchange is not None:
        methods.append("exchange")
    if source.forward_token:
        methods.append("forward_token")
    if source.connect.mode != "off":
        methods.append("connect")
    if any(credential != DEFAULT_SCHEME for credential in source.credentials.values()):
        methods.append("credentials")
    # An MCP server also gets requests without a caller.
    if kind != "mcp" and any(name.lower() == "authorization" for name in source.headers):
        methods.append("headers.Authorization")
    fetched = any(credential.client_id for credential in source.credentials.values())
    if source.connect.mode != "off":  # the operator's serve imports, and schemes of its own
        methods = [way for way in methods if way not in ("credentials", "headers.Authorization")]
    static = not (source.exchange or source.forward_token)
    if len(methods) < 2 or (static and not fetched):
        return
    yield methods[0], f"expected one way to authenticate the caller, found {' and '.join(methods)}"


def _unusable_exchange(source: SourceSettings) -> Iterator[tuple[str, str]]:
    exchange = source.exchange
    if exchange is not None and exchange.actor == "client" and not exchange.client_secret:
        yield "exchange", "expected client_secret beside actor: client"
    if exchange is not None and is_unencrypted(exchange.token_url):
        yield "exchange.token_url", "expected an https:// URL, but for a server on loopback"
    if exchange is not None and exchange.profile == "entra_obo":
        yield from _unusable_on_behalf_of(exchange)
    elif exchange is not None and exchange.certificate:
        yield "exchange.certificate", "expected profile: entra_obo with it"


def _unusable_on_behalf_of(exchange: TokenExchange) -> Iterator[tuple[str, str]]:
    if bool(exchange.client_secret) == bool(exchange.certificate):
        yield "exchange", "expected client_secret or certificate beside profile: entra_obo"
    if exchange.certificate and not (
        "PRIVATE KEY-----" in exchange.certificate and "CERTIFICATE-----" in exchange.certificate
    ):
        yield "exchange.certificate", "expected a certificate and its private key, in PEM"
    if not exchange.audience and not exchange.scopes:
        yield "exchange", "expected audience (the API's Application ID URI) or scopes"
    unused = ("actor", "resource", "subject_token_type", "requested_token_type")
    plain = TokenExchange(exchange.token_url, exchange.client_id)
    for key in unused:
        if getattr(exchange, key) != getattr(plain, key):
            yield f"exchange.{key}", "expected none with profile: entra_obo"


def _unusable_connect(
    source: SourceSettings, kind: str | None, *, login: bool
) -> Iterator[tuple[str, str]]:
    connect = source.connect
    if connect.mode == "off":
        if connect != DEFAULT_SOURCE.connect:
            yield "connect", "expected mode: user with its other keys, found off"
        return
    yield from _unusable_client(connect, kind)
    if not login:
        text = "expected login.enabled with it: a person connects in a browser, where they log in"
        yield "connect", text
    if connect.mode == "id_jag" and (kind != "mcp" or not (connect.issuer and connect.client)):
        text = "expected, with id_jag, mcp, and issuer and client of its authorization server"
        yield "connect", text
    if connect.header.lower() in FRAMING:
        yield "connect.header", f"expected another header than {connect.header}"
    if connect.tasks and connect.preset is None:
        yield "connect.tasks", "expected preset beside it"
    if bool(connect.authorization_url) != bool(connect.token_url):
        yield "connect", "expected authorization_url and token_url together"
    if connect.schemes and kind in ("graphql", "hybrid", "mcp", "a2a"):
        yield "connect.schemes", f"expected none of {kind}, which declares no schemes: see header"
    for key in ("issuer", "authorization_url", "token_url", "revocation_url"):
        url = getattr(connect, key)
        if url and is_unencrypted(url):
            yield f"connect.{key}", "expected an https:// URL, but for a server on loopback"


def _unusable_client(connect: Connect, kind: str | None) -> Iterator[tuple[str, str]]:
    client = connect.client
    named = connect.issuer or connect.token_url or kind == "openapi"  # at addresses of the settings
    if client is not None and client.secret and not named:
        text = "expected connect.issuer, or authorization_url and token_url, to which it is sent"
        yield "connect.client.secret", text
    if client is not None and client.auth in ("basic", "post") and not client.secret:
        yield "connect.client", f"expected secret with auth: {client.auth}"


def _keys_without_token(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys that need a verified token, where callers are anonymous or use an API key."""
    for key in ("exchange", "forward_token") if kind not in ("python", "command") else ():
        if getattr(source, key):
            yield key, "expected auth.mode: jwt with it, because only verified tokens are used"


def _framing_headers(source: SourceSettings) -> Iterator[tuple[str, str]]:
    for name in source.headers:
        if name.lower() in FRAMING:
            yield "headers", f"expected no {name} in it, which each request sets itself"


def _incomplete_tls(source: SourceSettings) -> Iterator[tuple[str, str]]:
    if source.tls is None:
        return
    if source.tls.key_file and not source.tls.cert_file:
        yield "tls.key_file", "expected cert_file beside it"
    address = source.base_url or source.mcp or ""
    if urlsplit(address).scheme == "http":
        yield "tls", "expected an https:// address beside it"
