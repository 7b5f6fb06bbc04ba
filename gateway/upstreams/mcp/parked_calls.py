"""Parked calls: calls that wait for an answer of their client.

A server of a handshake revision requests input in the middle of a call; a 2026-07-28 client answers
by sending its request again, with the answers in it (MRTR: basic/patterns, 2026-07-28). Between the
two requests the call waits here, on the node that runs it.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.context import Context
from gateway.interfaces import Log, RelayRequest, SessionStore
from gateway.protocol.sealed_state import Sealer
from gateway.state.node_bus import Bus
from gateway.upstreams.mcp.handshake import RETRY_MEMBERS, canonical
from gateway.upstreams.mcp.link_and_handlers import ClientHandler, MessageHandler, OnChange
from schemas.errors import (
    ClientRequestFailed,
    Fault,
    InternalError,
    InvalidParams,
    RelayedFault,
    Unreachable,
)
from schemas.jsonrpc import encode

Members = dict[str, Raw]
Work = Callable[[MessageHandler], Awaitable[Members]]

GATHER_S = 0.02
NOT_PARKED = "requestState names a call that is no longer parked: send the request without it"
INPUT_REQUIRED = Raw(b'"input_required"')

_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "elicitation/create": lambda answer: answer.get("action") in {"accept", "decline", "cancel"},
    "sampling/createMessage": lambda answer: "content" in answer and "role" in answer,
    "roots/list": lambda answer: isinstance(answer.get("roots"), list),
}

RESUME, ABANDON = "take up call", "abandon call"
OUTCOME_UNKNOWN = "The gateway that ran this call has stopped; its outcome is unknown"
RESUMED_TIMEOUT_S = 10.0  # time limit for a node to confirm that the call is resumed
LOOK_EVERY_S = 2.0  # interval of the liveness check of the other node

PURPOSE = "parked call"
METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})  # MRTR: these and no others


class ClientQuestion(Struct, frozen=True):
    method: str
    params: Any


class Questions(Struct, frozen=True):
    """Questions that the client has to answer before the call goes on, by key."""

    questions: dict[str, ClientQuestion]


class ParkedCall:
    """One call at a server, and its open questions for the client. A MessageHandler."""

    def __init__(self, owner: tuple[str, str], work: Work, handler: MessageHandler) -> None:
        """`handler` belongs to the current request; the next request brings its own."""
        self.id = secrets.token_urlsafe(12)
        self.owner = owner
        self.handler: MessageHandler | None = handler
        self.round = 0
        self._count = 0
        self._open: dict[str, tuple[ClientQuestion, asyncio.Future[Any]]] = {}
        self._stirred = asyncio.Event()
        self._task = asyncio.ensure_future(work(self))
        self._task.add_done_callback(self._on_end)

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        if self.handler is not None:
            await self.handler.on_notification(method, params)

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        self._count += 1
        key = f"{method.partition('/')[0]}_{self._count}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[key] = (ClientQuestion(method, params), answer)
        self._stirred.set()
        try:
            return await answer
        finally:
            self._open.pop(key, None)

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Apply the client's answers; unknown keys and malformed answers are ignored."""
        for key, response in responses.items():
            question, answer = self._open.get(key, (None, None))
            if (
                question
                and answer
                and not answer.done()
                and _fits_question(question.method, response)
            ):
                answer.set_result(response)

    async def outcome(self) -> Members | Questions:
        """Wait for the result, or for questions to the client. Raises what the call raised."""
        while True:
            await self._gather()
            waiting = {
                key: question for key, (question, answer) in self._open.items() if not answer.done()
            }
            if self._task.cancelled():
                raise InvalidParams(NOT_PARKED)
            if self._task.done():
                return self._task.result()
            if waiting:
                self.round += 1
                return Questions(waiting)
            self._stirred.clear()
            await self._stirred.wait()

    async def _gather(self) -> None:
        """Gather the questions that a server sends one after the other into one batch for the
        client."""
        count = -1
        while self._open and count != self._count and not self._task.done():
            count = self._count
            await asyncio.sleep(GATHER_S)

    def cancel(self) -> None:
        self._task.cancel()

    def _on_end(self, task: "asyncio.Task[Members]") -> None:
        if not task.cancelled():
            task.exception()  # mark as retrieved: the client may never send its request again
        self._stirred.set()


