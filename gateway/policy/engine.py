"""Compiled policy rules: matching of callers and subjects, and principal facts. Pure.

Facts are per caller and must not be cached for others: callers whom the rules treat alike still
differ.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import json

from config.access import RULE_VARIABLES, Policy, Rule
from config.code import CALL_WAYS, CodeSettings
from config.settings import Toolset
from config.value_types import CallWay
from gateway.context import Principal, RunMark
from registry.names.tool_names import CODE_TOOLS
from schemas.cel_expressions import (
    Expression,
    ExpressionFailed,
    InvalidExpression,
    compile_expression,
    too_large,
)
from schemas.globs import ToolGlobs
from schemas.mcp.snapshot import ItemKind, SnapshotItem
from schemas.tool import Tool

CLAIMS = (1000, 65_536, 16)  # limits of token claims: values, bytes of text, nesting levels

BUILT_IN = "built_in"  # decision for built-in tools: no rule applies to them
DEFAULT, TIERS, DESTRUCTIVE = "policy.default", "policy.tiers", "policy.approve_destructive"


def facts_of(principal: Principal) -> dict[str, Any] | None:
    """The principal as expressions see it. None: its claims exceed `CLAIMS`, so rules over the
    principal fail; dropping the claims could match a principal without any."""
    claims = dict(principal.claims)
    if too_large(claims, *CLAIMS) is not None:
        return None
    return {
        "id": principal.id,
        "tenant": principal.tenant,
        "scopes": sorted(principal.scopes),
        "roles": sorted(principal.roles),
        "claims": claims,
    }


Effect = Literal["allow", "deny", "approve"]
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a decision: a tool, a prompt, a resource or a resource template."""

    id: str  # of a tool
    names: tuple[str, ...]  # current name first, then former names
    source: str
    tier: str | None
    destructive: bool  # MCP's default: true unless declared false, or read-only
    read_only: bool
    kind: Literal["tool"] | ItemKind
    tags: tuple[str, ...] = ()
    domain: str | None = None
    forwards: bool = False  # it calls another tool later, which rules judge instead

    @classmethod
    def of(cls, tool: Tool) -> "Subject":
        hints = tool.annotations
        read_only = hints.read_only_hint is True
        destroys = not read_only and hints.destructive_hint is not False
        names = (tool.name, *tool.aliases)
        return cls(
            tool.id,
            names,
            tool.source,
            tool.tier,
            destroys,
            read_only,
            "tool",
            tool.tags,
            tool.domain,
            bool(tool.binding.forwards),
        )

    @classmethod
    def of_item(cls, item: SnapshotItem) -> "Subject":
        return cls.item_subject(item.kind, item.name, item.source)

    @classmethod
    def item_subject(cls, kind: ItemKind, name: str, source: str) -> "Subject":
        """Subject of a prompt, resource or template: read-only, without a tier."""
        return cls("", (name,), source, None, destructive=False, read_only=True, kind=kind)

    def values(self, tier: str) -> dict[str, Any]:
        """The variables of expressions."""
        tool = {
            "name": self.names[0],
            "source": self.source,
            "tier": tier,
            "destructive": self.destructive,
            "readOnly": self.read_only,
            "kind": self.kind,
            "tags": list(self.tags),
        }
        return {"tool": tool, "source": self.source}


NO_RUN = RunMark()


def values_of_run(run: RunMark) -> dict[str, Any]:
    """The members of `context` in expressions."""
    return {
        "tainted": run.tainted,
        "code": run.code,
        "sources": list(run.sources),
        "calls": run.calls,
    }


def is_judged(tool: Tool) -> bool:
    """Whether rules apply to the tool: built-in tools are open to all and show permitted entries
    only."""
    return not tool.binding.facts.own


