"""Delegation to a source, where the settings require it: the caller's own token, or one that it is
exchanged for."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gateway.context import Context
from gateway.http_client.token_requests import CONSENT_REQUIRED, INTERACTIONS, TokenFailed
from gateway.upstreams.auth.caller import (
    Caller,
    NoCaller,
    audiences_of,
    bare,
    caller_of,
    logged_in_caller,
)
from gateway.upstreams.auth.service_tokens import SourceExchange
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed
from schemas.errors import ClaimsRequired, ConnectionRequired, Fault
from schemas.source import Source

AUTHORIZATION = "Authorization"
LINK_S = 600.0  # for a person to log in again, as clients are told; the link itself does not end
SCOPE_TOKEN = "X-Scope-Token"  # noqa: S105 - the name of a header

Headers = Mapping[str, str]
NONE: Headers = {}


async def on_behalf(pool: SourcePool, source: Source, context: Context) -> Caller | None:
    """The caller to authenticate as at a source; None where the source gets no caller token. Raises
    UpstreamFailed where one is required and must not be sent, and what a Connector raises."""
    if not pool.by_caller:
        return None
    if pool.connector is not None:
        if not pool.trusted:
            raise UpstreamFailed(pool.untrusted_text("accounts of people"))
        account = await pool.connector.account(source, (), context)
        return None if account is None else Caller("", account.key, account=account)
    return delegate(pool, context)


def delegate(pool: SourcePool, context: Context) -> Caller:
    """The caller whose own token a source gets, or one that it is exchanged for. Raises
    UpstreamFailed."""
    key = "exchange" if pool.exchange is not None else "forward_token"
    if not pool.trusted:
        raise UpstreamFailed(pool.untrusted_text(key))
    try:
        if pool.exchange is None:
            return caller_of(context)
        logins, principal = pool.login_tokens, context.principal
        if logins is not None and context.identity.verified and logins.has_issued(principal):
            return logged_in_caller(context, logins)
        caller, refusal = caller_of(context), pool.exchange.profile.refusal(principal.claims)
        if refusal:
            raise NoCaller(refusal)
        return caller
    except NoCaller as why:
        raise UpstreamFailed(
            f"{pool.source} was not called: it requires the caller's own token "
            f"(sources.{pool.source}.{key}), and {why}"
        ) from why


async def auth_headers(
    pool: SourcePool, caller: Caller | None, scopes: Iterable[str] = ()
) -> Headers:
    """Headers that authenticate `caller`; None: the gateway itself. Raises UpstreamFailed, and
    ClaimsRequired or ConnectionRequired where a person has to log in again."""
    if caller is not None and caller.account is not None:
        return caller.account.headers
    if pool.exchange is None:
        return _passed_on(pool, caller) if pool.forward_token and caller is not None else NONE
    try:
        if caller is not None:
            token = await pool.exchange.token(pool.streams, caller, scopes)
        elif pool.exchange.has_own and pool.trusted:
            token = await pool.exchange.own(pool.streams)
        else:
            return NONE
    except TokenFailed as error:
        if caller is not None and error.error in INTERACTIONS:
            raise _interaction(pool, pool.exchange, caller, error) from error
        raise UpstreamFailed(f"{pool.source} {error}") from error
    return {AUTHORIZATION: f"Bearer {token}"}


async def renew_caller(
    pool: SourcePool,
    caller: Caller,
    headers: Headers,
    *,
    status: int,
    challenge: str,
    scopes: Iterable[str] = (),
) -> Caller | None:
    """The caller with whom a retry may succeed after a 401 or 403 to a request with the `headers`
    of `auth_headers`; None where it cannot. `challenge`: the WWW-Authenticate. Raises what a
    Connector raises."""
    if caller.account is not None and pool.connector is not None:
        account = await pool.connector.renew(caller.account, status=status, challenge=challenge)
        return None if account is None else replace(caller, account=account)
    return caller if status == 401 and invalidate_token(pool, caller, headers, scopes) else None


def invalidate_token(
    pool: SourcePool, caller: Caller | None, headers: Headers, scopes: Iterable[str] = ()
) -> bool:
    """Whether `auth_headers` will give new headers after a 401 to a request with its `headers`."""
    if pool.exchange is None or AUTHORIZATION not in headers:
        return False
    token = bare(headers[AUTHORIZATION])
    if caller is None:
        return pool.exchange.own_rejected(token)
    return pool.exchange.reject(caller, scopes, token)


def login_fault(source: str, url: str, reason: str) -> ConnectionRequired:
    """The fault of a call whose person has to log in again at `url`."""
    ends = datetime.now(UTC) + timedelta(seconds=LINK_S)
    text = f"{source} needs another login of you. Open {url}, then call again."
    return ConnectionRequired(
        text, url=url, source=source, reason=reason, expires=ends.isoformat(timespec="seconds")
    )


def _interaction(
    pool: SourcePool, exchange: SourceExchange, caller: Caller, error: TokenFailed
) -> Fault | UpstreamFailed:
    """The failure of a call before which its person has to do something in a browser."""
    is_consent = error.error == CONSENT_REQUIRED
    if caller.person is not None and (
        url := caller.person.tokens.link(
            pool.source, error.claims, exchange.client_id if is_consent else ""
        )
    ):
        return login_fault(pool.source, url, "scopes" if is_consent else "expired")
    if error.claims:
        text = f"{pool.source} needs another login of you, such as one with a second factor"
        return ClaimsRequired(f"{text}: log in again, then call again.", error.claims)
    advice = "log in again"
    if is_consent:
        advice = "an administrator has to allow the gateway the permissions there (consent)"
    return UpstreamFailed(f"{pool.source} was not called: {advice}")


def _passed_on(pool: SourcePool, caller: Caller) -> Headers:
    if not pool.same_trust_domain and _is_ours(pool, caller):
        raise UpstreamFailed(
            f"{pool.source} was not called: the caller's token was issued for this gateway, and is "
            f"not passed on. Set sources.{pool.source}.exchange, or "
            f"sources.{pool.source}.same_trust_domain where both are one"
        )
    headers = {AUTHORIZATION: f"Bearer {caller.token}"}
    if caller.scope_token is not None:
        headers[SCOPE_TOKEN] = caller.scope_token
    return headers


def _is_ours(pool: SourcePool, caller: Caller) -> bool:
    scope_token = caller.scope_token
    return pool.own.among(caller.audiences) or (
        scope_token is not None and pool.own.among(audiences_of(bare(scope_token)))
    )
