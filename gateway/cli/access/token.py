"""`toolgate token`: mint, show and revoke tokens."""

import json
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import jwt
from jwt.exceptions import PyJWTError

from config.access import DEVELOPMENT_ISSUER
from config.settings import Settings
from gateway.app.access import bound_audiences
from gateway.cli.access.acts import Act
from gateway.cli.common.database import open_registry, run, settings_option
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import DURATION, json_option, tenant_option
from gateway.cli.common.output import out, print_json, remark, say
from gateway.context import Principal
from gateway.guards.claims import claim
from gateway.guards.issuers import Issuer, issuers_of
from gateway.guards.keys import KeyRing, LocalKeys, RemoteKeys
from gateway.guards.tokens import KeysMissing, Tokens
from registry.access.keys import PREFIX
from registry.access.revocations import Revocation, Revocations, Revoked, revoked


@click.command()
@click.argument("token", required=False)
@click.option("--jti", metavar="TEXT", help="The token with this `jti`.")
@click.option("--sub", metavar="NAME", help="All tokens of this principal made until now.")
@click.option("--reason", default="", metavar="TEXT", help="For those who look at it later.")
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    default="30d",
    show_default=True,
    help="How long it is remembered; no less than tokens last.",
)
@tenant_option
@settings_option
def revoke(
    settings: Settings,
    token: str | None,
    jti: str | None,
    sub: str | None,
    reason: str,
    lasts: timedelta,
    tenant: str | None,
) -> None:
    """Have TOKEN, or what the options name, refused by all gateways.

    Usually at once, and at the latest after auth.revocation_s seconds. "-" reads TOKEN from
    standard input. A name is that of a principal, as the log has it.
    """
    if sum(one is not None for one in (token, jti, sub)) != 1:
        fail("expected one of TOKEN, --jti and --sub", USAGE)
    now = datetime.now(UTC)
    if token is not None:
        jti = _jti(token)
    issued_before = now if sub is not None else None
    revocation = Revocation(
        jti, sub, issued_before=issued_before, expires=now + lasts, reason=reason
    )

    async def work() -> None:
        async with open_registry(
            settings, Act("revokeTokens", jti or sub or "", tenant)
        ) as registry:
            await Revocations(registry.database.pool, tenant or registry.host_id).add(revocation)

    run(work())
    say(f"Revoked {f'the token {jti}' if sub is None else f'all tokens of {sub}'}.")


def _jti(token: str) -> str:
    _, claims = read_token(sent(token))
    jti = claims.get("jti")
    if not isinstance(jti, str):
        fail("this token has no `jti` to tell it by; revoke all of its subject with --sub", USAGE)
    return jti


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    good: bool | None  # None: undecided
    reason: str = ""
    principal: Principal | None = None
    looked_up: bool = False  # whether revocations were checked


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
    """The verdict; `gone`: revoked tokens; None where that was not looked up."""
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
    """The revoked tokens. Showing them is safe: this user may read the registry."""
    async with open_registry(settings) as registry:
        return await revoked(registry.database.pool)


def _as_it_is(issuer: Issuer) -> Issuer:
    """The issuer with the keys known now: checking a token must not trigger a fetch."""
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


