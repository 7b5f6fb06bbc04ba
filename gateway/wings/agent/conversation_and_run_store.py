"""Conversations, runs and steps in the database. All methods raise `psycopg.OperationalError`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import date, datetime
from operator import add, sub
from typing import Any, Literal
from uuid import NAMESPACE_OID, UUID, uuid5

import msgspec
import psycopg
from psycopg import AsyncConnection, sql

from gateway.wings.agent.run_steps import STEP_DECODER, AgentTurn, Step, fold_steps
from gateway.wings.models.messages import ChatMessage, ModelExchange
from registry.database.leases import LeasedRows, LeaseLost, Leases, OldRows, held_row
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import Tables, fetch_row, fetch_rows

RunState = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "exhausted"]
END_STATES: tuple[RunState, ...] = ("completed", "failed", "cancelled", "exhausted")


@dataclass(frozen=True, slots=True)
class UsageAmounts:
    """Usage in the units of budgets."""

    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0
    calls: int = 0

    def plus(self, amounts: "UsageAmounts") -> "UsageAmounts":
        return UsageAmounts(*map(add, astuple(self), astuple(amounts)))

    def minus(self, amounts: "UsageAmounts") -> "UsageAmounts":
        return UsageAmounts(*map(sub, astuple(self), astuple(amounts)))


NOTHING = UsageAmounts()


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Usage of a run, and of its owner on a day."""

    run: UsageAmounts = NOTHING
    day: UsageAmounts = NOTHING
    counted_on: date | None = field(default=None, compare=False)  # that day


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    owner: str
    title: str
    strategy: str
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class Run:
    tenant: str
    id: str
    conversation: str
    turn: int
    owner: str
    caller: str  # JSON
    content: str
    strategy: str
    streams: bool
    history: list[Any]
    state: RunState
    stopped: str
    error: str
    answer: str
    approvals: list[str]
    cancel: bool
    attempt: int
    iterations: int
    tokens: int
    money: float
    seconds: float
    calls: int
    created: datetime
    updated: datetime

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES

    @property
    def claim(self) -> tuple[str, str, int]:
        return self.tenant, self.id, self.attempt

    @property
    def usage(self) -> UsageAmounts:
        return UsageAmounts(self.tokens, self.money, self.seconds, self.calls)


@dataclass(frozen=True, slots=True)
class NewRun:
    owner: str
    caller: bytes  # JSON
    content: str
    strategy: str
    streams: bool
    history: bytes = b"[]"  # JSON: messages before, of a client that keeps them


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run leaves the state `running`."""

    state: RunState
    stopped: str = ""
    error: str = ""
    answer: str = ""
    approvals: Sequence[str] = ()
    updates: Sequence[Mapping[str, Any]] = ()  # events of what it waits for; told once it does


class ConversationBusy(Exception):
    """The conversation has a run that has not ended."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run


