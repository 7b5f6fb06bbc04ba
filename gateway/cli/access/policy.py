"""`toolgate policy`: rules in the settings and in the database, and explanations of decisions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from config.access import Rule
from config.access_conflicts import rule_problems
from config.settings import Settings
from gateway.app.access_for_commands import rules_in
from gateway.app.identities import Identities
from gateway.cli.common.database import Registry, open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail, warn
from gateway.cli.common.options import json_option
from gateway.cli.common.output import print_json, remark, say
from gateway.cli.common.settings import settings_option
from gateway.cli.common.tables import print_entries
from gateway.cli.common.tool_arguments import read_object
from gateway.cli.common.unmatched_patterns import Idle, idle_rules, known_tools
from gateway.cli.local import open_operations
from gateway.cli.operations import hinting
from gateway.context import Principal

Json = dict[str, Any]
# Outcomes of rules, for people; JSON has the words of the admin API.
OUTCOMES = {
    "speaks": "applies",
    "silent": "does not apply",
    "failed": "failed",
    "waits": "depends on arguments",
}


@click.command(name="explain")
@click.option("--tool", required=True, metavar="NAME", help="Tool that is called.")
@click.option("--principal", default="anonymous", metavar="ID", help="Caller (`sub`).")
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE", help="Role of the caller; repeatable."
)
@click.option(
    "--scope", "scopes", multiple=True, metavar="SCOPE", help="Scope of the caller; repeatable."
)
@click.option("--claims", metavar="JSON", help="Further claims of the token.")
@click.option("--token", metavar="TOKEN", help="Token or API key of the caller, instead.")
@click.option("--toolset", metavar="NAME", help="Toolset whose endpoint is called.")
@click.option("--arguments", metavar="JSON", help="Arguments of the call [default: explain lists].")
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
    """Explain whether a caller may call a tool.

    The result of each rule is listed in the order of evaluation.

    \b
    Examples:
      toolgate policy explain --principal ada --role finance --tool pay
      toolgate policy explain --principal ada --tool pay --arguments '{"n": 5}'
    """
    call_arguments = _json("--arguments", arguments)
    question = {
        "tool": tool,
        "principal": principal,
        "roles": roles,
        "scopes": scopes,
        "claims": _json("--claims", claims) or {},
        "toolset": toolset,
        "arguments": call_arguments,
    }
    explanation = run(_explain_call(settings, question, token))
    if as_json:
        print_json(explanation)
        return
    reason = f": {explanation['reason']}" if explanation["reason"] else ""
    say(f"{explanation['effect']} ({explanation['rule']}){reason}", "bold")
    if call_arguments is None:
        say(f"It is {'in' if explanation['visible'] else 'not in'} the lists of the caller.")
    outcomes = explanation["outcomes"]
    columns = [(name, name, "text") for name in ("rule", "effect", "outcome", "why")]
    print_entries(columns, [{**row, "outcome": OUTCOMES[row["outcome"]]} for row in outcomes])
    if call_arguments is None and any(outcome["outcome"] == "waits" for outcome in outcomes):
        remark("Add --arguments for rules that depend on them.")


def _json(option: str, text: str | None) -> dict[str, Any] | None:
    return None if text is None else read_object(text, option)


async def _explain_call(settings: Settings, question: Json, token: str | None) -> Json:
    tenant = None
    if token is not None:
        async with open_registry(settings) as registry:
            holder = await _holder(settings, registry, token)
        tenant, question = holder.tenant, {**question, **_caller(holder)}
    async with open_operations(settings, tenant) as operations:
        call = partial(operations.call, "explain", question)
        return dict((await hinting(operations, question, call)).value)


async def _holder(settings: Settings, registry: Registry, token: str) -> Principal:
    """The principal of a token. Fails for a token that is not accepted."""
    identities = Identities(settings, lambda: None)
    for load in identities.loads.values():
        await load(registry.database.pool)
    headers = [(b"authorization", b"Bearer " + token.encode())]
    scope = {"type": "http", "path": settings.mcp.path, "headers": headers}
    identity = await identities.authenticator.identify(scope)
    if identity.refusal is not None:
        fail(f"--token: the token is refused: {identity.refusal.message}")
    return identity.principal


def _caller(holder: Principal) -> Json:
    return {
        "principal": holder.id,
        "roles": sorted(holder.roles),
        "scopes": sorted(holder.scopes),
        "claims": dict(holder.claims),
    }


@click.command()
@json_option
@settings_option
def check(settings: Settings, as_json: bool) -> None:
    """Find stored rules that are invalid, or overridden by rules of the settings. Rules of the
    settings are checked whenever the settings are read.

    Warnings name rules whose patterns match nothing.
    """
    stored, unused = run(_check_rules(settings))
    problems: list[dict[str, Any]] = []
    for name, rule in stored.items():
        problems += [
            {"rule": name, "member": member, "problem": text}
            for member, text in _problems(rule, settings)
        ]
        if name in settings.policy.rules:
            text = "a rule of the settings has the same name and overrides it"
            problems.append({"rule": name, "member": "", "problem": text})
    if as_json:
        warnings = [
            {"rule": warning.rule, "member": warning.member, "problem": warning.text}
            for warning in unused
        ]
        print_json([*problems, *({**warning, "warning": True} for warning in warnings)])
    for idle in unused if not as_json else ():
        warn(f"warning: {idle}")
    for problem in problems if not as_json else ():
        member = f".{problem['member']}" if problem["member"] else ""
        say(f"{problem['rule']}{member}: {problem['problem']}")
    if problems:
        fail("there are invalid rules")
    if not as_json:
        say(f"{len(stored) + len(settings.policy.rules)} rules, all valid.")


def _problems(rule: Rule, settings: Settings) -> Sequence[tuple[str, str]]:
    return list(rule_problems(rule, settings.policy, settings.toolsets))


async def _check_rules(settings: Settings) -> tuple[Mapping[str, Rule], Sequence[Idle]]:
    """The stored rules, and all rules without a match."""
    async with open_registry(settings) as registry:
        rules = {
            rule.name: rule.rule
            for rule in await rules_in(registry.database.pool, registry.host_id)
        }
        return rules, list(idle_rules(settings, rules, await known_tools(registry, settings)))
