"""Credentials of requests: the first alternative of a security requirement that the settings can
satisfy; otherwise none.

`credentials` and `headers` are those of a source's settings. Where a source authenticates callers,
their token satisfies a scheme, or the one that it is exchanged for. Credentials are sent only to
addresses from the settings, never to one that stands only in a description.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from msgspec.structs import replace

from config.sources import SchemeSettings
from gateway.context import Context
from gateway.http_client.token_requests import (
    AccessToken,
    ClientCredentials,
    TokenEndpoint,
    TokenFailed,
    basic,
)
from gateway.upstreams.auth.delegation import delegate
from gateway.upstreams.auth.personal_accounts import SourceAccount, fold_name, is_personal
from gateway.upstreams.auth.service_tokens import client_token
from gateway.upstreams.http.client import HttpRequest, HttpResponse
from gateway.upstreams.http.source_pools import SourcePool, SourcePools, UpstreamFailed
from schemas.binding import Credential
from schemas.source import Source

ANY = SchemeSettings(value="any")  # matches every kind of scheme that a secret can satisfy

_PROOFS = {"cookie": "Cookie"}  # headers with a credential, by its location

ALTERNATIVES_SHOWN = 4  # alternatives named in one text
_GRANT = "client_id, client_secret and token_url"
_KEYS = {  # of an entry, by the kind of the scheme
    "apiKey": "value",
    "basic": "username and password",
    "bearer": f"token, or {_GRANT}",
    "oauth2": f"token, or {_GRANT}",
    "openIdConnect": f"token, or {_GRANT}",
    "http": "value, the whole Authorization header",
}

# RFC 6265, section 4.1.1, and the "%" of what is percent-encoded already
_COOKIE_OCTETS = "!#$%&'()*+-./:<=>?@[]^_`{|}~"


Alternative = tuple[Credential, ...]
Entries = Mapping[str, SchemeSettings]


def satisfiable(
    security: tuple[Alternative, ...], credentials: Entries, headers: Collection[str]
) -> Alternative | None:
    """The alternative to satisfy, empty when a call may go without credentials; None if none can be
    satisfied."""
    for alternative in security:
        if alternative and all(entry_for(credentials, credential) for credential in alternative):
            return alternative
    for alternative in security:
        if alternative and all(
            is_satisfied(credentials, headers, credential) for credential in alternative
        ):
            return alternative
    return () if () in security else None


def satisfied_by_token(
    security: tuple[Alternative, ...], headers: Collection[str]
) -> Alternative | None:
    """The alternative that the caller's token satisfies, with the configured headers."""
    for alternative in security:
        others = [credential for credential in alternative if not takes_bearer(credential)]
        if len(others) < len(alternative) and all(
            is_satisfied({}, headers, credential) for credential in others
        ):
            return alternative
    return None


def is_satisfied(credentials: Entries, headers: Collection[str], credential: Credential) -> bool:
    """Whether an entry or a configured header satisfies `credential`."""
    if entry_for(credentials, credential):
        return True
    if credential.kind == "mutualTLS" or credential.location == "query":
        return False
    name = "cookie" if credential.location == "cookie" else credential.name.lower()
    return any(name == header.lower() for header in headers)


def entry_for(credentials: Entries, credential: Credential) -> SchemeSettings | None:
    """The entry that satisfies `credential` and fits its kind; names match exactly, else folded to
    the spelling of an environment variable."""
    entry = credentials.get(credential.scheme)
    if entry is None and credentials:
        folded = fold_name(credential.scheme)
        named = (entry for name, entry in credentials.items() if fold_name(name) == folded)
        entry = next(named, None)
    return entry if entry is not None and _fits(entry, credential) else None


def takes_bearer(credential: Credential) -> bool:
    """Whether a Bearer token satisfies the credential. Older descriptions declare an API key named
    Authorization instead."""
    if credential.kind == "apiKey":
        return (credential.location, credential.name.lower()) == ("header", "authorization")
    return credential.kind in ("bearer", "oauth2", "openIdConnect")


def missing_credentials(source: str, security: tuple[Alternative, ...]) -> str:
    """Error text: the missing credentials and how to configure them; no address and no secret."""
    stated = [alternative for alternative in security if alternative]
    needs = ", or ".join(
        " and ".join(dict.fromkeys(map(_credential_text, alternative)))
        for alternative in stated[:ALTERNATIVES_SHOWN]
    )
    return (
        f"{source} was not called: it requires the credentials {needs}, and none are configured. "
        f"{settings_hint(source, stated)}"
    )


def settings_hint(source: str, alternatives: list[Alternative]) -> str:
    """Hint: the settings for those of `alternatives` that settings can satisfy."""
    setting = f"sources.{source}"
    choices = [
        " and ".join(
            dict.fromkeys(
                f"{setting}.credentials.{credential.scheme} ({_keys(credential)})"
                for credential in alternative
            )
        )
        for alternative in alternatives
        if _is_settable(alternative)
    ]
    if choices:
        return (
            f"Set {', or '.join(choices[:ALTERNATIVES_SHOWN])}, or {setting}.headers, or run "
            f"`toolgate secrets set {source} SCHEME`."
        )
    return (
        "It requires a client certificate, which the gateway lacks: name a proxy that sends one "
        f"as {setting}.base_url, and set {setting}.require_credentials: false."
    )


