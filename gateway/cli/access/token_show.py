"""`toolgate token show`: what a token says, and what this gateway makes of it."""

import time
from dataclasses import dataclass, replace
from typing import Any

import click
from jwt.exceptions import PyJWTError

from config.settings import Settings
from gateway.app.identity import bound_audiences
from gateway.cli.access.token import print_members, read_token, sent
from gateway.cli.common.database import open_registry, run
from gateway.cli.common.failure import FAILED
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, say
from gateway.cli.common.settings import settings_option
from gateway.context import Principal
from gateway.guards.issuers import Issuer, issuers_of
from gateway.guards.jwks import RemoteKeys
from gateway.guards.keys import KeyRing, LocalKeys
from gateway.guards.tokens import KeysMissing, Tokens
from registry.access.revocations import Revoked, revoked


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    good: bool | None  # None: that cannot be told
    reason: str = ""
    principal: Principal | None = None
    looked_up: bool = False  # whether it was revoked


@click.command()
@click.argument("token")
@click.option("--endpoint", metavar="PATH", help="Where it is to be used [default: mcp.path].")
@click.option("--registry", is_flag=True, help="Look up whether it was revoked.")
@click.option("--fetch", is_flag=True, help="Fetch keys from auth.jwks_url.")
@json_option
@settings_option
def show(
    settings: Settings,
    token: str,
    endpoint: str | None,
    registry: bool,
    fetch: bool,
    as_json: bool,
) -> None:
    """Show what TOKEN says, and whether this gateway would take it.

    "-" reads it from standard input, which keeps it out of lists of processes. Nothing is asked
    over the network without --fetch, and whether it was revoked is looked up with --registry only.
    The exit code is 1 unless it is good.
    """
    token = sent(token)
    header, claims = read_token(token)
    gone = run(_revoked(settings)) if registry else None
    verdict = run(_judge(settings, token, endpoint or settings.mcp.path, fetch, gone))
    if as_json:
        print_json({"header": header, "claims": claims, **_builtins(verdict)})
    else:
        print_members("header", header)
        print_members("claims", claims)
        _tell(verdict)
    if not verdict.good:
        click.get_current_context().exit(FAILED)


async def _judge(
    settings: Settings, token: str, path: str, fetch: bool, gone: Revoked | None
) -> TokenVerdict:
    """`gone`: what was revoked; None where that was not looked up."""
    auth = settings.auth
    if auth.mode != "jwt":
        return TokenVerdict(False, f"auth.mode is {auth.mode}: no token is looked at")
    issuers = issuers_of(auth, settings.tenant.host_id, settings.server.public_url)
    for issuer in issuers:
        if fetch and isinstance(issuer.keys, RemoteKeys):
            await issuer.keys.check()
    known = [_as_it_is(issuer) for issuer in issuers]
    bound = bound_audiences(settings) if auth.bind_audience == "endpoint" else None
    tokens = Tokens(auth, known, time.time, bound)
    if gone is not None:
        tokens.revoke(gone)
    try:
        read = await tokens.read(token.encode(), path)
    except KeysMissing:
        hint = "they cannot be fetched" if fetch else "--fetch has them fetched"
        return TokenVerdict(None, f"the keys of its issuer are not known; {hint}")
    except (PyJWTError, ValueError, TypeError) as error:
        return TokenVerdict(False, str(error))
    if read.principal is None:
        return TokenVerdict(
            False, "it names nobody: `sub` or another name that can be used is missing"
        )
    return TokenVerdict(True, principal=read.principal, looked_up=gone is not None)


async def _revoked(settings: Settings) -> Revoked:
    """What was revoked. Here that may be told: who runs this may read the registry."""
    async with open_registry(settings) as registry:
        return await revoked(registry.database.pool)


def _as_it_is(issuer: Issuer) -> Issuer:
    """With the keys that are known now: a token is no reason to fetch any."""
    ring = issuer.keys.ring
    return replace(issuer, keys=LocalKeys(ring, lambda: KeyRing((), named=True)))


def _tell(verdict: TokenVerdict) -> None:
    who = verdict.principal
    if who is None:
        outcome = "not known" if verdict.good is None else "refused"
        say(f"{outcome}: {verdict.reason}")
        return
    say(f"good: {who.id} of tenant {who.tenant}")
    say(f"  scopes: {' '.join(sorted(who.scopes)) or '-'}")
    say(f"  roles: {' '.join(sorted(who.roles)) or '-'}")
    if not verdict.looked_up:
        say("  whether it was revoked was not looked up: --registry does")


def _builtins(verdict: TokenVerdict) -> dict[str, Any]:
    who = verdict.principal
    told: dict[str, Any] = {"good": verdict.good, "reason": verdict.reason}
    if who is not None:
        named = {"id": who.id, "tenant": who.tenant}
        told["principal"] = named | {"scopes": sorted(who.scopes), "roles": sorted(who.roles)}
    return told
