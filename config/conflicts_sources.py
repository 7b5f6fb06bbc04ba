"""What is wrong with entries of `sources` that are right key by key."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from config.loopback import in_the_clear
from config.problem import Problem, Where, dotted
from config.settings import Settings
from config.sources import SchemeSettings, SourceSettings

SOURCE_KINDS = ("openapi", "graphql", "hybrid", "python", "mcp", "command")
OF_MCP = ("era", "prefix", "own_sessions", "pin")
OF_OPENAPI = (
    *("entry", "overlay", "only_marked", "media_types"),
    *("credentials", "require_credentials"),
)
OF_GRAPHQL = ("depth", "cost")
OF_HYBRID = ("side", "dialect", "batch")
# Of what is called over HTTP.
OF_HTTP = ("forward_token", "same_trust_domain", "exchange", "tls")
# What means nothing beside a kind. An entry without one adjusts a source that is of any kind.
IDLE = {
    "openapi": (*OF_GRAPHQL, *OF_HYBRID, *OF_MCP, "env"),
    "graphql": (
        *("entry", "media_types", "credentials", "require_credentials"),
        *(*OF_HYBRID, *OF_MCP, "env"),
    ),
    "hybrid": (*OF_OPENAPI, *OF_GRAPHQL, *OF_MCP, "env"),
    "python": (
        *("base_url", "headers", "dialect", "batch", *OF_HTTP),
        *(*OF_OPENAPI, *OF_GRAPHQL, *OF_MCP, "env"),
    ),
    "mcp": ("base_url", "retries", *OF_OPENAPI, *OF_GRAPHQL, *OF_HYBRID, "env"),
    "command": (
        *("base_url", "headers", "retries", *OF_HTTP),
        *(*OF_OPENAPI, *OF_GRAPHQL, *OF_HYBRID, "era"),
    ),
}
# What a request says of itself (RFC 9110 and 9112), which no setting may say of it.
FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"}
    | {"upgrade", "expect", "proxy-connection"}
)

UNSAID = SourceSettings()  # all its defaults
UNGIVEN = SchemeSettings()
# The ways to satisfy a security scheme, and what belongs to each.
CREDENTIALS = {
    "value": (),
    "token": (),
    "username": ("password",),
    "client_id": ("client_secret", "token_url", "scopes", "client_auth"),
}


def source_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """`where` says where the first of some key paths stands that is no default."""
    yield from _unclear_sources(settings, where)
    yield from _unclear_credentials(settings, where)
    yield from _forbidden_commands(settings, where)
    for name, source in settings.sources.items():
        given = _kinds(source)
        kind = given[0] if len(given) == 1 else None
        found = [
            *_impossible(source, kind),
            *_two_ways(source, kind),
            *_unusable_exchange(source),
            *(_unverified(source, kind) if settings.auth.mode != "jwt" else ()),
            *_framing(source),
            *_half_tls(source),
        ]
        for key, text in found:
            path = ("sources", name, *key.split("."))
            yield Problem(where(path), dotted(path), text)


def _kinds(source: SourceSettings) -> list[str]:
    return [kind for kind in SOURCE_KINDS if getattr(source, kind)]


def _unclear_sources(settings: Settings, where: Where) -> list[Problem]:
    problems = []
    for name, source in settings.sources.items():
        given = _kinds(source)
        if len(given) > 1:
            key = ("sources", name, given[1])
            text = f"expected one of {', '.join(SOURCE_KINDS)}, found {' and '.join(given)}"
            problems.append(Problem(where(key), dotted(key), text))
    return problems


def _impossible(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot work, and why."""
    if kind == "hybrid" and source.base_url is None:
        yield "hybrid", "expected base_url beside it: a description does not say where calls go"
    speaks = kind not in ("openapi", "graphql", "python")
    if source.dialect == "legacy" and source.batch > 1 and speaks:
        yield (
            "batch",
            f"expected 1 with dialect: legacy, which has no batches, found {source.batch}",
        )
    for key in IDLE.get(kind or "", ()):
        if getattr(source, key) != getattr(UNSAID, key):
            yield key, f"expected no such key beside {kind}, where it means nothing"


def _unclear_credentials(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, source in settings.sources.items():
        for scheme, given in source.credentials.items():
            if text := unclear(given):
                path = ("sources", name, "credentials", scheme)
                yield Problem(where(path), dotted(path), text)


def way_of(given: SchemeSettings) -> str | None:
    """The key that says how a scheme is satisfied; None where nothing of use is given."""
    return next((way for way in CREDENTIALS if getattr(given, way)), None)


def unclear(given: SchemeSettings) -> str | None:
    """What is expected instead, without a word of what is there."""
    ways = [way for way in CREDENTIALS if getattr(given, way) is not None]
    if len(ways) > 1:
        return f"expected one of {', '.join(CREDENTIALS)}, found {' and '.join(ways)}"
    for way, companions in CREDENTIALS.items():
        others = [key for key in companions if getattr(given, key) != getattr(UNGIVEN, key)]
        if way not in ways and others:
            return f"expected {way} beside {others[0]}"
    if given.client_id is not None and not (given.client_secret is not None and given.token_url):
        return "expected client_secret and token_url beside client_id"
    return None


def _forbidden_commands(settings: Settings, where: Where) -> Iterator[Problem]:
    if settings.upstream.stdio:
        return
    for name, source in settings.sources.items():
        if source.command:
            key = ("sources", name, "command")
            text = "expected no command while upstream.stdio is false, which allows none to be run"
            yield Problem(where(key), dotted(key), text)


def _two_ways(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """One way alone proves to a source who calls it."""
    ways = []
    if source.exchange is not None:
        ways.append("exchange")
    if source.forward_token:
        ways.append("forward_token")
    if any(given != UNGIVEN for given in source.credentials.values()):
        ways.append("credentials")
    # An MCP server is also asked where there is no caller.
    if kind != "mcp" and any(name.lower() == "authorization" for name in source.headers):
        ways.append("headers.Authorization")
    fetched = any(given.client_id for given in source.credentials.values())
    static = not (source.exchange or source.forward_token)
    if len(ways) < 2 or (static and not fetched):
        return
    yield ways[0], f"expected one way to prove who calls, found {' and '.join(ways)}"


def _unusable_exchange(source: SourceSettings) -> Iterator[tuple[str, str]]:
    exchange = source.exchange
    if exchange is not None and exchange.actor == "client" and not exchange.client_secret:
        yield "exchange", "expected client_secret beside actor: client"
    if exchange is not None and in_the_clear(exchange.token_url):
        yield "exchange.token_url", "expected an https:// URL, but for a server on loopback"


def _unverified(source: SourceSettings, kind: str | None) -> Iterator[tuple[str, str]]:
    """Where no token is verified: nobody is known, or by a key."""
    for key in ("exchange", "forward_token") if kind not in ("python", "command") else ():
        if getattr(source, key):
            yield key, "expected auth.mode: jwt with it, because only verified tokens are used"


def _framing(source: SourceSettings) -> Iterator[tuple[str, str]]:
    for name in source.headers:
        if name.lower() in FRAMING:
            yield "headers", f"expected no {name} in it, which each request says of itself"


def _half_tls(source: SourceSettings) -> Iterator[tuple[str, str]]:
    if source.tls is None:
        return
    if source.tls.key_file and not source.tls.cert_file:
        yield "tls.key_file", "expected cert_file beside it"
    address = source.base_url or source.mcp or ""
    if urlsplit(address).scheme == "http":
        yield "tls", "expected an https:// address beside it"
