"""Rules of guardrails, compiled, and what they find in a value. Pure.

Patterns look at texts and numbers, not at the names of members. JSON in a text is looked at as
the value that it says, so that no escape hides anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from config.access import GUARDRAIL_VARIABLES, Guardrail
from gateway.middleware.told import Told
from schemas.expressions import Expression, ExpressionFailed, compile_expression, too_large
from schemas.globs import ToolGlobs
from schemas.masking import MASK
from schemas.patterns import Pattern
from schemas.tool import Tool

EXPRESSION_LIMITS = (10_000, 1_048_576, 64)  # values, bytes of text and levels that `when` gets

Change = Callable[[Any], Any]


@dataclass(slots=True)
class Looked:
    """A value that a rule has looked at, and what is left of it."""

    value: Any
    texts: list[str]
    found: bool = False  # what the rule looks for


class CompiledGuardrail:
    def __init__(self, name: str, rule: Guardrail, steps: int) -> None:
        """`steps`: most that `when` may take. Raises InvalidExpression and InvalidPattern;
        settings are checked for both."""
        self.name = name
        self.rule = rule
        self._tools = ToolGlobs(rule.tools)
        self._fields = [tuple(path.split(".")) for path in rule.fields]
        self._pattern = Pattern(rule.pattern) if rule.pattern else None
        self._when: Expression | None = None
        if rule.when:
            self._when = compile_expression(rule.when, GUARDRAIL_VARIABLES, steps)

    def concerns(self, tool: Tool) -> bool:
        rule = self.rule
        if rule.sources and tool.source not in rule.sources:
            return False
        names = (tool.name, *tool.aliases)
        return not self._tools or self._tools.match(names, tool.tags, tool.domain)

    def exempts(self, roles: frozenset[str]) -> bool:
        return not roles.isdisjoint(self.rule.roles_exempt)

    def look(self, value: Any, texts: list[str], facts: Mapping[str, Any]) -> Looked:
        """At `value`, which is None where there is only text, and at `texts`. With the effect
        `redact` what is found is masked. Raises ExpressionFailed."""
        if self._when is not None:
            seen = texts[0] if value is None and texts else value
            if too_much := too_large(seen, *EXPRESSION_LIMITS):
                raise ExpressionFailed(f"it got {too_much}")
            if not self._when.holds({**facts, "value": seen}):
                return Looked(value, texts)
        search = _Search(self._pattern, redacts=self.rule.effect == "redact")
        after = value if value is None else self._reached(value, search.change)
        said = [self._text(text, search) for text in texts]
        by_itself = not (self._fields or self._pattern)  # `when` says it all
        return Looked(after, said, search.found or by_itself)

    def _reached(self, value: Any, change: Change) -> Any:
        if not self._fields:
            return change(value)
        for path in self._fields:
            value = _at(value, path, change)
        return value

    def _text(self, text: str, search: "_Search") -> str:
        told = Told.of(text)
        if told is None:  # nobody knows what it says, so its characters have to do
            return text if self._fields else search.change(text)
        prose = (lambda one: one) if self._fields else search.change
        return told.changed(lambda value: self._reached(value, search.change), prose)


@dataclass(slots=True)
class _Search:
    pattern: Pattern | None  # None: everything is found
    redacts: bool
    found: bool = field(default=False)

    def change(self, value: Any) -> Any:
        """`value` without what is found in it; itself if that is nothing."""
        if self.pattern is None:
            self.found = self.found or value is not None
            return MASK if self.redacts and value is not None else value
        return self._searched(value, self.pattern)

    def _searched(self, value: Any, pattern: Pattern) -> Any:
        if isinstance(value, str):
            return self._text(value, pattern)
        if isinstance(value, dict):
            changed = {
                name: after
                for name, inner in value.items()
                if (after := self._searched(inner, pattern)) is not inner
            }
            return {**value, **changed} if changed else value
        if isinstance(value, list):
            items = [self._searched(inner, pattern) for inner in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = str(value)
            return value if self._text(number, pattern) is number else MASK
        return value

    def _text(self, text: str, pattern: Pattern) -> str:
        if not pattern.is_in(text):
            return text
        self.found = True
        return pattern.replaced(text, MASK) if self.redacts else text


def _at(value: Any, path: tuple[str, ...], change: Change) -> Any:
    """`value` with what is at the path changed; "*" stands for any member or item, and arrays on
    the way are gone through."""
    if not path:
        return change(value)
    if isinstance(value, list):
        rest = path[1:] if path[0] == "*" else path
        items = [_at(inner, rest, change) for inner in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if not isinstance(value, dict):
        return value
    names = value if path[0] == "*" else [path[0]] if path[0] in value else []
    changed = {
        name: after
        for name in names
        if (after := _at(value[name], path[1:], change)) is not value[name]
    }
    return {**value, **changed} if changed else value