class CompiledRule:
    """A compiled rule; fails closed: if its expression fails, deny and approve rules match, allow
    rules do not. If it cannot be compiled, approve becomes deny."""

    def __init__(
        self,
        name: str,
        rule: Rule,
        steps: int,
        *,
        stored: bool = False,
        way: CallWay | None = None,
    ) -> None:
        """Compile `rule`. `steps`: evaluation limit of `when`. `way`: the rule is about tools that
        are called so, but those that run programs; None: about all. Raises InvalidExpression; but a
        stored rule, which another release may have written, always fails instead."""
        self.way = way
        self.name = name
        self.rule = rule
        self.effect: Effect = rule.effect
        self.stored = stored
        self.broken: str | None = None  # why `when` cannot be evaluated
        self._expression: Expression | None = None
        try:
            self._expression = self._compile(rule.when, steps)
        except InvalidExpression as error:
            if not stored:
                raise
            self.broken = str(error)
            if self.effect == "approve":  # approvers could not know what they approve
                self.effect = "deny"
        # what decides nearly all values, without the library and its errors
        self._certain = self._expression.predicate if self._expression else None
        variables = self._expression.variables if self._expression else frozenset[str]()
        # decided with each call
        self.by_arguments = not variables.isdisjoint(("arguments", "context", "connection"))
        self.reads_connection = "connection" in variables
        self.by_arguments_alone = variables == {"arguments"}
        self.by_principal = not self.by_arguments and "principal" in variables
        self.by_subject = not self.by_arguments and not variables.isdisjoint(("tool", "source"))
        self._patterns = ToolGlobs(rule.tools)
        self._sources = frozenset(rule.sources)
        self._tiers = frozenset(rule.tiers)
        self._roles, self._scopes = frozenset(rule.roles), frozenset(rule.scopes)

    def _compile(self, when: str, steps: int) -> Expression | None:
        return compile_expression(when, RULE_VARIABLES, steps) if when else None

    def caller_mismatch(
        self, principal: Principal, toolset: str | None, way: CallWay = "direct"
    ) -> str | None:
        """The first of `callers`, `toolsets`, `principals`, `roles`, `scopes` that does not match;
        None: match."""
        rule = self.rule
        if self.way not in {None, way}:
            return "callers"
        if rule.toolsets and toolset not in rule.toolsets:
            return "toolsets"
        if rule.principals and principal.id not in rule.principals:
            return "principals"
        if self._roles and self._roles.isdisjoint(principal.roles):
            return "roles"
        if self._scopes and self._scopes.isdisjoint(principal.scopes):
            return "scopes"
        return None

    def subject_mismatch(self, subject: Subject, tier: str) -> str | None:
        """The first of `sources`, `tiers`, `destructive`, `tools` that does not match; None:
        match."""
        if self._sources and subject.source not in self._sources:
            return "sources"
        if self._tiers and tier not in self._tiers:
            return "tiers"
        if self.rule.destructive not in {None, subject.destructive}:
            return "destructive"
        if not self.names(subject):
            return "tools"
        if self.by_arguments and subject.kind != "tool":
            return "arguments"  # those of prompts and resources are not evaluated
        return None

    def names(self, subject: Subject) -> bool:
        """Whether one of the subject's names, its tags or its domain matches `tools`."""
        patterns = self._patterns
        if self.way and (subject.kind != "tool" or subject.names[0] in CODE_TOOLS):
            return False
        return not patterns or patterns.match(subject.names, subject.tags, subject.domain)

    def judges_forwarder(self, subject: Subject) -> bool:
        """Whether the rule is about a tool itself that calls another one: it names the tool or its
        source, or allows. A rule for all tools is about the one that is called."""
        if self.effect == "allow" or self._sources:
            return True
        named = ToolGlobs([pattern for pattern in self.rule.tools if pattern != "*"])
        return bool(named) and named.match(subject.names, subject.tags, subject.domain)

    def relevant(self, values: Values) -> str:
        """Key of the values that `when` reads: equal keys give equal results."""
        return "" if self._expression is None else repr(self._expression.relevant(values))

    def holds(self, values: Values | None) -> bool:
        """Whether `when` is true of `values`; None: too large, so it fails."""
        if self._certain is not None and values is not None:
            certain = self._certain(values)
            if certain is not None:
                return certain
        try:
            return self.evaluate(values)
        except ExpressionFailed:
            return self.effect != "allow"

    def evaluate(self, values: Values | None) -> bool:
        """Evaluate `when`. Raises ExpressionFailed."""
        if self.broken is not None:
            raise ExpressionFailed(f"`when` cannot be evaluated: {self.broken}")
        if self._expression is None:
            return True
        if values is None:
            raise ExpressionFailed("the values are too large for expressions")
        return self._expression.holds(values)


@dataclass(frozen=True, slots=True)
class CallerStanding:
    """Standing of a caller: equal for callers whom the rules treat alike."""

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
    by_arguments_alone: bool = False  # `later` looks at no other variable

    @property
    def is_hidden(self) -> bool:
        """Whether the call is denied for all arguments."""
        return self.decision.effect == "deny" and all(rule.effect == "deny" for rule in self.later)

    def decide(self, values: Values | None) -> Decision:
        """The decision for the variables of expressions, arguments included; None: too large."""
        decision = self.decision
        for rule in self.later:
            if rule.holds(values):
                decision = Decision(rule.effect, rule.name, rule.rule.reason)
                break
        if self.approved and decision.effect == "allow":
            return Decision("approve", DESTRUCTIVE)
        return decision


