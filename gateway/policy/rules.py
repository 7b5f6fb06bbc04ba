"""Compiled policy rules: matching of callers and subjects, and principal facts. Pure.

Facts are per caller and must not be cached for others: callers whom the rules treat alike still
differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from config.access import RULE_VARIABLES, Rule
from gateway.context import Principal
from schemas.expressions import (
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


def facts_of(principal: Principal) -> dict[str, Any] | None:
    """The principal for expressions. None: its claims exceed `CLAIMS`, so rules over the principal
    fail; dropping the claims could match a principal without any."""
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
        )

    @classmethod
    def of_item(cls, item: SnapshotItem) -> "Subject":
        return cls.named(item.kind, item.name, item.source)

    @classmethod
    def named(cls, kind: ItemKind, name: str, source: str) -> "Subject":
        """A prompt, resource or template: read-only, without a tier."""
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


def is_judged(tool: Tool) -> bool:
    """Whether rules apply: built-in tools are open to all and show permitted entries only."""
    return not tool.binding.facts.own


class CompiledRule:
    """A compiled rule; fails closed: if its expression fails, deny and approve rules match, allow
    rules do not. If it cannot be compiled, approve becomes deny."""

    def __init__(self, name: str, rule: Rule, steps: int, *, stored: bool = False) -> None:
        """`steps`: evaluation limit of `when`. Raises InvalidExpression; but a stored rule, which
        another release may have written, always fails instead."""
        self.name = name
        self.rule = rule
        self.effect: Effect = rule.effect
        self.stored = stored
        self.broken: str | None = None  # why `when` cannot be evaluated
        self._expression: Expression | None = None
        try:
            self._expression = self._compiled(rule.when, steps)
        except InvalidExpression as error:
            if not stored:
                raise
            self.broken = str(error)
            if self.effect == "approve":  # approvers could not know what they approve
                self.effect = "deny"
        looks_at = self._expression.variables if self._expression else frozenset[str]()
        self.by_arguments = "arguments" in looks_at
        self.by_principal = not self.by_arguments and "principal" in looks_at
        self.by_subject = not self.by_arguments and not looks_at.isdisjoint(("tool", "source"))
        self._patterns = ToolGlobs(rule.tools)
        self._sources = frozenset(rule.sources)
        self._tiers = frozenset(rule.tiers)
        self._roles, self._scopes = frozenset(rule.roles), frozenset(rule.scopes)

    def _compiled(self, when: str, steps: int) -> Expression | None:
        return compile_expression(when, RULE_VARIABLES, steps) if when else None

    def unfit(self, principal: Principal, toolset: str | None) -> str | None:
        """The first of `toolsets`, `principals`, `roles`, `scopes` not to match; None: match."""
        rule = self.rule
        if rule.toolsets and toolset not in rule.toolsets:
            return "toolsets"
        if rule.principals and principal.id not in rule.principals:
            return "principals"
        if self._roles and self._roles.isdisjoint(principal.roles):
            return "roles"
        if self._scopes and self._scopes.isdisjoint(principal.scopes):
            return "scopes"
        return None

    def misses(self, subject: Subject, tier: str) -> str | None:
        """The first of `sources`, `tiers`, `destructive`, `tools` not to match; None: match."""
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
        return not patterns or patterns.match(subject.names, subject.tags, subject.domain)

    def seen(self, values: Values) -> str:
        """Key of the values that `when` reads: equal keys give equal results."""
        return "" if self._expression is None else repr(self._expression.seen(values))

    def holds(self, values: Values | None) -> bool:
        """Whether `when` is true of `values`; None: too large, so it fails."""
        try:
            return self.checked(values)
        except ExpressionFailed:
            return self.effect != "allow"

    def checked(self, values: Values | None) -> bool:
        """Evaluate `when`. Raises ExpressionFailed."""
        if self.broken is not None:
            raise ExpressionFailed(f"`when` cannot be evaluated: {self.broken}")
        if self._expression is None:
            return True
        if values is None:
            raise ExpressionFailed("there is more to look at than expressions get")
        return self._expression.holds(values)
