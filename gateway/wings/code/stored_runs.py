"""Store of runs that go on by themselves: after decisions of people, or when their process died."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import anyio
import msgspec
from msgspec import Struct
from psycopg import sql

from gateway.sandbox.program import ProgramLanguage
from gateway.wings.code.journal import Steps
from registry.database.leases import LeaseLost, Leases, held_rows
from registry.database.postgres import AWAY, Pool, borrow
from registry.database.sql_fragments import compose
from schemas.errors import Unavailable

SWEPT_S = 600.0

_LEASES = Leases("code_run_t", "run_id", "r.state = 'running'")
# `statement_timestamp`, as no index is searched with the volatile `clock_timestamp`.
_DIED = sql.SQL(
    "r.state = 'running' AND (r.lease_ts IS NULL OR r.lease_ts < statement_timestamp())"
)
_DECIDED = sql.SQL(
    "r.state = 'waiting' AND r.expires_ts > statement_timestamp()"
    " AND NOT EXISTS (SELECT FROM approval_t a WHERE a.host_id = r.host_id"
    " AND a.approval_id = r.approval_id AND a.state = 'waiting'"
    " AND a.expire_ts > statement_timestamp())"
)
_LOOK_AT_DUE = compose(
    "SELECT host_id::text, run_id::text, principal FROM ("
    " SELECT host_id, run_id, principal, created_ts, row_number() OVER"
    "  (PARTITION BY host_id, principal ORDER BY created_ts) AS place FROM ("
    "   SELECT r.* FROM code_run_t r WHERE {died} AND r.caller IS NOT NULL"
    "   UNION ALL SELECT r.* FROM code_run_t r WHERE {decided} AND r.caller IS NOT NULL"
    "  ) AS due) AS ranked WHERE place <= %(each)s"
    " ORDER BY row_number() OVER (PARTITION BY host_id ORDER BY place, created_ts), created_ts"
    " LIMIT %(limit)s",
    died=_DIED,
    decided=_DECIDED,
)
_GET = compose(
    "SELECT r.state, r.record, r.result, ({died}) OR ({decided}) FROM code_run_t r"
    " WHERE r.host_id = %(host)s AND r.run_id = %(run)s AND r.principal = %(principal)s"
    " AND r.expires_ts > statement_timestamp() AND r.state <> 'paused'",
    died=_DIED,
    decided=_DECIDED,
)
_CLAIM = _LEASES.claim(
    "state = 'running', failures = failures + (r.state = 'running' AND lease_ts IS NOT NULL)::int,"
    " expires_ts = clock_timestamp() + make_interval(secs => %(keep)s)",
    sql.SQL(
        "WHERE r.host_id = %(host)s AND r.run_id = %(run)s AND (({died}) OR ({decided}))"
    ).format(died=_DIED, decided=_DECIDED),
    sql.SQL(
        "r.host_id::text, r.run_id::text, r.principal, r.fence, r.record, r.caller, r.pending,"
        " r.approval_id::text, r.failures, r.cancel"
    ),
)
_RENEW = _LEASES.renew("r.run_id::text, r.cancel")
_STEP = compose(
    "WITH held AS (SELECT host_id, run_id FROM code_run_t AS r WHERE {mine} FOR SHARE)"
    " INSERT INTO code_run_step_t (host_id, run_id, steps)"
    " SELECT host_id, run_id, %(steps)s FROM held",
    mine=_LEASES.of_one,
)
_WAIT = compose(
    "UPDATE code_run_t AS r SET state = 'waiting', lease_ts = NULL, approval_id = %(approval)s,"
    " pending = %(pending)s, result = %(result)s,"
    " expires_ts = clock_timestamp() + make_interval(secs => %(keep)s) WHERE {mine}",
    mine=_LEASES.of_one,
)
_END = compose(
    "UPDATE code_run_t AS r SET state = 'ended', lease_ts = NULL, pending = '',"
    " result = %(result)s, expires_ts = clock_timestamp() + make_interval(secs => %(keep)s)"
    " WHERE {mine}",
    mine=_LEASES.of_one,
)
_RELEASE = compose("UPDATE code_run_t AS r SET lease_ts = NULL WHERE {mine}", mine=_LEASES.of_one)
_REMOVE = compose("DELETE FROM code_run_t AS r WHERE {mine}", mine=_LEASES.of_one)


class StoredProgram(Struct, frozen=True):
    """A program as it was sent. `writes`: by the tool for programs that may change something."""

    code: str
    language: ProgramLanguage
    writes: bool
    calls_limit: int
    time_s: float
    files: tuple[str, ...] = ()

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(f"{self.language}\0{self.code}".encode()).digest()


class PendingCall(Struct, frozen=True):
    """A call that waits for the approval of a person, until `expires` (RFC 3339)."""

    seq: int
    tool: str
    arguments: Mapping[str, Any]
    approval: str
    expires: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this process goes on with."""

    host_id: str
    run_id: str
    principal: str
    fence: int

    @property
    def values(self) -> dict[str, Any]:
        return {"host": self.host_id, "id": self.run_id, "fence": self.fence}


