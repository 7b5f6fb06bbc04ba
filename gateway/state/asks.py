"""Pending requests of the server to clients of sessions; answers may arrive at any node."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import UNSET

from gateway.context import Session
from gateway.state.answers import ClientAnswers, Said
from schemas.errors import AskFailed
from schemas.jsonrpc import Notification, Response, encode
from schemas.mcp.messages import CANCELLED

ID_LIMIT = 64  # characters; ours have fewer

Tell = Callable[[bytes], Awaitable[None]]
"""Put an encoded message on the stream that a request of ours belongs to."""


@dataclass(frozen=True, slots=True)
class _Open:
    session_id: str
    answered: "asyncio.Future[Said]"


class Asks:
    def __init__(self, node: str, elsewhere: ClientAnswers, timeout_s: float, limit: int) -> None:
        """A session has at most `limit` pending requests, each with the timeout `timeout_s`.
        `elsewhere` relays answers that arrive at other nodes than this one, `node`."""
        self._node = node
        self._elsewhere = elsewhere
        self._timeout_s = timeout_s
        self._limit = limit
        self._numbers = itertools.count(1)
        self._open: dict[str, _Open] = {}

    async def ask(self, session: Session, tell: Tell, method: str, params: Any) -> Any:
        """Send a request and return the client's result. Raises AskFailed with its error, or
        without an answer."""
        if session.asked >= self._limit:
            raise AskFailed(f"The client has {session.asked} requests to answer already")
        id_ = f"{self._node}:{next(self._numbers)}"  # so that any node can route the answer
        answered: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._open[id_] = _Open(session.id, answered)
        session.asked += 1
        try:
            async with self._elsewhere.awaited(session.id, id_, partial(_settle, answered)):
                asked = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
                await tell(encode(asked))
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
        """Deliver the answer of a client of `session`; unknown and late answers are dropped. Raises
        Unavailable when the requesting node cannot be reached."""
        if not isinstance(response.id, str):
            return
        said = {
            name: value
            for name, value in (("result", response.result), ("error", response.error))
            if value is not UNSET
        }
        node, _, number = response.id.partition(":")
        if node != self._node:
            if number.isdecimal() and len(response.id) < ID_LIMIT:
                await self._elsewhere.give(session.id, response.id, said)
            return
        found = self._open.get(response.id)
        if found is not None and found.session_id == session.id:
            _settle(found.answered, said)


def _settle(answered: "asyncio.Future[Said]", said: Said) -> None:
    if not answered.done():
        answered.set_result(said)


def _result(said: Said) -> Any:
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