def _keys(credential: Credential) -> str:
    """The keys of an entry for the credential: a bare token as the `value` of an Authorization
    header would lack its "Bearer"."""
    if credential.bare:
        return "value, or token"
    if credential.kind == "apiKey" and takes_bearer(credential):
        return "token; or value, the whole Authorization header"
    return _KEYS[credential.kind]


def settable(alternatives: Iterable[Alternative]) -> Alternative | None:
    """The first alternative that settings can satisfy."""
    return next(filter(_is_settable, alternatives), None)


def _is_settable(alternative: Alternative) -> bool:
    return all(credential.kind in _KEYS for credential in alternative)


def _credential_text(credential: Credential) -> str:
    scopes = f" (scopes {' '.join(credential.scopes)})" if credential.scopes else ""
    return f"{credential.scheme}{scopes}"


def _fits(entry: SchemeSettings, credential: Credential) -> bool:
    if credential.kind == "mutualTLS":
        return False
    if entry.value or (credential.bare and entry.token):
        return True
    if credential.kind == "basic":
        return bool(entry.username or entry.password)
    return takes_bearer(credential) and bool(entry.token or entry.client_id)


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """Headers with the credentials of a source, the same for all callers."""

    headers: Mapping[str, str]
    ends: float  # when a token among them expires, in monotonic time


def fixed_credentials(
    pool: SourcePool, security: tuple[Alternative, ...]
) -> FixedCredentials | None:
    """Headers that `Credentials.apply` adds to every request of a tool, and the configured ones.
    None
    where callers or requests differ, where no token is at hand, and where `apply` would fail."""
    if pool.by_caller or ((security or pool.headers) and not pool.trusted):
        return None
    alternative = satisfiable(security, pool.credentials, pool.headers) if security else ()
    if alternative is None and pool.require_credentials:
        return None
    headers: dict[str, str] = {}
    ends = math.inf
    for credential in alternative or ():
        entry = entry_for(pool.credentials, credential)
        if entry is None:  # a configured header satisfies it
            continue
        if credential.location in ("query", "cookie"):
            return None
        if _is_fetched(entry, credential):
            token = pool.tokens.fresh(credential.scheme)
            if token is None:
                return None
            ends = min(ends, token.ends)
            headers[credential.name] = f"Bearer {token.text}"
        else:
            headers[credential.name] = _stored_value(credential, entry)
    return FixedCredentials(pool.with_configured(headers), ends)


class Credentials:
    def __init__(self, connections: SourcePools) -> None:
        self._connections = connections

    async def apply(
        self,
        source: Source,
        security: tuple[Alternative, ...],
        request: HttpRequest,
        context: Context,
    ) -> HttpRequest:
        """`request` with the credentials of `security`. Raises UpstreamFailed if any is missing."""
        pool = self._connections.of(source)
        if pool.connector is not None:
            account = await pool.connector.account(source, security, context)
            if account is not None:
                return await _add_account(pool, security, request, account)
            stated, security = security, _impersonal(pool, security)
            names = (each.name for alternative in stated for each in alternative)
            request = replace(request, proofs=tuple(names))
            if stated and not security and pool.require_credentials:
                text = f"{source.name} was not called: nobody can connect what it requires"
                raise UpstreamFailed(text)
        elif pool.by_caller:
            return _by_caller(pool, security, request, context)
        if not security:
            return request
        alternative = satisfiable(security, pool.credentials, pool.headers)
        if alternative is None:
            if pool.require_credentials:
                raise UpstreamFailed(missing_credentials(source.name, security))
            return request
        for credential in alternative:
            if entry := entry_for(pool.credentials, credential):
                request = await _with(pool, credential, entry, request)
        return request

    async def renew(
        self,
        source: Source,
        security: tuple[Alternative, ...],
        request: HttpRequest,
        response: HttpResponse,
    ) -> bool:
        """Whether a retry after a refusal gets new credentials: of a person's account, or, after a
        401, where the gateway fetched the token of `request`, which is invalidated. Raises
        ConnectionRequired."""
        pool, status = self._connections.of(source), response.status
        if pool.connector is not None and request.account is not None:
            challenge = response.headers.get("WWW-Authenticate", "")
            account = await pool.connector.renew(
                request.account, status=status, challenge=challenge
            )
            return account is not None
        if status != 401:
            return False
        return self.invalidate(source, security, request.headers)

    def invalidate(
        self, source: Source, security: tuple[Alternative, ...], headers: Mapping[str, str]
    ) -> bool:
        """Whether a token among `headers` is one that the gateway fetched; it is
        invalidated."""
        pool = self._connections.of(source)
        if pool.by_caller or not security:
            return False  # the client handles it, or no credentials were sent
        fetched = False
        for credential in satisfiable(security, pool.credentials, pool.headers) or ():
            entry = entry_for(pool.credentials, credential)
            if entry is not None and _is_fetched(entry, credential):
                _, _, token = headers.get(credential.name, "").partition(" ")
                fetched |= pool.tokens.invalidate(credential.scheme, token)
        return fetched


