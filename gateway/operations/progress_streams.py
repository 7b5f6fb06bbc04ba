"""Answers of long operations as streams of events over HTTP: `progress`, and then `result` or
`problem`. What fails before any progress is an ordinary response."""

from typing import Any

import anyio
import msgspec
from starlette.types import Send

from gateway.operations.operation import Operation
from gateway.operations.operation_server import OperationResponse
from gateway.operations.request_parsing import Headers
from gateway.protocol import sse_writer
from schemas.errors import ClientRequestFailed
from schemas.mcp.messages import PROGRESS

MEDIA_TYPE = "text/event-stream"
TOKEN = 0  # of the progress of all streams: each is of one call
PARAMS = {"_meta": {"progressToken": TOKEN}}
"""Parameters in the context of a call whose client is a ProgressStream."""


def wants_events(headers: Headers) -> bool:
    return MEDIA_TYPE in headers.get("accept", "").lower()


class ProgressStream:
    """Implements `Peer`: the client of one request."""

    def __init__(self, send: Send, request_id: str, keep_alive_s: float) -> None:
        self._send = send
        self._request_id = request_id
        self._keep_alive_s = keep_alive_s
        self._turn = anyio.Lock()
        self._used = False
        self._began = False

    def used_by(self, operation: Operation) -> "ProgressStream | None":
        """The stream, if the operation has progress to tell; else its response is an ordinary
        one."""
        self._used = operation.reports
        return self if self._used else None

    async def notify(self, message: bytes) -> None:
        notification = msgspec.json.decode(message)
        if notification["method"] == PROGRESS:
            params = {
                name: member
                for name, member in notification["params"].items()
                if name != "progressToken"
            }
            await self._say(sse_writer.event(msgspec.json.encode(params), b"progress"))

    async def ask(self, method: str, params: Any) -> Any:  # noqa: ARG002
        raise ClientRequestFailed(f"{method} needs a session, in which clients can be asked")

    async def keep_alive(self) -> None:
        await self._say(sse_writer.KEEP_ALIVE)

    async def beat(self) -> None:
        """Keep intermediaries from closing a silent stream, until it is cancelled."""
        while True:
            await anyio.sleep(self._keep_alive_s)
            await self.keep_alive()

    async def finish(self, response: OperationResponse) -> bool:
        """End the stream with the answer; False: it is to be an ordinary response."""
        failed = response.status >= 400
        if not self._began and (not self._used or failed or response.status == 202):
            return False
        body = response.body or b"null"
        await self._say(sse_writer.event(body, b"problem" if failed else b"result"))
        await self._send({"type": "http.response.body", "body": b""})
        return True

    async def _say(self, chunk: bytes) -> None:
        async with self._turn:
            if not self._began:
                self._began = True
                await self._send(self._start())
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    def _start(self) -> dict[str, Any]:
        headers = {
            "content-type": MEDIA_TYPE,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "x-accel-buffering": "no",  # nginx
            "x-request-id": self._request_id,
        }
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": pairs}
