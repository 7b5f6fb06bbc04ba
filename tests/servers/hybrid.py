"""A hybrid service as light-hybrid-4j is one, but for batches, which it answers too."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from tests.servers.rest import JSON, Seen, read_seen, respond

Function = Callable[[Any], Any]
Answers = list[dict[str, Any]]


class Failed(Exception):
    """Answered with an HTTP status and a body of its own: a Status object, or text."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body


def echo(data: Any) -> Any:
    return {"echo": data}


@dataclass
class Hybrid:
    """Serves `functions` by their ids, `echo` for any other; remembers what it was asked."""

    functions: Mapping[str, Function] = field(default_factory=dict)
    reorder: Callable[[Answers], Answers] = list  # what becomes of the answers to a batch
    held: asyncio.Event | None = None  # nothing is answered before it is set
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client went without its answer
    seen: list[Seen] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(seen.body) for seen in self.seen]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(await read_seen(scope, receive))
        self.asked.set()
        if self.held is not None and not await self._wait_for_release(receive):
            return
        body = self.bodies[-1]
        if isinstance(body, list):
            answers = self.reorder([self._envelope(member)[1] for member in body])
            await respond(send, 200, encode(answers), [("content-type", JSON)])
        elif "jsonrpc" in body:
            status, envelope = self._envelope(body)
            # nothing at all, if nothing is what the function returned
            silent = envelope.get("result", 0) is None
            await respond(send, status, b"" if silent else encode(envelope))
        else:
            await respond(send, *self._legacy(body))

    async def _wait_for_release(self, receive: Receive) -> bool:
        assert self.held
        gone = asyncio.ensure_future(receive())
        released = asyncio.ensure_future(self.held.wait())
        await asyncio.wait({gone, released}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.left.set()
        gone.cancel()
        released.cancel()
        return not self.left.is_set()

    def _envelope(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        head = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            result = self.functions.get(request["method"], echo)(request.get("params"))
        except Failed as failed:
            status = failed.body if isinstance(failed.body, dict) else {}
            error = {
                "code": status.get("statusCode", failed.status),
                "message": status.get("message") or status.get("code") or failed.body,
            }
            return failed.status, head | {"error": error | ({"data": status} if status else {})}
        return 200, head | {"result": result}

    def _legacy(self, payload: dict[str, Any]) -> tuple[int, bytes]:
        id_ = "/".join(payload[name] for name in ("host", "service", "action", "version"))
        try:
            result = self.functions.get(id_, echo)(payload.get("data"))
        except Failed as failed:
            return failed.status, _raw(failed.body)
        return 200, _raw(result)


def _raw(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else encode(value)
