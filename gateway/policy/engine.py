"""Policy engine: evaluates the rules of one tenant for a caller and a tool. Pure.

`deny` takes precedence over `approve`, that over `allow`; `policy.default` applies if no rule
matches. A tool above the caller's clearance is always denied; a destructive one needs an approval
with `policy.approve_destructive`. Rules over arguments do not hide a tool: they are evaluated per
call.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import json

from config.access import Policy, Rule
from gateway.context import Principal
from gateway.policy.rules import CompiledRule, Effect, Subject, Values, facts_of

BUILT_IN = "built_in"  # decision for built-in tools: no rule applies to them
DEFAULT, TIERS, DESTRUCTIVE = "policy.default", "policy.tiers", "policy.approve_destructive"


@dataclass(frozen=True, slots=True)
class CallerStanding:
    """A caller as the rules see it: equal for callers whom they treat alike."""

    key: tuple[Any, ...]
    rules: tuple[CompiledRule, ...]  # that apply to the caller, by precedence
    clearance: int  # rank of the most sensitive permitted tier
    principal: Mapping[str, Any] | None  # for expressions; None: claims too large


@dataclass(frozen=True, slots=True)
class Decision:
    effect: Effect
    rule: str  # name of the deciding rule
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolVerdict:
    """Partial decision on a caller and a tool, before arguments are known."""

    decision: Decision  # if no rule of `later` matches
    later: tuple[CompiledRule, ...] = ()  # rules over arguments, deny first
    approved: bool = False  # turn "allow" into "approve"

    @property
    def hidden(self) -> bool:
        """Whether the call is denied for all arguments."""
        return self.decision.effect == "deny" and all(one.effect == "deny" for one in self.later)

    def decided(self, values: Values | None) -> Decision:
        """Decide with the variables of expressions, arguments included; None: too large."""
        found = self.decision
        for rule in self.later:
            if rule.holds(values):
                found = Decision(rule.effect, rule.name, rule.rule.reason)
                break
        if self.approved and found.effect == "allow":
            return Decision("approve", DESTRUCTIVE)
        return found


class Engine:
    def __init__(self, policy: Policy, stored: Mapping[str, Rule]) -> None:
        """Rules of the settings override stored ones of the same name. Raises
        InvalidExpression for a rule of the settings."""
        steps = policy.expression_steps
        own = {name: CompiledRule(name, rule, steps) for name, rule in policy.rules.items()}
        kept = {
            name: CompiledRule(name, rule, steps, stored=True)
            for name, rule in stored.items()
            if name not in own
        }
        self.rules: tuple[CompiledRule, ...] = tuple(
            sorted([*own.values(), *kept.values()], key=_in_order)
        )
        self.policy = policy
        self.digest = _digest(policy, self.rules)
        self._ranks = {tier: rank for rank, tier in enumerate(policy.tiers)}
        self._highest = len(policy.tiers) - 1
        self.allows_all = (
            not self.rules
            and policy.default == "allow"
            and not policy.approve_destructive
            and self._clearance(frozenset()) == self._highest
        )

    def standing(self, principal: Principal, toolset: str | None) -> CallerStanding:
        facts = facts_of(principal)
        values = {} if facts is None else {"principal": facts}
        speaking = tuple(
            rule
            for rule in self.rules
            if rule.unfit(principal, toolset) is None
            and (rule.by_subject or rule.by_arguments or rule.holds(values))
        )
        clearance = self._clearance(principal.roles)
        who = tuple(one.seen(values) for one in speaking if one.by_principal and one.by_subject)
        names = tuple(one.name for one in speaking)
        return CallerStanding((names, clearance, who), speaking, clearance, facts)

    def verdict(self, standing: CallerStanding, subject: Subject) -> ToolVerdict:
        if self.rank(subject) > standing.clearance:
            return ToolVerdict(Decision("deny", TIERS))
        tier = self.tier(subject)
        values = self.values(standing, subject)
        best, later = Decision(self.policy.default, DEFAULT), list[CompiledRule]()
        for rule in standing.rules:  # deny first, then approve
            if rule.misses(subject, tier) is not None:
                continue
            if rule.by_arguments:
                later.append(rule)
            elif not rule.by_subject or rule.holds(values):
                best = Decision(rule.effect, rule.name, rule.rule.reason)
                break
        if best.effect == "deny" and best.rule != DEFAULT:
            return ToolVerdict(best)
        if subject.kind != "tool" and best.effect == "approve":
            return ToolVerdict(
                Decision("deny", best.rule, best.reason)
            )  # only tool calls have approvals
        return ToolVerdict(best, tuple(later), self.wants_approval(subject))

    def values(self, standing: CallerStanding, subject: Subject) -> dict[str, Any]:
        """Variables of expressions, except arguments."""
        who = {} if standing.principal is None else {"principal": standing.principal}
        return {**who, **subject.values(self.tier(subject))}

    def tier(self, subject: Subject) -> str:
        return subject.tier or self.policy.default_tier

    def rank(self, subject: Subject) -> int:
        """Rank of the subject's tier; an unknown tier has the highest."""
        return self._ranks.get(self.tier(subject), self._highest)

    def _clearance(self, roles: frozenset[str]) -> int:
        policy = self.policy
        opened = [policy.default_clearance]
        opened += [policy.clearances[role] for role in roles if role in policy.clearances]
        return max(self._ranks.get(tier, -1) for tier in opened)

    def wants_approval(self, subject: Subject) -> bool:
        """Whether `policy.approve_destructive` applies to the subject."""
        return self.policy.approve_destructive and subject.destructive and subject.kind == "tool"


_ORDER: Sequence[Effect] = ("deny", "approve", "allow")


def _in_order(rule: CompiledRule) -> tuple[int, str]:
    return _ORDER.index(rule.effect), rule.name


def _digest(policy: Policy, rules: Sequence[CompiledRule]) -> bytes:
    said = [policy, [(one.name, one.rule) for one in rules]]
    return hashlib.sha256(json.encode(said, order="deterministic")).digest()