_CONVERSATION = sql.SQL(
    "conversation_id::text AS id, owner, title, strategy, created_ts AS created,"
    " update_ts AS updated"
)
_OPEN = sql.SQL("state IN ('queued', 'running', 'waiting')")
_RUN = sql.SQL(
    "host_id::text AS tenant, run_id::text AS id, conversation_id::text AS conversation, turn,"
    " owner, caller::text AS caller, content, strategy, streams, history, state, stopped, error,"
    " answer, approvals::text[] AS approvals, cancel, attempt, iterations, tokens, money,"
    " seconds, calls, created_ts AS created, update_ts AS updated"
)
_TODAY = sql.SQL("(clock_timestamp() AT TIME ZONE 'UTC')::date")
_LEASES = Leases(
    "agent_run_t", "run_id", "r.state = 'running'", fence="attempt", until="lease_until"
)
_ADD = compose(
    "WITH held AS (UPDATE agent_run_t AS r SET tokens = tokens + %(tokens)s,"
    " money = money + %(money)s,"
    " seconds = seconds + %(seconds)s, calls = calls + %(calls)s,"
    " iterations = greatest(iterations, %(iteration)s), update_ts = clock_timestamp()"
    " WHERE {mine} RETURNING owner, tokens, money, seconds, calls),"
    " steps AS (INSERT INTO agent_step_t (host_id, run_id, number, kind, data)"
    " SELECT %(host)s, %(id)s, number, kind, data FROM held,"
    " unnest(%(numbers)s::integer[], %(kinds)s::text[], %(data)s::bytea[])"
    " AS step (number, kind, data)),"
    " day AS (INSERT INTO agent_usage_t AS own"
    " (host_id, owner, day, tokens, money, seconds, calls)"
    " SELECT %(host)s, owner, coalesce(%(day)s::date, {today}), %(tokens)s, %(money)s,"
    " %(seconds)s, %(calls)s FROM held WHERE %(counts)s"
    " ON CONFLICT (host_id, owner, day) DO UPDATE SET"
    " tokens = own.tokens + excluded.tokens, money = own.money + excluded.money,"
    " seconds = own.seconds + excluded.seconds, calls = own.calls + excluded.calls"
    " RETURNING tokens, money, seconds, calls, day)"
    " SELECT held.tokens, held.money, held.seconds, held.calls, day.tokens, day.money,"
    " day.seconds, day.calls, day.day FROM held LEFT JOIN day ON true",
    mine=_LEASES.of_one,
    today=_TODAY,
)
PRUNED_ROWS = 1000  # rows that one statement deletes
_OLD_USAGE = OldRows(
    "agent_usage_t",
    "owner, day",
    sql.SQL("day < {today} - %(days)s::integer").format(today=_TODAY),
    "day",
)
_IDLE = sql.SQL(
    "update_ts < clock_timestamp() - make_interval(days => %(days)s) AND NOT EXISTS ("
    "SELECT 1 FROM agent_run_t AS run WHERE run.host_id = r.host_id"
    " AND run.conversation_id = r.conversation_id"
    " AND (run.state IN ('queued', 'running', 'waiting')"
    " OR run.update_ts >= clock_timestamp() - make_interval(days => %(days)s)))"
)
_IDLE_CONVERSATIONS = OldRows("agent_conversation_t", "conversation_id", _IDLE, "update_ts")
# Who counts the open runs of an owner sees those that are begun at the same time.
_OWNER_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s || %s, 19))"
# `statement_timestamp`, as no index is searched with the volatile `clock_timestamp`; arms of their
# own and OFFSET 0, or all runs that wait would be read.
_IS_ACTIVE = sql.SQL("state IN ('running', 'waiting')")
_DUE = sql.SQL(
    "(state = 'queued' OR ({held} AND lease_until IS NULL)"
    " OR ({held} AND lease_until < statement_timestamp()))"
).format(held=_IS_ACTIVE)
# Nothing is open any more of what the run r waits for.
_IS_DECIDED = sql.SQL(
    "NOT EXISTS (SELECT FROM approval_t a WHERE a.host_id = r.host_id"
    " AND a.approval_id = ANY(r.approvals) AND a.state = 'waiting'"
    " AND a.expire_ts > statement_timestamp())"
)
_WAKE_DECIDED = compose(
    "WITH decided AS MATERIALIZED (SELECT host_id, approval_id FROM approval_t"
    " WHERE decide_ts > statement_timestamp() - make_interval(secs => %s)),"
    " due AS MATERIALIZED (SELECT r.host_id, r.run_id"
    " FROM decided CROSS JOIN LATERAL (SELECT * FROM agent_run_t"
    "   WHERE host_id = decided.host_id AND state = 'waiting'"
    "   AND approvals @> ARRAY[decided.approval_id] OFFSET 0 FOR UPDATE SKIP LOCKED) AS r"
    " WHERE {decided})"
    " UPDATE agent_run_t AS r SET state = 'queued' FROM due"
    " WHERE r.host_id = due.host_id AND r.run_id = due.run_id AND r.state = 'waiting'",
    decided=_IS_DECIDED,
)
_STATEMENTS = _LEASES.statements(
    Run,
    _RUN,
    owner="owner",
    due=_DUE,
    claim="state = 'running', node = %(node)s, update_ts = clock_timestamp()",
    release="state = 'queued', node = NULL",
)
_END = compose(
    "UPDATE agent_run_t AS r SET state = %(state)s, stopped = %(stopped)s, error = %(error)s,"
    " answer = %(answer)s, approvals = %(approvals)s::uuid[], node = NULL,"
    " update_ts = clock_timestamp(), lease_until = CASE WHEN %(state)s = 'waiting' THEN"
    "   (SELECT coalesce(max(a.expire_ts), clock_timestamp()) FROM approval_t a"
    "   WHERE a.host_id = r.host_id AND a.approval_id = ANY(%(approvals)s::uuid[])"
    "   AND a.state = 'waiting' AND NOT cancel) END WHERE {mine} RETURNING {run}",
    mine=_LEASES.of_one,
    run=_RUN,
)
_FREE = sql.SQL("(state = 'waiting' OR {due})").format(due=_DUE)  # no process has it
_CANCEL = compose(
    "UPDATE agent_run_t SET cancel = true, update_ts = clock_timestamp(),"
    " state = CASE WHEN {free} THEN 'cancelled' ELSE state END,"
    " approvals = CASE WHEN {free} THEN '{{}}' ELSE approvals END"
    " WHERE host_id = %s AND run_id = %s AND owner = %s AND {open} RETURNING {run}",
    free=_FREE,
    open=_OPEN,
    run=_RUN,
)


