"""Store of runs that wait for approvals."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal
from uuid import UUID, uuid4

import anyio
import msgspec
from msgspec import Struct

from gateway.sandbox.program import ProgramLanguage
from gateway.wings.code.journal import Answered, PendingCall
from gateway.wings.code.run_calls import CallView
from registry.database.postgres import AWAY, Pool, borrow
from schemas.errors import Unavailable

SWEPT_S = 600.0


class PausedRun(Struct, frozen=True):
    """A program, and its answers in their order. `sources`: those that it has read; `pending`:
    calls that wait for approvals."""

    code: str
    writes: bool
    calls_limit: int
    answers: Sequence[Answered]
    calls: Sequence[CallView]
    sources: Sequence[str]
    pending: Sequence[PendingCall] = ()
    language: ProgramLanguage = "python"


class PausedRuns:
    def __init__(self, pool: Pool, *, keep_s: float, most: int) -> None:
        """`keep_s`: how long a run waits; `most`: of a principal."""
        self._pool = pool
        self._keep_s = keep_s
        self._most = most

    async def store(
        self, host_id: str, principal: str, run: PausedRun, run_id: str | None = None
    ) -> str | None:
        """Store a run, or one that was paused before anew; its id. None: too many wait."""
        async with borrow(self._pool) as connection:
            row = await connection.execute(
                """
                INSERT INTO code_run_t (host_id, run_id, principal, record, expires_ts)
                SELECT %(host)s, %(run)s, %(principal)s, %(record)s,
                       now() + %(keep)s * interval '1 s'
                 WHERE (SELECT count(*) FROM code_run_t WHERE host_id = %(host)s
                           AND principal = %(principal)s AND run_id <> %(run)s) < %(most)s
                ON CONFLICT (host_id, run_id) DO UPDATE
                   SET state = 'paused', record = excluded.record,
                       expires_ts = excluded.expires_ts
                RETURNING run_id::text
                """,
                {
                    "host": host_id,
                    "run": run_id or str(uuid4()),
                    "principal": principal,
                    "record": msgspec.msgpack.encode(run),
                    "keep": self._keep_s,
                    "most": self._most,
                },
            )
            stored = await row.fetchone()
        return None if stored is None else stored[0]

    async def claim(
        self, host_id: str, principal: str, run_id: str
    ) -> PausedRun | Literal["absent", "running"]:
        """Take a run, which nobody else can take then."""
        try:
            UUID(run_id)
        except ValueError:
            return "absent"
        values = [host_id, run_id, principal]
        async with borrow(self._pool) as connection:
            row = await connection.execute(
                "UPDATE code_run_t SET state = 'running' WHERE host_id = %s AND run_id = %s"
                " AND principal = %s AND state = 'paused' AND expires_ts > now()"
                " RETURNING record",
                values,
            )
            if (claimed := await row.fetchone()) is not None:
                return msgspec.msgpack.decode(claimed[0], type=PausedRun)
            row = await connection.execute(
                "SELECT 1 FROM code_run_t WHERE host_id = %s AND run_id = %s AND principal = %s"
                " AND state = 'running'",
                values,
            )
            return "absent" if await row.fetchone() is None else "running"

    async def remove(self, host_id: str, run_id: str) -> None:
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM code_run_t WHERE host_id = %s AND run_id = %s", [host_id, run_id]
            )

    async def sweep(self) -> None:
        """Delete runs whose time is over, until cancelled."""
        while True:
            with suppress(Unavailable, *AWAY):
                async with borrow(self._pool) as connection:
                    await connection.execute("DELETE FROM code_run_t WHERE expires_ts < now()")
            await anyio.sleep(SWEPT_S)

    async def erase(self, host_id: str, principal: str) -> None:
        """Listener: the runs of a person go."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM code_run_t WHERE host_id = %s AND principal = %s", [host_id, principal]
            )
