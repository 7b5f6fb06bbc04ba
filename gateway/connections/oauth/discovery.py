"""Discovery of authorization servers: from an MCP server (RFC 9728, RFC 8414 and MCP's rules), or
from an issuer. Every step is recorded, so that a doctor can name the first one that failed.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from config.connections import ConnectionsSettings
from gateway.connections.oauth.guarded_requests import Answer, Reach, RequestFailed, origin_of
from gateway.connections.oauth.server_metadata import (
    ENTRA_HOSTS,
    AuthorizationServer,
    read_server,
    usable_names,
)
from schemas.challenges import Challenge, read_challenge
from schemas.errors import ToolgateError
from schemas.issuers import is_same_issuer, well_known

RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
OPENID_METADATA = "/.well-known/openid-configuration"
CACHE_ENTRIES = 1000  # discoveries
S256 = "S256"
DETAIL = 300  # characters of foreign text in a step
_PROBE = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class DiscoveryStep(Struct, frozen=True):
    """One step of a discovery, as a doctor shows it."""

    name: str
    detail: str
    failed: bool = False


class DiscoveryFailed(ToolgateError):
    """A step failed, which is the last one; the text is for operators."""

    def __init__(self, steps: Sequence[DiscoveryStep]) -> None:
        super().__init__(f"{steps[-1].name}: {steps[-1].detail}")
        self.steps = tuple(steps)


class Discovered(Struct, frozen=True):
    server: AuthorizationServer
    steps: tuple[DiscoveryStep, ...]


@dataclass(frozen=True, slots=True)
class _Cached:
    result: Discovered | DiscoveryFailed
    made: float
    until: float


class McpServer(Struct, frozen=True, kw_only=True):
    """The request of a discovery from an MCP server."""

    url: str
    challenge: Challenge | None = None  # of its 401; None: it is asked for one
    issuer: str = ""  # `connect.issuer`: of several the one to use, or a known deviation
    resource: str = "auto"  # `connect.resource`: auto, off or a URL


class Discovery:
    """Discovered servers, cached."""

    def __init__(
        self, limits: ConnectionsSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._cached: OrderedDict[Hashable, _Cached] = OrderedDict()
        self._turns: defaultdict[Hashable, anyio.Lock] = defaultdict(anyio.Lock)

    async def of_mcp_server(
        self, server: McpServer, reach: Reach, *, fresh: bool = False
    ) -> Discovered:
        """The authorization server of an MCP server. `fresh`: not from the cache, as after a 401
        with a token. Raises DiscoveryFailed."""
        key = (server, reach.named)
        return await self._get(key, lambda steps: _of_mcp_server(server, reach, steps), fresh=fresh)

    async def of_issuer(
        self, address: str, reach: Reach, *, issuer: str = "", fresh: bool = False
    ) -> Discovered:
        """The server of an issuer, or of the URL of its OpenID Connect document; `issuer` names a
        known deviation. Raises DiscoveryFailed."""
        key = (address, issuer, reach.named)
        return await self._get(
            key, lambda steps: _of_issuer(address, issuer, reach, steps), fresh=fresh
        )

    async def _get(
        self,
        key: Hashable,
        walk: Callable[[list[DiscoveryStep]], Coroutine[Any, Any, AuthorizationServer]],
        *,
        fresh: bool,
    ) -> Discovered:
        """Single-flight. Raises DiscoveryFailed."""
        started = self._clock()
        async with self._turns[key]:
            entry = self._cached.get(key)
            if entry is None or self._clock() >= entry.until or (fresh and entry.made < started):
                entry = self._cached[key] = self._entry(await self._walk(walk))
                while len(self._cached) > CACHE_ENTRIES:
                    self._turns.pop(self._cached.popitem(last=False)[0], None)
        if isinstance(entry.result, DiscoveryFailed):
            raise DiscoveryFailed(entry.result.steps)
        return entry.result

    def _entry(self, result: Discovered | DiscoveryFailed) -> "_Cached":
        now, good = self._clock(), isinstance(result, Discovered)
        return _Cached(
            result, now, now + (self._limits.cache_s if good else self._limits.refused_s)
        )

    async def _walk(
        self, walk: Callable[[list[DiscoveryStep]], Coroutine[Any, Any, AuthorizationServer]]
    ) -> Discovered | DiscoveryFailed:
        steps: list[DiscoveryStep] = []
        try:
            with anyio.fail_after(self._limits.discovery_s):
                server = await walk(steps)
            return Discovered(server, tuple(steps))
        except DiscoveryFailed as failure:
            return failure
        except TimeoutError:
            late = f"no answer within {self._limits.discovery_s:g} s in all"
            return DiscoveryFailed([*steps, DiscoveryStep("time", late, failed=True)])


async def _of_mcp_server(
    mcp: McpServer, reach: Reach, steps: list[DiscoveryStep]
) -> AuthorizationServer:
    challenge = mcp.challenge or await _probe(mcp.url, reach, steps)
    document = await _resource_metadata(mcp.url, challenge, reach, steps)
    scopes = challenge.scopes
    if document is None:  # a server of 2025-03-26 is its own authorization server
        issuer = mcp.issuer or _origin(mcp.url)
        server = await _server_metadata(issuer, "", reach, steps)
        if server is None and not mcp.issuer:
            server = _default_server(issuer)
        resource = ""
    else:
        issuer = _choose_issuer(document, mcp.issuer, steps)
        server = await _server_metadata(issuer, mcp.issuer, reach, steps)
        resource = document["resource"]
        scopes = scopes or _strings(document.get("scopes_supported"))
    if server is None:
        raise _failure(steps, "server metadata", f"none at the well-known places of {issuer}")
    steps.append(DiscoveryStep("server metadata", f"{server.issuer or issuer}"))
    _check_pkce(server, steps, by_operator=bool(mcp.issuer))
    if mcp.resource not in ("auto", "off"):
        resource = mcp.resource
    elif mcp.resource == "off" or urlsplit(server.issuer).hostname in ENTRA_HOSTS:
        resource = ""
    return replace(server, resource=resource, scopes=scopes)


async def _of_issuer(
    address: str, issuer: str, reach: Reach, steps: list[DiscoveryStep]
) -> AuthorizationServer:
    at_document = address.removesuffix(OPENID_METADATA)
    server = await _server_metadata(at_document, issuer, reach, steps)
    if server is None:
        raise _failure(steps, "server metadata", f"none at the well-known places of {at_document}")
    steps.append(DiscoveryStep("server metadata", server.issuer))
    if server.code_challenge_methods_supported:  # MCP alone wants them listed
        _check_pkce(server, steps, by_operator=False)
    return server


async def _probe(url: str, reach: Reach, steps: list[DiscoveryStep]) -> Challenge:
    """The challenge of a request without a token, if the server sends one."""
    try:
        answer = await reach.post(url, _PROBE, reads_body=False)
    except RequestFailed as error:
        raise _failure(steps, "challenge", str(error)) from error
    challenge = read_challenge(answer.challenges) if answer.status in (401, 403) else None
    detail = f"HTTP {answer.status}" + ("" if challenge else ", without a Bearer challenge")
    steps.append(DiscoveryStep("challenge", detail))
    return challenge or Challenge()


async def _resource_metadata(
    url: str, challenge: Challenge, reach: Reach, steps: list[DiscoveryStep]
) -> Mapping[str, Any] | None:
    """The metadata of the MCP server (RFC 9728); None where it has none. Raises DiscoveryFailed."""
    for place in _resource_places(url, challenge):
        document = await _get_document(place, "resource metadata", reach, steps)
        if document is None:
            continue
        resource = document.get("resource")
        if not isinstance(resource, str) or not _covers(resource, url):
            text = f"{place} is of {str(resource)[:DETAIL]!r}, expected {url!r}"
            raise _failure(steps, "resource metadata", text)
        steps.append(DiscoveryStep("resource metadata", place))
        return document
    steps.append(DiscoveryStep("resource metadata", "none: its origin is asked, as of 2025-03-26"))
    return None


def _resource_places(url: str, challenge: Challenge) -> Iterator[str]:
    if challenge.resource_metadata:
        yield challenge.resource_metadata
    origin, path = _origin(url), urlsplit(url).path.rstrip("/")
    if path:
        yield f"{origin}{RESOURCE_METADATA}{path}"
    yield f"{origin}{RESOURCE_METADATA}"


def _covers(resource: str, url: str) -> bool:
    """Whether `resource` is the server at `url`, or, as the official SDKs accept, a whole that it
    is a part of: the same origin, and its path or one above it."""
    try:
        if origin_of(resource) != origin_of(url):
            return False
    except ValueError:
        return False
    requested_parts, resource_parts = urlsplit(url), urlsplit(resource)
    path, above = requested_parts.path.rstrip("/"), resource_parts.path.rstrip("/")
    same_query = resource_parts.query in ("", requested_parts.query)
    return same_query and not resource_parts.fragment and f"{path}/".startswith(f"{above}/")


def _choose_issuer(
    document: Mapping[str, Any], preferred_issuer: str, steps: list[DiscoveryStep]
) -> str:
    """The address of the metadata, out of those that the resource names."""
    issuers = _strings(document.get("authorization_servers"))
    if not issuers:
        raise _failure(steps, "authorization_servers", "the resource metadata name none")
    chosen = issuers[0]
    if preferred_issuer:  # that one, or an address of its origin, whose document names it
        same = (issuer for issuer in issuers if is_same_issuer(issuer, preferred_issuer))
        near = (issuer for issuer in issuers if _has_origin(issuer, preferred_issuer))
        chosen = next(same, None) or next(near, "")
    if not chosen:
        text = f"{', '.join(issuers)[:DETAIL]}, none of which is at connect.issuer"
        raise _failure(steps, "authorization_servers", text)
    steps.append(DiscoveryStep("authorization_servers", chosen[:DETAIL]))
    return chosen


def _has_origin(issuer: str, url: str) -> bool:
    try:
        return origin_of(issuer) == origin_of(url)
    except ValueError:
        return False


async def _server_metadata(
    issuer: str, deviation: str, reach: Reach, steps: list[DiscoveryStep]
) -> AuthorizationServer | None:
    """The server at the well-known places of an issuer; None where no document is. `deviation`:
    another issuer that the document may name. Raises DiscoveryFailed."""
    for place in well_known(issuer):
        document = await _get_document(place, "server metadata", reach, steps)
        if document is None:
            continue
        named = document.get("issuer")
        expected = (issuer, deviation) if deviation else (issuer,)
        if not isinstance(named, str) or not any(is_same_issuer(each, named) for each in expected):
            text = f"{place} is of {str(named)[:DETAIL]!r}, expected {issuer[:DETAIL]!r}"
            hint = "; name the former as connect.issuer if you trust it"
            raise _failure(steps, "issuer", text + hint)
        try:
            return read_server(document, reach)
        except ValueError as error:
            raise _failure(steps, "server metadata", str(error)) from error
    return None


async def _get_document(
    url: str, name: str, reach: Reach, steps: list[DiscoveryStep]
) -> Mapping[str, Any] | None:
    """The JSON object at a URL; None, with the reason as a step, where there is none. A page of
    HTML at any path, as of web applications, is none. Raises DiscoveryFailed."""
    try:
        reach.check(url)
    except ValueError as error:
        raise _failure(steps, name, str(error)) from error
    try:
        answer = await reach.get(url)
    except RequestFailed as error:
        steps.append(DiscoveryStep(name, str(error)))
        return None
    document = _read_object(answer)
    if document is None:
        steps.append(DiscoveryStep(name, f"{url}: HTTP {answer.status}, without a JSON object"))
    return document


def _read_object(answer: Answer) -> Mapping[str, Any] | None:
    if answer.status != 200:
        return None
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _check_pkce(
    server: AuthorizationServer, steps: list[DiscoveryStep], *, by_operator: bool
) -> None:
    """`by_operator`: an operator chose the issuer; Entra ID has PKCE, and its documents do not say
    so."""
    methods = server.code_challenge_methods_supported
    if S256 in methods:
        steps.append(DiscoveryStep("PKCE", S256))
    elif methods or not (by_operator or urlsplit(server.issuer).hostname in ENTRA_HOSTS):
        listed = ", ".join(methods)[:DETAIL] or "none"
        text = f"expected {S256} among code_challenge_methods_supported, found {listed}"
        raise _failure(steps, "PKCE", text)
    else:
        steps.append(DiscoveryStep("PKCE", "not listed"))


def _default_server(origin: str) -> AuthorizationServer:
    """The places of MCP 2025-03-26, which required PKCE, for a server without metadata."""
    return AuthorizationServer(
        issuer="",
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
        code_challenge_methods_supported=(S256,),
    )


def _failure(steps: Sequence[DiscoveryStep], name: str, detail: str) -> DiscoveryFailed:
    return DiscoveryFailed([*steps, DiscoveryStep(name, detail, failed=True)])


def _strings(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        return ()
    return usable_names(value for value in values if isinstance(value, str))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