@dataclass(frozen=True, slots=True)
class TakenRun:
    """A run that was taken up. `caller` None: its job or its invocation goes on with it.
    `approval`: the one that it last waited for. `failures`: times that its process died."""

    claim: Claim
    program: StoredProgram
    caller: bytes | None
    steps: Steps
    pending: Sequence[PendingCall]
    approval: str | None
    failures: int
    cancel: bool


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run for its caller. `result` is JSON; of one that waits, how it paused. `is_due`: a process
    is to go on with it."""

    state: str
    writes: bool
    is_due: bool
    result: bytes


class StoredRuns:
    def __init__(self, pool: Pool, *, keep_s: float, lease_s: float, most: int) -> None:
        """`keep_s`: how long a run waits, and its result is kept; `most`: of a principal."""
        self._pool = pool
        self._keep_s = keep_s
        self._lease_s = lease_s
        self._most = most

    async def begin(self, claim: Claim, program: StoredProgram, caller: bytes | None) -> None:
        """Store a run that this process goes on with. Raises LeaseLost if there is one already."""
        async with borrow(self._pool) as connection:
            stored = await connection.execute(
                "INSERT INTO code_run_t (host_id, run_id, principal, state, record, caller, fence,"
                " lease_ts, expires_ts) VALUES (%(host)s, %(id)s, %(principal)s, 'running',"
                " %(record)s, %(caller)s, %(fence)s,"
                " clock_timestamp() + make_interval(secs => %(lease)s),"
                " clock_timestamp() + make_interval(secs => %(keep)s)) ON CONFLICT DO NOTHING",
                {
                    **claim.values,
                    "principal": claim.principal,
                    "record": msgspec.msgpack.encode(program),
                    "caller": caller,
                    "lease": self._lease_s,
                    "keep": self._keep_s,
                },
            )
        if not stored.rowcount:
            raise LeaseLost("the run goes on already")

    async def add(self, claim: Claim, steps: Steps) -> None:
        """Append steps. Raises LeaseLost: then nothing may be called that is among them."""
        await self._write(claim, _STEP, steps=msgspec.msgpack.encode(steps))

    async def wait(
        self, claim: Claim, approval: str, pending: Sequence[PendingCall], result: bytes
    ) -> None:
        """Let a run wait for an approval. Raises LeaseLost."""
        values = {"approval": approval, "pending": msgspec.msgpack.encode(pending)}
        await self._write(claim, _WAIT, **values, result=result, keep=self._keep_s)

    async def end(self, claim: Claim, result: bytes) -> None:
        """Keep the result of a run, and drop the oldest of its caller. Raises LeaseLost."""
        values = {**claim.values, "principal": claim.principal, "most": self._most}
        values |= {"result": result, "keep": self._keep_s}
        async with borrow(self._pool) as connection, connection.transaction():
            if not (await connection.execute(_END, values)).rowcount:
                raise LeaseLost("another process has taken the run over")
            await connection.execute(
                "DELETE FROM code_run_step_t WHERE host_id = %(host)s AND run_id = %(id)s", values
            )
            await connection.execute(
                "DELETE FROM code_run_t WHERE (host_id, run_id) IN (SELECT host_id, run_id"
                " FROM code_run_t WHERE host_id = %(host)s AND principal = %(principal)s"
                " AND state = 'ended' ORDER BY expires_ts DESC OFFSET %(most)s)",
                values,
            )

    async def release(self, claim: Claim) -> None:
        """Let another process go on with a run. Raises LeaseLost."""
        await self._write(claim, _RELEASE)

    async def remove(self, claim: Claim) -> None:
        """Raises LeaseLost."""
        await self._write(claim, _REMOVE)

    async def _write(self, claim: Claim, statement: bytes, **values: Any) -> None:
        async with borrow(self._pool) as connection:
            written = await connection.execute(statement, {**claim.values, **values})
        if not written.rowcount:
            raise LeaseLost("another process has taken the run over")

    async def count_waiting(self, host_id: str, principal: str) -> int:
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT count(*) FROM code_run_t WHERE host_id = %s AND principal = %s"
                " AND state = 'waiting'",
                [host_id, principal],
            )
            return int((await rows.fetchall())[0][0])

    async def due(self, limit: int, each: int) -> list[tuple[str, str, str]]:
        """Tenant, id and principal of runs that no process goes on with, `each` of a principal, of
        tenants in turn, and of the principals of a tenant in turn."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute(_LOOK_AT_DUE, {"limit": limit, "each": each})
            return [(host, run, principal) async for host, run, principal in rows]

    async def claim(self, host_id: str, run_id: str) -> TakenRun | None:
        """Take up a run that is due; None: it is not, or another process was faster."""
        values = {"host": host_id, "run": run_id, "lease": self._lease_s, "keep": self._keep_s}
        async with borrow(self._pool) as connection:
            row = await (await connection.execute(_CLAIM, values)).fetchone()
            if row is None:
                return None
            rows = await connection.execute(
                "SELECT steps FROM code_run_step_t WHERE host_id = %s AND run_id = %s"
                " ORDER BY step_id",
                [host_id, run_id],
            )
            steps = Steps()
            for (encoded,) in await rows.fetchall():
                steps.add(msgspec.msgpack.decode(encoded, type=Steps))
        host, run, principal, fence, record, caller, pending, approval, failures, cancel = row
        calls = msgspec.msgpack.decode(pending, type=list[PendingCall]) if pending else []
        program = msgspec.msgpack.decode(record, type=StoredProgram)
        claim = Claim(host, run, principal, fence)
        return TakenRun(claim, program, caller, steps, calls, approval, failures, cancel)

    async def get(self, host_id: str, principal: str, run_id: str) -> RunRow | None:
        """The run of a caller."""
        try:
            UUID(run_id)
        except ValueError:
            return None
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                _GET, {"host": host_id, "run": run_id, "principal": principal}
            )
            if (row := await rows.fetchone()) is None:
                return None
        program = msgspec.msgpack.decode(row[1], type=StoredProgram)
        return RunRow(row[0], program.writes, row[3], row[2])

    async def renew(self, claims: Iterable[Claim]) -> dict[str, bool]:
        """Renew leases: by the ids of those that are still ours, whether to cancel the run."""
        held = held_rows((claim.host_id, claim.run_id, claim.fence) for claim in claims)
        async with borrow(self._pool) as connection:
            rows = await connection.execute(_RENEW, {**held, "lease": self._lease_s})
            return {run: cancel async for run, cancel in rows}

    async def cancel(self, host_id: str, run_id: str) -> None:
        """Ask the process that goes on with a run to end it; one that waits can be claimed."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "UPDATE code_run_t SET cancel = true, approval_id = NULL"
                " WHERE host_id = %s AND run_id = %s AND state IN ('waiting', 'running')",
                [host_id, run_id],
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
