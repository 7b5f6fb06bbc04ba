"""Streams of events as responses to HTTP requests."""

from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send


class _EventStreamResponse(EventSourceResponse):
    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """Send without the library's cancel scope, an eighth of the cost of a chunk: there is no
        timeout here. A release without this method sends as it does."""
        await send(message)


def stream_events(events: AsyncIterator[bytes], ping_s: float) -> Response:
    """Events as `sse_writer` has them, with a sign of life each `ping_s` seconds."""
    without_buffering = {"X-Accel-Buffering": "no"}  # nginx
    return _EventStreamResponse(events, ping=ping_s, sep="\n", headers=without_buffering)


def last_event_number(request: Request) -> int:
    """The number of the event that a client has seen last (Last-Event-ID); 0: none."""
    last = request.headers.get("last-event-id", "")
    return int(last) if last.isascii() and last.isdigit() and len(last) <= 18 else 0
