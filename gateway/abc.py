"""The seams: what the layers hand to each other."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.context import Context, Principal
from schemas.jsonrpc import Request
from schemas.source import Source
from schemas.tool import Tool, ToolResult

Handler = Callable[[Context, Request], Awaitable[Any]]
"""Serve one request: returns what becomes the `result` (any JSON-encodable value), or raises a
`Fault`."""

Middleware = Callable[[Handler], Handler]
"""Wrap a handler; runs once per message, so many times in a batch."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that its sender may send again."""

    principal: Principal
    service: str
    key: str  # its Idempotency-Key
    body: bytes  # equal for equal requests


Once = Callable[[Command, Callable[[], Awaitable[ToolResult]]], Coroutine[Any, Any, ToolResult]]
"""Run a command, or give the result that it gave before. Raises StatusFault."""


class Upstream(Protocol):
    """Makes the call that a binding of its kind describes.

    `arguments` passed the tool's input schema. For a hybrid action that checks nothing they are
    whatever JSON the caller sent.
    """

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult: ...