def owned_id(host_id: str, owner: str, conversation: str) -> str:
    """The id of a conversation for the one that its owner chose: nobody else's has it."""
    name = msgspec.json.encode([host_id, owner, str(UUID(conversation))]).decode()
    return str(uuid5(NAMESPACE_OID, name))


class Conversations(Tables):
    """Conversations of an owner."""

    async def create(
        self, host_id: str, owner: str, title: str, *, strategy: str, id_: str | None
    ) -> Conversation | None:
        """A new conversation, or the owner's own of this id; None: it belongs to another owner. An
        id that a caller chose is stored as one that only this owner can have."""
        if id_ is not None:
            if (conversation := await self.get(host_id, owner, id_)) is not None:
                return conversation
            id_ = owned_id(host_id, owner, id_)
        return await self._fetch_row(
            Conversation,
            sql.SQL(
                "INSERT INTO agent_conversation_t AS own (host_id, owner, title, strategy,"
                " conversation_id) VALUES (%s, %s, %s, %s, coalesce(%s::uuid, gen_random_uuid()))"
                " ON CONFLICT (host_id, conversation_id) DO UPDATE SET title = own.title"
                " WHERE own.owner = excluded.owner RETURNING {conversation}"
            ).format(conversation=_CONVERSATION),
            [host_id, owner, title, strategy, id_],
        )

    async def all(
        self, host_id: str, owner: str, before: datetime | None, limit: int
    ) -> list[Conversation]:
        """The newest first, those changed before `before`."""
        return await self._fetch_rows(
            Conversation,
            sql.SQL(
                "SELECT {conversation} FROM agent_conversation_t"
                " WHERE host_id = %s AND owner = %s AND (%s::timestamptz IS NULL OR update_ts < %s)"
                " ORDER BY update_ts DESC, conversation_id LIMIT %s"
            ).format(conversation=_CONVERSATION),
            [host_id, owner, before, before, limit],
        )

    async def get(self, host_id: str, owner: str, id_: str) -> Conversation | None:
        """By its id, or the one that its owner chose; None also for that of another owner."""
        return await self._fetch_row(
            Conversation,
            sql.SQL(
                "SELECT {conversation} FROM agent_conversation_t"
                " WHERE host_id = %s AND conversation_id = ANY(%s::uuid[]) AND owner = %s"
                " ORDER BY conversation_id = %s::uuid DESC LIMIT 1"
            ).format(conversation=_CONVERSATION),
            [host_id, [id_, owned_id(host_id, owner, id_)], owner, id_],
        )

    async def delete(self, host_id: str, owner: str, id_: str) -> bool:
        """Erase a conversation with its runs and steps; whether it existed."""
        changed = await self._execute(
            "DELETE FROM agent_conversation_t"
            " WHERE host_id = %s AND conversation_id = %s AND owner = %s",
            [host_id, id_, owner],
        )
        return changed > 0

    async def turns(
        self, host_id: str, id_: str, limit: int, before: int | None = None
    ) -> list[tuple[Run, AgentTurn]]:
        """The newest turns with their steps, oldest first; those before the turn `before`."""
        async with borrow(self._pool) as connection:
            runs = await fetch_rows(
                connection,
                Run,
                sql.SQL(
                    "SELECT {run} FROM agent_run_t"
                    " WHERE host_id = %s AND conversation_id = %s"
                    " AND (%s::bigint IS NULL OR turn < %s) ORDER BY turn DESC LIMIT %s"
                ).format(run=_RUN),
                [host_id, id_, before, before, limit],
            )
            runs.reverse()
            return list(zip(runs, await _turns(connection, host_id, runs), strict=True))

    async def used_today(self, host_id: str, limit: int) -> list[tuple[str, UsageAmounts]]:
        """Owners and what their runs used on this day, the most tokens first."""
        rows = await self._fetch(
            sql.SQL(
                "SELECT owner, tokens, money, seconds, calls FROM agent_usage_t"
                " WHERE host_id = %s AND day = {today} ORDER BY tokens DESC LIMIT %s"
            ).format(today=_TODAY),
            [host_id, limit],
        )
        return [(owner, UsageAmounts(*amounts)) for owner, *amounts in rows]

    async def spending(self, run: Run) -> tuple[UsageAmounts, UsageAmounts]:
        """Usage of the conversation's other runs, and of its owner on this day."""
        rows = await self._fetch(
            sql.SQL(
                "SELECT sum(tokens)::bigint, sum(money), sum(seconds), sum(calls)::bigint"
                " FROM agent_run_t WHERE host_id = %s AND conversation_id = %s AND run_id <> %s"
                " UNION ALL SELECT sum(tokens)::bigint, sum(money), sum(seconds),"
                " sum(calls)::bigint FROM agent_usage_t"
                " WHERE host_id = %s AND owner = %s AND day = {today}"
            ).format(today=_TODAY),
            [run.tenant, run.conversation, run.id, run.tenant, run.owner],
        )
        others, day = [UsageAmounts(*(value or 0 for value in row)) for row in rows]
        return others, day


