"""`toolgate policy`: rules in the settings and in the database, and explanations of decisions."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from config.access import Rule
from config.conflicts import rule_problems
from config.decode import decode, kind_of
from config.document import Problem, SettingsError, YamlValue, expand_text
from config.settings import Settings
from config.types import RuleName
from gateway.app.access import Identities
from gateway.cli.common.acts import Act
from gateway.cli.common.database import Registry, open_registry, run, settings_option
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import print_json, print_rows, remark, say
from gateway.cli.common.patterns import Idle, idle_rules, known_tools
from gateway.context import Principal
from gateway.policy.engine import Engine, Subject
from gateway.policy.explain import Explanation, explain
from registry.access.policies import Policies, StoredRule, TooManyRules, rule_members, stored_rules
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json


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
    given = _json("--arguments", arguments)
    who = Principal(
        principal,
        settings.tenant.host_id,
        frozenset(scopes),
        _json("--claims", claims) or {},
        roles=frozenset(roles),
    )
    if toolset is not None and toolset not in settings.toolsets:
        no_such("toolset", toolset, settings.toolsets)
    explanation = run(_explain_call(settings, who, token, tool, toolset, given))
    if as_json:
        print_json(explanation)
        return
    reason = f": {explanation.reason}" if explanation.reason else ""
    say(f"{explanation.effect} ({explanation.rule}){reason}", "bold")
    if given is None:
        say(f"It is {'in' if explanation.visible else 'not in'} the lists of the caller.")
    rows = [
        (outcome.rule, outcome.effect, outcome.outcome, outcome.why or "-")
        for outcome in explanation.outcomes
    ]
    print_rows(("rule", "effect", "it is", "why"), rows)
    if given is None and any(outcome.outcome == "waits" for outcome in explanation.outcomes):
        remark("Rules that wait depend on arguments: add --arguments.")


def _json(option: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = decode_json(text.encode())
    except ParseError as error:
        fail(f"{option} is not JSON: {error.message}", USAGE)
    if not isinstance(value, dict):
        fail(f"{option} is not a JSON object", USAGE)
    return value


async def _explain_call(
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
        tool = next((tool for tool in tools if name in (tool.name, *tool.aliases)), None)
        if tool is None:
            no_such("tool", name, [tool.name for tool in tools])
        stored = await stored_rules(registry.database.pool)
        engine = Engine(settings.policy, stored.get(principal.tenant, {}))
    levels = settings.limits.json_depth
    return explain(
        engine,
        principal,
        toolset=toolset,
        subject=Subject.of(tool),
        arguments=arguments,
        levels=levels,
    )


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


COMMANDS = {
    "explain": ("gateway.cli.access.policy:explain_", "Explain the decision on a call."),
    "list": ("gateway.cli.access.policy:list_", "List the rules."),
    "check": ("gateway.cli.access.policy:check", "Find invalid rules."),
    "put": ("gateway.cli.access.policy:put", "Store a rule in the database."),
    "remove": ("gateway.cli.access.policy:remove", "Remove a rule from the database."),
}
SETTINGS, STORED = "settings", "stored"


@click.group(cls=LazyGroup, lazy=COMMANDS)
def policy() -> None:
    """List, explain and change policy rules.

    Rules of the settings (policy.rules) apply to the gateways with that file; stored rules apply to
    all gateways of the database at once.
    """


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the rules.

    They are in the order of evaluation: name, effect, origin, matchers.
    """
    stored = run(_stored_rules(settings))
    rules = [
        *((name, rule, SETTINGS) for name, rule in settings.policy.rules.items()),
        *((rule.name, rule.rule, STORED) for rule in stored),
    ]
    own = settings.policy.rules.keys()
    rules = [rule for rule in rules if rule[2] == SETTINGS or rule[0] not in own]
    rules.sort(key=lambda one: (("deny", "approve", "allow").index(one[1].effect), one[0]))
    if as_json:
        print_json([{"name": name, "of": of, **rule_members(rule)} for name, rule, of in rules])
        return
    rows = [(name, rule.effect, of, _matchers(rule)) for name, rule, of in rules]
    print_rows(("name", "effect", "origin", "matchers"), rows)
    remark(f"Calls without a matching rule: {settings.policy.default} (policy.default)")


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
    for rule in stored:
        problems += [
            {"rule": rule.name, "member": member, "problem": text}
            for member, text in _problems(rule.rule, settings)
        ]
        if rule.name in settings.policy.rules:
            text = "a rule of the settings has the same name and overrides it"
            problems.append({"rule": rule.name, "member": "", "problem": text})
    if as_json:
        warnings = [
            {"rule": warning.rule, "member": warning.member, "problem": warning.text}
            for warning in unused
        ]
        print_json([*problems, *({**warning, "warning": True} for warning in warnings)])
    for idle in unused if not as_json else ():
        click.echo(f"toolgate: warning: {idle}", err=True)
    for problem in problems if not as_json else ():
        member = f".{problem['member']}" if problem["member"] else ""
        say(f"{problem['rule']}{member}: {problem['problem']}")
    if problems:
        fail("there are invalid rules")
    if not as_json:
        say(f"{len(stored) + len(settings.policy.rules)} rules, all valid.")


