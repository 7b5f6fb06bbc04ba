"""Hooks around calls: `before` in front of the rules, `after` next to the service.

    audit → before → rules, limits, approvals → guardrails → after → breaker → service

What a hook changes is validated by the tool's schema and judged by the rules; approvals show it;
marks and guardrails mask what `after` returns. Hooks run once for each call. A 2026-07-28 client
that answers questions sends its call again: the arguments that its first round was made with then
come back in the sealed `requestState`, for the same caller, tool, arguments and hooks alone.
"""

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeGuard

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from config.source_conflicts import FRAMING
from gateway.context import Principal, ServiceHeaders
from gateway.interfaces import Execute, HookEffects, ToolCall
from gateway.middleware.guardrails import refused_result
from gateway.middleware.hooks.configured_hook import (
    VERSION_CHARACTERS,
    FailedAnswer,
    Hook,
    HookAnswer,
    HookBusy,
    HookFailed,
    HookResult,
)
from gateway.policy.engine import NO_RUN, facts_of, values_of_run
from gateway.protocol.account_request_state import split_state
from gateway.protocol.revision_adapter import tool_result
from gateway.protocol.sealed_state import Sealer
from schemas.cel_expressions import ExpressionFailed
from schemas.errors import ConnectionRequired, RelayedFault
from schemas.json_schema.checker import Checker
from schemas.jsonrpc import decode_json, encode
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import FIELDS, RelayedResult, Tool, ToolResult

STATE = "toolgate/hooks:"  # begins a requestState that hooks have wrapped
PURPOSE = "hooks of a call"
TOOLS = 10_000  # whose checkers are kept
FAILURE_CHARACTERS = 200  # of the reason in a record
PATHS_SHOWN, PATH_CHARACTERS = 50, 200  # changed arguments in a record, and of each
MEMBERS = ("content", "structuredContent", "isError", "_meta")  # members of a result
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.1
INPUT_REQUIRED = Raw(b'"input_required"')
TASK = Raw(b'"task"')

Result = ToolResult | RelayedResult
Seal = Callable[[], Awaitable[Sealer]]


class _Passed(Struct, frozen=True, array_like=True):
    """Sealed state of a call, by which its next round goes on without its hooks."""

    arguments: bytes  # JSON
    headers: dict[str, str]  # for the service
    state: str | None  # the server's own requestState
    record: str  # of the hooks, for the audit log