class Runs(LeasedRows[Run]):
    """Runs, and the leases that processes hold on them."""

    def __init__(self, pool: Pool, node: str, lease_s: float) -> None:
        super().__init__(pool, _STATEMENTS, node=node, lease=lease_s)

    async def create(
        self, host_id: str, conversation: str, new: NewRun, limit: int, *, here: bool
    ) -> Run | None:
        """A new run; None: the owner has `limit` that have not ended. `here`: in this process; else
        any may take it up. Raises ConversationBusy."""
        try:
            async with borrow(self._pool) as connection:
                await connection.execute(_OWNER_LOCK, [host_id, new.owner])
                return await fetch_row(
                    connection,
                    Run,
                    sql.SQL(
                        "WITH told AS (UPDATE agent_conversation_t SET"
                        " update_ts = clock_timestamp(),"
                        " title = CASE title WHEN '' THEN left(%(title)s, 100) ELSE title END"
                        " WHERE host_id = %(host)s AND conversation_id = %(conversation)s)"
                        " INSERT INTO agent_run_t (host_id, conversation_id, turn, owner, caller,"
                        " content, strategy, streams, history, state, attempt, node,"
                        " lease_until)"
                        " SELECT %(host)s, %(conversation)s, coalesce(max(turn), 0) + 1, %(owner)s,"
                        " %(caller)s::jsonb, %(content)s, %(strategy)s, %(streams)s,"
                        " %(history)s::jsonb,"
                        " CASE WHEN %(held)s THEN 'running' ELSE 'queued' END, %(held)s::integer,"
                        " CASE WHEN %(held)s THEN %(node)s END,"
                        " CASE WHEN %(held)s THEN clock_timestamp()"
                        " + %(lease)s * interval '1 s' END FROM agent_run_t"
                        " WHERE host_id = %(host)s AND conversation_id = %(conversation)s"
                        " HAVING (SELECT count(*) FROM agent_run_t WHERE host_id = %(host)s"
                        " AND owner = %(owner)s AND {open}) < %(limit)s RETURNING {run}"
                    ).format(open=_OPEN, run=_RUN),
                    {
                        "title": " ".join(new.content.split()),
                        "limit": limit,
                        "host": host_id,
                        "conversation": conversation,
                        "owner": new.owner,
                        "caller": new.caller.decode(),
                        "content": new.content,
                        "strategy": new.strategy,
                        "streams": new.streams,
                        "history": new.history.decode(),
                        **self._values,
                        "held": here,
                    },
                )
        except psycopg.errors.UniqueViolation as error:
            raise ConversationBusy(await self._active(host_id, conversation)) from error

    async def get(self, host_id: str, owner: str, id_: str) -> Run | None:
        return await self._fetch_row(
            Run,
            sql.SQL(
                "SELECT {run} FROM agent_run_t WHERE host_id = %s AND run_id = %s AND owner = %s"
            ).format(run=_RUN),
            [host_id, id_, owner],
        )

    async def all(self, host_id: str, owner: str, state: str | None, limit: int) -> list[Run]:
        """The newest first."""
        return await self._fetch_rows(
            Run,
            sql.SQL(
                "SELECT {run} FROM agent_run_t"
                " WHERE host_id = %s AND owner = %s AND (%s::text IS NULL OR state = %s)"
                " ORDER BY created_ts DESC LIMIT %s"
            ).format(run=_RUN),
            [host_id, owner, state, state, limit],
        )

    async def waits_for(self, host_id: str, approval: str) -> bool:
        """Whether a run of the tenant waits for an approval."""
        row = await self._fetch_first(
            "SELECT FROM agent_run_t WHERE host_id = %s AND state = 'waiting'"
            " AND approvals @> ARRAY[%s::uuid] LIMIT 1",
            [host_id, approval],
        )
        return row is not None

    async def turn(self, run: Run) -> AgentTurn:
        """The fold of the steps of a run."""
        async with borrow(self._pool) as connection:
            [turn] = await _turns(connection, run.tenant, [run])
        return turn

    async def wake_decided(self, since_s: float) -> None:
        """Queue runs that wait: those of which an approval was decided within `since_s` seconds,
        while none waits any longer. When the last one has expired, a run is due by itself."""
        await self._execute(_WAKE_DECIDED, [since_s])

    async def add(
        self,
        run: Run,
        number: int,
        steps: Sequence[Step],
        amounts: UsageAmounts = NOTHING,
        *,
        iteration: int = 0,
        day: date | None = None,
        check: Callable[[UsageTotals], None] | None = None,
    ) -> UsageTotals:
        """Append steps from `number` on, and count what was used, on `day` or today. Raises
        LeaseLost, and what `check` raises of the sums; then nothing is stored."""
        values = {
            **asdict(amounts),
            "counts": amounts != NOTHING,
            "iteration": iteration,
            "day": day,
            **held_row(run),
            "numbers": list(range(number, number + len(steps))),
            "kinds": [type(step).__struct_config__.tag for step in steps],
            "data": [msgspec.json.encode(step) for step in steps],
        }
        async with borrow(self._pool) as connection:
            row = await (await connection.execute(_ADD, values)).fetchone()
            if row is None:
                raise LeaseLost(run.id)
            spent = UsageTotals(
                UsageAmounts(*row[:4]), UsageAmounts(*(value or 0 for value in row[4:8])), row[8]
            )
            if check is not None:
                check(spent)
        return spent

    async def end(self, run: Run, ending: Ending) -> Run:
        """Leave the state `running`: the run as it is stored. Raises LeaseLost."""
        values = {
            "state": ending.state,
            "stopped": ending.stopped.replace("\0", ""),  # which the database takes in no text
            "error": ending.error,
            "answer": ending.answer.replace("\0", ""),
            "approvals": list(ending.approvals),
        }
        stored = await self._fetch_row(Run, _END, {**held_row(run), **values})
        if stored is None:
            raise LeaseLost(run.id)
        return stored

    async def keep(self, run: Run, exchange: ModelExchange) -> None:
        """Add the traffic of one request to the transcript of a run."""
        await self._execute(
            "INSERT INTO agent_exchange_t (host_id, run_id, data) VALUES (%s, %s, %s)",
            [run.tenant, run.id, msgspec.json.encode(exchange)],
        )

    async def transcript(self, run: Run, after: int, limit: int) -> list[tuple[int, ModelExchange]]:
        """The traffic of a run with its provider, if it was kept, with its numbers: the oldest
        behind the number `after`."""
        rows = await self._fetch(
            "SELECT number, data FROM agent_exchange_t WHERE host_id = %s AND run_id = %s"
            " AND number > %s ORDER BY number LIMIT %s",
            [run.tenant, run.id, after, limit],
        )
        return [
            (number, msgspec.json.decode(bytes(exchange), type=ModelExchange))
            for number, exchange in rows
        ]

    async def cancel(self, host_id: str, owner: str, id_: str) -> Run | None:
        """End a run that no process has, at once, so that none takes it up meanwhile; the process
        that has it notices with its next renewal. None: it had ended, or there is none."""
        return await self._fetch_row(Run, _CANCEL, [host_id, id_, owner])

    async def prune_usage(self, days: int) -> None:
        """Delete what was used on days that are over so long ago."""
        await self._prune(_OLD_USAGE, days)

    async def prune_conversations(self, days: int) -> None:
        """Delete conversations in which nothing happened for so long, with their runs."""
        await self._prune(_IDLE_CONVERSATIONS, days)

    async def _prune(self, old: OldRows, days: int) -> None:
        while await old.delete(self._pool, {"days": days, "limit": PRUNED_ROWS}):
            pass

    async def _active(self, host_id: str, conversation: str) -> str:
        row = await self._fetch_first(
            sql.SQL(
                "SELECT run_id::text FROM agent_run_t"
                " WHERE host_id = %s AND conversation_id = %s AND {open}"
            ).format(open=_OPEN),
            [host_id, conversation],
        )
        return "" if row is None else str(row[0])


async def _turns(connection: AsyncConnection, host_id: str, runs: Sequence[Run]) -> list[AgentTurn]:
    """The folds of the steps of runs of a tenant, in their order."""
    rows = await connection.execute(
        "SELECT run_id::text, data FROM agent_step_t"
        " WHERE host_id = %s AND run_id = ANY(%s::uuid[]) ORDER BY number",
        [host_id, [run.id for run in runs]],
    )
    steps: dict[str, list[Step]] = {run.id: [] for run in runs}
    async for id_, data in rows:
        steps[id_].append(STEP_DECODER.decode(bytes(data)))
    return [
        fold_steps(run.content, steps[run.id], msgspec.convert(run.history, list[ChatMessage]))
        for run in runs
    ]
