"""Requests of ours to clients of sessions, until they are answered: at whichever node."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from gateway.context import Session
from gateway.state.bus import Bus
from schemas.errors import AskFailed
from schemas.jsonrpc import Notification, Response, encode

CANCELLED = "notifications/cancelled"
ANSWER = "answer"

Tell = Callable[[bytes], Awaitable[None]]
"""Put an encoded message on the stream that a request of ours belongs to."""


@dataclass(frozen=True, slots=True)
class _Open:
    session_id: str
    answered: "asyncio.Future[Mapping[str, Any]]"


class Asks:
    def __init__(self, bus: Bus, timeout_s: float, limit: int) -> None:
        """A session has at most `limit` requests to answer at a time, each within `timeout_s`."""
        self._bus = bus
        self._timeout_s = timeout_s
        self._limit = limit
        self._numbers = itertools.count(1)
        self._open: dict[str, _Open] = {}
        bus.on(ANSWER, self._heard)

    async def ask(self, session: Session, tell: Tell, method: str, params: Any) -> Any:
        """The client's result. Raises AskFailed with its error, or without an answer."""
        if session.asked >= self._limit:
            raise AskFailed(f"The client has {session.asked} requests to answer already")
        id_ = f"{self._bus.node}:{next(self._numbers)}"  # so that any node knows whose it is
        answered: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[id_] = _Open(session.id, answered)
        session.asked += 1
        try:
            await tell(encode({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}))
            async with asyncio.timeout(self._timeout_s):
                return _result(await answered)
        except TimeoutError as error:
            await tell(_cancelled(id_, "No answer in time"))
            text = f"The client did not answer {method} within {self._timeout_s:g} s"
            raise AskFailed(text) from error
        except asyncio.CancelledError:
            await tell(_cancelled(id_, "No longer needed"))
            raise
        finally:
            session.asked -= 1
            del self._open[id_]

    async def answer(self, session: Session, response: Response) -> None:
        """A client of `session` answered; what nobody asked, or no longer waits for, is dropped."""
        if not isinstance(response.id, str):
            return
        said = {
            name: value
            for name, value in (("result", response.result), ("error", response.error))
            if value is not UNSET
        }
        node, _, number = response.id.partition(":")
        if node == self._bus.node:
            self._settle(session.id, response.id, said)
        elif number.isdecimal() and len(response.id) < 64:
            await self._bus.say(ANSWER, session=session.id, id=response.id, said=said)

    async def _heard(self, message: dict[str, Any]) -> None:
        self._settle(message["session"], message["id"], message["said"])

    def _settle(self, session_id: str, id_: str, said: Mapping[str, Any]) -> None:
        found = self._open.get(id_)
        if found is not None and found.session_id == session_id and not found.answered.done():
            found.answered.set_result(said)


def _result(said: Mapping[str, Any]) -> Any:
    if "error" not in said:
        return said.get("result")
    error = said["error"]
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise AskFailed("The client answered with an error that is none of JSON-RPC")
    failed = AskFailed(error["message"], error.get("data"))
    code = error.get("code")
    if isinstance(code, int) and not isinstance(code, bool):
        failed.code = code
    raise failed


def _cancelled(id_: str, reason: str) -> bytes:
    return encode(Notification(CANCELLED, {"requestId": id_, "reason": reason}))
