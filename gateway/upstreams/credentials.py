"""Credentials into requests: the first alternative of which every scheme has an entry in
`sources.NAME.credentials`; else one that `sources.NAME.headers` makes up for; else none, where the
operation allows that. Otherwise nothing is sent.

They go only where the settings say that the source is, never where only its description does.
"""

from urllib.parse import quote

from msgspec.structs import replace

from config.settings import SchemeSettings
from gateway.upstreams.client import HttpRequest
from gateway.upstreams.connections import Connections, Pool, UpstreamFailed
from gateway.upstreams.requirements import Alternative, bears, chosen, entry_for, refusal
from gateway.upstreams.tokens import TokenFailed, basic
from schemas.binding import Credential
from schemas.source import Source

# RFC 6265, section 4.1.1, and the "%" of what is percent-encoded already
_COOKIE_OCTETS = "!#$%&'()*+-./:<=>?@[]^_`{|}~"


class Credentials:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def apply(
        self, source: Source, security: tuple[Alternative, ...], request: HttpRequest
    ) -> HttpRequest:
        """`request` with what `security` wants. Raises UpstreamFailed that says what is missing."""
        if not security:
            return request
        pool = self._connections.of(source)
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
        fetched = False
        for credential in chosen(security, pool.credentials, pool.headers) or ():
            entry = entry_for(pool.credentials, credential)
            if entry is not None and _is_fetched(entry, credential):
                _, _, token = request.headers.get(credential.name, "").partition(" ")
                fetched |= pool.tokens.forget(credential.scheme, token)
        return fetched


async def _with(
    pool: Pool, credential: Credential, entry: SchemeSettings, request: HttpRequest
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


async def _value(pool: Pool, credential: Credential, entry: SchemeSettings) -> str:
    """What goes into the place of `credential`. Raises UpstreamFailed."""
    if entry.value:
        return entry.value
    if credential.kind == "basic":
        return basic(entry.username or "", entry.password or "")
    if entry.token:
        return f"Bearer {entry.token}"
    try:
        # not from the pool of calls: one of those may wait for this
        return f"Bearer {await pool.tokens.get(pool.streams, credential.scheme, entry)}"
    except TokenFailed as error:
        raise UpstreamFailed(f"{pool.source} {error}") from error


def _is_fetched(entry: SchemeSettings, credential: Credential) -> bool:
    return bears(credential) and not entry.value and not entry.token
