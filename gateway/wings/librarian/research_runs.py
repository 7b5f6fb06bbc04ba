"""Runs of research and their steps in the database. All methods raise `psycopg.OperationalError`.

A request that costs something is stored before it is sent, and again with its answer. One that is
stored without an answer was in flight when the process was killed: it is counted at the most that
it may cost, and not sent again. Two processes that go on with the same run meet at the key of a
step, before either pays.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

import msgspec
import psycopg
from msgspec import Raw, Struct
from psycopg import AsyncConnection, sql

from config.librarian import ResearchSettings
from gateway.wings.librarian.part_answers import Asker, PartAnswer, PartQuestion
from gateway.wings.librarian.run_budget import Limit, LimitReached, RunLedger
from gateway.wings.models.messages import ModelFailed
from gateway.wings.models.usage import ModelCost, TokenUsage
from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from schemas.errors import ToolgateError

StepKind = Literal["begin", "model", "cell", "llm", "child", "library", "context"]
RunState = Literal["running", "completed", "incomplete", "cancelled", "failed"]
EXCERPT = 2000  # characters of a request that are kept to be shown
LOST_TEXT = "The answer was lost when the gateway stopped. It is not asked for again."
_REFUSALS: Mapping[str, Limit] = {  # by what is recorded in place of an answer
    f"Not sent: {LimitReached(limit)}": limit for limit in get_args(Limit)
}


class Diverged(ToolgateError):
    """A replay that does not do what was recorded."""


class TakenOver(ToolgateError):
    """Another process goes on with the run."""


class RunStep(Struct, frozen=True):
    """A step of a run. `answer` is JSON; None: it has begun."""

    node: str
    seq: int
    kind: StepKind
    digest: str
    request: str
    answer: Raw | None = None
    tokens: int = 0
    cost: float = 0.0
    ms: int = 0


@dataclass(frozen=True, slots=True)
class StoredRun:
    id: str
    question: str
    collections: list[str]
    request: bytes  # JSON
    state: RunState
    result: bytes | None  # JSON
    seconds: float
    created: datetime
    updated: datetime


_RUN = sql.SQL(
    "run_id::text, question, collections, request, state, result, seconds, created_ts, update_ts"
)
# A job that was cancelled, or has failed for good, has ended its run, which has the same id.
_END_WITH_JOBS = b"""
    UPDATE librarian_run_t AS run SET state = job.state FROM job_t AS job
    WHERE run.host_id = %(host)s AND (%(owner)s::text IS NULL OR run.owner = %(owner)s)
        AND run.state = 'running' AND job.state IN ('cancelled', 'failed')
        AND (job.host_id, job.job_id) = (run.host_id, run.run_id)
