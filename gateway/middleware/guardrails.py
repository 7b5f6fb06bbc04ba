"""Guardrails: rules that inspect arguments before a service gets them, and results.

Patterns match texts and numbers, not the names of members. JSON in a text is decoded before it is
inspected, so that escapes hide no content.

Schema marks (`x-mask`) and rules apply to arguments, structured content and texts: text blocks, and
the text of embedded resources of other MCP servers; errors of those servers like their results. Not
inspected are images, audio and other bytes, `_meta`, progress and log messages, requests of servers
to the client, and the prompts and resources of other servers. Content that a rule covers but that
cannot be inspected (a linked file, a task result that is still pending) counts as larger than
`guardrails.inspect_bytes`. For marks so do embedded files, JSON that is broken or too deep, and
prose that contains the name of a marked member. In errors, which have no schema, all members with
the name of a marked one are masked.

It fails closed: a rule that cannot be applied denies, and a crash is an error without a result.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from config.access import GUARDRAIL_VARIABLES, Guardrail
from config.access import GuardrailsSettings as Settings
from gateway.interfaces import Execute, ToolCall
from gateway.middleware.embedded_json import Change, EmbeddedJson
from gateway.policy.engine import facts_of
from schemas.cel_expressions import Expression, ExpressionFailed, compile_expression, too_large
from schemas.errors import ParseError, RelayedFault
from schemas.globs import ToolGlobs
from schemas.jsonrpc import DEPTH, decode_json, encode, nests_within
from schemas.masking import MASK, Masks, json_in, masks_of
from schemas.memo import Memo
from schemas.rule_patterns import InvalidPattern, Pattern
from schemas.source import Source
from schemas.tool import (
    EmbeddedResource,
    RelayedResult,
    ResourceLink,
    TextContent,
    Tool,
    ToolResult,
)

SHORTEST = 4  # characters of secrets masked as substrings; shorter ones only as whole words

_LOOKED_AT = frozenset(("text", "image", "audio", "resource_link"))
# Members of a result and of a content item that are inspected separately, or need no inspection.
_OF_RESULTS = frozenset(("content", "structuredContent", "isError", "resultType", "task"))
_OF_ITEMS = frozenset(("type", "text", "data", "blob", "mimeType", "resource"))

_items = msgspec.json.Decoder(list[Any])
_rest = msgspec.json.Decoder(dict[str, Raw])


Result = ToolResult | RelayedResult


@dataclass(slots=True)
class InspectedResult:
    """The inspectable parts of a result: change `value` and `texts`, then call `result`."""

    value: Any  # the structured content, decoded; None: there is none
    texts: list[str]
    size: int  # in bytes
    opaque: bool  # has further content that cannot be inspected
    failed: bool  # is an error, which has no schema
    has_bytes: bool  # has an embedded file
    original: Result
    rebuilt: Callable[[list[str], Raw | None], Result]  # from texts; None: same structure
    _before: tuple[Any, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = (self.value, tuple(self.texts))

    def mask(self, masks: Masks, hidden: set[str]) -> bool:
        """Mask members marked in a schema, also in the texts; whether all could be inspected."""
        changed = masks.applied_by_name if self.failed else masks.mask
        documents = [EmbeddedJson.of(text) for text in self.texts]
        is_masked = self._is_prose_told(masks, documents) and not (self.opaque or self.has_bytes)

        def change(value: Any) -> Any:
            return changed(value, hidden)

        if self.value is not None:
            self.value = change(self.value)
        for index, embedded in enumerate(documents):
            if embedded is not None:
                self.texts[index] = embedded.change(change, _same)
        return is_masked

    def _is_prose_told(self, masks: Masks, documents: list[EmbeddedJson | None]) -> bool:
        """Whether no text has unreadable JSON, or prose that mentions a marked member. Prose beside
        structured content is taken to repeat it."""
        body = self.value.get("body") if isinstance(self.value, dict) else self.value
        body = body if self.failed else None
        if isinstance(body, str):  # a service's raw response body
            documents = [*documents, EmbeddedJson.of(body)]
        beside = self.value is not None and not isinstance(body, str)
        return all(
            embedded is not None and (beside or not masks.are_mentioned(embedded.prose))
            for embedded in documents
        )

    def result(self) -> Result:
        value, texts = self._before
        if self.value is value and tuple(self.texts) == texts:
            return self.original
        return self.rebuilt(self.texts, None if self.value is value else Raw(encode(self.value)))


def inspect_result(result: Result) -> InspectedResult:
    """Inspectable parts of `result`. Raises msgspec.DecodeError if its content is no array."""
    return _of_ours(result) if isinstance(result, ToolResult) else _of_theirs(result)


def _of_ours(result: ToolResult) -> InspectedResult:
    structure = result.structured_content
    raw = bytes(structure) if isinstance(structure, Raw) else b""
    texts = [item.text for item in result.content if isinstance(item, TextContent)]
    linked = any(isinstance(item, ResourceLink) for item in result.content)

    def rebuilt(texts: list[str], structure: Raw | None) -> ToolResult:
        remaining = iter(texts)
        content = tuple(
            TextContent(next(remaining)) if isinstance(item, TextContent) else item
            for item in result.content
        )
        changed = msgspec.structs.replace(result, content=content)
        if structure is None:
            return changed
        return msgspec.structs.replace(changed, structured_content=structure)

    value, is_read = _read(raw)
    return InspectedResult(
        value,
        texts,
        len(raw) + sum(map(len, texts)),
        linked or not is_read,
        result.is_error,
        any(isinstance(item, EmbeddedResource) for item in result.content),
        result,
        rebuilt,
    )


def _of_theirs(result: RelayedResult) -> InspectedResult:
    members = result.members
    structure, raw = members.get("structuredContent"), members.get("content")
    content = [] if raw is None else _items.decode(raw)
    holders = [holder for item in content for holder in _holders(item)]
    besides = [
        holder for item in content for holder in _objects(item) if _besides(holder, _OF_ITEMS)
    ]
    other_members = _besides(members, _OF_RESULTS)
    more = [encode(_besides(holder, _OF_ITEMS)).decode() for holder in besides]
    more += [encode(other_members).decode()] if other_members else []
    if unread := any(json_in(text) is None for text in more):
        besides, other_members, more = [], {}, []

    def rebuilt(texts: list[str], structure: Raw | None) -> RelayedResult:
        remaining = iter(texts)
        for holder in holders:
            holder["text"] = next(remaining)
        for holder in besides:
            holder.update(decode_json(next(remaining).encode()))
        changed = {"content": Raw(encode(content))} if content else {}
        changed |= _rest.decode(next(remaining)) if other_members else {}
        if structure is not None:
            changed["structuredContent"] = structure
        return RelayedResult({**members, **changed})

    value, is_read = _read(b"" if structure is None else bytes(structure))
    promised = raw is None and structure is None and _is_promise(members)
    linked = any(_kind(item) == "resource_link" for item in content)
    return InspectedResult(
        value,
        [*(holder["text"] for holder in holders), *more],
        sum(len(memoryview(member)) for member in members.values()),
        promised or linked or unread or not is_read,
        members.get("isError") == Raw(b"true"),
        any(map(_has_bytes, content)),
        result,
        rebuilt,
    )


def _read(raw: bytes) -> tuple[Any, bool]:
    """The structured content, and whether it could be decoded: not if it is too deep, or has a
    number out of range."""
    try:
        return (decode_json(raw), True) if nests_within(raw, DEPTH) else (None, False)
    except ParseError:
        return None, not raw


def hide(result: InspectedResult, hidden: Iterable[str]) -> None:
    """Mask `hidden` values wherever a result repeats them. Raises InvalidPattern if too many."""
    long = sorted((text for text in hidden if len(text) >= SHORTEST), key=len, reverse=True)
    if long:
        any_of = Pattern.of_any(long)
        numbers = frozenset(long)
        result.value = _without(result.value, any_of, numbers)
        result.texts = [
            _change_text(text, lambda value: _without(value, any_of, numbers))
            for text in result.texts
        ]
    if short := [text for text in hidden if 0 < len(text) < SHORTEST]:
        words = Pattern.of_words(short)
        result.texts = [_mask_words(text, words) for text in result.texts]


def _change_text(text: str, change: Callable[[Any], Any]) -> str:
    embedded = EmbeddedJson.of(text)
    return change(text) if embedded is None else embedded.change(change, change)


def _mask_words(text: str, words: Pattern) -> str:
    embedded = EmbeddedJson.of(text)
    return (
        text
        if embedded is None
        else embedded.change(_same, lambda prose: words.replace(prose, MASK))
    )


def _same(value: Any) -> Any:
    return value


def _without(value: Any, hidden: Pattern, numbers: frozenset[str]) -> Any:
    def mask_leaf(leaf: Any) -> Any:
        if isinstance(leaf, str):
            return hidden.replace(leaf, MASK) if hidden.is_in(leaf) else leaf
        if isinstance(leaf, int | float) and not isinstance(leaf, bool) and str(leaf) in numbers:
            return MASK
        return leaf

    return _leaves(value, mask_leaf)


def _leaves(value: Any, change: Change) -> Any:
    """`value` with `change` applied to all that is no object or array; the same object if
    unchanged."""
    if isinstance(value, dict):
        changed = {
            name: after
            for name, inner in value.items()
            if (after := _leaves(inner, change)) is not inner
        }
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [_leaves(inner, change) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return change(value)


def _holders(item: Any) -> list[dict[str, Any]]:
    """The objects of an item with a `text`."""
    return [part for part in _objects(item) if type(part.get("text")) is str]


def _objects(item: Any) -> list[dict[str, Any]]:
    """A content item, and its embedded resource."""
    inner = item.get("resource") if isinstance(item, dict) else None
    return [part for part in (item, inner) if isinstance(part, dict)]


def _besides(members: Mapping[str, Any], apart: frozenset[str]) -> dict[str, Any]:
    """The other members, such as `_meta`: inspected as a JSON text."""
    return {name: value for name, value in members.items() if name not in apart}


def _has_bytes(item: Any) -> bool:
    """Whether an item holds bytes that rules cannot inspect, images and audio excepted."""
    if not isinstance(item, dict):
        return True
    if (kind := item.get("type")) in {"resource", "text"}:
        return not _holders(item)
    return kind not in _LOOKED_AT


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def _is_promise(members: dict[str, Raw]) -> bool:
    """Whether the result is a task, whose result is fetched later."""
    return "task" in members or members.get("resultType") == Raw(b'"task"')


EXPRESSION_LIMITS = (10_000, 1_048_576, 64)  # of `when`: values, bytes of text, nesting levels


@dataclass(slots=True)
class GuardrailOutcome:
    """Outcome of one rule: the inspected value and texts after redaction."""

    value: Any
    texts: list[str]
    is_match: bool = False  # whether the rule matched


class CompiledGuardrail:
    def __init__(self, name: str, rule: Guardrail, steps: int) -> None:
        """`steps`: evaluation limit of `when`. Raises InvalidExpression and InvalidPattern;
        settings are validated for both."""
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

    def look(self, value: Any, texts: list[str], facts: Mapping[str, Any]) -> GuardrailOutcome:
        """Inspect `value`, which is None where there is only text, and `texts`. The effect
        `redact` masks matches. Raises ExpressionFailed."""
        if self._when is not None:
            inspected_value = texts[0] if value is None and texts else value
            if too_much := too_large(inspected_value, *EXPRESSION_LIMITS):
                raise ExpressionFailed(f"it got {too_much}")
            if not self._when.holds({**facts, "value": inspected_value}):
                return GuardrailOutcome(value, texts)
        search = _Search(self._pattern, redacts=self.rule.effect == "redact")
        after = value if value is None else self._apply_to_fields(value, search.change)
        parts = [self._text(text, search) for text in texts]
        by_itself = not (self._fields or self._pattern)  # `when` is the only condition
        return GuardrailOutcome(after, parts, search.is_match or by_itself)

    def _apply_to_fields(self, value: Any, change: Change) -> Any:
        if not self._fields:
            return change(value)
        for path in self._fields:
            value = _at(value, path, change)
        return value

    def _text(self, text: str, search: "_Search") -> str:
        embedded = EmbeddedJson.of(text)
        if embedded is None:  # unreadable JSON: searched as plain characters
            return text if self._fields else search.change(text)
        prose = (lambda value: value) if self._fields else search.change
        return embedded.change(lambda value: self._apply_to_fields(value, search.change), prose)


@dataclass(slots=True)
class _Search:
    pattern: Pattern | None  # None: everything matches
    redacts: bool
    is_match: bool = field(default=False)

    def change(self, value: Any) -> Any:
        """`value` with matches redacted; the same object if unchanged."""
        if self.pattern is None:
            self.is_match = self.is_match or value is not None
            return MASK if self.redacts and value is not None else value
        return _leaves(value, partial(self._leaf, self.pattern))

    def _leaf(self, pattern: Pattern, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value, pattern)
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = str(value)
            return value if self._text(number, pattern) is number else MASK
        return value

    def _text(self, text: str, pattern: Pattern) -> str:
        if not pattern.is_in(text):
            return text
        self.is_match = True
        return pattern.replace(text, MASK) if self.redacts else text


def _at(value: Any, path: tuple[str, ...], change: Change) -> Any:
    """`value` with `change` applied at `path`; "*" matches any member or item, and arrays on the
    way are traversed."""
    if not path:
        return change(value)
    if isinstance(value, list):
        inner_path = path[1:] if path[0] == "*" else path
        items = [_at(inner, inner_path, change) for inner in value]
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


log = logging.getLogger("toolgate.guardrails")

TOOLS = 10_000  # whose plans are cached


@dataclass(frozen=True, slots=True)
class _Plan:
    """The masks and rules that apply to one tool."""

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
        self._plans: Memo[tuple[Hashable, ...], _Plan | None] = Memo(TOOLS)

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return (self._settings.mask or bool(self._rules)) and self._plan(tool) is not None

    def guard(self, execute: Execute) -> Execute:
        async def guard_call(call: ToolCall) -> ToolResult | RelayedResult:
            plan = self._plan(call.tool)
            if plan is None:
                return await execute(call)
            try:
                call = self._check_arguments(call, plan)
                try:
                    result = await execute(call)
                except RelayedFault as fault:
                    raise self._inspect_fault(call, plan, fault) from fault
                return self._pass_result(call, plan, result)
            except _Denied as denied:
                return _refusal(call, denied)

        return guard_call

    def screen(self, call: ToolCall, result: ToolResult) -> ToolResult | None:
        """The result of a call that is not made, as the caller would get it; None: a rule refuses
        it."""
        plan = self._plan(call.tool)
        if plan is None:
            return result
        try:
            passed = self._pass_result(call, plan, result)
        except _Denied:
            return None
        return passed if isinstance(passed, ToolResult) else None

    def _plan(self, tool: Tool) -> _Plan | None:
        # Everything that `concerns` compares; the digest covers schemas and texts alone.
        key = (tool.digest, tool.name, tool.source, tool.domain, tool.tags, tool.aliases)
        plan = self._plans.get(key, UNSET)
        return self._plans.put(key, self._make_plan(tool)) if plan is UNSET else plan

    def _make_plan(self, tool: Tool) -> _Plan | None:
        if tool.binding.facts.own:
            return None  # built-in tools return descriptions only
        inputs = outputs = None
        if self._settings.mask:
            inputs = masks_of(bytes(tool.input_schema))
            outputs = None if tool.output_schema is None else masks_of(bytes(tool.output_schema))
        rules = [rule for rule in self._rules if rule.concerns(tool)]
        plan = _Plan(
            inputs,
            outputs,
            [rule for rule in rules if rule.rule.looks_at == "arguments"],
            [rule for rule in rules if rule.rule.looks_at == "result"],
        )
        return None if plan.empty else plan

    def _check_arguments(self, call: ToolCall, plan: _Plan) -> ToolCall:
        """Apply the rules to the arguments. Redacted arguments may violate the tool's schema:
        the service rejects them then."""
        rules = _of(plan.arguments, call)
        if not rules:
            return call
        value, facts = call.arguments, _facts(call)
        if len(encode(value)) > self._settings.inspect_bytes:
            self._too_large(rules[0])
            return call
        for rule in rules:
            value = _look(rule, value, [], facts).value
        return call if value is call.arguments else msgspec.structs.replace(call, arguments=value)

    def _pass_result(
        self, call: ToolCall, plan: _Plan, result: ToolResult | RelayedResult
    ) -> ToolResult | RelayedResult:
        rules = _of(plan.results, call)
        if not (rules or plan.outputs or plan.inputs):
            return result
        inspected = inspect_result(result)
        hidden: set[str] = set()
        if plan.outputs is not None and not inspected.mask(plan.outputs, hidden):
            self._too_large(None)
        if plan.inputs is not None:
            plan.inputs.mask(call.arguments, hidden)
            if inspected.failed:  # errors may repeat arguments
                inspected.mask(plan.inputs, hidden)
        try:
            hide(inspected, hidden)
        except InvalidPattern:  # too many to search for
            self._too_large(None)
        if rules and (inspected.opaque or inspected.size > self._settings.inspect_bytes):
            self._too_large(rules[0])
        elif rules:
            facts = _facts(call)
            for rule in rules:
                looked = _look(rule, inspected.value, inspected.texts, facts)
                inspected.value, inspected.texts = looked.value, looked.texts
        return inspected.result()

    def _inspect_fault(self, call: ToolCall, plan: _Plan, fault: RelayedFault) -> RelayedFault:
        """Inspect the error of another server as an equivalent result."""
        result = RelayedResult(
            {
                "isError": Raw(b"true"),
                "content": Raw(encode([{"type": "text", "text": fault.message}])),
                "structuredContent": Raw(encode(fault.data)),
            }
        )
        passed = self._pass_result(call, plan, result)
        if passed is result or not isinstance(passed, RelayedResult):
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


def _of(rules: Sequence[CompiledGuardrail], call: ToolCall) -> list[CompiledGuardrail]:
    """The rules that the caller is not exempt from."""
    roles = call.context.principal.roles
    return [rule for rule in rules if not rule.exempts(roles)]


def _look(
    rule: CompiledGuardrail, value: Any, texts: list[str], facts: Mapping[str, Any]
) -> GuardrailOutcome:
    try:
        looked = rule.look(value, texts, facts)
    except ExpressionFailed as error:
        log.warning("guardrail_failed", extra={"rule": rule.name, "reason": str(error)[:200]})
        raise _Denied(rule.name, "the rule cannot be applied") from error
    if looked.is_match and rule.rule.effect == "deny":
        raise _Denied(rule.name, rule.rule.reason)
    return looked


def _facts(call: ToolCall) -> dict[str, Any]:
    """Tool and principal for expressions; no principal if its claims exceed the limits."""
    facts: dict[str, Any] = {"tool": {"name": call.tool.name, "source": call.tool.source}}
    if (caller := facts_of(call.context.principal)) is not None:
        facts["principal"] = caller
    return facts


def _refusal(call: ToolCall, denial: _Denied) -> ToolResult:
    """Error result that names the rule and its reason, without any of the content."""
    log.info("guardrail_denied", extra={"rule": denial.rule, "tool": call.tool.name})
    text = f"Refused by the guardrail {denial.rule!r}"
    text += f": {denial.reason}" if denial.reason else ""
    return refused_result(call, f"guardrails.{denial.rule}", text)


def refused_result(call: ToolCall, rule: str, text: str) -> ToolResult:
    """The error result of a call that `rule` refuses, which is noted for the audit log."""
    note = call.context.note
    if note is not None:
        note.decision, note.rule = "deny", rule
    structure: Raw | Any = UNSET
    if call.tool.binding.action is not None:  # hybrid clients expect a status
        structure = Raw(encode({"status": 403, "body": text}))
    return ToolResult((TextContent(text),), structure, is_error=True)
