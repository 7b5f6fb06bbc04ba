"""`toolgate token`: mint, show and revoke tokens."""

import json
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import IO, Any

import click
import jwt
import msgspec
from jwt.exceptions import PyJWTError

from config.access import DEVELOPMENT_ISSUER
from config.settings import Settings
from gateway.app.access_for_commands import Revocations, revocations_in
from gateway.app.protected_resources import bound_audiences
from gateway.cli.common.database import open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option, tenant_option
from gateway.cli.common.output import out, print_json, remark, say
from gateway.cli.common.parameter_types import DURATION
from gateway.cli.common.settings import settings_option
from gateway.cli.operations import open_client
from gateway.cli.running.client import gateway_options
from gateway.context import Principal
from gateway.guards.api_keys import is_key
from gateway.guards.jwt_verifier import TokenVerifier
from gateway.guards.token_claims import claim
from gateway.guards.token_issuers import Issuer, issuers_of
from gateway.guards.verification_keys import KeyRing, KeysMissing, LocalKeys, RemoteKeys


@click.command()
@click.argument("token", required=False)
@click.option("--jti", metavar="TEXT", help="Revoke the token with this `jti`.")
@click.option("--sub", metavar="NAME", help="Revoke all tokens of this principal issued so far.")
@click.option("--reason", default="", metavar="TEXT", help="Reason, for the audit log.")
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    default="30d",
    show_default=True,
    help="Lifetime of the revocation; at least that of tokens.",
)
@tenant_option
@gateway_options(key_required=False)
@settings_option
def revoke(
    settings: Settings,
    *,
    token: str | None,
    jti: str | None,
    sub: str | None,
    reason: str,
    lasts: timedelta,
    tenant: str | None,
    url: str | None,
    key_file: IO[str] | None,
) -> None:
    """Revoke TOKEN, or the tokens that the options name, at all gateways.

    Gateways refuse them at once, at the latest after auth.revocation_s seconds. "-" reads TOKEN
    from standard input. NAME is a principal as in the log.
    """
    if sum(value is not None for value in (token, jti, sub)) != 1:
        fail("expected one of TOKEN, --jti and --sub", USAGE)
    now = datetime.now(UTC)
    if token is not None:
        jti = _jti(token)
    revocation = {"jti": jti, "subject": sub, "expires": now + lasts, "reason": reason}
    if sub is not None:
        revocation["issued_before"] = now

    async def work() -> None:
        opened = open_client(settings, url=url, key_file=key_file, tenant=tenant)
        async with opened as client:
            await client.call("revokeTokens", msgspec.to_builtins(revocation))

    run(work())
    say(f"Revoked {f'the token {jti}' if sub is None else f'all tokens of {sub}'}.")


def _jti(token: str) -> str:
    _, claims = read_token(read_text(token))
    jti = claims.get("jti")
    if not isinstance(jti, str):
        fail("this token has no `jti`; revoke all tokens of its subject with --sub", USAGE)
    return jti


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    valid: bool | None  # None: undecided
    reason: str = ""
    principal: Principal | None = None
    looked_up: bool = False  # whether revocations were checked


@click.command()
@click.argument("token")
@click.option("--endpoint", metavar="PATH", help="Path of the endpoint [default: mcp.path].")
@click.option("--registry", is_flag=True, help="Check revocations in the registry.")
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
    """Show the claims of TOKEN, and whether this gateway accepts it.

    "-" reads it from standard input, which keeps it out of process lists. Keys are fetched with
    --fetch only, and revocations are checked with --registry only. The exit code is 1 unless the
    token is valid.
    """
    token = read_text(token)
    header, claims = read_token(token)
    gone = run(_load_revocations(settings)) if registry else None
    verdict = run(_judge(settings, token, endpoint or settings.mcp.path, fetch, gone))
    if as_json:
        print_json({"header": header, "claims": claims, **_builtins(verdict)})
    else:
        print_members("header", header)
        print_members("claims", claims)
        _print_verdict(verdict)
    if not verdict.valid:
        click.get_current_context().exit(FAILED)


async def _judge(
    settings: Settings, token: str, path: str, fetch: bool, gone: Revocations | None
) -> TokenVerdict:
    """The verdict; `gone`: revoked tokens; None where that was not looked up."""
    auth = settings.auth
    if auth.mode != "jwt":
        return TokenVerdict(False, f"auth.mode is {auth.mode}: tokens are not used")
    issuers = issuers_of(auth, settings.tenant.host_id, settings.server.public_url)
    for issuer in issuers:
        if fetch and isinstance(issuer.keys, RemoteKeys):
            await issuer.keys.check()
    issuers_with_keys = [_as_it_is(issuer) for issuer in issuers]
    bound = bound_audiences(settings) if auth.bind_audience == "endpoint" else None
    tokens = TokenVerifier(auth, issuers_with_keys, time.time, bound)
    if gone is not None:
        tokens.revoke(gone)
    try:
        verified = await tokens.read(token.encode(), path)
    except KeysMissing:
        hint = "they cannot be fetched" if fetch else "--fetch fetches them"
        return TokenVerdict(None, f"the keys of its issuer are not known; {hint}")
    except (PyJWTError, ValueError, TypeError) as error:
        return TokenVerdict(False, str(error))
    if verified.principal is None:
        return TokenVerdict(
            False, "expected a principal: `sub` or the configured claim is missing or unusable"
        )
    return TokenVerdict(True, principal=verified.principal, looked_up=gone is not None)


async def _load_revocations(settings: Settings) -> Revocations:
    """The revoked tokens. Showing them is safe: this user may read the registry."""
    async with open_registry(settings) as registry:
        return await revocations_in(registry.database.pool)


