"""Calls of tools as turns of their sessions (`memory.capture: calls`): a line for each, without
arguments and results.

Lines are kept in the process for some seconds and stored together: no call waits for them, and a
process that is killed loses them.
"""

import logging
import time
from collections import deque
from datetime import datetime, timedelta
from typing import NamedTuple

from config.memory import MemorySettings
from gateway.interfaces import ToolCall
from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.caller_owners import Reader, reader_of
from gateway.wings.memory.memory_rows import NewMemory, new_id
from gateway.wings.memory.memory_store import MemoryStore, Target
from gateway.wings.memory.requests_and_views import MemoryNormalizer, NewItem
from registry.database.postgres import AWAY, Pool, borrow, read_clock
from schemas.errors import Fault

log = logging.getLogger("toolgate.memory")

LINES = 20  # of a session that are stored at a time, the newest: they count towards its quota
SESSIONS = 10_000  # that have lines to be stored
IMPORTANCE = 0.1  # a session that is full retires them first


class _Line(NamedTuple):
    text: str
    noted: float  # s, monotonic clock


class CallNotes:
    def __init__(
        self, pool: Pool, store: MemoryStore, intake: MemoryNormalizer, settings: MemorySettings
    ) -> None:
        self._pool = pool
        self._store = store
        self._intake = intake
        self._settings = settings
        self._pending: dict[str, tuple[Reader, deque[_Line]]] = {}  # by owner of the session

    def call_ended(self, call: ToolCall, succeeded: bool) -> None:
        """Note a call, if it is of a session."""
        if call.context.session is None:
            return
        try:
            reader = reader_of(call.context, self._settings.agent_claim)
        except Fault:  # of an invalid X-Scope-Token, which calls without a scope may have
            return
        (owner,) = reader.sessions
        if owner not in self._pending and len(self._pending) >= SESSIONS:
            return
        _, lines = self._pending.setdefault(owner, (reader, deque(maxlen=LINES)))
        end = "." if succeeded else ", which failed."
        source = "" if call.source is None else f" of {call.source.name}"
        line = f"Called the tool {call.tool.name}{source}{end}"
        lines.append(_Line(line, time.monotonic()))

    async def flush(self) -> None:
        """Store the lines; they are kept while the database is away. Raises the errors of AWAY."""
        while self._pending:
            owner, (reader, lines) = self._pending.popitem()
            try:
                await self._store_lines(reader, lines)
            except ProblemDetails as problem:
                log.info("memory_capture_failed", extra={"reason": problem.kind})
            except AWAY:
                lines.extend(self._pending.get(owner, (reader, ()))[1])
                self._pending[owner] = reader, lines
                raise

    async def _store_lines(self, reader: Reader, lines: deque[_Line]) -> None:
        """With the times of the calls, by the clock of the database: what was called before its
        user was erased is not stored after."""
        target = Target.of(reader, "session")
        async with borrow(self._pool) as connection:
            now = await read_clock(connection)
        since = time.monotonic()
        new = [
            self._new(target, line, now - timedelta(seconds=max(0.0, since - line.noted)))
            for line in lines
        ]
        await self._store.add(target, new)

    def _new(self, target: Target, line: _Line, at: datetime) -> NewMemory:
        turn = {"turn": new_id()}  # two calls are two lines
        item = NewItem(
            content=line.text, kind="turn", trust="tool", importance=IMPORTANCE, source=turn
        )
        return self._intake.memory(target.scope, item, session=target.owner, notes=[], created=at)