def _by_caller(
    pool: SourcePool, security: tuple[Alternative, ...], request: HttpRequest, context: Context
) -> HttpRequest:
    """The request with the caller's token, which is sent even where no scheme requires it:
    descriptions often omit global ones."""
    alternative = satisfied_by_token(security, pool.headers)
    if alternative is None:
        if pool.require_credentials and security and () not in security:
            raise UpstreamFailed(_refusal(pool.source, security))
        alternative = ()
    scopes = tuple(
        scope
        for credential in alternative
        if takes_bearer(credential)
        for scope in credential.scopes
    )
    return replace(request, caller=delegate(pool, context), scopes=scopes)


def account_headers(
    pool: SourcePool, security: tuple[Alternative, ...], account: SourceAccount
) -> Mapping[str, str] | None:
    """The headers by which an account is proved in requests of a tool; None where more is needed
    than headers, or a token is fetched. A source that declares no security has one in its
    settings."""
    if not security:
        if not pool.trusted:
            raise UpstreamFailed(pool.untrusted_text("accounts of people"))
        return account.headers
    pairs = _chosen_entries(pool, security, account)
    if not pool.trusted or any(
        each.location != "header" or _is_fetched(entry, each) for each, entry in pairs
    ):
        return None
    return {each.name: _stored_value(each, entry) for each, entry in pairs}


async def _add_account(
    pool: SourcePool,
    security: tuple[Alternative, ...],
    request: HttpRequest,
    account: SourceAccount,
) -> HttpRequest:
    """The request with what a person has connected."""
    added = account_headers(pool, security, account)
    if added is not None:
        headers = {**request.headers, **added}
        return replace(request, headers=headers, proofs=tuple(added), account=account)
    pairs = _chosen_entries(pool, security, account)
    for credential, entry in pairs:
        request = await _with(pool, credential, entry, request)
    proofs = tuple(_PROOFS.get(each.location, each.name) for each, _ in pairs)
    return replace(request, proofs=proofs, account=account)


def _chosen_entries(
    pool: SourcePool, security: tuple[Alternative, ...], account: SourceAccount
) -> list[tuple[Credential, SchemeSettings]]:
    """The schemes of the first alternative that an account satisfies, and their entries."""
    entries = account.with_entries(pool.credentials)
    alternative = satisfiable(account.select(security), entries, ()) or ()
    return [(each, entry) for each in alternative if (entry := entry_for(entries, each))]


def _impersonal(pool: SourcePool, security: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """The alternatives that the operator's credentials may satisfy."""
    return tuple(
        alternative
        for alternative in security
        if not any(is_personal(each.scheme, pool.personal) for each in alternative)
    )


def _refusal(source: str, security: tuple[Alternative, ...]) -> str:
    """Error text: why no call can be made for a caller. Nobody fills arguments that credentials
    filled before callers authenticated themselves."""
    if any(credential.bare for alternative in security for credential in alternative):
        return (
            f"{source} was not called: it was imported with credentials that fill arguments, and "
            f"callers authenticate themselves there now. Import it again: toolgate sources refresh "
            f"{source}"
        )
    return missing_credentials(source, security)


async def _with(
    pool: SourcePool, credential: Credential, entry: SchemeSettings, request: HttpRequest
) -> HttpRequest:
    if not pool.trusted:
        raise UpstreamFailed(pool.untrusted_text("credentials"))
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


def _stored_value(credential: Credential, entry: SchemeSettings) -> str:
    """The value for `credential` of an entry whose token is not fetched."""
    if entry.value:
        return entry.value
    if credential.kind == "basic":
        return basic(entry.username or "", entry.password or "")
    return entry.token or "" if credential.bare else f"Bearer {entry.token}"


async def _value(pool: SourcePool, credential: Credential, entry: SchemeSettings) -> str:
    """Header, query or cookie value for `credential`. Raises UpstreamFailed."""
    if not _is_fetched(entry, credential):
        return _stored_value(credential, entry)
    scheme, public = credential.scheme, pool.confines(entry)

    async def fetch() -> AccessToken:
        login = ClientCredentials(
            entry.token_url or "",
            entry.client_id or "",
            client_secret=entry.client_secret or "",
            client_auth=entry.client_auth,
            public=public,
        )
        endpoint = TokenEndpoint(login, scheme, pool.timeout_s, pool.tls.tokens)
        # a separate pool: a call that holds a connection may wait for this request
        http = pool.public if public else pool.streams
        return await client_token(endpoint, http, " ".join(entry.scopes))

    try:
        return f"Bearer {await pool.tokens.get(scheme, fetch)}"
    except TokenFailed as error:
        raise UpstreamFailed(f"{pool.source} {error}") from error


def _is_fetched(entry: SchemeSettings, credential: Credential) -> bool:
    return takes_bearer(credential) and not entry.value and not entry.token
