"""Store of runs that go on by themselves: after decisions of people, or when their process died."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct
from psycopg import sql

from gateway.policy.approval_gate import write_time
from gateway.sandbox.program_process import ProgramLanguage
from gateway.wings.code.call_journal import Steps
from registry.database.leases import Claim, LeasedRows, LeaseLost, Leases, held_row
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.names.tool_names import CODE_TOOLS

READING, WRITING = CODE_TOOLS
_LEASES = Leases("code_run_t", "run_id", "r.state = 'running'")
# `statement_timestamp`, as no index is searched with the volatile `clock_timestamp`.
_IS_ORPHANED = sql.SQL(
    "r.state = 'running' AND (r.lease_ts IS NULL OR r.lease_ts < statement_timestamp())"
)
_IS_DECIDED = sql.SQL(
    "r.state = 'waiting' AND r.expires_ts > statement_timestamp()"
    " AND NOT EXISTS (SELECT FROM approval_t a WHERE a.host_id = r.host_id"
    " AND a.approval_id = r.approval_id AND a.state = 'waiting'"
    " AND a.expire_ts > statement_timestamp())"
)
_GET = compose(
    "SELECT r.state, r.record, r.result, ({died}) OR ({decided}) FROM code_run_t r"
    " WHERE r.host_id = %(host)s AND r.run_id = %(run)s AND r.principal = %(principal)s"
    " AND r.expires_ts > statement_timestamp() AND r.state <> 'paused'",
    died=_IS_ORPHANED,
    decided=_IS_DECIDED,
)
_BEGIN = (
    b"INSERT INTO code_run_t (host_id, run_id, principal, state, record, caller, fence, tool,"
    b" lease_ts, expires_ts) VALUES (%(host)s, %(id)s, %(principal)s, 'running', %(record)s,"
    b" %(caller)s, 1, %(tool)s, clock_timestamp() + make_interval(secs => %(lease)s),"
    b" clock_timestamp() + make_interval(secs => %(keep)s)) ON CONFLICT DO NOTHING"
)
_LIST = (
    "SELECT run_id::text, tool, CASE state WHEN 'waiting' THEN 'paused' WHEN 'ended' THEN outcome"
    " ELSE 'running' END, calls, pending, created_ts, expires_ts FROM code_run_t"
    " WHERE host_id = %s AND principal = %s AND tool <> '' AND expires_ts > now()"
    " ORDER BY created_ts DESC, run_id LIMIT %s"
)
_STEP = compose(
    "WITH held AS (UPDATE code_run_t AS r SET calls = calls + %(calls)s WHERE {mine}"
    " RETURNING host_id, run_id) INSERT INTO code_run_step_t (host_id, run_id, steps)"
    " SELECT host_id, run_id, %(steps)s FROM held",
    mine=_LEASES.of_one,
)
_WAIT = compose(
    "UPDATE code_run_t AS r SET state = 'waiting', lease_ts = NULL,"
    " approval_id = CASE WHEN r.cancel THEN NULL ELSE %(approval)s::uuid END,"
    " pending = %(pending)s, result = %(result)s,"
    " expires_ts = clock_timestamp() + make_interval(secs => %(keep)s) WHERE {mine}",
    mine=_LEASES.of_one,
)
_END = compose(
    "UPDATE code_run_t AS r SET state = 'ended', lease_ts = NULL, pending = '',"
    " result = %(result)s, outcome = %(outcome)s, calls = greatest(calls, %(calls)s),"
    " expires_ts = clock_timestamp() + make_interval(secs => %(keep)s) WHERE {mine}",
    mine=_LEASES.of_one,
)
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
    def tool(self) -> str:
        return WRITING if self.writes else READING

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(f"{self.language}\0{self.code}".encode()).digest()


class RunEntry(Struct, frozen=True):
    """A run in a list. `calls`: those that it had made when it was last stored; `pending`: those
    that wait for an approval. Times as RFC 3339 has them."""

    run: str
    tool: str
    state: Literal["running", "paused", "completed", "failed"]
    calls: int
    pending: int
    started: str
    expires: str


class PendingCall(Struct, frozen=True):
    """A call that waits for the approval of a person, until `expires` (RFC 3339)."""

    seq: int
    tool: str
    arguments: Mapping[str, Any]
    approval: str
    expires: str


@dataclass(eq=False)
class ProgramRun:
    """A run of a program in this process. `caller` None: its job or its invocation goes on with it.
    `is_kept`: so is its result. `approval`: the one that it last waited for. `failures`: times that
    its process died."""

    tenant: str
    owner: str
    id: str
    program: StoredProgram
    caller: bytes | None
    is_kept: bool
    fence: int = 0  # until it is stored
    is_taken_up: bool = False
    steps: Steps = field(default_factory=Steps)
    pending: Sequence[PendingCall] = ()
    approval: str | None = None
    failures: int = 0
    cancel: bool = False

    @property
    def claim(self) -> Claim | None:
        return (self.tenant, self.id, self.fence) if self.fence else None

    @classmethod
    def of_row(cls, *, record: bytes, pending: bytes, **columns: Any) -> "ProgramRun":
        """A run that was taken up, without its steps."""
        program = msgspec.msgpack.decode(record, type=StoredProgram)
        calls = _decode_pending(pending)
        return cls(program=program, pending=calls, is_kept=True, is_taken_up=True, **columns)


_STATEMENTS = _LEASES.statements(
    ProgramRun.of_row,
    sql.SQL(
        "r.host_id::text AS tenant, r.run_id::text AS id, r.principal AS owner, r.fence, r.record,"
        " r.caller, r.pending, r.approval_id::text AS approval, r.failures, r.cancel"
    ),
    owner="principal",
    due=sql.SQL("({died}) OR ({decided})").format(died=_IS_ORPHANED, decided=_IS_DECIDED),
    rows=sql.SQL(
        "(SELECT r.* FROM code_run_t r WHERE {died} AND r.caller IS NOT NULL UNION ALL"
        " SELECT r.* FROM code_run_t r WHERE {decided} AND r.caller IS NOT NULL) AS r"
    ).format(died=_IS_ORPHANED, decided=_IS_DECIDED),
    claim="state = 'running',"
    " failures = failures + (r.state = 'running' AND lease_ts IS NOT NULL)::int,"
    " expires_ts = clock_timestamp() + make_interval(secs => %(keep)s)",
    release="state = 'running'",
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run for its caller. `result` is JSON; of one that waits, how it paused. `is_due`: a process
    is to go on with it."""

    state: str
    writes: bool
    is_due: bool
    result: bytes