class BeforeHooks:
    """Guard in front of the rules."""

    def __init__(self, hooks: Sequence[Hook], sealer: Seal, rounds_s: float) -> None:
        """`rounds_s`: how long a client may take to answer questions."""
        self._hooks = hooks
        self._sealer = sealer
        self._rounds_s = rounds_s
        self._checkers: Memo[str, Checker] = Memo(TOOLS)
        named = [(hook.name, hook.code.version) for hook in hooks]
        self._digest = hashlib.sha256(encode(named)).hexdigest()

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return concern(self._hooks, tool)

    def guard(self, execute: Execute) -> Execute:
        async def ask_before(call: ToolCall) -> Result:
            bound = self._bound_to(call)
            passed = await self._passed_before(call, bound)
            if passed is not None:
                call = _resume(call, passed)
            else:
                answer = await self._ask_all(call)
                if isinstance(answer, ToolResult):
                    return answer
                call = answer
            try:
                result = await execute(call)
            except ConnectionRequired as fault:  # its client sends it again, once there is one
                fault.retry_state = await self._seal(call, None, bound)
                raise
            if not _asks_client(result):
                return result
            own_state = result.members.get("requestState")
            state = None if own_state is None else msgspec.json.decode(own_state, type=str)
            sealed = Raw(encode(STATE + await self._seal(call, state, bound)))
            return RelayedResult({**result.members, "requestState": sealed})

        return ask_before

    async def _ask_all(self, call: ToolCall) -> ToolCall | ToolResult:
        """The call as the hooks have changed it, or the result that refuses it."""
        for hook in self._hooks:
            if not _is_asked(hook, call):
                continue
            question = partial(hook.ask, describe(hook, call), partial(self._check, call))
            answer = await ask_for(call, hook, question)
            if isinstance(answer, ToolResult):
                return answer
            if not isinstance(answer.arguments, UnsetType):
                call = replace(call, arguments=_with_selection(call, answer.arguments))
            call = _with_effects(call, answer)
        return call

    def _check(self, call: ToolCall, answer: HookAnswer) -> None:
        """Raises HookFailed for arguments that the tool does not take, and unusable headers."""
        check_headers(call, answer)
        action = call.tool.binding.action
        if isinstance(answer.arguments, UnsetType) or (action is not None and not action.validated):
            return
        digest = call.tool.digest
        checker = self._checkers.get(digest) or self._checkers.put(
            digest,
            Checker(bytes(call.tool.input_schema), described=call.tool.binding.facts.typed),
        )
        try:
            fits = checker.accepts(answer.arguments)
        except ValueError as error:
            raise HookFailed("its arguments cannot be checked") from error
        if not fits:
            raise HookFailed("its arguments do not fit the schema of the tool")

    async def _passed_before(self, call: ToolCall, bound: bytes) -> _Passed | None:
        """The state that an earlier round has sealed. Raises InvalidParams for a state that no
        hooks have sealed for this call."""
        head, sealed = split_state(call.context.params)
        if not sealed:
            state = call.context.params.get("requestState")
            if not isinstance(state, str) or not state.startswith(STATE):
                return None
            sealed = state.removeprefix(STATE)
        passed = (await self._sealer()).unseal(PURPOSE, sealed, _Passed, bound)
        return replace(passed, state=head) if head else passed

    async def _seal(self, call: ToolCall, state: str | None, bound: bytes) -> str:
        """The decisions of hooks, with the state of a server that asks its client."""
        headers = {} if call.hooked is None else dict(call.hooked.headers)
        record = "" if call.context.note is None else call.context.note.hooks
        passed = _Passed(encode(call.arguments), headers, state, record)
        return (await self._sealer()).seal(PURPOSE, passed, bound, self._rounds_s)

    def _bound_to(self, call: ToolCall) -> bytes:
        digest = hashlib.sha256(encode(call.arguments)).hexdigest()
        return encode([*call.context.principal.key, call.tool.id, digest, self._digest])


class AfterHooks:
    """Guard next to the service, which also gives the answers of `before` hooks, and asks for
    credentials: for each round of a call, as no client may carry them."""

    def __init__(
        self, hooks: Sequence[Hook], *, before: Sequence[Hook], credential: Sequence[Hook]
    ) -> None:
        self._hooks = hooks
        self._before = before
        self._credential = credential

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return concern((*self._hooks, *self._before, *self._credential), tool)

    def guard(self, execute: Execute) -> Execute:
        async def ask_after(call: ToolCall) -> Result:
            answer = None if call.hooked is None else call.hooked.answer
            try:
                result: Result = await self._execute(execute, call) if answer is None else answer
            except RelayedFault as fault:
                error = {"code": fault.code, "message": fault.message, "data": fault.data}
                instead = await self._ask_all(call, None, error)
                if instead is None:
                    raise
                return instead
            if _asks_client(result):
                return result  # the call goes on
            return await self._ask_all(call, result, None) or result

        return ask_after

    async def _execute(self, execute: Execute, call: ToolCall) -> Result:
        """Make the call, with the headers of hooks."""
        headers = {} if call.hooked is None else dict(call.hooked.headers)
        for hook in self._credential:
            if not _is_asked(hook, call):
                continue
            question = partial(hook.ask, describe(hook, call), partial(check_headers, call))
            answer = await ask_for(call, hook, question)
            if isinstance(answer, ToolResult):
                return answer
            if not isinstance(answer.headers, UnsetType):
                headers |= answer.headers
        if headers and call.source is not None:
            hooked = ServiceHeaders(call.source.place, headers)
            call = replace(call, context=replace(call.context, hooked=hooked))
        return await execute(call)

    async def _ask_all(self, call: ToolCall, result: Result | None, error: Any) -> Result | None:
        """The result after all hooks; None where they leave it, or the error, as it is."""
        changed: Result | None = None
        for hook in self._hooks:
            if not _is_asked(hook, call):
                continue
            latest = result if changed is None else changed
            facts = {"error": error} if latest is None else {"result": _encode_shown(latest, hook)}
            event = {**describe(hook, call), **facts}
            answer = await ask_for(
                call, hook, partial(hook.ask, event, partial(_check_last, latest))
            )
            if isinstance(answer, ToolResult):
                return answer
            if isinstance(answer.result, HookResult):
                changed = _replace_result(latest, answer.result)
        return changed


