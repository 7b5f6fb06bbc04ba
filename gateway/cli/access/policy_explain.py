"""`toolgate policy explain`: what somebody may do, and why."""

from typing import Any

import click

from config.settings import Settings
from gateway.app.identity import Identities
from gateway.cli.common.database import Registry, open_registry, run
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, print_rows, remark, say
from gateway.cli.common.settings import settings_option
from gateway.context import Principal
from gateway.policy.engine import Engine
from gateway.policy.explain import Explanation, explain
from gateway.policy.rules import Subject
from registry.access.policies import stored_rules
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json


@click.command(name="explain")
@click.option("--tool", required=True, metavar="NAME", help="What is to be called.")
@click.option("--principal", default="anonymous", metavar="ID", help="Who calls (`sub`).")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="One of theirs.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="One of theirs.")
@click.option("--claims", metavar="JSON", help="All else that their token says.")
@click.option("--token", metavar="TOKEN", help="Instead: the token, or key, that they call with.")
@click.option("--toolset", metavar="NAME", help="At whose endpoint.")
@click.option("--arguments", metavar="JSON", help="Of the call; else it is about lists.")
@json_option
@settings_option
def explain_(
    settings: Settings,
    tool: str,
    principal: str,
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    claims: str | None,
    token: str | None,
    toolset: str | None,
    arguments: str | None,
    as_json: bool,
) -> None:
    """Say whether somebody may call a tool, and why.

    What each rule says of it comes in the order in which the rules count.

    \b
    Examples:
      toolgate policy explain --principal ada --role finance --tool pay
      toolgate policy explain --principal ada --tool pay --arguments '{"n": 5}'
    """
    given = _json("--arguments", arguments)
    who = Principal(
        principal,
        settings.tenant.host_id,
        frozenset(scopes),
        _json("--claims", claims) or {},
        frozenset(roles),
    )
    if toolset is not None and toolset not in settings.toolsets:
        no_such("toolset", toolset, settings.toolsets)
    found = run(_explained(settings, who, token, tool, toolset, given))
    if as_json:
        print_json(found)
        return
    reason = f": {found.reason}" if found.reason else ""
    say(f"{found.effect} ({found.rule}){reason}", "bold")
    if given is None:
        say(f"It is {'in' if found.visible else 'not in'} their lists.")
    rows = [(one.rule, one.effect, one.said, one.why or "-") for one in found.opinions]
    print_rows(("rule", "effect", "it is", "why"), rows)
    if given is None and any(one.said == "waits" for one in found.opinions):
        remark("Rules that wait look at arguments: give some with --arguments.")


def _json(option: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = decode_json(text.encode())
    except ParseError as error:
        fail(f"{option} is no JSON: {error.message}", USAGE)
    if not isinstance(value, dict):
        fail(f"{option} is no JSON object", USAGE)
    return value


async def _explained(
    settings: Settings,
    principal: Principal,
    token: str | None,
    name: str,
    toolset: str | None,
    arguments: dict[str, Any] | None,
) -> Explanation:
    async with open_registry(settings) as registry:
        if token is not None:
            principal = await _holder(settings, registry, token)
        tools = await registry.store.tools(principal.tenant)
        tool = next((one for one in tools if name in (one.name, *one.aliases)), None)
        if tool is None:
            no_such("tool", name, [one.name for one in tools])
        stored = await stored_rules(registry.database.pool)
        engine = Engine(settings.policy, stored.get(principal.tenant, {}))
    levels = settings.limits.json_depth
    return explain(engine, principal, toolset, Subject.of(tool), arguments, levels)


async def _holder(settings: Settings, registry: Registry, token: str) -> Principal:
    """Who calls with it. Fails where nobody comes in with it."""
    identities = Identities(settings, lambda: None)
    for load in identities.loads.values():
        await load(registry.database.pool)
    headers = [(b"authorization", b"Bearer " + token.encode())]
    scope = {"type": "http", "path": settings.mcp.path, "headers": headers}
    identity = await identities.authenticator.identify(scope)
    if identity.refusal is not None:
        fail(f"nobody comes in with this token: {identity.refusal.message}")
    return identity.principal