CallersRule = tuple[CallWay, Rule]
NO_CALLERS: Mapping[str, CallersRule] = {}
_WHY: Mapping[CallWay, str] = {
    "direct": "programs alone may call it",
    "code": "programs may not call it",
}


def callers_rules(code: CodeSettings, toolsets: Mapping[str, Toolset]) -> dict[str, CallersRule]:
    """Rules that deny what `callers` in the settings do not have, by name, each with the way of the
    calls that it denies. They hold while programs are switched off, too."""
    permitted = [
        *((f"code.callers.{tools}", (tools,), (), ways) for tools, ways in code.callers.items()),
        *(
            (f"toolsets.{name}.callers", ("*",), (name,), toolset.callers)
            for name, toolset in toolsets.items()
        ),
    ]
    return {
        name: (way, Rule("deny", tools=tools, toolsets=endpoint, reason=_WHY[way]))
        for name, tools, endpoint, ways in permitted
        for way in CALL_WAYS
        if way not in ways
    }


def _compile_callers(callers: Mapping[str, CallersRule]) -> list[CompiledRule]:
    return [CompiledRule(name, rule, 0, way=way) for name, (way, rule) in callers.items()]


class Engine:
    def __init__(
        self,
        policy: Policy,
        stored_rules: Mapping[str, Rule],
        callers: Mapping[str, CallersRule] = NO_CALLERS,
    ) -> None:
        """An engine for `policy` and stored rules: rules of the settings override stored ones of
        the same name. `callers`: further rules, see `callers_rules`. Raises InvalidExpression for a
        rule of the settings."""
        steps = policy.expression_steps
        own = {name: CompiledRule(name, rule, steps) for name, rule in policy.rules.items()}
        rest = {
            name: CompiledRule(name, rule, steps, stored=True)
            for name, rule in stored_rules.items()
            if name not in own
        }
        self.rules: tuple[CompiledRule, ...] = tuple(
            sorted([*own.values(), *rest.values(), *_compile_callers(callers)], key=_in_order)
        )
        self.policy = policy
        self.digest = _digest(policy, self.rules)
        self.reads_principal = any("principal" in (rule.rule.when or "") for rule in self.rules)
        self.reads_connection = any(rule.reads_connection for rule in self.rules)
        self._ranks = {tier: rank for rank, tier in enumerate(policy.tiers)}
        self._highest = len(policy.tiers) - 1
        self.allows_all = (
            not self.rules
            and policy.default == "allow"
            and not policy.approve_destructive
            and self._clearance(frozenset()) == self._highest
        )

    def standing(
        self, principal: Principal, toolset: str | None, way: CallWay = "direct"
    ) -> CallerStanding:
        facts = facts_of(principal)
        values = {} if facts is None else {"principal": facts}
        applicable = tuple(
            rule
            for rule in self.rules
            if rule.caller_mismatch(principal, toolset, way) is None
            and (rule.by_subject or rule.by_arguments or rule.holds(values))
        )
        clearance = self._clearance(principal.roles)
        principal_keys = tuple(
            rule.relevant(values) for rule in applicable if rule.by_principal and rule.by_subject
        )
        names = tuple(rule.name for rule in applicable)
        return CallerStanding((names, clearance, principal_keys), applicable, clearance, facts)

    def verdict(
        self, standing: CallerStanding, subject: Subject, *, forwarded: bool = False
    ) -> ToolVerdict:
        """`forwarded`: of the part of a call that calls another tool, which is judged by itself."""
        if self.rank(subject) > standing.clearance:
            return ToolVerdict(Decision("deny", TIERS))
        tier = self.tier(subject)
        values = self.values(standing, subject)
        best, later = Decision(self.policy.default, DEFAULT), list[CompiledRule]()
        for rule in standing.rules:  # deny first, then approve
            if rule.subject_mismatch(subject, tier) is not None:
                continue
            if forwarded and not rule.judges_forwarder(subject):
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
        alone = all(rule.by_arguments_alone for rule in later)
        approved = not forwarded and self.wants_approval(subject)
        return ToolVerdict(best, tuple(later), approved, alone)

    def values(self, standing: CallerStanding, subject: Subject) -> dict[str, Any]:
        """Variables of expressions, except arguments."""
        caller = {} if standing.principal is None else {"principal": standing.principal}
        return {**caller, **subject.values(self.tier(subject))}

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
    content = [policy, [(rule.name, rule.rule) for rule in rules]]
    return hashlib.sha256(json.encode(content, order="deterministic")).digest()
