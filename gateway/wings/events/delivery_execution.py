"""Executes a delivery: the call of its tool for its caller, and what its outcome means.

A failure is final, or worth another attempt. A call whose outcome is unknown is repeated only
where that does no harm.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from msgspec import Raw

from config.events import EventsSettings
from gateway.context import CallHeaders
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import (
    StoredCaller,
    current_caller,
    later_context,
    read_caller,
)
from gateway.policy.approval_gate import awaited_approval
from gateway.wings.events.invocation_journal import EXPIRED_ERROR, Delivery, End, Reason
from gateway.wings.events.task_questions import TaskQuestions
from gateway.wings.interface import WingParts
from registry.access.approvals import Approvals
from schemas.errors import (
    ApprovalRequired,
    ConnectionRequired,
    Fault,
    InternalError,
    RelayedFault,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from schemas.jsonrpc import decode_json, encode
from schemas.tool import Tool, ToolResult

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that another attempt may not have
NOT_DONE = frozenset({425, 429})  # statuses of requests that had no effect
LONGEST_WAIT_S = 3600  # for a limit
UNKNOWN = (Unreachable, RelayedFault, InternalError)


@dataclass(frozen=True, slots=True)
class Pause:
    """The call was not made: the delivery is given back, and the attempt does not count."""

    delay_s: float
    approval: str | None = None


class Execution:
    def __init__(
        self, parts: WingParts, settings: EventsSettings, questions: TaskQuestions
    ) -> None:
        self._parts = parts
        self.settings = settings
        self._questions = questions

    async def outcome(self, delivery: Delivery) -> End | Pause:
        """The outcome of a call. Raises psycopg.OperationalError and PoolTimeout."""
        caller = read_caller(delivery.principal)
        try:
            principal = await current_caller(self._parts.pool, caller.principal)
        except ProblemDetails as problem:
            return failed_end(delivery, problem.detail, "rejected")
        if delivery.approval_id is not None:
            paused = await self._check_approval(delivery, delivery.approval_id)
            if paused is not None:
                return paused
        headers = CallHeaders(
            idempotency_key=delivery.idempotency_key,
            correlation_id=delivery.correlation_id,
            traceparent=delivery.traceparent,
        )
        context = later_context(
            caller,
            principal,
            request_id=delivery.invocation_id,
            headers=headers,
            attempt=delivery.attempt,
            asker=self._questions.asker(delivery, caller),
        )
        tool = self._tool(delivery, caller)
        name = delivery.skill_name if tool is None else tool.name
        left_s = delivery.deadline_s
        with anyio.move_on_after(left_s):
            try:
                result = await self._parts.call(
                    context, name, decode_json(delivery.arguments.encode())
                )
            except Fault as fault:
                return self._of_fault(delivery, fault)
            return await self._of_result(delivery, caller, result)
        return delivery.end(error=EXPIRED_ERROR.encode(), reason="expired")

    async def _check_approval(self, delivery: Delivery, approval_id: str) -> End | Pause | None:
        """None once the call is approved."""
        approvals = Approvals(self._parts.pool, delivery.host_id)
        approval = await approvals.get(approval_id)
        if approval is None or approval.state == "denied":
            return failed_end(delivery, "Its approval was denied", "rejected")
        if approval.state != "waiting":
            return None
        if not await approvals.is_waiting(approval_id):
            return failed_end(delivery, "Nobody approved it in time", "rejected")
        return Pause(self.settings.approval_poll_s, approval_id)

    def _of_fault(self, delivery: Delivery, fault: Fault) -> End | Pause:
        if isinstance(fault, ApprovalRequired):
            return Pause(self.settings.approval_poll_s, (fault.data or {}).get("approval"))
        if isinstance(fault, ConnectionRequired):  # the call was not made
            return self._again(delivery, fault.message, wait_s=self.settings.connection_retry_s)
        if isinstance(fault, TooManyRequests):
            return Pause(float(fault.retry_after))
        if isinstance(fault, Unavailable):  # the call was not made
            return self._again(delivery, fault.message, wait_s=float(fault.retry_after))
        if isinstance(fault, UNKNOWN):
            if delivery.repeatable:
                return self._again(delivery, fault.message)
            return failed_end(delivery, f"The outcome is unknown: {fault.message}", code=fault.code)
        return failed_end(delivery, fault.message, "rejected", code=fault.code)

    async def _of_result(
        self, delivery: Delivery, caller: StoredCaller, result: ToolResult
    ) -> End | Pause:
        approval = await self._approval_of(delivery, caller, result)
        if approval is not None:
            return Pause(self.settings.approval_poll_s, approval)
        members = _error_members(result)
        if (wait_s := wait_of(members)) is not None:
            return Pause(wait_s)
        result_json = encode(result)
        if len(result_json) > self.settings.result_bytes:
            text = (
                f"The result has {len(result_json)} bytes, more than are kept (events.result_bytes)"
            )
            return failed_end(delivery, text)
        if not result.is_error:
            return delivery.end(result=result_json)
        message = "".join(result.texts[:1]).split("\n", 1)[0][:300] or "The tool failed"
        if self._is_worth_another(delivery, caller, members):
            return self._again(delivery, message, wait_s=asked_wait_s(members), result=result_json)
        return failed_end(delivery, message, result=result_json, status=members.get("status"))

    def _is_worth_another(
        self, delivery: Delivery, caller: StoredCaller, members: Mapping[str, Any]
    ) -> bool:
        """Whether another attempt may have another outcome, and does no harm."""
        status = members.get("status")
        if isinstance(status, int):
            return status in (AGAIN if delivery.repeatable else NOT_DONE)
        tool = self._tool(delivery, caller)
        remote = tool is not None and tool.binding.facts.remote and not tool.binding.facts.relayed
        return delivery.repeatable and remote  # a service that gave no answer

    async def _approval_of(
        self, delivery: Delivery, caller: StoredCaller, result: ToolResult
    ) -> str | None:
        """The approval that the call waits for."""
        tool = self._tool(delivery, caller)
        name = delivery.skill_name if tool is None else tool.name
        approvals = Approvals(self._parts.pool, delivery.host_id)
        approval = await awaited_approval(result, approvals, caller.principal.id, name)
        return None if approval is None else approval.id

    def _tool(self, delivery: Delivery, caller: StoredCaller) -> Tool | None:
        catalog = self._parts.catalogs.of(delivery.host_id, caller.toolset)
        return catalog.find_called(delivery.skill_name)

    def _again(
        self, delivery: Delivery, message: str, *, wait_s: float = 0.0, result: bytes | None = None
    ) -> End:
        """The report of an attempt that is followed by another one, if there is one left."""
        if delivery.attempt >= delivery.max_attempts:
            return failed_end(delivery, message, "attempts", result=result)
        retry_s = max(wait_s, backoff(delivery.attempt, self.settings))
        return delivery.end(error=encode({"message": message}), retry_s=retry_s)


def backoff(attempt: int, settings: EventsSettings) -> float:
    """Delay after an attempt that failed, with full jitter."""
    longest: float = min(settings.backoff_max_s, settings.backoff_s * 2 ** min(attempt - 1, 30))
    return random.uniform(0, longest)  # noqa: S311 - no secret


def failed_end(
    delivery: Delivery,
    message: str,
    reason: Reason = "error",
    *,
    code: int | None = None,
    status: Any = None,
    result: bytes | None = None,
) -> End:
    facts = {"message": message, "code": code, "status": status}
    error = encode({name: value for name, value in facts.items() if value is not None})
    return delivery.end(result=result, error=error, reason=reason)


def wait_of(members: Mapping[str, Any]) -> float | None:
    """The delay that a limit of the gateway demands of the call; None: it was none."""
    wait_s = members.get("retryAfter")
    if type(wait_s) is not int or not set(members) <= {"retryAfter", "limit"}:
        return None
    return float(min(max(wait_s, 1), LONGEST_WAIT_S))


def asked_wait_s(members: Mapping[str, Any]) -> float:
    """The delay that a service asks for before another attempt; 0: none that can be read."""
    wait_s: Any = members.get("retryAfter")
    return float(min(max(wait_s, 0), LONGEST_WAIT_S)) if type(wait_s) in (int, float) else 0.0


def _error_members(result: ToolResult) -> Mapping[str, Any]:
    """The structured content of a failed result."""
    structure = result.structured_content
    if not result.is_error or not isinstance(structure, Raw):
        return {}
    members = decode_json(bytes(structure))
    return members if isinstance(members, dict) else {}
