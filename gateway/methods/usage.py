"""What became of what was found: a tool that is called with success after a search is one that its
query was for."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import OperationalError
from psycopg_pool import PoolTimeout

from gateway.context import Context
from gateway.protocol.shapes import Members, is_failure
from gateway.state.tasks import BackgroundTasks
from registry.search.query import SearchResult
from schemas.memo import Memo
from schemas.tool import Tool, ToolResult

log = logging.getLogger("toolgate.usage")

CALLERS = 10_000  # whose searches are remembered
SEARCHES = 3  # of each, the newest
HOLDS_S = 600.0  # a call that comes later follows from something else

Record = Callable[..., Awaitable[Any]]
"""See `registry.search.feedback.Feedback.record`."""


@dataclass(slots=True)
class _Search:
    model: str
    vector: Any  # the query's, shape (384,)
    left: set[str]  # ids of the tools found that were not called yet
    until: float


class Usage:
    def __init__(self, record: Record, clock: Callable[[], float] = time.monotonic) -> None:
        self._record = record
        self._clock = clock
        self._searches: Memo[tuple[str, ...], list[_Search]] = Memo(CALLERS)
        self.tasks = BackgroundTasks()

    def found(self, context: Context, found: SearchResult, tools: Sequence[Tool]) -> None:
        """A caller searched, and sees these."""
        caller = _caller(context)
        if caller is None or found.vector is None or found.model is None or not tools:
            return
        until = self._clock() + HOLDS_S
        search = _Search(found.model, found.vector, {tool.id for tool in tools}, until)
        self._searches.put(caller, [search, *self._searches.get(caller, ())][:SEARCHES])

    def called(self, context: Context, tool: Tool, result: ToolResult | Members) -> None:
        """A caller called it; what follows from that does not delay the answer."""
        caller = _caller(context)
        searches = self._searches.get(caller) if caller is not None else None
        if not searches or _failed(result):
            return
        now = self._clock()
        for search in searches:
            if tool.id in search.left and search.until > now:
                search.left.discard(tool.id)
                self.tasks.do(self._recorded(context, tool, search))
                return

    async def _recorded(self, context: Context, tool: Tool, search: _Search) -> None:
        principal = context.principal
        try:
            await self._record(principal.tenant, tool.id, search.model, search.vector, principal.id)
        except (OperationalError, PoolTimeout) as error:
            log.warning("usage_not_recorded", extra={"reason": str(error).split("\n", 1)[0][:200]})


def _caller(context: Context) -> tuple[str, ...] | None:
    """None: nobody can tell them from others."""
    if context.session is not None:
        return (context.session.id,)
    return context.principal.key if context.identity.verified else None


def _failed(result: ToolResult | Members) -> bool:
    return result.is_error if isinstance(result, ToolResult) else is_failure(result)
