"""Tools that a rule, a guardrail or a toolset would be about, before it is stored. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from config.access import Policy, Rule
from config.value_types import CelText, SourceName, TierName, ToolPatterns
from gateway.policy.engine import CompiledRule, Subject, is_judged
from schemas.globs import ToolGlobs
from schemas.tool import Tool


class ToolSelection(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on tools, all of which hold; an omitted one holds for any tool."""

    effect: Literal["allow", "deny", "approve"] = "deny"  # a condition that fails allows nothing
    tools: ToolPatterns = ()
    exclude: ToolPatterns = ()
    sources: tuple[SourceName, ...] = ()
    tiers: tuple[TierName, ...] = ()
    destructive: bool | None = None
    when: CelText = ""


class ToolMatches(Struct, frozen=True):
    """Tools that conditions are about: how many of how many, and the first of them by name.
    `by_call`: each call decides, since the condition reads its caller or its arguments."""

    count: int
    total: int
    tools: tuple[str, ...]
    by_call: bool


def matching_tools(rule: Rule, subjects: Iterable[Subject], policy: Policy) -> list[Subject]:
    """The tools that a rule may be about. Conditions about callers and arguments are decided with
    each call: they leave out none. Raises InvalidExpression."""
    compiled = CompiledRule("", rule, policy.expression_steps)
    return [subject for subject in subjects if _may_match(compiled, subject, policy)]


def _may_match(rule: CompiledRule, subject: Subject, policy: Policy) -> bool:
    tier = subject.tier or policy.default_tier
    if rule.subject_mismatch(subject, tier) is not None:
        return False
    of_tools = rule.by_subject and not rule.by_principal
    return not of_tools or rule.holds(subject.values(tier))


def match_selection(
    selection: ToolSelection, tools: Iterable[Tool], policy: Policy, *, limit: int
) -> ToolMatches:
    """Raises InvalidExpression."""
    subjects = [Subject.of(tool) for tool in tools if is_judged(tool)]
    rule = Rule(
        selection.effect,
        tools=selection.tools,
        sources=selection.sources,
        tiers=selection.tiers,
        destructive=selection.destructive,
        when=selection.when,
    )
    excluded = ToolGlobs(selection.exclude)
    matches = [
        subject
        for subject in matching_tools(rule, subjects, policy)
        if not selection.exclude or not excluded.match(subject.names, subject.tags, subject.domain)
    ]
    compiled = CompiledRule("", rule, policy.expression_steps)
    return ToolMatches(
        count=len(matches),
        total=len(subjects),
        tools=tuple(sorted(subject.names[0] for subject in matches)[:limit]),
        by_call=compiled.by_arguments or compiled.by_principal,
    )


def selection_of(value: Mapping[str, Any], members: Mapping[str, str]) -> dict[str, Any]:
    """The selection in a body whose `members` choose tools, by the names in a selection."""
    selection = {members[name]: value[name] for name in members if name in value}
    return {name: member for name, member in selection.items() if member not in (None, "", [])}