@click.command()
@click.argument("name")
@click.argument("rule", metavar="RULE")
@settings_option
def put(settings: Settings, name: str, rule: str) -> None:
    """Store the rule NAME in the database; gateways apply it at once. RULE is JSON or YAML with the
    members of an entry of policy.rules; "-" reads it from standard input.

    \b
    Examples:
      toolgate policy put no-deletes '{"effect": "deny", "tools": ["delete_*"]}'
      toolgate policy put sums '{"effect": "approve", "when": "arguments.n > 9"}'
    """
    text = sys.stdin.read() if rule == "-" else rule
    wanted = _read(text)
    try:
        msgspec.convert(name, RuleName)
    except msgspec.ValidationError:
        fail(f'{name!r} is not a rule name: expected a-z, 0-9, "_" and "-"', USAGE)
    if name in settings.policy.rules:
        fail(f"the settings have a rule {name}, which overrides it: choose another name")
    for member, problem in _problems(wanted, settings):
        fail(f"{member}: {problem}", USAGE)
    made = run(_put(settings, name, wanted))
    say(f"{name}: {wanted.effect}, {_matchers(wanted)} (version {made.version}).")


@click.command()
@click.argument("name")
@yes_option
@settings_option
def remove(settings: Settings, name: str, yes: bool) -> None:
    """Remove the rule NAME from the database."""
    if not yes:
        ask("remove", f"the rule {name}")
    run(_remove(settings, name))
    say(f"Removed {name}.")


def _read(text: str) -> Rule:
    problems: list[Problem] = []
    try:
        rule = decode(
            expand_text(YamlValue(text, "RULE", directory=Path(), text=text)),
            kind_of(Rule),
            (),
            problems,
        )
    except SettingsError as error:
        problems.extend(error.problems)
    if problems:
        fail("\n  ".join(map(str, problems)), USAGE)
    return msgspec.convert(rule, Rule)


def _problems(rule: Rule, settings: Settings) -> Sequence[tuple[str, str]]:
    return list(rule_problems(rule, settings.policy, settings.toolsets))


def _matchers(rule: Rule) -> str:
    """Matchers of a rule, on one line."""
    said: Mapping[str, Any] = {
        key: value for key, value in rule_members(rule).items() if key not in {"effect", "reason"}
    }
    parts = [f"{key}: {_plain(value)}" for key, value in said.items()]
    return "; ".join(parts) or "everything"


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


async def _stored_rules(settings: Settings) -> list[StoredRule]:
    async with open_registry(settings) as registry:
        return await Policies(registry.database.pool, registry.host_id).all()


async def _check_rules(settings: Settings) -> tuple[list[StoredRule], list[Idle]]:
    """The stored rules, and all rules without a match."""
    async with open_registry(settings) as registry:
        stored = await Policies(registry.database.pool, registry.host_id).all()
        rules = {rule.name: rule.rule for rule in stored}
        return stored, list(idle_rules(settings, rules, await known_tools(registry, settings)))


async def _put(settings: Settings, name: str, rule: Rule) -> StoredRule:
    async with open_registry(settings, Act("putRule", name)) as registry:
        policies = Policies(registry.database.pool, registry.host_id)
        try:
            return await policies.put(name, rule, limit=settings.policy.stored_rules)
        except TooManyRules as error:
            fail(f"{name}: {error}")


async def _remove(settings: Settings, name: str) -> None:
    async with open_registry(settings, Act("deleteRule", name)) as registry:
        policies = Policies(registry.database.pool, registry.host_id)
        if await policies.delete(name):
            return
        if name in settings.policy.rules:
            fail(f"{name} is a rule of the settings: remove it there")
        no_such("rule", name, [rule.name for rule in await policies.all()])
