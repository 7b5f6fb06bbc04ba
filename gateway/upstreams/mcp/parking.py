"""Parked calls: calls that wait for an answer of their client.

A server of a handshake revision asks something in the middle of a call; a 2026-07-28 client answers
by sending its request again, with the answers in it (MRTR: basic/patterns, 2026-07-28). Between the
two requests the call waits here, on the node that runs it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw, Struct

from gateway.upstreams.mcp.link import Hearer
from schemas.errors import AskFailed, InvalidParams
from schemas.jsonrpc import encode

Members = dict[str, Raw]
Work = Callable[[Hearer], Awaitable[Members]]

GATHER_S = 0.02
GONE = "requestState names a call that waits no longer: send the request without it"
INPUT_REQUIRED = Raw(b'"input_required"')


class Question(Struct, frozen=True):
    method: str
    params: Any


class Questions(Struct, frozen=True):
    """What the client has to answer before the call goes on, by key."""

    asked: dict[str, Question]


class ParkedCall:
    """One call at a server, and its open questions for the client. A Hearer."""

    def __init__(self, owner: tuple[str, str], work: Work, hearer: Hearer) -> None:
        """`hearer` belongs to the current request; the next request brings its own."""
        self.id = secrets.token_urlsafe(12)
        self.owner = owner
        self.hearer: Hearer | None = hearer
        self.round = 0
        self._count = 0
        self._open: dict[str, tuple[Question, asyncio.Future[Any]]] = {}
        self._stirred = asyncio.Event()
        self._task = asyncio.ensure_future(work(self))
        self._task.add_done_callback(self._ended)

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        if self.hearer is not None:
            await self.hearer.notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        self._count += 1
        key = f"{method.partition('/')[0]}_{self._count}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[key] = (Question(method, params), answer)
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
            await self._gathered()
            waiting = {key: asked for key, (asked, told) in self._open.items() if not told.done()}
            if self._task.cancelled():
                raise InvalidParams(GONE)
            if self._task.done():
                return self._task.result()
            if waiting:
                self.round += 1
                return Questions(waiting)
            self._stirred.clear()
            await self._stirred.wait()

    async def _gathered(self) -> None:
        """Batch questions: a server sends several one after the other, but the client should get
        them together."""
        count = -1
        while self._open and count != self._count and not self._task.done():
            count = self._count
            await asyncio.sleep(GATHER_S)

    def cancel(self) -> None:
        self._task.cancel()

    def _ended(self, task: "asyncio.Task[Members]") -> None:
        if not task.cancelled():
            task.exception()  # mark as retrieved: the client may never come back
        self._stirred.set()


class Parking:
    """The calls of this node that may have questions for their clients."""

    def __init__(self, limit: int, for_s: float) -> None:
        """At most `limit` calls, each waiting for its client at most `for_s` seconds at a time."""
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

    def start(self, owner: tuple[str, str], work: Work, hearer: Hearer) -> ParkedCall:
        call = ParkedCall(owner, work, hearer)
        self._calls[call.id] = call
        return call

    def take_up(
        self, call_id: str, owner: tuple[str, str], responses: Mapping[str, Any], hearer: Hearer
    ) -> ParkedCall:
        """Resume a parked call with the client's answers. Raises InvalidParams when it has ended,
        or belongs to another caller."""
        call = self._calls.get(call_id)
        if call is None or call.owner != owner or call.hearer is not None:
            raise InvalidParams(GONE)
        self._timers.pop(call_id).cancel()
        call.hearer = hearer
        call.answer(responses)
        return call

    async def run(self, call: ParkedCall, state: Callable[[ParkedCall], str]) -> Members:
        """The client's answer: the result, or an input_required result whose requestState comes
        from `state`. Cancelling this cancels the call."""
        try:
            outcome = await call.outcome()
        except BaseException:
            self._end(call)
            raise
        if not isinstance(outcome, Questions):
            self._end(call)
            return outcome
        call.hearer = None
        timer = asyncio.get_running_loop().call_later(self._for_s, self._end, call)
        self._timers[call.id] = timer
        return {
            "resultType": INPUT_REQUIRED,
            "inputRequests": Raw(encode(outcome.asked)),
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


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "elicitation/create": lambda said: said.get("action") in {"accept", "decline", "cancel"},
    "sampling/createMessage": lambda said: "content" in said and "role" in said,
    "roots/list": lambda said: isinstance(said.get("roots"), list),
}


def _fits_question(method: str, response: Any) -> bool:
    """Whether `response` is shaped as an answer; else the question stays open (SHOULD, MRTR)."""
    shape = _SHAPES.get(method)
    return isinstance(response, dict) and (shape is None or shape(response))


def answer_of(method: str, failed: AskFailed) -> Any:
    """The answer that a 2026-07-28 server gets for a failed question, where errors do not exist."""
    if method == "elicitation/create":
        return {"action": "cancel"}
    raise failed
