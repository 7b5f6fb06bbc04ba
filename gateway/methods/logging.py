"""logging/setLevel. Clients of 2026-07-28 say with each request what they want to hear of it."""

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.context import Context, Session
from gateway.methods.lists import Lists
from gateway.methods.offers import require
from schemas.errors import InvalidParams
from schemas.jsonrpc import Request
from schemas.mcp.messages import LOG_LEVELS, LevelParams, read


class Logging:
    def __init__(self, lists: Lists, changed: Callable[[Session], Awaitable[None]]) -> None:
        """`changed` keeps what a session wants where all nodes find it."""
        self._lists = lists
        self._changed = changed

    async def set_level(self, context: Context, request: Request) -> dict[str, Any]:
        """Servers are told with the next call: they hear what one client wants, not all."""
        require(self._lists.catalog(context), "logging", request.method)
        level = read(request.params, LevelParams).level
        if level not in LOG_LEVELS:
            expected = ", ".join(LOG_LEVELS)
            raise InvalidParams(f"Unknown log level: {level[:40]!r}; expected one of {expected}")
        session = context.session
        if session is not None and session.log_level != level:
            session.log_level = level
            await self._changed(session)
        return {}
