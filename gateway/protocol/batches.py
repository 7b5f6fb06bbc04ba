"""Batches of JSON-RPC: members run concurrently, and their answers are encoded in order."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from gateway.context import Context
from gateway.protocol.cancellable_requests import run_cancellable
from gateway.protocol.dispatcher import Answer, Dispatcher, Serve, check_id
from schemas.errors import Fault, InvalidRequest, Unavailable
from schemas.jsonrpc import DEPTH, Invalid, Message, Request, Response, encode, error_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    items: int  # enforced by `decode`, as is the depth
    concurrency: int  # concurrent members of one batch, while few batches run
    timeout_s: float
    answer_bytes: int
    connections: int  # to one service: a bound on useful concurrency
    depth: int = DEPTH  # levels of a body, a batch or not


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
        answers: dict[int, bytes] = {}  # encoded, empty for none, by index
        room = limits.answer_bytes  # left; negative: the answers exceed their limit
        numbered = iter(enumerate(batch))
        too_much = Unavailable(f"The batch's answers exceed {limits.answer_bytes} bytes; not run")

        async def refuse(member: Message, fault: Fault) -> Answer | None:
            """Formatted by the front like its other answers."""
            if isinstance(member, Request) and member.id is not UNSET:
                return await serve(context, Invalid(member.id, fault))
            return None

        async def work(members: Iterator[tuple[int, Message]]) -> None:
            nonlocal room
            for index, member in members:
                if room < 0:
                    answer = await refuse(member, too_much)
                else:
                    answer = await serve(context, member)
                answers[index] = b"" if answer is None else encode(answer)
                room -= len(answers[index])

        try:
            async with asyncio.timeout(limits.timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(self._workers(), len(batch))):
                    group.create_task(work(numbered))
        except TimeoutError:
            late = Unavailable(f"The batch took over {limits.timeout_s:g} s; this was stopped")
            for index, member in enumerate(batch):
                if index not in answers:
                    answer = await refuse(member, late)
                    answers[index] = b"" if answer is None else encode(answer)
        in_order = [answers[index] for index in sorted(answers) if answers[index]]
        return b"[" + b",".join(in_order) + b"]" if in_order else None

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
