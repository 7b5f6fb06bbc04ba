"""Policy guard of calls: rules over arguments, and approvals. Calls of hidden tools are rejected
before."""

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Raw

from gateway.audit.argument_masking import format_arguments
from gateway.context import Context
from gateway.interfaces import Execute, ToolCall
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.engine import Decision, is_judged
from gateway.policy.visibility import PolicyView
from schemas.errors import ClaimsRequired, ConnectionRequired, Denied, TooManyRequests, Unavailable
from schemas.jsonrpc import encode
from schemas.masking import masks_of
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult

Decide = Callable[[Context, Tool, Any], Decision]
ARGUMENTS_BYTES = 16_384  # of arguments, to approvers
NOT_MADE = (TooManyRequests, Unavailable, ConnectionRequired, ClaimsRequired)  # calls
_ASKS = Raw(b'"input_required"')


class PolicyGuard:
    def __init__(
        self, policy_view: PolicyView, approving: ApprovalGate, *, audited: bool = True
    ) -> None:
        """`audited`: decisions are recorded, also those of no rule."""
        self._policy_view = policy_view
        self._approving = approving
        self._audited = audited

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        if tool.binding.forwards:
            return False
        return self._audited or (not self._policy_view.allows_all and is_judged(tool))

    def guard(self, execute: Execute) -> Execute:
        return self._guarding(execute, self._policy_view.decide)

    def _guarding(self, execute: Execute, decide: Decide) -> Execute:
        def judge_call(call: ToolCall) -> Coroutine[Any, Any, ToolResult | RelayedResult]:
            context = call.context
            decision = decide(context, call.tool, call.arguments)
            note = context.note
            if note is not None:
                note.decision, note.rule = decision.effect, decision.rule
            if decision.effect == "allow":
                return execute(call)
            if decision.effect == "deny":
                raise Denied(f"{decision.rule} denies {call.tool.name}")
            return self._call_approved(execute, call, decision)

        return judge_call

    async def _call_approved(
        self, execute: Execute, call: ToolCall, decision: Decision
    ) -> ToolResult | RelayedResult:
        approvals, used = await self._approving.consume(call, decision)
        if call.context.note is not None:
            call.context.note.decision = "allow"
            if used.granted:  # or nothing would tell the uses of a grant apart
                call.context.note.rule = f"{decision.rule} (granted by {used.approval})"
        try:
            result = await execute(call)
        except NOT_MADE:
            await self._approving.give_back(approvals, used)
            raise
        if isinstance(result, RelayedResult) and result.members.get("resultType") == _ASKS:
            await self._approving.give_back(approvals, used)  # the client retries with the answers
        return result


class ForwarderGuard(PolicyGuard):
    """Policy guard of calls by which another tool is called later: that one is judged, when it is
    accepted and when it is called, by its own annotations and arguments. Here count the rules that
    name the tool that accepts it; where no tool is called, but a worker elsewhere, all rules."""

    def __init__(
        self,
        policy_view: PolicyView,
        approving: ApprovalGate,
        *,
        calls_tool: Callable[[Context, str], bool],
        audited: bool = True,
    ) -> None:
        super().__init__(policy_view, approving, audited=audited)
        self._calls_tool = calls_tool

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return bool(tool.binding.forwards)

    def guard(self, execute: Execute) -> Execute:
        return self._guarding(execute, self._decide)

    def _decide(self, context: Context, tool: Tool, arguments: Any) -> Decision:
        name = arguments.get(tool.binding.forwards)
        forwarded = isinstance(name, str) and self._calls_tool(context, name)
        return self._policy_view.decide(context, tool, arguments, forwarded=forwarded)


def arguments_for_approvers(call: ToolCall) -> str:
    """The arguments of a call as JSON, secrets masked, and size and SHA-256 of its upload."""
    masks = masks_of(bytes(call.tool.input_schema))
    text = format_arguments(call.arguments, encode(call.arguments), masks, ARGUMENTS_BYTES).decode()
    if (upload := call.context.upload) is None:
        return text
    return f"{text} and {len(upload.data)} bytes, SHA-256 {upload.digest}"
