"""Requests that run in a session, in both directions: ids, idle timeouts, background tasks.

Our ids are integers that count up; the progress token of a request is its id, so that callers who
share a session cannot collide. Callers get notifications with their own tokens restored.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

import aiohttp
from msgspec import UNSET

from gateway.context import Cancellation
from gateway.http_client.deadline import Deadline
from gateway.upstreams.mcp import message_parsers
from gateway.upstreams.mcp.link_and_handlers import MessageHandler, Timeout
from gateway.upstreams.mcp.message_parsers import ServerMessage
from schemas.errors import Fault, InternalError, ToolgateError, Unavailable
from schemas.jsonrpc import RequestId
from schemas.mcp.messages import CANCELLED, PROGRESS

CLOCK_S = 0.001  # timers may fire this much too early

log = logging.getLogger("toolgate.upstream")


TASK_LIMIT_S = 10.0

REQUESTS_FACTOR = (
    4  # multiple of the limit on concurrent requests of a server; requests beyond it get no answer
)


class IdleTimeout(Deadline):
    """Cancels the task that entered when the idle timeout or the deadline expires, and raises
    TimeoutError on exit."""

    __slots__ = ("_end", "_last_message_at", "_loop", "_paused", "limit_s", "timeout")

    def __init__(self, timeout: Timeout) -> None:
        super().__init__(min(timeout.idle_s, timeout.deadline_s))
        self.timeout = timeout
        self.limit_s = timeout.idle_s  # the limit that expired, once one has
        self._paused = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # while it is entered

    def __enter__(self) -> None:
        super().__enter__()
        self._loop = asyncio.get_running_loop()
        self._last_message_at = self._loop.time()
        self._end = self._last_message_at + self.timeout.deadline_s

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)

    def restart(self) -> None:
        if self._loop is not None:  # a stream without an idle timeout is never entered
            self._last_message_at = self._loop.time()

    def pause(self) -> None:
        """Pause the idle timeout until `resume` was called as often: the server waits for the
        gateway."""
        self._paused += 1

    def resume(self) -> None:
        self._paused -= 1
        self.restart()

    def _expire(self) -> None:
        loop, due = asyncio.get_running_loop(), self._end
        if not self._paused:
            due = min(due, self._last_message_at + self.timeout.idle_s)
        else:
            due = min(due, loop.time() + self.timeout.idle_s)
        if due - loop.time() > CLOCK_S:
            self._timer = loop.call_at(due, self._expire)
        else:
            if due == self._end:
                self.limit_s = self.timeout.deadline_s
            super()._expire()


class TimedTasks:
    """Background tasks of one server, each with a time limit; `close` cancels them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = TASK_LIMIT_S) -> None:
        async def run() -> None:
            try:
                with Deadline(limit_s):
                    await work
            except (aiohttp.ClientError, OSError, ToolgateError) as error:
                kind = type(error).__name__
                log.info("mcp_task_failed", extra={"source": self._name, "error": kind})

        def on_end(task: asyncio.Task[None]) -> None:
            work.close()  # otherwise a coroutine that never started would warn
            self._tasks.discard(task)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(on_end)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Send = Callable[[bytes], Awaitable[None]]


class Exchange:
    """One request of the gateway, until it is answered."""

    __slots__ = (
        "body",
        "cancel_reason",
        "endless",
        "handler",
        "id",
        "idle_timeout",
        "read_bytes",
        "request_count",
        "server_requests",
        "token",
    )

    def __init__(
        self,
        id_: int,
        method: str,
        params: Mapping[str, Any],
        *,
        handler: MessageHandler | None,
        timeout: Timeout,
    ) -> None:
        self.id = id_
        self.handler = handler
        self.idle_timeout = IdleTimeout(timeout)
        self.token, params = _with_token(params, id_)  # UNSET: no progress is wanted
        self.body = message_parsers.call(id_, method, params)
        self.server_requests: set[asyncio.Task[None]] = set()
        self.request_count = 0
        self.read_bytes = 0
        self.endless = False  # its response has no size limit
        self.cancel_reason = ""  # that its client gave

    @property
    def cancel_params(self) -> dict[str, Any]:
        """The params that cancel it at the server."""
        reason = {"reason": self.cancel_reason} if self.cancel_reason else {}
        return {"requestId": self.id, **reason}