async def ask_for(
    call: ToolCall, hook: Hook, ask: Callable[[], Awaitable[HookAnswer]]
) -> HookAnswer | ToolResult:
    """The answer of a hook, which is noted for the audit log, or the result that refuses the
    call."""
    began, answer, failure = time.perf_counter(), None, "cancelled"
    try:
        answer = await ask()
        failure = answer.failure if isinstance(answer, FailedAnswer) else ""
    except HookFailed as error:
        failure = str(error)
        if isinstance(error, HookBusy):
            return _refuse(call, hook, "it is busy with other calls; try again")
        return _refuse(call, hook, "it failed, and calls do not pass without it")
    finally:
        _note(call, hook, answer, failure=failure, seconds=time.perf_counter() - began)
    return answer if answer.refuse is None else _refuse(call, hook, answer.refuse)


def check_headers(call: ToolCall, answer: HookAnswer) -> None:
    """Raises HookFailed for headers that cannot be sent to the service of a call."""
    if isinstance(answer.headers, UnsetType):
        return
    if not call.tool.binding.facts.takes_headers:
        raise HookFailed("it gives headers for a tool whose service takes none")
    for name, value in answer.headers.items():
        if not HEADER_NAME.fullmatch(name) or name.lower() in FRAMING:
            raise HookFailed("it gives a header with a name that may not be")
        if not (value.isascii() and value.isprintable()):
            raise HookFailed("it gives a header that is not printable ASCII")


def concern(hooks: Iterable[Hook], tool: Tool) -> bool:
    """Whether any of the hooks is about a tool; built-in tools return descriptions only."""
    return not tool.binding.facts.own and any(hook.concerns(tool) for hook in hooks)


def describe(hook: Hook, call: ToolCall) -> dict[str, Any]:
    """The event of a call: facts, and neither tokens nor secrets."""
    context, tool = call.context, call.tool
    principal = context.principal
    run = values_of_run(context.run or NO_RUN)
    arguments = call.arguments
    if isinstance(arguments, dict) and FIELDS in arguments:
        arguments = {name: value for name, value in arguments.items() if name != FIELDS}
    upload = context.upload
    return {
        **describe_principal(hook, principal),
        "front": context.revision.name,
        "requestId": context.request_id,
        "attempt": context.attempt,
        "tool": {
            "name": tool.name,
            "source": tool.source,
            "tier": tool.tier,
            "hints": tool.annotations,
        },
        "arguments": arguments,
        "context": {**run, "absent": context.absent},
        **({} if upload is None else {"upload": _size_of(upload.data)}),
    }


def describe_principal(hook: Hook, principal: Principal) -> dict[str, Any]:
    """The caller, with the claims that the hook is configured to get."""
    claims = {name: _claim(principal.claims, name) for name in hook.settings.claims}
    return {
        "tenant": principal.tenant,
        "principal": principal.id,
        "roles": sorted(principal.roles),
        "claims": {name: value for name, value in claims.items() if value is not None},
    }


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, or at this dotted path; None: there is none."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _is_asked(hook: Hook, call: ToolCall) -> bool:
    """Whether a hook is asked about a call: also where its `when` cannot be evaluated."""
    if not hook.concerns(call.tool):
        return False
    if hook.when is None:
        return True
    caller = facts_of(call.context.principal)
    tool = {"name": call.tool.name, "source": call.tool.source}
    facts = {"tool": tool, "arguments": call.arguments}
    try:
        return hook.when.holds(facts if caller is None else {**facts, "principal": caller})
    except ExpressionFailed:
        return True


def _refuse(call: ToolCall, hook: Hook, reason: str) -> ToolResult:
    text = f"Refused by the hook {hook.name!r}: {reason}"
    return refused_result(call, f"hooks.{hook.name}", text)