def _as_it_is(issuer: Issuer) -> Issuer:
    """The issuer with the keys known now: checking a token must not trigger a fetch."""
    ring = issuer.keys.ring
    return replace(issuer, keys=LocalKeys(ring, lambda: KeyRing((), named=True)))


def _print_verdict(verdict: TokenVerdict) -> None:
    caller = verdict.principal
    if caller is None:
        outcome = "not known" if verdict.valid is None else "refused"
        say(f"{outcome}: {verdict.reason}")
        return
    say(f"valid: {caller.id} of tenant {caller.tenant}")
    say(f"  scopes: {' '.join(sorted(caller.scopes)) or '-'}")
    say(f"  roles: {' '.join(sorted(caller.roles)) or '-'}")
    if not verdict.looked_up:
        say("  revocations were not checked: add --registry")


def _builtins(verdict: TokenVerdict) -> dict[str, Any]:
    caller = verdict.principal
    facts: dict[str, Any] = {"valid": verdict.valid, "reason": verdict.reason}
    if caller is not None:
        named = {"id": caller.id, "tenant": caller.tenant}
        facts["principal"] = named | {
            "scopes": sorted(caller.scopes),
            "roles": sorted(caller.roles),
        }
    return facts


COMMANDS = {
    "mint": ("gateway.cli.access.token:mint", "Create a token for development."),
    "show": ("gateway.cli.access.token:show", "Show and verify a token."),
    "revoke": ("gateway.cli.access.token:revoke", "Revoke tokens before they expire."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def token() -> None:
    """Create tokens for development; show and revoke tokens.

    \b
    Settings of a development gateway on loopback, in toolgate.yaml:
      auth:
        mode: jwt
        development_secret: ${DEVELOPMENT_SECRET}    32 characters or more
    \b
    A request with a token:
      curl -H "Authorization: Bearer $(toolgate token mint --sub ada)" URL
    """


@click.command()
@click.option("--sub", metavar="NAME", required=True, help="Principal of the token.")
@click.option(
    "--scope", "scopes", metavar="TEXT", multiple=True, help="Scopes, separated by blanks."
)
@click.option(
    "--role", "roles", metavar="NAME", multiple=True, help="Role (auth.roles_claim); repeatable."
)
@click.option("--tenant", metavar="TEXT", help="Tenant, the value of auth.tenant_claim.")
@click.option("--ttl", type=DURATION, default="1h", show_default=True, help="Lifetime: 90s, 8h.")
@click.option("--audience", metavar="TEXT", help="Audience (`aud`) [default: from the settings].")
@click.option(
    "--endpoint", metavar="PATH", help="Path for auth.bind_audience: endpoint [default: mcp.path]."
)
@click.option(
    "--claim", "more", metavar="NAME=TEXT", multiple=True, help="Further claim; repeatable."
)
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
    """Create a token for this gateway, signed with auth.development_secret.

    \b
    Examples:
      toolgate token mint --sub ada --scope "pets.read pets.write" --role ops
      toolgate token mint --sub ada --ttl 5m --claim team=blue
    """
    auth = settings.auth
    if not auth.development_secret:
        fail(
            "no key to sign tokens: set auth.development_secret to 32 random characters or more "
            "(for loopback only), or get a token from your issuer",
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
    out.print(text)
    if auth.mode != "jwt":
        remark(f"auth.mode is {auth.mode}: tokens are used only if it is jwt.")


def _audience(settings: Settings, endpoint: str | None) -> str:
    auth, public = settings.auth, settings.server.public_url.rstrip("/")
    if auth.bind_audience == "endpoint":
        return public + (endpoint or settings.mcp.path)
    return auth.audience or (public if auth.bind_audience == "server" else "")


def _roles(settings: Settings, roles: tuple[str, ...]) -> dict[str, Any]:
    if roles and not settings.auth.roles_claim:
        fail("--role: auth.roles_claim is empty, so tokens have no roles", USAGE)
    return {settings.auth.roles_claim: list(roles)} if roles else {}


def _tenant(settings: Settings, tenant: str | None) -> dict[str, Any]:
    auth = settings.auth
    if tenant is not None and not auth.tenant_claim:
        fail("--tenant: auth.tenant_claim is empty, so all tokens belong to one tenant", USAGE)
    if tenant is None and auth.tenant_claim:
        fail(f"auth.tenant_claim is {auth.tenant_claim}: add --tenant TEXT", USAGE)
    if tenant is not None and auth.tenants and tenant not in auth.tenants:
        fail(f"--tenant: expected one of {', '.join(auth.tenants)} (auth.tenants)", USAGE)
    return {} if tenant is None else {auth.tenant_claim: tenant}


def _further(more: tuple[str, ...]) -> dict[str, Any]:
    claims = {}
    for claim_text in more:
        name, equals, text = claim_text.partition("=")
        if not name or not equals:
            fail(f"--claim {claim_text!r}: expected NAME=TEXT", USAGE)
        claims[name] = text
    return claims


def read_text(text: str) -> str:
    """A token as it was given; "-" reads it from standard input."""
    return (sys.stdin.read() if text == "-" else text).strip()


def read_token(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of an unverified token."""
    try:
        decoded = jwt.decode_complete(text, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        if is_key(text.encode()):
            fail("this is an API key, not a token: see toolgate keys list", USAGE)
        fail("this is not a JWT: expected three base64url parts separated by dots", USAGE)
    return decoded["header"], decoded["payload"]


def print_members(title: str, members: Mapping[str, Any]) -> None:
    say(title, "bold")
    for name, value in members.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        say(f"  {name}: {text}")
