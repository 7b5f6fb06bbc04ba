"""Requests while they run: cancelled one by one, or many at a time."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from gateway.context import CANCELLED_BY_CLIENT, Context, Session
from gateway.protocol.dispatcher import Dispatcher, usable_id
from schemas.errors import Fault, InvalidRequest, Unavailable
from schemas.jsonrpc import (
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


async def run_cancellable(
    dispatcher: Dispatcher, context: Context, session: Session, request: Request
) -> Answer | None:
    """Dispatch so that the session can cancel it by its id; None when it did."""
    id_, task = request.id, asyncio.current_task()
    if not isinstance(id_, str | int) or task is None:
        return await dispatcher.dispatch(context, request)
    if id_ in session.running:
        fault = InvalidRequest(f"Request id {id_!r} is already running in this session")
        return error_reply(id_, fault, context.request_id)
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
        session.touch()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    items: int
    concurrency: int
    timeout_s: float


async def run_batch(
    dispatcher: Dispatcher, context: Context, batch: Sequence[Message], limits: BatchLimits
) -> bytes | None:
    """Run the members side by side; the answers in order, encoded, None when there are none.

    A member that fails, or is no message, fails alone. Raises InvalidRequest for a batch that is
    empty or too long (JSON-RPC 2.0, section 6).
    """
    if not batch:
        raise InvalidRequest("The batch is empty")
    if len(batch) > limits.items:
        text = f"The batch has {len(batch)} items; at most {limits.items} are served"
        raise InvalidRequest(text, {"limit": limits.items})
    answers: dict[int, Answer | None] = {}
    left = iter(enumerate(batch))

    async def work(members: Iterator[tuple[int, Message]]) -> None:
        for index, member in members:
            answers[index] = await _run_member(dispatcher, context, member)

    workers = min(limits.concurrency, len(batch))
    try:
        async with asyncio.timeout(limits.timeout_s), asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work(left))
    except TimeoutError:
        _answer_unfinished(answers, batch, context, limits)
    in_order = (answers.get(index) for index in range(len(batch)))
    encoded = [encode(answer) for answer in in_order if answer is not None]
    return b"[" + b",".join(encoded) + b"]" if encoded else None


async def _run_member(dispatcher: Dispatcher, context: Context, member: Message) -> Answer | None:
    match member:
        case Invalid():
            return error_reply(member.id, member.fault, context.request_id)
        case Response():
            return None
    try:
        usable_id(member, context.revision)
    except Fault as fault:
        return error_reply(None, fault, context.request_id)
    if context.session is not None:
        return await run_cancellable(dispatcher, context, context.session, member)
    return await dispatcher.dispatch(context, member)


def _answer_unfinished(
    answers: dict[int, Answer | None],
    batch: Sequence[Message],
    context: Context,
    limits: BatchLimits,
) -> None:
    fault = Unavailable(f"The batch took longer than {limits.timeout_s:g} s; this item was stopped")
    for index, member in enumerate(batch):
        if index not in answers and isinstance(member, Request) and member.id is not UNSET:
            answers[index] = error_reply(member.id, fault, context.request_id)