def _note(
    call: ToolCall, hook: Hook, answer: HookAnswer | None, *, failure: str, seconds: float
) -> None:
    note = call.context.note
    if note is None:
        return
    version = hook.code.version
    facts: dict[str, Any] = {"name": hook.name, "us": int(seconds * 1e6)}
    if failure:
        facts["failed"] = failure[:FAILURE_CHARACTERS]
    if answer is not None:
        version = answer.version[:VERSION_CHARACTERS] or version
        changed = sorted(answer.changes - {"arguments"})
        if not isinstance(answer.arguments, UnsetType):
            paths = islice(_changed_paths(call.arguments, answer.arguments), PATHS_SHOWN)
            changed += [path[:PATH_CHARACTERS] for path in paths]
        facts |= {"changed": changed} if changed else {}
    facts |= {"version": version} if version else {}
    before = note.hooks[:-1] + "," if note.hooks else "["
    note.hooks = f"{before}{encode(facts).decode()}]"


def _changed_paths(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """JSON Pointers of what differs, deepest members first named."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"
            yield from _changed_paths(before.get(name, UNSET), after.get(name, UNSET), inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changed_paths(old, new, f"{path}/{index}")
    elif type(before) is not type(after) or before != after:
        yield path


def _with_effects(call: ToolCall, answer: HookAnswer) -> ToolCall:
    """The call with the answer of the first hook that gives one, and the headers of all."""
    hooked = call.hooked or HookEffects()
    if isinstance(answer.answer, HookResult) and hooked.answer is None:
        hooked = replace(hooked, answer=_own_result(answer.answer))
    if not isinstance(answer.headers, UnsetType):
        hooked = replace(hooked, headers={**hooked.headers, **answer.headers})
    return call if hooked == HookEffects() else replace(call, hooked=hooked)


def _with_selection(call: ToolCall, arguments: dict[str, Any]) -> dict[str, Any]:
    """Changed arguments, with the fields that the caller has asked for."""
    original = call.arguments
    has_fields = isinstance(original, dict) and FIELDS in original
    return {**arguments, FIELDS: original[FIELDS]} if has_fields else arguments


def _resume(call: ToolCall, state: _Passed) -> ToolCall:
    """The next round of a call, as its hooks let it pass."""
    params = {name: value for name, value in call.context.params.items() if name != "requestState"}
    if state.state is not None:
        params["requestState"] = state.state
    if call.context.note is not None:
        call.context.note.hooks = state.record
    context = replace(call.context, params=params)
    hooked = HookEffects(headers=state.headers)
    return replace(call, arguments=decode_json(state.arguments), context=context, hooked=hooked)


def _asks_client(result: Result) -> TypeGuard[RelayedResult]:
    return isinstance(result, RelayedResult) and result.members.get("resultType") == INPUT_REQUIRED


def _check_last(result: Result | None, _answer: HookAnswer) -> None:
    """Raises HookFailed for a result that no hook can see."""
    if isinstance(result, RelayedResult):
        members = result.members
        if members.get("resultType") == TASK or ("task" in members and "content" not in members):
            raise HookFailed("the result comes later, as a task")


def _encode_shown(result: Result, hook: Hook) -> Any:
    """The result as a hook gets it; size and SHA-256 of a long one."""
    encoded = encode(
        result
        if isinstance(result, ToolResult)
        else {name: result.members[name] for name in MEMBERS if name in result.members}
    )
    long = len(encoded) > hook.settings.result_bytes
    return _size_of(encoded) if long else Raw(encoded)


def _size_of(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _replace_result(result: Result | None, instead: HookResult) -> Result:
    """The result of a hook, in the form of the one that it replaces."""
    if not isinstance(result, RelayedResult):
        return _own_result(instead)
    other_members = {name: value for name, value in result.members.items() if name not in MEMBERS}
    return RelayedResult({**other_members, "content": Raw(b"[]"), **_members(instead)})


def _own_result(hook_result: HookResult) -> ToolResult:
    return tool_result(_members(hook_result))


def _members(hook_result: HookResult) -> dict[str, Raw]:
    members: dict[str, Raw] = msgspec.json.decode(encode(hook_result), type=dict[str, Raw])
    return members
