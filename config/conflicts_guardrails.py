"""What is wrong with guardrails that are right key by key."""

from collections.abc import Iterator

from config.policy import GUARDRAIL_VARIABLES, Guardrail
from config.problem import KeyPath, Problem, Where, dotted
from config.settings import Settings
from schemas.expressions import InvalidExpression, compile_expression
from schemas.patterns import InvalidPattern, Pattern


def guardrail_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    guardrails = settings.guardrails
    for name, rule in guardrails.rules.items():
        for key, text in _wrong(rule, guardrails.expression_steps):
            path: KeyPath = ("guardrails", "rules", name, key)
            yield Problem(where(path), dotted(path), text)


def _wrong(rule: Guardrail, steps: int) -> Iterator[tuple[str, str]]:
    if not (rule.fields or rule.pattern or rule.when):
        yield "effect", "expected fields, pattern or when beside it: the rule looks for nothing"
    elif rule.effect == "redact" and not (rule.fields or rule.pattern):
        yield "effect", "expected fields or pattern beside redact, which say what to mask"
    if rule.pattern:
        try:
            Pattern(rule.pattern)
        except InvalidPattern as error:
            yield "pattern", f"expected a regular expression (RE2): {error}"
    if rule.when:
        try:
            compile_expression(rule.when, GUARDRAIL_VARIABLES, steps)
        except InvalidExpression as error:
            yield "when", f"expected a CEL expression: {error}"
    for path in rule.fields:
        if not all(path.split(".")):
            yield "fields", f"expected dotted paths such as customer.email, found {path!r}"