"""


class RunStore(Tables):
    def __init__(self, pool: Pool, settings: ResearchSettings) -> None:
        self._pool = pool
        self._settings = settings

    async def create(
        self, host_id: str, owner: str, run_id: str, *, question: str,
        collections: Sequence[str], request: bytes,
    ) -> bool:  # fmt: skip
        """A new run; False: its owner has begun as many within the hour as it may."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s || %s, 21))", [host_id, owner]
            )
            done = await connection.execute(
                "INSERT INTO librarian_run_t"
                " (host_id, run_id, owner, question, collections, request)"
                " SELECT %(host)s, %(run)s, %(owner)s, %(question)s, %(collections)s, %(request)s"
                " WHERE (SELECT count(*) FROM librarian_run_t WHERE host_id = %(host)s"
                " AND owner = %(owner)s AND created_ts BETWEEN clock_timestamp() - interval '1 h'"
                " AND clock_timestamp())"
                " < %(limit)s",
                {
                    "host": host_id,
                    "run": run_id,
                    "owner": owner,
                    "question": question.replace("\0", ""),
                    "collections": list(collections),
                    "request": request,
                    "limit": self._settings.runs_per_hour,
                },
            )
        return done.rowcount > 0

    async def get(self, host_id: str, owner: str, run_id: str) -> StoredRun | None:
        rows = await self._runs(sql.SQL("AND run_id = %s"), [host_id, owner, run_id])
        return rows[0] if rows else None

    async def all(self, host_id: str, owner: str, limit: int) -> list[StoredRun]:
        """The newest first."""
        return await self._runs(
            sql.SQL("ORDER BY created_ts DESC LIMIT %s"), [host_id, owner, limit]
        )

    async def _runs(self, clause: sql.SQL, values: list[Any]) -> list[StoredRun]:
        statement = sql.SQL(
            "SELECT {run} FROM librarian_run_t WHERE host_id = %s AND owner = %s {rest}"
        ).format(run=_RUN, rest=clause)
        async with borrow(self._pool) as connection:
            await _end_with_jobs(connection, values[0], values[1])
            rows = await connection.execute(statement, values)
            return [StoredRun(*row) async for row in rows]

    async def end(self, host_id: str, run_id: str, state: RunState, result: bytes | None) -> None:
        await self._execute(
            "UPDATE librarian_run_t SET state = %s, result = %s,"
            " update_ts = clock_timestamp() WHERE host_id = %s AND run_id = %s",
            [state, result, host_id, run_id],
        )

    async def steps(self, host_id: str, run_id: str) -> list[RunStep]:
        """In the order in which they began."""
        rows = await self._fetch(
            "SELECT node, seq, kind, digest, request, answer, tokens, cost, ms"
            " FROM librarian_step_t WHERE host_id = %s AND run_id = %s"
            " ORDER BY created_ts, node, seq",
            [host_id, run_id],
        )
        return [_step(row) for row in rows]

    async def trace(self, host_id: str, run_id: str, most: int) -> list[RunStep]:
        """The first steps, each with the beginning of its answer."""
        rows = await self._fetch(
            "SELECT node, seq, kind, digest, request, substring(answer FOR %s), tokens, cost,"
            " ms FROM librarian_step_t WHERE host_id = %s AND run_id = %s"
            " ORDER BY created_ts, node, seq LIMIT %s",
            [EXCERPT, host_id, run_id, most],
        )
        return [_step(row) for row in rows]

    async def put(self, host_id: str, run_id: str, step: RunStep, seconds: float) -> None:
        """Store a step that begins, or ends at once. Raises TakenOver."""
        try:
            await self._execute(
                "WITH run AS (UPDATE librarian_run_t SET seconds = greatest(seconds, %s),"
                " update_ts = clock_timestamp() WHERE host_id = %s AND run_id = %s)"
                " INSERT INTO librarian_step_t"
                " (host_id, run_id, node, seq, kind, digest, request, answer, tokens, cost, ms)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    *(seconds, host_id, run_id),
                    *(host_id, run_id, step.node, step.seq, step.kind, step.digest),
                    *(step.request.replace("\0", ""), step.answer and bytes(step.answer)),
                    *(step.tokens, step.cost, step.ms),
                ],
            )
        except psycopg.errors.UniqueViolation as error:
            raise TakenOver("Another process goes on with this run") from error
        except psycopg.errors.ForeignKeyViolation as error:
            raise TakenOver("The run was erased") from error

    async def end_step(self, host_id: str, run_id: str, step: RunStep) -> None:
        await self._execute(
            "UPDATE librarian_step_t SET answer = %s, tokens = %s, cost = %s, ms = %s"
            " WHERE host_id = %s AND run_id = %s AND node = %s AND seq = %s",
            [
                *(step.answer and bytes(step.answer), step.tokens, step.cost, step.ms),
                *(host_id, run_id, step.node, step.seq),
            ],
        )

    async def sweep(self, host_id: str) -> None:
        """Delete runs that are too old, and store how jobs have ended theirs."""
        async with borrow(self._pool) as connection:
            await _end_with_jobs(connection, host_id)
            await connection.execute(
                "DELETE FROM librarian_run_t WHERE host_id = %s"
                " AND update_ts < clock_timestamp() - %s * interval '1 day'",
                [host_id, self._settings.keep_days],
            )


async def _end_with_jobs(
    connection: AsyncConnection, host_id: str, owner: str | None = None
) -> None:
    rows = await connection.execute("SELECT to_regclass('job_t') IS NOT NULL")
    if await rows.fetchone() == (True,):  # not with jobs.enabled: false
        await connection.execute(_END_WITH_JOBS, {"host": host_id, "owner": owner})


def _step(row: Sequence[Any]) -> RunStep:
    node, seq, kind, digest, request, answer, tokens, cost, ms = row
    raw_answer = None if answer is None else Raw(answer)
    return RunStep(node, seq, kind, digest, request, raw_answer, tokens, cost, ms)


def step_digest(kind: StepKind, payload: Any) -> str:
    return hashlib.sha256(msgspec.json.encode([kind, payload])).hexdigest()


