"""`toolgate token`: tokens for development, and what becomes of a token here."""

import json
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click
import jwt

from config.auth import DEVELOPMENT_ISSUER
from config.settings import Settings
from gateway.cli.common.durations import DURATION
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import json_option
from gateway.cli.common.output import out, print_json, remark, say
from gateway.cli.common.settings import settings_option
from gateway.guards.claims import claim
from registry.access.keys import PREFIX

COMMANDS = {
    "mint": ("gateway.cli.access.token:mint", "Make a token for development."),
    "show": ("gateway.cli.access.token_show:show", "Show a token, and whether it is good here."),
    "revoke": ("gateway.cli.access.revoke:revoke", "Have tokens refused before they end."),
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
    """Header and claims of a token that nobody has verified."""
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
