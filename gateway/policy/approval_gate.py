"""Human approval of calls: pending requests and granted approvals."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import anyio
import msgspec

from config.access import Policy
from gateway.context import Hold
from gateway.interfaces import ToolCall
from gateway.policy.engine import Decision
from registry.access.approvals import ApprovalRequest, Approvals, RunCall, TooManyWaiting, Use
from registry.database.postgres import AWAY, Pool
from schemas.errors import ApprovalRequired, TooManyRequests, Unavailable
from schemas.tool import ToolResult

META_APPROVAL = "toolgate/approval"  # in a result: the approval that the call waits for, its expiry
RETRY_S = 60.0  # retry delay while requests are pending

Display = Callable[[ToolCall], str]
"""The arguments of a call for people to look at: masked, and not too long."""


class AwaitedApproval(NamedTuple):
    """An approval that a call waits for."""

    id: str
    expires: str


async def awaited_approval(
    result: ToolResult, approvals: Approvals, principal_id: str, tool: str
) -> AwaitedApproval | None:
    """The approval that a call waits for, by its result. Results of other servers may name any: it
    is believed only if it is one of this principal for this tool. `approvals`: of its tenant."""
    meta = result.meta if result.is_error and isinstance(result.meta, dict) else {}
    named = meta.get(META_APPROVAL)
    if not isinstance(named, dict) or not isinstance(id_ := named.get("approval"), str):
        return None
    if (approval := await approvals.get(id_)) is None:
        return None
    if (approval.principal, approval.tool) != (principal_id, tool):
        return None
    return AwaitedApproval(id_, str(named.get("expires", "")))


class ApprovalGate:
    def __init__(self, policy: Policy, pool: Callable[[], Pool | None], display: Display) -> None:
        self._policy = policy
        self._pool = pool
        self._display = display

    async def consume(self, call: ToolCall, decision: Decision) -> tuple[Approvals, Use]:
        """Consume the approval of this call; returns its store and use, for `give_back`. Raises
        ApprovalRequired where there is none, TooManyRequests for a caller with too many pending
        requests, and Unavailable."""
        principal, hold = call.context.principal, call.context.hold
        if hold is not None and hold.request_id != call.context.request_id:
            hold = None
        request = ApprovalRequest(
            principal=principal.id,
            tool_id=call.tool.id,
            tool=call.tool.name,
            source=call.tool.source,
            digest=_digest(call),
            definition=call.tool.digest,
            rule=decision.rule,
            reason=decision.reason,
            makers=principal.makers,
        )
        async with _translated_errors():
            if (pool := self._pool()) is None:
                raise Unavailable(
                    "The database of approvals is not connected yet; try again in a moment"
                )
            approvals = Approvals(pool, principal.tenant)
            if hold is not None:
                return approvals, await self._consume_in_run(approvals, request, call, hold)
            if (used := await approvals.use(request)) is not None:
                return approvals, used
            waits_s, limit = self._policy.approval_s, self._policy.approvals
            display = self._display(call)
            try:
                with anyio.CancelScope(shield=True):  # a run takes back only what it knows of
                    id_, until = await approvals.request(request, display, waits_s, limit)
            except TooManyWaiting as error:
                raise TooManyRequests(str(error), RETRY_S) from error
        raise _approval_fault(call, id_, until)

    async def _consume_in_run(
        self, approvals: Approvals, request: ApprovalRequest, call: ToolCall, hold: Hold
    ) -> Use:
        """Raises ApprovalRequired, after it has put the call into `hold`."""
        place = RunCall(hold.run, hold.code_digest, hold.number)
        if (used := await approvals.use_in_run(request, place)) is not None:
            return used
        hold.request, hold.arguments = request, self._display(call)
        hold.waits_s, hold.limit = self._policy.approval_s, self._policy.approvals
        raise ApprovalRequired(f"{request.tool} needs an approval for these arguments", "", "")

    async def give_back(self, approvals: Approvals, use: Use) -> None:
        """Restore the approval of a call that did not complete. Raises Unavailable."""
        async with _translated_errors():
            await approvals.give_back(use)


def _approval_fault(call: ToolCall, id_: str, until: datetime) -> ApprovalRequired:
    expires = write_time(until)
    text = (
        f"{call.tool.name} needs an approval for these arguments. Someone has to approve "
        f"{id_} until {expires}; then make the same call again"
    )
    return ApprovalRequired(text, id_, expires)


def write_time(time: datetime) -> str:
    """The time as RFC 3339, in UTC and whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(call: ToolCall) -> str:
    """Digest of tool revision, arguments and upload, independent of the order of members."""
    content = [call.tool.id, call.tool.digest, call.arguments]
    if call.context.upload is not None:
        content.append(call.context.upload.digest)
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


@asynccontextmanager
async def _translated_errors() -> AsyncIterator[None]:
    try:
        yield
    except AWAY as error:
        raise Unavailable("The database of approvals is unavailable; try again later") from error