COMMANDS = {
    "mint": ("gateway.cli.access.token:mint", "Make a token for development."),
    "show": ("gateway.cli.access.token:show", "Show a token, and whether it is good here."),
    "revoke": ("gateway.cli.access.token:revoke", "Have tokens refused before they end."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def token() -> None:
    """Make tokens for development, look into tokens, and revoke them.

    \b
    A gateway to develop with, on loopback, in toolgate.yaml:
      auth:
        mode: jwt
        development_secret: ${DEVELOPMENT_SECRET}    32 characters or more
    \b
    and a call with a token of it:
      curl -H "Authorization: Bearer $(toolgate token mint --sub ada)" URL
    """


@click.command()
@click.option("--sub", metavar="NAME", required=True, help="Who it is of.")
@click.option("--scope", "scopes", metavar="TEXT", multiple=True, help="Scopes; blanks between.")
@click.option("--role", "roles", metavar="NAME", multiple=True, help="A role (auth.roles_claim).")
@click.option("--tenant", metavar="TEXT", help="What auth.tenant_claim says.")
@click.option(
    "--ttl", type=DURATION, default="1h", show_default=True, help="How long it is good: 90s, 8h."
)
@click.option("--audience", metavar="TEXT", help="Its `aud` [default: what the settings demand].")
@click.option("--endpoint", metavar="PATH", help="For auth.bind_audience: endpoint [mcp.path].")
@click.option("--claim", "more", metavar="NAME=TEXT", multiple=True, help="A further claim.")
@json_option
@settings_option
def mint(
    settings: Settings,
    sub: str,
    scopes: tuple[str, ...],
    roles: tuple[str, ...],
    tenant: str | None,
    ttl: timedelta,
    audience: str | None,
    endpoint: str | None,
    more: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a token that this gateway takes, signed with auth.development_secret.

    \b
    Examples:
      toolgate token mint --sub ada --scope "pets.read pets.write" --role ops
      toolgate token mint --sub ada --ttl 5m --claim team=blue
    """
    auth = settings.auth
    if not auth.development_secret:
        fail(
            "there is nothing to sign tokens with: set auth.development_secret to 32 random "
            "characters or more (it is for loopback alone), or have your issuer make the token",
            USAGE,
        )
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": DEVELOPMENT_ISSUER,
        "sub": sub,
        "iat": now,
        "exp": now + int(ttl.total_seconds()),
        "jti": uuid.uuid4().hex,
    }
    for_whom = audience or _audience(settings, endpoint)
    if for_whom:
        claims["aud"] = for_whom
    if scopes:
        claims["scope"] = " ".join(scopes)
    claims |= _roles(settings, roles) | _tenant(settings, tenant) | _further(more)
    for path in auth.required_claims:
        if claim(claims, path) is None:
            fail(f"auth.required_claims wants {path}: add --claim {path}=TEXT", USAGE)
    text = jwt.encode(claims, auth.development_secret, "HS256")
    if as_json:
        print_json({"token": text, "claims": claims})
        return
    out.print(text, markup=False)
    if auth.mode != "jwt":
        remark(f"auth.mode is {auth.mode}: nobody looks at tokens until it is jwt.")


def _audience(settings: Settings, endpoint: str | None) -> str:
    auth, public = settings.auth, settings.server.public_url.rstrip("/")
    if auth.bind_audience == "endpoint":
        return public + (endpoint or settings.mcp.path)
    return auth.audience or (public if auth.bind_audience == "server" else "")


def _roles(settings: Settings, roles: tuple[str, ...]) -> dict[str, Any]:
    if roles and not settings.auth.roles_claim:
        fail("--role: auth.roles_claim is empty, so that tokens say nothing of roles", USAGE)
    return {settings.auth.roles_claim: list(roles)} if roles else {}


def _tenant(settings: Settings, tenant: str | None) -> dict[str, Any]:
    auth = settings.auth
    if tenant is not None and not auth.tenant_claim:
        fail("--tenant: auth.tenant_claim is empty, so that all tokens are of one tenant", USAGE)
    if tenant is None and auth.tenant_claim:
        fail(f"auth.tenant_claim is {auth.tenant_claim}: add --tenant TEXT", USAGE)
    if tenant is not None and auth.tenants and tenant not in auth.tenants:
        fail(f"--tenant: expected one of {', '.join(auth.tenants)} (auth.tenants)", USAGE)
    return {} if tenant is None else {auth.tenant_claim: tenant}


def _further(more: tuple[str, ...]) -> dict[str, Any]:
    claims = {}
    for one in more:
        name, equals, text = one.partition("=")
        if not name or not equals:
            fail(f"--claim {one!r}: expected NAME=TEXT", USAGE)
        claims[name] = text
    return claims


def sent(text: str) -> str:
    """A token as it was given; "-" reads it from standard input."""
    return (sys.stdin.read() if text == "-" else text).strip()


def read_token(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of an unverified token."""
    try:
        found = jwt.decode_complete(text, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        if text.startswith(PREFIX):
            fail("this is an API key and no token: toolgate keys list shows what it may", USAGE)
        fail("this is no JWT: expected three parts in base64url with dots between them", USAGE)
    return found["header"], found["payload"]


def print_members(title: str, members: Mapping[str, Any]) -> None:
    say(title, "bold")
    for name, value in members.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        say(f"  {name}: {text}")
