"""Guardrails: rules over arguments before a service gets them, and over results.

Patterns look at texts and numbers, not at the names of members. JSON in a text is looked at as
the value that it says, so that no escape hides anything.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from config.access import GUARDRAIL_VARIABLES, Guardrail
from config.access import GuardrailsSettings as Settings
from gateway.abc import Call, Execute
from gateway.middleware.told import Told
from gateway.policy.rules import facts_of
from schemas.errors import ParseError, RelayedFault
from schemas.expressions import Expression, ExpressionFailed, compile_expression, too_large
from schemas.globs import ToolGlobs
from schemas.jsonrpc import DEPTH, decode_json, encode, nests_within
from schemas.masking import MASK, Masks, json_in, masks_of
from schemas.memo import Memo
from schemas.patterns import InvalidPattern, Pattern
from schemas.tool import (
    EmbeddedResource,
    RelayedResult,
    ResourceLink,
    TextContent,
    Tool,
    ToolResult,
)

SHORTEST = 4  # characters of what is hidden wherever it stands; less only as a word of a text

_LOOKED_AT = frozenset(("text", "image", "audio", "resource_link"))
# What is looked at by itself, or says nothing, of a result and of an item of its content.
_OF_RESULTS = frozenset(("content", "structuredContent", "isError", "resultType", "task"))
_OF_ITEMS = frozenset(("type", "text", "data", "blob", "mimeType", "resource"))

_items = msgspec.json.Decoder(list[Any])
_rest = msgspec.json.Decoder(dict[str, Raw])


Result = ToolResult | RelayedResult


@dataclass(slots=True)
class Seen:
    """Change `value` and `texts`, then take `result`."""

    value: Any  # the structured content, decoded; None: there is none
    texts: list[str]
    size: int  # in bytes
    opaque: bool  # there is more, which cannot be looked at
    failed: bool  # it is an error, of which schemas say nothing
    has_bytes: bool  # a file is part of it
    original: Result
    rebuilt: Callable[[list[str], Raw | None], Result]  # with these texts; None: structure as it is
    _before: tuple[Any, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = (self.value, tuple(self.texts))

    def masked(self, masks: Masks, hidden: set[str]) -> bool:
        """Mask what a schema marks, also in the texts; whether all could be looked at."""
        changed = masks.applied_by_name if self.failed else masks.applied
        told = [Told.of(text) for text in self.texts]
        whole = self._is_prose_told(masks, told) and not (self.opaque or self.has_bytes)

        def change(value: Any) -> Any:
            return changed(value, hidden)

        if self.value is not None:
            self.value = change(self.value)
        for index, one in enumerate(told):
            if one is not None:
                self.texts[index] = one.changed(change, _same)
        return whole

    def _is_prose_told(self, masks: Masks, told: list[Told | None]) -> bool:
        """Whether no text has JSON that cannot be read, or prose that may tell what is marked. That
        beside structured content says what that says."""
        body = self.value.get("body") if isinstance(self.value, dict) else self.value
        body = body if self.failed else None
        if isinstance(body, str):  # what a service answered, as it came
            told = [*told, Told.of(body)]
        beside = self.value is not None and not isinstance(body, str)
        return all(
            one is not None and (beside or not masks.are_mentioned(one.prose)) for one in told
        )

    def result(self) -> Result:
        value, texts = self._before
        if self.value is value and tuple(self.texts) == texts:
            return self.original
        return self.rebuilt(self.texts, None if self.value is value else Raw(encode(self.value)))


def seen_in(result: Result) -> Seen:
    """Raises msgspec.DecodeError for a result whose content is no array."""
    return _of_ours(result) if isinstance(result, ToolResult) else _of_theirs(result)


def _of_ours(result: ToolResult) -> Seen:
    structure = result.structured_content
    raw = bytes(structure) if isinstance(structure, Raw) else b""
    texts = [item.text for item in result.content if isinstance(item, TextContent)]
    linked = any(isinstance(item, ResourceLink) for item in result.content)

    def rebuilt(texts: list[str], structure: Raw | None) -> ToolResult:
        left = iter(texts)
        content = tuple(
            TextContent(next(left)) if isinstance(item, TextContent) else item
            for item in result.content
        )
        changed = msgspec.structs.replace(result, content=content)
        if structure is None:
            return changed
        return msgspec.structs.replace(changed, structured_content=structure)

    value, is_read = _read(raw)
    return Seen(
        value,
        texts,
        len(raw) + sum(map(len, texts)),
        linked or not is_read,
        result.is_error,
        any(isinstance(item, EmbeddedResource) for item in result.content),
        result,
        rebuilt,
    )


def _of_theirs(result: RelayedResult) -> Seen:
    members = result.members
    structure, raw = members.get("structuredContent"), members.get("content")
    content = [] if raw is None else _items.decode(raw)
    holders = [one for item in content for one in _holders(item)]
    besides = [one for item in content for one in _objects(item) if _besides(one, _OF_ITEMS)]
    own = _besides(members, _OF_RESULTS)
    more = [encode(_besides(holder, _OF_ITEMS)).decode() for holder in besides]
    more += [encode(own).decode()] if own else []
    if unread := any(json_in(text) is None for text in more):
        besides, own, more = [], {}, []

    def rebuilt(texts: list[str], structure: Raw | None) -> RelayedResult:
        left = iter(texts)
        for holder in holders:
            holder["text"] = next(left)
        for holder in besides:
            holder.update(decode_json(next(left).encode()))
        changed = {"content": Raw(encode(content))} if content else {}
        changed |= _rest.decode(next(left)) if own else {}
        if structure is not None:
            changed["structuredContent"] = structure
        return RelayedResult({**members, **changed})

    value, is_read = _read(b"" if structure is None else bytes(structure))
    promised = raw is None and structure is None and _is_promise(members)
    linked = any(_kind(item) == "resource_link" for item in content)
    return Seen(
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
    """The structured content, and whether it could be read: not where it is too deep, or holds a
    number out of range."""
    try:
        return (decode_json(raw), True) if nests_within(raw, DEPTH) else (None, False)
    except ParseError:
        return None, not raw


def hide(seen: Seen, hidden: Iterable[str]) -> None:
    """Mask these texts wherever the result repeats them. Raises InvalidPattern for too many."""
    long = sorted((one for one in hidden if len(one) >= SHORTEST), key=len, reverse=True)
    if long:
        any_of = Pattern.of_any(long)
        numbers = frozenset(long)
        seen.value = _without(seen.value, any_of, numbers)
        seen.texts = [
            _changed(text, lambda one: _without(one, any_of, numbers)) for text in seen.texts
        ]
    if short := [one for one in hidden if 0 < len(one) < SHORTEST]:
        words = Pattern.of_words(short)
        seen.texts = [_worded(text, words) for text in seen.texts]


def _changed(text: str, change: Callable[[Any], Any]) -> str:
    told = Told.of(text)
    return change(text) if told is None else told.changed(change, change)


def _worded(text: str, words: Pattern) -> str:
    told = Told.of(text)
    return text if told is None else told.changed(_same, lambda prose: words.replaced(prose, MASK))


def _same(value: Any) -> Any:
    return value


def _without(value: Any, hidden: Pattern, numbers: frozenset[str]) -> Any:
    if isinstance(value, str):
        return hidden.replaced(value, MASK) if hidden.is_in(value) else value
    if isinstance(value, dict):
        after = {name: _without(inner, hidden, numbers) for name, inner in value.items()}
        return after if any(after[name] is not inner for name, inner in value.items()) else value
    if isinstance(value, list):
        items = [_without(inner, hidden, numbers) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in numbers:
        return MASK
    return value


def _holders(item: Any) -> list[dict[str, Any]]:
    """The objects whose `text` a model reads."""
    return [one for one in _objects(item) if type(one.get("text")) is str]


def _objects(item: Any) -> list[dict[str, Any]]:
    """An item of content, and the resource in it."""
    inner = item.get("resource") if isinstance(item, dict) else None
    return [one for one in (item, inner) if isinstance(one, dict)]


def _besides(members: Mapping[str, Any], apart: frozenset[str]) -> dict[str, Any]:
    """What else is said, as in `_meta`: looked at as a text that is JSON."""
    return {name: value for name, value in members.items() if name not in apart}


def _has_bytes(item: Any) -> bool:
    """Whether it has what no rule looks into, and no picture or sound either."""
    if not isinstance(item, dict):
        return True
    if (kind := item.get("type")) in {"resource", "text"}:
        return not _holders(item)
    return kind not in _LOOKED_AT


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def _is_promise(members: dict[str, Raw]) -> bool:
    """A task, whose result is fetched later."""
    return "task" in members or members.get("resultType") == Raw(b'"task"')


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
        if tool.binding.facts.own:
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
    if call.tool.binding.action is not None:  # its callers know failures with a status
        told = Raw(encode({"status": 403, "body": text}))
    return ToolResult((TextContent(text),), told, is_error=True)