class StoredRuns(LeasedRows[ProgramRun]):
    def __init__(self, pool: Pool, *, keep_s: float, lease_s: float, most: int) -> None:
        """`keep_s`: how long a run waits, and its result is kept; `most`: of a principal."""
        super().__init__(pool, _STATEMENTS, keep=keep_s, lease=lease_s)
        self._most = most

    async def begin(self, run: ProgramRun) -> None:
        """Store a run that this process goes on with. Raises LeaseLost if there is one already."""
        values = {
            **self._values,
            "host": run.tenant,
            "id": run.id,
            "principal": run.owner,
            "record": msgspec.msgpack.encode(run.program),
            "caller": run.caller,
            "tool": run.program.tool,
        }
        if not await self._execute(_BEGIN, values):
            raise LeaseLost("the run goes on already")
        run.fence = 1

    async def add(self, run: ProgramRun, steps: Steps) -> None:
        """Append steps. Raises LeaseLost: then nothing may be called that is among them."""
        values = {"steps": msgspec.msgpack.encode(steps), "calls": len(steps.calls)}
        await self._write(run, _STEP, values)

    async def wait(
        self, run: ProgramRun, approval: str, pending: Sequence[PendingCall], result: bytes
    ) -> None:
        """Let a run wait for an approval, unless it was cancelled: then it is due at once. Raises
        LeaseLost."""
        calls = msgspec.msgpack.encode(pending)
        values = {"approval": approval, "pending": calls, "result": result}
        await self._write(run, _WAIT, {**self._values, **values})

    async def end(self, run: ProgramRun, result: bytes, outcome: str, calls: int) -> None:
        """Keep the result of a run, and drop the oldest of its caller. Raises LeaseLost."""
        values = {**self._values, **held_row(run), "principal": run.owner, "most": self._most}
        values |= {"result": result, "outcome": outcome, "calls": calls}
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

    async def remove(self, run: ProgramRun) -> None:
        """Raises LeaseLost."""
        await self._write(run, _REMOVE, {})

    async def count_waiting(self, host_id: str, principal: str) -> int:
        rows = await self._fetch(
            "SELECT count(*) FROM code_run_t WHERE host_id = %s AND principal = %s"
            " AND state = 'waiting'",
            [host_id, principal],
        )
        return int(rows[0][0])

    async def claim(self, host_id: str, id_: str) -> ProgramRun | None:
        """Take up a run that is due; None: it is not, or another process was faster."""
        async with borrow(self._pool) as connection:
            run = await self._claim(connection, host_id, id_)
            if run is not None:  # a statement of its own sees steps that the claim has waited for
                rows = await connection.execute(
                    "SELECT steps FROM code_run_step_t WHERE host_id = %s AND run_id = %s"
                    " ORDER BY step_id",
                    [host_id, id_],
                )
                async for (encoded,) in rows:
                    run.steps.add(msgspec.msgpack.decode(encoded, type=Steps))
        return run

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

    async def all(self, host_id: str, principal: str, limit: int) -> list[RunEntry]:
        """The runs of a caller that are stored, the newest first."""
        rows = await self._fetch(_LIST, [host_id, principal, limit])
        return [
                RunEntry(
                    run, tool, state, calls, len(_decode_pending(pending)),
                    write_time(started), write_time(expires),
                )
                for run, tool, state, calls, pending, started, expires in rows
            ]  # fmt: skip

    async def cancel(self, host_id: str, run_id: str) -> None:
        """Ask the process that goes on with a run to end it; one that waits can be claimed."""
        await self._execute(
            "UPDATE code_run_t SET cancel = true, approval_id = NULL"
            " WHERE host_id = %s AND run_id = %s AND state IN ('waiting', 'running')",
            [host_id, run_id],
        )

    async def prune(self) -> None:
        """Delete runs whose time is over."""
        await self._execute("DELETE FROM code_run_t WHERE expires_ts < now()", [])


def _decode_pending(data: bytes) -> list[PendingCall]:
    return msgspec.msgpack.decode(data, type=list[PendingCall]) if data else []