class ParkedCalls:
    """The parked calls of this node."""

    def __init__(self, limit: int, for_s: float) -> None:
        """Parking of at most `limit` calls, each waiting for its client at most `for_s` seconds at
        a time."""
        self._limit = limit
        self._for_s = for_s
        self._calls: dict[str, ParkedCall] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def full(self, owner: tuple[str, str]) -> bool:
        """Whether the total limit or this caller's share, half of it, is used up."""
        if len(self._calls) >= self._limit:
            return True
        share = max(1, self._limit // 2)
        return sum(call.owner == owner for call in self._calls.values()) >= share

    def start(self, owner: tuple[str, str], work: Work, handler: MessageHandler) -> ParkedCall:
        call = ParkedCall(owner, work, handler)
        self._calls[call.id] = call
        return call

    def resume(
        self,
        call_id: str,
        owner: tuple[str, str],
        responses: Mapping[str, Any],
        handler: MessageHandler,
    ) -> ParkedCall:
        """Resume a parked call with the client's answers. Raises InvalidParams when it has ended,
        or belongs to another caller."""
        call = self._calls.get(call_id)
        if call is None or call.owner != owner or call.handler is not None:
            raise InvalidParams(NOT_PARKED)
        self._timers.pop(call_id).cancel()
        call.handler = handler
        call.answer(responses)
        return call

    async def run(self, call: ParkedCall, state: Callable[[ParkedCall], str]) -> Members:
        """Run or resume a call: its result, or an input_required result whose requestState comes
        from `state`. Cancelling this cancels the call."""
        try:
            outcome = await call.outcome()
        except BaseException:
            self._end(call)
            raise
        if not isinstance(outcome, Questions):
            self._end(call)
            return outcome
        call.handler = None
        timer = asyncio.get_running_loop().call_later(self._for_s, self._end, call)
        self._timers[call.id] = timer
        return {
            "resultType": INPUT_REQUIRED,
            "inputRequests": Raw(encode(outcome.questions)),
            "requestState": Raw(encode(state(call))),
        }

    def abandon(self, call_id: str, owner: tuple[str, str]) -> None:
        """End the call of a client that disconnected during its request."""
        call = self._calls.get(call_id)
        if call is not None and call.owner == owner:
            self._end(call)

    def close(self) -> None:
        for call in list(self._calls.values()):
            self._end(call)

    def _end(self, call: ParkedCall) -> None:
        self._calls.pop(call.id, None)
        timer = self._timers.pop(call.id, None)
        if timer is not None:
            timer.cancel()
        call.cancel()


def _fits_question(method: str, response: Any) -> bool:
    """Whether `response` has the shape of an answer to the question; else the question stays open
    (SHOULD, MRTR)."""
    shape = _SHAPES.get(method)
    return isinstance(response, dict) and (shape is None or shape(response))


def answer_of(method: str, failure: ClientRequestFailed) -> Any:
    """The answer that a 2026-07-28 server gets for a failed question: in MRTR an answer cannot be
    an error."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    raise failure


class _RemoteEvent(Struct, omit_defaults=True):
    """One event of the stream: the confirmation, a notification on the way, or the outcome."""

    method: str = ""
    params: dict[str, Any] = {}
    members: dict[str, Raw] | None = None
    error: "_Failed | None" = None


class _Failed(Struct):
    code: int
    message: str
    data: Any = None


_remote_event = msgspec.json.Decoder(_RemoteEvent).decode


class RemoteParking:
    def __init__(self, bus: Bus, log: Log, nodes: SessionStore, parking: ParkedCalls) -> None:
        self._bus = bus
        self._log = log
        self._nodes = nodes
        self._parking = parking
        bus.on(RESUME, self._resume)
        bus.on(ABANDON, self._abandon)

    async def resume(
        self,
        node: str,
        call: str,
        *,
        answers: Mapping[str, Any],
        context: Context,
        handler: MessageHandler,
    ) -> Members:
        """Resume a call of another node; the caller of this sets the requestState. Raises what the
        call raises, and Unreachable when that node is gone."""
        stream = f"r/{secrets.token_urlsafe(12)}"
        ended = False
        try:
            # not over the bus, whose messages go to every node
            await self._log.append(_answers(stream), encode(answers))
            owner = context.principal.key
            await self._bus.broadcast(RESUME, to=node, call=call, owner=owner, stream=stream)
            members = await self._outcome(node, stream, handler)
            ended = True
            return members
        except Fault:
            ended = True
            raise
        finally:
            if not ended:
                await self._bus.broadcast(ABANDON, to=node, call=call, owner=context.principal.key)

    async def _outcome(self, node: str, stream: str, handler: MessageHandler) -> Members:
        wake, after = asyncio.Event(), ""
        resumed_by = time.monotonic() + RESUMED_TIMEOUT_S
        with self._log.watch(stream, wake.set):
            while True:
                wake.clear()
                for event in await self._log.read(stream, after):
                    after = event.id
                    remote = _remote_event(event.data)
                    if remote.members is not None:
                        await self._log.drop(stream)
                        return remote.members
                    if remote.error is not None:
                        raise RelayedFault(
                            remote.error.code, remote.error.message, remote.error.data
                        )
                    if remote.method:
                        await handler.on_notification(remote.method, remote.params)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await wake.wait()
                        continue
                late = not after and time.monotonic() > resumed_by
                if late or not await self._nodes.is_alive(node):
                    raise Unreachable(OUTCOME_UNKNOWN)

    async def _resume(self, message: dict[str, Any]) -> None:
        if message["to"] != self._bus.node:
            return
        stream = message["stream"]
        try:
            call = self._parking.resume(
                message["call"],
                tuple(message["owner"]),
                await self._answers(stream),
                _RemoteHandler(self._log, stream),
            )
            await self._log.append(stream, encode(_RemoteEvent()))
            members = await self._parking.run(call, lambda _call: "")
            event = _RemoteEvent(members=members)
        except Fault as fault:
            event = _RemoteEvent(error=_Failed(fault.code, fault.message, fault.data))
        except Exception:
            unexpected = _Failed(InternalError.code, "Internal error")
            await self._log.append(stream, encode(_RemoteEvent(error=unexpected)))
            raise
        await self._log.append(stream, encode(event))

    async def _answers(self, stream: str) -> dict[str, Any]:
        """The client's answers, as stored by the other node."""
        [written] = await self._log.read(_answers(stream), "", 1)
        await self._log.drop(_answers(stream))
        answers: dict[str, Any] = msgspec.json.decode(written.data)
        return answers

    async def _abandon(self, message: dict[str, Any]) -> None:
        if message["to"] == self._bus.node:
            self._parking.abandon(message["call"], tuple(message["owner"]))


class _RemoteHandler:
    """A MessageHandler for a client of another node: appends notifications to the log stream."""

    def __init__(self, log: Log, stream: str) -> None:
        self._log = log
        self._stream = stream

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        await self._log.append(self._stream, encode(_RemoteEvent(method, params)))

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError  # questions of a parked call are returned in its result


def _answers(stream: str) -> str:
    return f"{stream}/answers"


class ParkedState(Struct, frozen=True, array_like=True):
    """Content of the gateway's own requestState."""

    node: str
    call: str


class DeferredCalls:
    def __init__(
        self,
        parking: ParkedCalls,
        remote: RemoteParking,
        *,
        node: str,
        sealer: Callable[[], Awaitable[Sealer]],
        parked_s: float,
    ) -> None:
        self._parking = parking
        self._remote = remote
        self._node = node
        self._sealer = sealer
        self._parked_s = parked_s

    def possible(self, request: RelayRequest, context: Context) -> bool:
        """Whether a call may be parked, or is parked already."""
        if request.method not in METHODS:
            return False
        return "requestState" in request.params or not self._parking.full(context.principal.key)

    async def run(
        self, request: RelayRequest, context: Context, on_change: OnChange, work: Work
    ) -> Members:
        """Run `work`: its result, or an input_required result when its server has questions for the
        client."""
        bound = _binding_digest(request, context)
        sealer = await self._sealer()
        handler = ClientHandler(context, on_change)

        def state(parked: ParkedState) -> str:
            return sealer.seal(PURPOSE, parked, bound, self._parked_s)

        def own_state(call: ParkedCall) -> str:
            return state(ParkedState(self._node, call.id))

        owner = context.principal.key
        if (state_text := request.params.get("requestState")) is None:
            call = self._parking.start(owner, work, handler)
            return await self._parking.run(call, own_state)
        if not isinstance(state_text, str):
            raise InvalidParams("requestState must be a string, as it was given")
        parked = sealer.unseal(PURPOSE, state_text, ParkedState, bound)
        answers = _answers_to(request)
        if parked.node == self._node:
            call = self._parking.resume(parked.call, owner, answers, handler)
            return await self._parking.run(call, own_state)
        members = await self._remote.resume(
            parked.node, parked.call, answers=answers, context=context, handler=handler
        )
        if members.get("resultType") == INPUT_REQUIRED:
            return {**members, "requestState": Raw(encode(state(parked)))}
        return members


def _answers_to(request: RelayRequest) -> dict[str, Any]:
    responses = request.params.get("inputResponses")
    return responses if isinstance(responses, dict) else {}


def _binding_digest(request: RelayRequest, context: Context) -> bytes:
    """Digest that binds a requestState to this caller, and to the same request repeated."""
    same = {
        name: value
        for name, value in request.params.items()
        if name not in {*RETRY_MEMBERS, "_meta"}
    }
    text = canonical([context.principal.key, request.source.name, request.method, same])
    return hashlib.sha256(text.encode()).digest()