def _with_token(params: Mapping[str, Any], token: int) -> tuple[Any, Mapping[str, Any]]:
    """The progress token in `params`, and `params` with `token` in its place."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or meta.get("progressToken") is None:
        return UNSET, params
    return meta["progressToken"], {**params, "_meta": {**meta, "progressToken": token}}


class Exchanges:
    """The requests that run in one session, in both directions."""

    def __init__(
        self, name: str, background: MessageHandler, send: Send | None, requests_limit: int
    ) -> None:
        """The exchanges of a session. `send` takes our answers to the server; without it the server
        must not send requests."""
        self.running: dict[int, Exchange] = {}
        self._name = name
        self._background = background
        self._send = send
        self._requests_limit = requests_limit
        self._ids = itertools.count(1)
        self._server_requests: dict[RequestId, asyncio.Task[None]] = {}
        self._idle_request_count = 0  # since the last call began, while none ran

    def begin(
        self,
        method: str,
        params: Mapping[str, Any],
        handler: MessageHandler | None,
        timeout: Timeout,
    ) -> Exchange:
        exchange = Exchange(next(self._ids), method, params, handler=handler, timeout=timeout)
        self.running[exchange.id] = exchange
        if handler is not None:
            self._idle_request_count = 0
        return exchange

    def end(self, exchange: Exchange) -> None:
        del self.running[exchange.id]
        for task in exchange.server_requests:
            task.cancel()

    def close(self) -> None:
        for task in self._server_requests.values():
            task.cancel()

    def owner(self, message: ServerMessage) -> Exchange | None:
        """The request of the gateway that a progress notification is about."""
        token = (message.params or {}).get("progressToken")
        return self.running.get(token) if type(token) is int else None

    async def receive(self, message: ServerMessage, exchange: Exchange | None) -> None:
        """Handle a request or notification; `exchange`: the request of its stream, or None."""
        params = message.params or {}
        if message.method is UNSET:
            return  # a response to no request of ours
        if message.id is not UNSET:
            self._serve_request(message.id, message.method, params, exchange)
        elif message.method == CANCELLED:
            self._cancel_request(params)
        elif message.method == PROGRESS:
            await self._progress(message, exchange)
        else:
            handler = self._background if exchange is None else exchange.handler
            await self._notify(handler, message.method, params, exchange)

    async def _progress(self, message: ServerMessage, exchange: Exchange | None) -> None:
        owner = self.owner(message)
        if owner is None or exchange not in (None, owner) or owner.token is UNSET:
            return
        owner.idle_timeout.restart()
        params = {**(message.params or {}), "progressToken": owner.token}
        await self._notify(owner.handler, PROGRESS, params, exchange)

    async def _notify(
        self,
        handler: MessageHandler | None,
        method: str,
        params: dict[str, Any],
        exchange: Exchange | None,
    ) -> None:
        """Errors in a notification of no request are logged: the stream must be read on."""
        if handler is None:
            return
        if exchange is None:
            try:
                await handler.on_notification(method, params)
            except Exception:
                log.exception("mcp_background_failed", extra={"source": self._name})
            return
        exchange.idle_timeout.pause()  # the client is slow, not the server
        try:
            await handler.on_notification(method, params)
        finally:
            exchange.idle_timeout.resume()

    def _serve_request(
        self, id_: RequestId, method: str, params: dict[str, Any], exchange: Exchange | None
    ) -> None:
        if (
            self._send is None
            or id_ in self._server_requests
            or len(self._server_requests) > REQUESTS_FACTOR * self._requests_limit
        ):
            log.info("mcp_request_ignored", extra={"source": self._name, "method": method[:100]})
            return
        # a request outside all streams may be what any of ours waits for
        waiting = list(self.running.values()) if exchange is None else [exchange]
        handler = self._background if exchange is None else exchange.handler
        if method != "ping" and not self._within_limit(exchange):
            handler = None
        self._server_requests[id_] = task = asyncio.create_task(
            self._answer(id_, method, params, handler)
        )
        for waiting_exchange in waiting:
            waiting_exchange.idle_timeout.pause()
        if exchange is not None:
            exchange.server_requests.add(task)

        def on_end(task: asyncio.Task[None]) -> None:
            del self._server_requests[id_]
            for exchange in waiting:
                exchange.idle_timeout.resume()
                exchange.server_requests.discard(task)

        task.add_done_callback(on_end)

    def _within_limit(self, exchange: Exchange | None) -> bool:
        """Whether the call that is charged may cause one more request to its client.

        Outside all streams the call is unknown: the one with the fewest is charged, so that all
        together get no more than each for itself.
        """
        calls = [call for call in self.running.values() if call.handler is not None]
        charged = exchange or min(calls, key=lambda call: call.request_count, default=None)
        if charged is None:
            self._idle_request_count += 1
            return self._idle_request_count <= self._requests_limit
        charged.request_count += 1
        return charged.request_count <= self._requests_limit

    async def _answer(
        self, id_: RequestId, method: str, params: dict[str, Any], handler: MessageHandler | None
    ) -> None:
        try:
            answer = message_parsers.answer(id_, await self._result(method, params, handler))
        except Fault as fault:
            answer = message_parsers.refusal(id_, fault)
        except Exception:
            log.exception("mcp_request_failed", extra={"source": self._name})
            answer = message_parsers.refusal(id_, InternalError("The request could not be served"))
        if self._send is None:
            return
        try:
            await self._send(answer)
        except ToolgateError as error:
            log.info("mcp_answer_lost", extra={"source": self._name, "error": str(error)})

    async def _result(
        self, method: str, params: dict[str, Any], handler: MessageHandler | None
    ) -> Any:
        if method == "ping":
            return {}
        if handler is None:
            raise Unavailable(f"At most {self._requests_limit} requests are answered in one call")
        return await handler.on_request(method, params)

    def _cancel_request(self, params: Mapping[str, Any]) -> None:
        id_ = params.get("requestId")
        task = self._server_requests.get(id_) if isinstance(id_, int | str) else None
        if task is not None:
            task.cancel(Cancellation.of(params))
