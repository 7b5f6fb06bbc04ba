"""Checks of token issuers, of their keys, and of the callers that are let in."""

from collections.abc import AsyncIterator, Iterator

from config.networks import is_loopback
from config.settings import Settings
from gateway.cli.common.checks import Check
from gateway.cli.serve.exposure import ANY_AUDIENCE, OPEN, takes_any_audience
from gateway.guards.token_issuers import Issuer, issuers_of
from gateway.guards.verification_keys import LocalKeys, RemoteKeys
from schemas.errors import ToolgateError


async def identity(settings: Settings) -> AsyncIterator[Check]:
    """Whether key files are readable, and remote keys can be fetched."""
    auth = settings.auth
    for check in _exposure_checks(settings):
        yield check
    if auth.mode == "none":
        if auth.allow_public:
            yield Check("auth", "warning", OPEN)
        elif is_loopback(settings.server.host):
            yield Check(
                "auth",
                "ok",
                "auth.mode is none: callers are anonymous, and only loopback is served",
            )
        return
    if auth.mode == "keys":
        yield Check("auth", "ok", "calls require an API key: toolgate keys create")
        return
    try:
        issuers = issuers_of(auth, settings.tenant.host_id, settings.server.public_url)
    except ToolgateError as error:
        yield Check("auth", "failed", str(error))
        return
    if auth.development_secret:
        hint = "for development, and on loopback only"
        yield Check("auth", "warning", f"tokens of auth.development_secret are accepted; {hint}")
    if takes_any_audience(auth):
        yield Check("auth", "warning", ANY_AUDIENCE)
    for issuer in issuers:
        if isinstance(issuer.keys, RemoteKeys):
            yield await _key_check(issuer, issuer.keys)
        elif isinstance(issuer.keys, LocalKeys) and issuer.keys.path:
            yield Check("auth", "ok", f"tokens{_of(issuer)} are checked with {issuer.keys.path}")


def _exposure_checks(settings: Settings) -> Iterator[Check]:
    """Exposure on a public address: what `serve` refuses there, and which hosts it serves."""
    host, auth = settings.server.host, settings.auth
    if is_loopback(host):
        return
    if auth.mode == "none":
        hint = "set auth.mode to jwt or keys, or server.host to 127.0.0.1"
        yield Check("auth", "failed", f"auth.mode is none, so {host} is refused: {hint}")
    elif auth.development_secret:
        hint = "remove it, or set server.host to 127.0.0.1"
        yield Check(
            "auth", "failed", f"auth.development_secret is set, so {host} is refused: {hint}"
        )
    if not settings.server.allowed_hosts:
        hint = "add the host names of this gateway, as in [gateway.example.com]"
        yield Check("hosts", "warning", f"server.allowed_hosts is empty: {hint}")


async def _key_check(issuer: Issuer, keys: RemoteKeys) -> Check:
    reason = await keys.check()
    if reason is not None:
        late = "calls with its tokens get 503 until the keys can be fetched"
        return Check("auth", "failed", f"{keys.url}: {reason}; {late}")
    count = len(keys.ring.keys) if keys.ring else 0
    keys_text = "1 key" if count == 1 else f"{count} keys"
    return Check("auth", "ok", f"tokens{_of(issuer)} are checked with {keys_text} of {keys.url}")


def _of(issuer: Issuer) -> str:
    return f" of {issuer.iss}" if issuer.iss else ""
