"""logging/setLevel. Clients of 2026-07-28 say with each request what they want to hear of it."""

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.abc import SessionChange
from gateway.context import Context, Session
from gateway.methods.capabilities import require
from gateway.methods.lists import Lists
from schemas.errors import InvalidParams
from schemas.jsonrpc import Request
from schemas.mcp.messages import LOG_LEVELS, LevelParams, read

Change = Callable[[Session, SessionChange], Awaitable[None]]


class LogLevels:
    def __init__(self, lists: Lists, change: Change) -> None:
        """`change` keeps what a session wants where all nodes find it."""
        self._lists = lists
        self._change = change

    async def set_level(self, context: Context, request: Request) -> dict[str, Any]:
        """Servers are told with the next call: they hear what one client wants, not all."""
        require(self._lists.catalog(context), "logging", request.method)
        level = read(request.params, LevelParams).level
        if level not in LOG_LEVELS:
            expected = ", ".join(LOG_LEVELS)
            raise InvalidParams(f"Unknown log level: {level[:40]!r}; expected one of {expected}")
        session = context.session
        if session is not None:  # also where the copy here says so: it may be old
            await self._change(session, SessionChange(log_level=level))
        return {}
