"""What is wrong with the rules of who may do what."""

from collections.abc import Collection, Iterator

from config.policy import RULE_VARIABLES, Policy, Rule
from config.problem import KeyPath, Problem, Where, dotted
from config.settings import Settings
from schemas.expressions import InvalidExpression, compile_expression

Found = Iterator[tuple[KeyPath, str]]


def policy_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    policy = settings.policy
    found = list(_tiers(policy))
    for name, rule in policy.rules.items():
        problems = rule_problems(rule, policy, settings.toolsets)
        found += [(("rules", name, member), text) for member, text in problems]
    for below, text in found:
        key = ("policy", *below)
        yield Problem(where(key), dotted(key), text)


def rule_problems(
    rule: Rule, policy: Policy, toolsets: Collection[str]
) -> Iterator[tuple[str, str]]:
    """What is wrong with one rule, by its members."""
    if rule.when:
        try:
            compile_expression(rule.when, RULE_VARIABLES, policy.expression_steps)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"
    for tier in rule.tiers:
        if tier not in policy.tiers:
            yield "tiers", _no_tier(policy, tier)
    for toolset in rule.toolsets:
        if toolset not in toolsets:
            there = ", ".join(toolsets) or "none"
            yield "toolsets", f"expected names of toolsets ({there}), found {toolset}"


def _tiers(policy: Policy) -> Found:
    named: list[tuple[KeyPath, str]] = [
        (("default_tier",), policy.default_tier),
        (("default_clearance",), policy.default_clearance),
        *((("clearances", role), tier) for role, tier in policy.clearances.items()),
    ]
    for path, tier in named:
        if tier not in policy.tiers:
            yield path, _no_tier(policy, tier)
    if len(set(policy.tiers)) < len(policy.tiers):
        yield ("tiers",), "expected each tier once"


def _no_tier(policy: Policy, tier: str) -> str:
    return f"expected one of policy.tiers ({', '.join(policy.tiers)}), found {tier}"
