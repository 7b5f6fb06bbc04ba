"""Explanation of a policy decision: the outcome of each rule for a call."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from gateway.context import Principal
from gateway.policy.engine import (
    BUILT_IN,
    DEFAULT,
    DESTRUCTIVE,
    NO_RUN,
    TIERS,
    CallerStanding,
    CompiledRule,
    Effect,
    Engine,
    Subject,
    values_of_run,
)
from schemas.cel_expressions import ExpressionFailed, too_large

OF_OPERATOR = "(operator)"  # replaces names of operator rules for tenants
BUILT_INS = frozenset({"", "cli", BUILT_IN, DEFAULT, TIERS, DESTRUCTIVE})  # not user-defined
Outcome = Literal["speaks", "silent", "failed", "waits"]

_OWN_REASONS = {
    DEFAULT: "no rule applies to it",
    TIERS: "the tool is more sensitive than the caller is cleared for",
    DESTRUCTIVE: "the tool is not declared non-destructive",
}


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """Outcome of one rule. `waits`: it depends on arguments, which are not known."""

    rule: str
    effect: Effect
    outcome: Outcome
    why: str  # the condition that does not match; why `when` failed; else the rule's reason
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    effect: Effect
    rule: str
    reason: str
    visible: bool  # in lists: some arguments may be allowed
    outcomes: list[RuleOutcome]  # by precedence

    def redact(self) -> "Explanation":
        """Redacted for a tenant: without names and reasons of rules in the settings."""
        outcomes = [
            outcome for outcome in self.outcomes if outcome.stored or outcome.rule in BUILT_INS
        ]
        if self.rule in {*BUILT_INS, *(outcome.rule for outcome in outcomes)}:
            return replace(self, outcomes=outcomes)
        return replace(self, rule=OF_OPERATOR, reason="", outcomes=outcomes)


def explain(
    engine: Engine,
    principal: Principal,
    *,
    toolset: str | None,
    subject: Subject,
    arguments: Any,
    levels: int,
) -> Explanation:
    """Explain the decision on a call. `arguments` None: not known yet; nested deeper than `levels`:
    too large."""
    standing = engine.standing(principal, toolset)
    verdict = engine.verdict(standing, subject, forwarded=subject.forwards)
    values: dict[str, Any] | None = engine.values(standing, subject)
    policy = engine.policy
    if arguments is not None and values is not None:
        limits = (policy.argument_values, policy.argument_bytes, levels)
        call_values = {"context": values_of_run(NO_RUN), "connection": {"shared": False}}
        called = {"arguments": arguments, **call_values}
        values = None if too_large(arguments, *limits) else {**values, **called}
    has_arguments = arguments is not None
    decision = verdict.decide(values) if has_arguments else verdict.decision
    outcomes = [
        _outcome(
            engine,
            rule,
            principal=principal,
            toolset=toolset,
            subject=subject,
            values=values,
            has_arguments=has_arguments,
        )
        for rule in engine.rules
    ]
    outcomes = [*_of_settings(engine, standing, subject), *outcomes]
    reason = decision.reason or _OWN_REASONS.get(decision.rule, "")
    return Explanation(
        decision.effect,
        decision.rule,
        reason=reason,
        visible=not verdict.is_hidden,
        outcomes=outcomes,
    )


def _of_settings(engine: Engine, standing: CallerStanding, subject: Subject) -> list[RuleOutcome]:
    """Outcomes of tier and destructive-tool settings, which apply beside rules."""
    outcomes = []
    if engine.rank(subject) > standing.clearance:
        outcomes.append(RuleOutcome(TIERS, "deny", "speaks", f"the tier is {engine.tier(subject)}"))
    if engine.wants_approval(subject):
        outcomes.append(RuleOutcome(DESTRUCTIVE, "approve", "speaks", _OWN_REASONS[DESTRUCTIVE]))
    return outcomes


def _outcome(
    engine: Engine,
    rule: CompiledRule,
    *,
    principal: Principal,
    toolset: str | None,
    subject: Subject,
    values: dict[str, Any] | None,
    has_arguments: bool,
) -> RuleOutcome:
    outcome: Outcome = "speaks"
    why = rule.rule.reason
    caller_mismatch = rule.caller_mismatch(principal, toolset) or rule.subject_mismatch(
        subject, engine.tier(subject)
    )
    if caller_mismatch is not None:
        outcome, why = "silent", f"{caller_mismatch}: it is about others"
    elif rule.by_arguments and not has_arguments:
        outcome, why = "waits", "it looks at the call"
    else:
        try:
            if not rule.evaluate(values):
                outcome, why = "silent", "when: it is false"
        except ExpressionFailed as error:
            outcome, why = "failed", f"when: {error}"
    return RuleOutcome(rule.name, rule.effect, outcome=outcome, why=why, stored=rule.stored)