@dataclass(kw_only=True)
class RunLog:
    """The steps of one run, those of former processes first."""

    store: RunStore
    host_id: str
    run_id: str
    ledger: RunLedger
    steps: dict[tuple[str, int], RunStep] = field(default_factory=dict)

    async def read(self) -> None:
        """Read the steps of former processes, and count what they have used."""
        for step in await self.store.steps(self.host_id, self.run_id):
            self.steps[step.node, step.seq] = step
            answer = _answer_of(step)
            cached = isinstance(answer, PartAnswer) and answer.cached
            self.ledger.carry(
                step.kind, step.tokens, step.cost, cached=cached, limit=refused_by(answer)
            )

    def recorded_step(self, node: str, seq: int, digest: str) -> RunStep | None:
        """Raises Diverged."""
        step = self.steps.get((node, seq))
        if step is not None and step.digest != digest:
            raise Diverged(f"step {node}#{seq} was another one when it was recorded")
        return step

    async def add(self, step: RunStep) -> None:
        """Raises TakenOver."""
        self.steps[step.node, step.seq] = step
        await self.store.put(self.host_id, self.run_id, step, self.ledger.spending.seconds)

    async def pay(
        self, request: RunStep, worst: tuple[TokenUsage, ModelCost | None],
        send: Callable[[], Awaitable[PartAnswer]],
    ) -> PartAnswer | str:  # fmt: skip
        """The answer to a request of a model, or why there is none. It is sent at most once in the
        life of the run. Raises Diverged and TakenOver."""
        step = self.recorded_step(request.node, request.seq, request.digest)
        if step is not None:
            return await self._replay(step)
        await self.add(msgspec.structs.replace(request, tokens=worst[0].total, cost=_amount(worst)))
        began = time.monotonic()
        answer: PartAnswer | str
        try:
            answer = await send()
        except LimitReached as error:
            answer = f"Not sent: {error}"
        except ModelFailed as error:
            answer = str(error)
        await self._end_step(request, answer, round((time.monotonic() - began) * 1000))
        return answer

    async def _replay(self, step: RunStep) -> PartAnswer | str:
        if step.answer is None:
            await self._end_step(step, LOST_TEXT, step.ms)
            return LOST_TEXT
        return msgspec.json.decode(step.answer, type=PartAnswer | str)

    async def _end_step(self, request: RunStep, answer: PartAnswer | str, ms: int) -> None:
        part = answer if isinstance(answer, PartAnswer) else PartAnswer("")
        lost = answer == LOST_TEXT
        step = msgspec.structs.replace(
            request,
            answer=Raw(msgspec.json.encode(answer)),
            tokens=request.tokens if lost else part.usage.total,
            cost=request.cost if lost else (part.cost.amount if part.cost else 0.0),
            ms=ms,
        )
        self.steps[step.node, step.seq] = step
        await self.store.end_step(self.host_id, self.run_id, step)


@dataclass(kw_only=True)
class RecordedAsker(Asker):
    """Asks a model in a run: records requests that are made at once, by what they say."""

    log: RunLog
    on_read: Callable[[], None]
    numbers: dict[str, int] = field(default_factory=dict)

    async def ask(self, question: PartQuestion) -> PartAnswer:
        digest = step_digest("llm", question.key)
        seq = self.numbers.setdefault(digest, int(digest[:7], 16))
        step = RunStep("map", seq, "llm", digest, question.messages[-1].text[:EXCERPT])
        worst = self.worst(question)
        send = partial(super().ask, question)
        failed: list[Exception] = []

        async def send_and_note() -> PartAnswer:
            try:
                return await send()
            except (LimitReached, ModelFailed) as error:
                failed.append(error)
                raise

        answer = await self.log.pay(step, worst, send_and_note)
        if failed:
            raise failed[0]
        if (limit := refused_by(answer)) is not None:  # before a kill
            raise LimitReached(limit)
        self.on_read()
        return answer if isinstance(answer, PartAnswer) else PartAnswer("")


def _answer_of(step: RunStep) -> PartAnswer | str | None:
    """The recorded answer to a request of a model, or why there is none."""
    if step.kind not in ("model", "llm") or step.answer is None:
        return None
    return msgspec.json.decode(step.answer, type=PartAnswer | str)


def refused_by(answer: PartAnswer | str | None) -> Limit | None:
    """The limit by which a request was not sent."""
    return _REFUSALS.get(answer) if isinstance(answer, str) else None


def _amount(worst: tuple[TokenUsage, ModelCost | None]) -> float:
    return worst[1].amount if worst[1] is not None else 0.0
