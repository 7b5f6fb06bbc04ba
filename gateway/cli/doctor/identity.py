"""The check of `toolgate doctor` whether those who come can be known."""

from collections.abc import AsyncIterator, Iterator

from config.loopback import is_loopback
from config.settings import Settings
from gateway.cli.doctor.local import Check
from gateway.guards.issuers import ANY_AUDIENCE, Issuer, issuers_of, takes_any_audience
from gateway.guards.jwks import RemoteKeys
from schemas.errors import ToolgateError


async def identity(settings: Settings) -> AsyncIterator[Check]:
    """Key files that can be read, and keys that can be fetched."""
    auth = settings.auth
    for check in _exposed(settings):
        yield check
    if auth.mode == "none":
        if is_loopback(settings.server.host):
            yield Check("auth", "ok", "nobody has to say who they are, so only loopback is served")
        return
    if auth.mode == "keys":
        yield Check("auth", "ok", "every call needs a key: toolgate keys create")
        return
    try:
        issuers = issuers_of(auth, settings.tenant.host_id, settings.server.public_url)
    except ToolgateError as error:
        yield Check("auth", "failed", str(error))
        return
    if auth.development_secret:
        hint = "for development, and on loopback only"
        yield Check("auth", "warning", f"tokens of auth.development_secret are good; {hint}")
    if takes_any_audience(auth):
        yield Check("auth", "warning", ANY_AUDIENCE)
    for issuer in issuers:
        if isinstance(issuer.keys, RemoteKeys):
            yield await _fetched(issuer, issuer.keys)
        elif issuer.keys.path:
            yield Check("auth", "ok", f"tokens{_of(issuer)} are checked with {issuer.keys.path}")


def _exposed(settings: Settings) -> Iterator[Check]:
    """What `toolgate serve` refuses where others can reach it, and whom it answers there."""
    host, auth = settings.server.host, settings.auth
    if is_loopback(host):
        return
    if auth.mode == "none":
        hint = "set auth.mode to jwt or keys, or server.host to 127.0.0.1"
        yield Check("auth", "failed", f"auth.mode is none, so {host} is refused: {hint}")
    elif auth.development_secret:
        hint = "take it out, or set server.host to 127.0.0.1"
        yield Check(
            "auth", "failed", f"auth.development_secret is set, so {host} is refused: {hint}"
        )
    if not settings.server.allowed_hosts:
        hint = "name what clients call this gateway, as in [gateway.example.com]"
        yield Check("hosts", "warning", f"server.allowed_hosts is empty: {hint}")


async def _fetched(issuer: Issuer, keys: RemoteKeys) -> Check:
    reason = await keys.check()
    if reason is not None:
        late = "calls with its tokens get 503 until it can"
        return Check("auth", "failed", f"{keys.url}: {reason}; {late}")
    count = len(keys.ring.keys) if keys.ring else 0
    told = "1 key" if count == 1 else f"{count} keys"
    return Check("auth", "ok", f"tokens{_of(issuer)} are checked with {told} of {keys.url}")


def _of(issuer: Issuer) -> str:
    return f" of {issuer.iss}" if issuer.iss else ""
