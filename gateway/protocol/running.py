"""Running requests: cancellation of single requests, and concurrent batches."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from gateway.context import CANCELLED_BY_CLIENT, Context, Session
from gateway.protocol.dispatcher import Dispatcher, check_id
from schemas.errors import Fault, InvalidRequest, Unavailable
from schemas.jsonrpc import (
    DEPTH,
    ErrorReply,
    Invalid,
    Message,
    Reply,
    Request,
    Response,
    encode,
    error_reply,
)

Answer = Reply | ErrorReply
Serve = Callable[[Context, Message], Awaitable[Answer | None]]


async def run_cancellable(
    dispatcher: Dispatcher, context: Context, session: Session, request: Request
) -> Answer | None:
    """Dispatch such that the session can cancel it by its id, except `initialize`; None when it was
    cancelled."""
    id_, task = request.id, asyncio.current_task()
    if not isinstance(id_, str | int) or task is None or request.method == "initialize":
        return await dispatcher.dispatch(context, request)
    if id_ in session.running:
        fault = InvalidRequest(f"Request id {id_!r} is already running in this session")
        return error_reply(id_, fault, context.request_id)
    if len(session.running) >= session.calls_limit:
        busy = Unavailable(f"This session runs {len(session.running)} calls already; wait for one")
        return error_reply(id_, busy, context.request_id)
    session.running[id_] = task
    try:
        return await dispatcher.dispatch(context, request)
    except asyncio.CancelledError as cancelled:
        if cancelled.args[:1] != (CANCELLED_BY_CLIENT,):
            raise
        task.uncancel()
        return None
    finally:
        del session.running[id_]
        session.last_used = time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    items: int  # enforced by `decode`, as is the depth
    concurrency: int  # concurrent members of one batch, while few batches run
    timeout_s: float
    answer_bytes: int
    connections: int  # to one service: a bound on useful concurrency
    depth: int = DEPTH  # levels of a body, a batch or not


class _Answers:
    """The encoded answers of one batch by index, and the bytes left for more."""

    def __init__(self, room: int) -> None:
        self._encoded: dict[int, bytes] = {}
        self.room = room  # negative: the answers exceed their limit
        self.done: set[int] = set()

    def add(self, index: int, answer: Answer | None) -> None:
        self.done.add(index)
        if answer is not None:
            self._encoded[index] = encode(answer)
            self.room -= len(self._encoded[index])

    def body(self) -> bytes | None:
        in_order = [self._encoded[index] for index in sorted(self._encoded)]
        return b"[" + b",".join(in_order) + b"]" if in_order else None


class Batches:
    """Runs batches; the members of each run concurrently."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._running = 0

    async def run(self, serve: Serve, context: Context, batch: Sequence[Message]) -> bytes | None:
        """The answers of `serve` in order, encoded, None when there are none.

        A member that fails, or is invalid, fails alone. Raises InvalidRequest for an empty batch
        (JSON-RPC 2.0, section 6).
        """
        if not batch:
            raise InvalidRequest("The batch is empty")
        self._running += 1
        try:
            return await self._run(serve, context, batch)
        finally:
            self._running -= 1

    async def _run(self, serve: Serve, context: Context, batch: Sequence[Message]) -> bytes | None:
        limits = self.limits
        answers = _Answers(limits.answer_bytes)
        left = iter(enumerate(batch))
        too_much = Unavailable(f"The batch's answers exceed {limits.answer_bytes} bytes; not run")

        async def refuse(member: Message, fault: Fault) -> Answer | None:
            """Formatted by the front like its other answers."""
            if isinstance(member, Request) and member.id is not UNSET:
                return await serve(context, Invalid(member.id, fault))
            return None

        async def work(members: Iterator[tuple[int, Message]]) -> None:
            for index, member in members:
                if answers.room < 0:
                    answers.add(index, await refuse(member, too_much))
                else:
                    answers.add(index, await serve(context, member))

        try:
            async with asyncio.timeout(limits.timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(self._workers(), len(batch))):
                    group.create_task(work(left))
        except TimeoutError:
            late = Unavailable(f"The batch took over {limits.timeout_s:g} s; this was stopped")
            for index, member in enumerate(batch):
                if index not in answers.done:
                    answers.add(index, await refuse(member, late))
        return answers.body()

    def _workers(self) -> int:
        """A fair share of the connections. 32 concurrent batches of 16 took a fifth longer."""
        share = max(2, self.limits.connections // self._running)
        return min(self.limits.concurrency, share)


def member_server(dispatcher: Dispatcher) -> Serve:
    """Serves a member of a batch according to JSON-RPC 2.0 or the revision of MCP."""

    async def serve(context: Context, member: Message) -> Answer | None:
        match member:
            case Invalid():
                return error_reply(member.id, member.fault, context.request_id)
            case Response():
                return None
        try:
            if context.revision.mcp and member.id is not UNSET:
                check_id(member.id)
        except Fault as fault:
            return error_reply(None, fault, context.request_id)
        if context.session is not None:
            return await run_cancellable(dispatcher, context, context.session, member)
        return await dispatcher.dispatch(context, member)

    return serve
