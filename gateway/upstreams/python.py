"""Executes `PythonBinding`: hybrid actions that run inside the gateway."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from anyio import CapacityLimiter
from msgspec import Raw

from gateway.context import Context, Principal
from gateway.http_client.deadline import Deadline
from gateway.hybrid.python_services import Call, Failure, Handler, Service
from gateway.interfaces import Once, RepeatableCommand
from gateway.state.background_tasks import ShieldedTasks
from gateway.upstreams.http.responses_as_results import no_answer, status_failure
from schemas.binding import PythonBinding
from schemas.errors import Fault, InternalError
from schemas.hybrid import RUNTIME_EXCEPTION, Status, StatusFault, status_members
from schemas.jsonrpc import decode_strict, encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

log = logging.getLogger("toolgate.hybrid")

_canonical = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class ActionLimits:
    """Limits on the calls of Python actions."""

    timeout_of: Callable[[str], float]  # seconds for one call, by the name of the source
    threads: int  # concurrent actions that are not async
    calls: int  # concurrent calls whose clients have disconnected


class PythonUpstream:
    """Executes Python actions; commands, and actions in threads, run to completion even if the
    client disconnects."""

    def __init__(self, services: Mapping[str, Service], once: Once, limits: ActionLimits) -> None:
        """An upstream of `services`, by the name of their source. `once` runs a command once per
        idempotency key."""
        self._services = services
        self._once = once
        self._limits = limits
        self._threads = CapacityLimiter(limits.threads)
        self.finishing = ShieldedTasks(limits.calls)

    async def call(
        self,
        tool: Tool,
        source: Source | None,  # noqa: ARG002 - the service is here
        arguments: Any,
        context: Context,
    ) -> ToolResult:
        binding = cast("PythonBinding", tool.binding)  # app/upstreams.py passes this kind only
        service = self._services.get(tool.source)
        function = service.handlers.get(binding.service) if service else None
        if function is None:
            return no_answer(f"The Python service {tool.source} is not loaded in this process")
        data = arguments if binding.argument is None else arguments[binding.argument]
        call = _call(binding, context)
        timeout_s = self._limits.timeout_of(tool.source)
        if binding.side == "query" and function.is_async:
            return await _run(function, data, call, timeout_s)

        def work() -> Coroutine[Any, Any, ToolResult]:
            return self._run_bounded(function, data, call, timeout_s)

        if call.idempotency_key is None or binding.side == "query":
            return await self._finish(work(), timeout_s)
        body = _canonical.encode(data)
        command = RepeatableCommand(_owner(context), call.service, call.idempotency_key, body)
        return await self._finish(self._once(command, lambda: _record_crash(work())), timeout_s)

    async def complete(
        self, function: Handler, data: Any, call: Call, timeout_s: float
    ) -> ToolResult:
        """Call a function that is no action; it runs to completion. Raises InternalError."""
        return await self._finish(self._run_bounded(function, data, call, timeout_s), timeout_s)

    async def _finish(self, work: Coroutine[Any, Any, ToolResult], timeout_s: float) -> ToolResult:
        """Wait for `work` for at most `timeout_s`; it runs on after that."""
        try:
            with Deadline(timeout_s):
                return await self.finishing.run(work)
        except TimeoutError:
            return _timed_out(timeout_s)

    async def _run_bounded(
        self, function: Handler, data: Any, call: Call, timeout_s: float
    ) -> ToolResult:
        if function.is_async:
            return await _run(function, data, call, timeout_s)
        async with self._threads:  # held until the thread ends: it cannot be cancelled
            return await _outcome(function, data, call)


def _call(binding: PythonBinding, context: Context) -> Call:
    call_headers = context.headers
    return Call(
        context.principal,
        context.request_id,
        service=binding.service,
        correlation_id=call_headers.correlation_id,
        idempotency_key=call_headers.idempotency_key,
    )


async def _run(function: Handler, data: Any, call: Call, timeout_s: float) -> ToolResult:
    try:
        with Deadline(timeout_s):
            return await _outcome(function, data, call)
    except TimeoutError:  # ours: a TimeoutError of the action itself is its bug
        return _timed_out(timeout_s)


async def _record_crash(work: Awaitable[ToolResult]) -> ToolResult:
    """Turns a crash into a result to record: a repeated command must not run again."""
    try:
        return await work
    except InternalError:
        return status_failure(500, StatusFault(RUNTIME_EXCEPTION).data)


async def _outcome(function: Handler, data: Any, call: Call) -> ToolResult:
    """Raises InternalError for a bug in the action; the log has the traceback."""
    try:
        return tool_result(await function(data, call))
    except Failure as failure:
        return status_failure(failure.status, _plain(failure.body))
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        extra = {"action": call.service, "request_id": call.request_id}
        log.exception("action_crashed", extra=extra)
        raise InternalError("Internal error") from error


def _owner(context: Context) -> Principal:
    """Owner of an Idempotency-Key; unauthenticated callers share none with principals."""
    anonymous = Principal("", context.principal.tenant)
    return context.principal if context.identity.verified else anonymous


def _timed_out(timeout_s: float) -> ToolResult:
    return no_answer(f"The action did not answer within {timeout_s:g} s", late=True)


def _plain(body: Mapping[str, Any] | Status | str) -> Any:
    return status_members(body) if isinstance(body, Status) else body


def tool_result(value: Any) -> ToolResult:
    """The return value of a function as a result."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(())
    if isinstance(value, str):
        return _text(value)
    raw = encode(value)
    return ToolResult((TextContent(raw.decode()),), Raw(raw))


def _text(value: str) -> ToolResult:
    raw = value.encode()
    try:
        decode_strict(raw)
    except Fault:  # no JSON, or ambiguous JSON: it stays text
        return ToolResult((TextContent(value),))
    return ToolResult((TextContent(value),), Raw(raw))
