"""`toolgate policy`: rules of who may do what, in the settings and in the database."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from config.conflicts_policy import rule_problems
from config.decode import decode
from config.document import YamlValue, expanded
from config.kinds import kind_of
from config.policy import Rule
from config.problem import Problem, SettingsError
from config.settings import Settings
from config.types import RuleName
from gateway.cli.access.acts import Act
from gateway.cli.common.database import open_registry, run
from gateway.cli.common.failure import USAGE, fail, no_such
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.common.options import ask, json_option, yes_option
from gateway.cli.common.output import print_json, print_rows, remark, say
from gateway.cli.common.settings import settings_option
from gateway.cli.idle import Idle, idle_rules, known
from registry.access.policies import Policies, StoredRule, written

COMMANDS = {
    "explain": ("gateway.cli.access.policy_explain:explain_", "Say what somebody may do, and why."),
    "list": ("gateway.cli.access.policy:list_", "List the rules."),
    "check": ("gateway.cli.access.policy:check", "Find rules that are wrong."),
    "put": ("gateway.cli.access.policy:put", "Write a rule into the database."),
    "remove": ("gateway.cli.access.policy:remove", "Remove a rule from the database."),
}
SETTINGS, STORED = "settings", "stored"


@click.group(cls=LazyGroup, lazy=COMMANDS)
def policy() -> None:
    """Rules of who may do what, and why they decide as they do.

    Those of the settings (policy.rules) are of one gateway's file; stored ones hold at all gateways
    of the database, within a moment.
    """


@click.command(name="list")
@json_option
@settings_option
def list_(settings: Settings, as_json: bool) -> None:
    """List the rules.

    They come in the order in which they count: name, effect, where it stands, what it says.
    """
    stored = run(_stored(settings))
    found = [
        *((name, rule, SETTINGS) for name, rule in settings.policy.rules.items()),
        *((one.name, one.rule, STORED) for one in stored),
    ]
    own = settings.policy.rules.keys()
    found = [one for one in found if one[2] == SETTINGS or one[0] not in own]
    found.sort(key=lambda one: (("deny", "approve", "allow").index(one[1].effect), one[0]))
    if as_json:
        print_json([{"name": name, "of": of, **written(rule)} for name, rule, of in found])
        return
    rows = [(name, rule.effect, of, _said(rule)) for name, rule, of in found]
    print_rows(("name", "effect", "of", "what it says"), rows)
    remark(f"What no rule speaks of: {settings.policy.default} (policy.default)")


@click.command()
@json_option
@settings_option
def check(settings: Settings, as_json: bool) -> None:
    """Find stored rules that are wrong, or that rules of the settings stand before. The rules of
    the settings are checked whenever those are read.

    Rules whose patterns match nothing that there is are warned of: they do nothing.
    """
    stored, unused = run(_looked_at(settings))
    found: list[dict[str, Any]] = []
    for one in stored:
        found += [
            {"rule": one.name, "member": member, "problem": text}
            for member, text in _problems(one.rule, settings)
        ]
        if one.name in settings.policy.rules:
            text = "a rule of the settings has the same name: that one counts"
            found.append({"rule": one.name, "member": "", "problem": text})
    if as_json:
        warnings = [{"rule": one.rule, "member": one.member, "problem": one.text} for one in unused]
        print_json([*found, *({**one, "warning": True} for one in warnings)])
    for idle in unused if not as_json else ():
        click.echo(f"toolgate: warning: {idle}", err=True)
    for problem in found if not as_json else ():
        member = f".{problem['member']}" if problem["member"] else ""
        say(f"{problem['rule']}{member}: {problem['problem']}")
    if found:
        fail("there are rules that are wrong")
    if not as_json:
        say(f"{len(stored) + len(settings.policy.rules)} rules, nothing wrong.")


@click.command()
@click.argument("name")
@click.argument("rule", metavar="RULE")
@settings_option
def put(settings: Settings, name: str, rule: str) -> None:
    """Write the rule NAME into the database, where gateways find it at once. RULE is JSON or YAML
    with the members of an entry of policy.rules; "-" reads it from standard input.

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
        fail(f'{name!r} is no name of a rule: expected a-z, 0-9, "_" and "-"', USAGE)
    if name in settings.policy.rules:
        fail(f"The settings have a rule {name}: that one counts. Take another name.")
    for member, problem in _problems(wanted, settings):
        fail(f"{member}: {problem}", USAGE)
    made = run(_put(settings, name, wanted))
    say(f"{name}: {wanted.effect}, {_said(wanted)} (version {made.version}).")


@click.command()
@click.argument("name")
@yes_option
@settings_option
def remove(settings: Settings, name: str, yes: bool) -> None:
    """Remove the rule NAME from the database."""
    if not yes:
        ask("remove", f"the rule {name}")
    removed, known = run(_remove(settings, name))
    if not removed:
        if name in settings.policy.rules:
            fail(f"{name} is a rule of the settings: take it out there.")
        no_such("rule", name, known)
    say(f"Removed {name}.")


def _read(text: str) -> Rule:
    problems: list[Problem] = []
    try:
        rule = decode(expanded(YamlValue(text, "RULE", Path(), text)), kind_of(Rule), (), problems)
    except SettingsError as error:
        problems.extend(error.problems)
    if problems:
        fail("\n  ".join(map(str, problems)), USAGE)
    return msgspec.convert(rule, Rule)


def _problems(rule: Rule, settings: Settings) -> Sequence[tuple[str, str]]:
    return list(rule_problems(rule, settings.policy, settings.toolsets))


def _said(rule: Rule) -> str:
    """What it is about, on one line."""
    said: Mapping[str, Any] = {
        key: value for key, value in written(rule).items() if key not in {"effect", "reason"}
    }
    parts = [f"{key}: {_plain(value)}" for key, value in said.items()]
    return "; ".join(parts) or "everything"


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


async def _stored(settings: Settings) -> list[StoredRule]:
    async with open_registry(settings) as registry:
        return await Policies(registry.database.pool, registry.host_id).all()


async def _looked_at(settings: Settings) -> tuple[list[StoredRule], list[Idle]]:
    """The stored rules, and all rules that match nothing."""
    async with open_registry(settings) as registry:
        stored = await Policies(registry.database.pool, registry.host_id).all()
        rules = {one.name: one.rule for one in stored}
        return stored, list(idle_rules(settings, rules, await known(registry, settings)))


async def _put(settings: Settings, name: str, rule: Rule) -> StoredRule:
    async with open_registry(settings, Act("putRule", name)) as registry:
        return await Policies(registry.database.pool, registry.host_id).put(name, rule)


async def _remove(settings: Settings, name: str) -> tuple[bool, list[str]]:
    async with open_registry(settings, Act("deleteRule", name)) as registry:
        policies = Policies(registry.database.pool, registry.host_id)
        return await policies.delete(name), [one.name for one in await policies.all()]
