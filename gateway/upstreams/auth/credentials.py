"""Credentials into requests: the first alternative of which every scheme has an entry in
`sources.NAME.credentials`; else one that `sources.NAME.headers` makes up for; else none, where the
operation allows that. Otherwise nothing is sent. Where a source wants to know its callers, their
token satisfies a scheme, or what it is exchanged for.

They go only where the settings say that the source is, never where only its description does.
"""

from urllib.parse import quote

from msgspec.structs import replace

from config.sources import SchemeSettings
from gateway.context import Context
from gateway.upstreams.auth.delegation import on_behalf
from gateway.upstreams.auth.requirements import (
    Alternative,
    bears,
    borne,
    chosen,
    entry_for,
    refusal,
)
from gateway.upstreams.auth.token_endpoint import (
    AccessToken,
    Login,
    TokenEndpoint,
    TokenFailed,
    basic,
    client_token,
)
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.connections import Connections, SourcePool, UpstreamFailed
from schemas.binding import Credential
from schemas.source import Source

# RFC 6265, section 4.1.1, and the "%" of what is percent-encoded already
_COOKIE_OCTETS = "!#$%&'()*+-./:<=>?@[]^_`{|}~"


class Credentials:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def apply(
        self,
        source: Source,
        security: tuple[Alternative, ...],
        request: HttpRequest,
        context: Context,
    ) -> HttpRequest:
        """`request` with what `security` wants. Raises UpstreamFailed that says what is missing."""
        pool = self._connections.of(source)
        if pool.by_caller:
            return _by_caller(pool, security, request, context)
        if not security:
            return request
        alternative = chosen(security, pool.credentials, pool.headers)
        if alternative is None:
            if pool.require_credentials:
                raise UpstreamFailed(refusal(source.name, security))
            return request
        for credential in alternative:
            if entry := entry_for(pool.credentials, credential):
                request = await _with(pool, credential, entry, request)
        return request

    def renewed(
        self, source: Source, security: tuple[Alternative, ...], request: HttpRequest
    ) -> bool:
        """The service answered `request`, which `apply` made, with a 401. Whether it had a token
        that the gateway fetched, and `apply` gets another one now."""
        pool = self._connections.of(source)
        if pool.by_caller or not security:
            return False  # the client has seen to it, or nothing went along
        fetched = False
        for credential in chosen(security, pool.credentials, pool.headers) or ():
            entry = entry_for(pool.credentials, credential)
            if entry is not None and _is_fetched(entry, credential):
                _, _, token = request.headers.get(credential.name, "").partition(" ")
                fetched |= pool.tokens.forget(credential.scheme, token)
        return fetched


def _by_caller(
    pool: SourcePool, security: tuple[Alternative, ...], request: HttpRequest, context: Context
) -> HttpRequest:
    """Descriptions often leave out what every operation wants: the token goes along with all."""
    alternative = borne(security, pool.headers)
    if alternative is None:
        if pool.require_credentials and security and () not in security:
            raise UpstreamFailed(refusal(pool.source, security))
        alternative = ()
    scopes = tuple(scope for one in alternative if bears(one) for scope in one.scopes)
    return replace(request, caller=on_behalf(pool, context), scopes=scopes)


async def _with(
    pool: SourcePool, credential: Credential, entry: SchemeSettings, request: HttpRequest
) -> HttpRequest:
    if not pool.trusted:
        raise UpstreamFailed(pool.untrusted("credentials"))
    value = await _value(pool, credential, entry)
    match credential.location:
        case "query":
            joint = "&" if "?" in request.target else "?"
            pair = f"{quote(credential.name, safe='')}={quote(value, safe='')}"
            return replace(request, target=f"{request.target}{joint}{pair}")
        case "cookie":
            pair = f"{credential.name}={quote(value, safe=_COOKIE_OCTETS)}"
            cookies = "; ".join(filter(None, (request.headers.get("Cookie"), pair)))
            return replace(request, headers={**request.headers, "Cookie": cookies})
        case _:
            return replace(request, headers={**request.headers, credential.name: value})


async def _value(pool: SourcePool, credential: Credential, entry: SchemeSettings) -> str:
    """What goes into the place of `credential`. Raises UpstreamFailed."""
    if entry.value:
        return entry.value
    if credential.kind == "basic":
        return basic(entry.username or "", entry.password or "")
    if entry.token:
        return f"Bearer {entry.token}"
    scheme, public = credential.scheme, pool.confines(entry)

    async def fetch() -> AccessToken:
        login = Login(
            entry.token_url or "",
            entry.client_id or "",
            entry.client_secret or "",
            entry.client_auth,
            public,
        )
        endpoint = TokenEndpoint(login, scheme, pool.timeout_s, pool.tls.tokens)
        # not from the pool of calls: one of those may wait for this
        http = pool.public if public else pool.streams
        return await client_token(endpoint, http, " ".join(entry.scopes))

    try:
        return f"Bearer {await pool.tokens.get(scheme, fetch)}"
    except TokenFailed as error:
        raise UpstreamFailed(f"{pool.source} {error}") from error


def _is_fetched(entry: SchemeSettings, credential: Credential) -> bool:
    return bears(credential) and not entry.value and not entry.token
