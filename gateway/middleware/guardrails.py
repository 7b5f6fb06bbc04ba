"""Looks at arguments before a service gets them, and at results before a model does.

Marks of schemas (`x-mask`) and rules. Looked at are arguments, structured content and texts: blocks
of text, and the text of embedded resources of other MCP servers; errors of those servers like their
results. Not looked at are pictures, sound and other bytes, `_meta`, progress and log messages, what
a server asks the client, and the prompts and resources of other servers. What cannot be looked at
although a rule is about it (a file that is linked to, a promise of a task) counts as larger than
`guardrails.inspect_bytes`. So does for marks a file that is part of the answer, JSON that is broken
or too deep, and a text without structure that has the name of what is marked. In errors, of which
schemas say nothing, all members are masked that have the name of a marked one.

It fails closed: a rule that cannot be applied denies, and what crashes is an error without a
result.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET, Raw

from config.access import GuardrailsSettings as Settings
from gateway.abc import Call, Execute
from gateway.middleware.inspection import CompiledGuardrail, Looked
from gateway.middleware.seen import hide, seen_in
from gateway.policy.facts import facts_of
from schemas.binding import GatewayBinding, ServiceBinding
from schemas.errors import RelayedFault
from schemas.expressions import ExpressionFailed
from schemas.jsonrpc import decode_json, encode
from schemas.masking import Masks, masks_of
from schemas.memo import Memo
from schemas.patterns import InvalidPattern
from schemas.tool import RelayedResult, TextContent, Tool, ToolResult

log = logging.getLogger("toolgate.guardrails")

TOOLS = 10_000  # whose plans are kept


@dataclass(frozen=True, slots=True)
class _Plan:
    """What concerns one tool."""

    inputs: Masks | None
    outputs: Masks | None
    arguments: Sequence[CompiledGuardrail]
    results: Sequence[CompiledGuardrail]

    @property
    def empty(self) -> bool:
        return not (self.inputs or self.outputs or self.arguments or self.results)


class _Denied(Exception):
    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.reason = reason


class Guardrails:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        steps = settings.expression_steps
        self._rules = [
            CompiledGuardrail(name, rule, steps) for name, rule in settings.rules.items()
        ]
        self._plans: Memo[tuple[str, ...], _Plan | None] = Memo(TOOLS)

    def guard(self, execute: Execute) -> Execute:
        if not self._settings.mask and not self._rules:
            return execute

        async def guarded(call: Call) -> ToolResult | RelayedResult:
            plan = self._plan(call.tool)
            if plan is None:
                return await execute(call)
            try:
                call = self._checked(call, plan)
                try:
                    result = await execute(call)
                except RelayedFault as fault:
                    raise self._told(call, plan, fault) from fault
                return self._passed(call, plan, result)
            except _Denied as denied:
                return _refusal(call, denied)

        return guarded

    def _plan(self, tool: Tool) -> _Plan | None:
        key = (tool.digest, tool.name, tool.source, tool.domain or "", *tool.tags)
        plan = self._plans.get(key, UNSET)
        return self._plans.put(key, self._made(tool)) if plan is UNSET else plan

    def _made(self, tool: Tool) -> _Plan | None:
        if isinstance(tool.binding, GatewayBinding):
            return None  # what it says stands in descriptions
        inputs = outputs = None
        if self._settings.mask:
            inputs = masks_of(bytes(tool.input_schema))
            outputs = None if tool.output_schema is None else masks_of(bytes(tool.output_schema))
        rules = [rule for rule in self._rules if rule.concerns(tool)]
        plan = _Plan(
            inputs,
            outputs,
            [one for one in rules if one.rule.looks_at == "arguments"],
            [one for one in rules if one.rule.looks_at == "result"],
        )
        return None if plan.empty else plan

    def _checked(self, call: Call, plan: _Plan) -> Call:
        """With the arguments that the rules leave. They may not fit the tool's schema any more:
        then it is the service that says so."""
        rules = _of(plan.arguments, call)
        if not rules:
            return call
        value, facts = call.arguments, _facts(call)
        if len(encode(value)) > self._settings.inspect_bytes:
            self._too_large(rules[0])
            return call
        for rule in rules:
            value = _looked(rule, value, [], facts).value
        return call if value is call.arguments else replace(call, arguments=value)

    def _passed(
        self, call: Call, plan: _Plan, result: ToolResult | RelayedResult
    ) -> ToolResult | RelayedResult:
        rules = _of(plan.results, call)
        if not (rules or plan.outputs or plan.inputs):
            return result
        seen = seen_in(result)
        hidden: set[str] = set()
        if plan.outputs is not None and not seen.masked(plan.outputs, hidden):
            self._too_large(None)
        if plan.inputs is not None:
            plan.inputs.applied(call.arguments, hidden)
            if seen.failed:  # errors repeat what they are about
                seen.masked(plan.inputs, hidden)
        try:
            hide(seen, hidden)
        except InvalidPattern:  # so many that they cannot be looked for
            self._too_large(None)
        if rules and (seen.opaque or seen.size > self._settings.inspect_bytes):
            self._too_large(rules[0])
        elif rules:
            facts = _facts(call)
            for rule in rules:
                looked = _looked(rule, seen.value, seen.texts, facts)
                seen.value, seen.texts = looked.value, looked.texts
        return seen.result()

    def _told(self, call: Call, plan: _Plan, fault: RelayedFault) -> RelayedFault:
        """The error of another server, looked at as a result that says the same."""
        said = RelayedResult(
            {
                "isError": Raw(b"true"),
                "content": Raw(encode([{"type": "text", "text": fault.message}])),
                "structuredContent": Raw(encode(fault.data)),
            }
        )
        passed = self._passed(call, plan, said)
        if passed is said or not isinstance(passed, RelayedResult):
            return fault
        [text] = decode_json(bytes(passed.members["content"]))
        data = decode_json(bytes(passed.members["structuredContent"]))
        return RelayedFault(fault.code, text["text"], data)

    def _too_large(self, rule: CompiledGuardrail | None) -> None:
        if self._settings.when_larger == "deny":
            reason = (
                "it cannot be inspected: it is larger than guardrails.inspect_bytes, a file, or "
                "JSON that is broken or too deep"
            )
            raise _Denied("mask" if rule is None else rule.name, reason)


def _of(rules: Sequence[CompiledGuardrail], call: Call) -> list[CompiledGuardrail]:
    """Those that the caller is not exempt from."""
    roles = call.context.principal.roles
    return [rule for rule in rules if not rule.exempts(roles)]


def _looked(
    rule: CompiledGuardrail, value: Any, texts: list[str], facts: Mapping[str, Any]
) -> Looked:
    try:
        looked = rule.look(value, texts, facts)
    except ExpressionFailed as error:
        log.warning("guardrail_failed", extra={"rule": rule.name, "reason": str(error)[:200]})
        raise _Denied(rule.name, "the rule cannot be applied") from error
    if looked.found and rule.rule.effect == "deny":
        raise _Denied(rule.name, rule.rule.reason)
    return looked


def _facts(call: Call) -> dict[str, Any]:
    """What expressions see of who calls what; nothing of a caller who is too large for them."""
    facts: dict[str, Any] = {"tool": {"name": call.tool.name, "source": call.tool.source}}
    if (who := facts_of(call.context.principal)) is not None:
        facts["principal"] = who
    return facts


def _refusal(call: Call, denied: _Denied) -> ToolResult:
    """A result that names the rule and its reason, and nothing of the content."""
    note = call.context.note
    if note is not None:
        note.decision, note.rule = "deny", f"guardrails.{denied.rule}"
    log.info("guardrail_denied", extra={"rule": denied.rule, "tool": call.tool.name})
    text = f"Refused by the guardrail {denied.rule!r}"
    text += f": {denied.reason}" if denied.reason else ""
    told: Raw | Any = UNSET
    if isinstance(call.tool.binding, ServiceBinding):  # its callers know failures with a status
        told = Raw(encode({"status": 403, "body": text}))
    return ToolResult((TextContent(text),), told, is_error=True)
