"""Tasks and their events in the database. All methods raise `psycopg.OperationalError`."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace
from psycopg import AsyncConnection, sql

from registry.database.leases import LeasedRows, Leases, OldRows, held_row
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tables import fetch_row, fetch_rows
from schemas.a2a.errors import InvalidParameters
from schemas.a2a.model import (
    TERMINAL,
    ListRequest,
    Message,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdate,
    format_time,
)
from schemas.a2a.updates import apply_update

Work = Literal["queued", "running", "waiting", "asking", "ended"]
PRUNED_ROWS = 1000  # rows that one statement deletes

_encode = msgspec.json.encode
_tasks = msgspec.json.Decoder(Task)
_events = msgspec.json.Decoder(StreamResponse)
_messages = msgspec.json.Decoder(Message)


@dataclass(frozen=True, slots=True)
class StoredTask:
    tenant: str
    id: str
    agent: str
    owner: str
    caller: str  # JSON
    work: Work
    data: bytes  # the task as JSON
    number: int  # of its newest event
    reply: bytes | None
    run: str
    approval: str | None
    cancel: bool
    attempt: int

    @property
    def task(self) -> Task:
        return _tasks.decode(self.data)

    @property
    def has_ended(self) -> bool:
        return self.work == "ended"

    @property
    def answer(self) -> Message | None:
        """The message that was the answer, instead of a task."""
        return None if self.reply is None else _messages.decode(self.reply)

    @property
    def claim(self) -> tuple[str, str, int]:
        return self.tenant, self.id, self.attempt


@dataclass(frozen=True, slots=True)
class NewTask:
    agent: str
    owner: str
    caller: bytes  # JSON
    message_key: bytes
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task after an event. `approval` is what it waits for."""

    work: Work
    task: Task
    event: StreamResponse
    approval: str | None = None
    reply: Message | None = None


_COLUMNS = sql.SQL(
    "r.host_id::text AS tenant, r.task_id::text AS id, r.agent, r.owner,"
    " r.caller::text AS caller, r.work, r.task AS data, r.number, r.reply, r.run,"
    " r.approval::text AS approval, r.cancel, r.attempt"
)
_OPEN = sql.SQL("work <> 'ended'")
_LEASES = Leases(
    "a2a_task_t", "task_id", "r.work = 'running'", fence="attempt", until="lease_until"
)
# Tasks whose process is gone, and those whose approval is open no more.
_DUE = sql.SQL(
    "r.work IN ('queued', 'running', 'waiting') AND (r.work = 'queued'"
    " OR r.work = 'running' AND (r.lease_until IS NULL OR r.lease_until < statement_timestamp())"
    " OR r.work = 'waiting' AND (r.cancel OR NOT EXISTS (SELECT FROM approval_t a"
    " WHERE a.host_id = r.host_id AND a.approval_id = r.approval AND a.state = 'waiting'"
    " AND a.expire_ts > statement_timestamp())))"
)
_STATEMENTS = _LEASES.statements(
    StoredTask,
    _COLUMNS,
    owner="owner",
    due=_DUE,
    claim="work = 'running', node = %(node)s",
    release="work = 'queued', node = NULL",
)
_KEEP_RUN = compose("UPDATE a2a_task_t AS r SET run = %(run)s WHERE {mine}", mine=_LEASES.of_one)
_OLD = OldRows(
    "a2a_task_t",
    "task_id",
    sql.SQL("work = 'ended' AND status_ts < clock_timestamp() - make_interval(days => %(days)s)"),
    "status_ts",
)
# Who counts the open tasks of an owner sees those that are begun at the same time.
_OWNER_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s || %s, 23))"


def status_event(task: Task, status: TaskStatus) -> StreamResponse:
    update = TaskStatusUpdate(task_id=task.id, context_id=task.context_id, status=status)
    return StreamResponse(status_update=update)


def make_status(state: TaskState, message: Message | None = None) -> TaskStatus:
    return TaskStatus(state, message, format_time(datetime.now(UTC)))


class A2ATasks(LeasedRows[StoredTask]):
    """Tasks, and the leases that processes hold on them."""

    def __init__(self, pool: Pool, node: str, lease_s: float) -> None:
        super().__init__(pool, _STATEMENTS, node=node, lease=lease_s)

    async def create(
        self, host_id: str, new: NewTask, *, limit: int, repeat_s: int, here: bool
    ) -> tuple[StoredTask, bool] | None:
        """A new task, or that of the same message within `repeat_s`, and whether it is new; None:
        the owner has `limit` that have not ended. `here`: in this process."""
        owned = {"host": host_id, "owner": new.owner, "agent": new.agent, "key": new.message_key}
        async with borrow(self._pool) as connection, connection.transaction():
            await connection.execute(_OWNER_LOCK, [host_id, new.owner])
            former = await fetch_row(
                connection,
                StoredTask,
                sql.SQL(
                    "SELECT {columns} FROM a2a_task_t AS r WHERE host_id = %(host)s"
                    " AND owner = %(owner)s AND agent = %(agent)s AND message_key = %(key)s"
                    " AND created_ts > clock_timestamp() - make_interval(secs => %(repeat)s)"
                    " ORDER BY created_ts DESC LIMIT 1"
                ).format(columns=_COLUMNS),
                {**owned, "repeat": repeat_s},
            )
            if former is not None:
                return former, False
            rows = await connection.execute(
                sql.SQL(
                    "SELECT count(*) FROM a2a_task_t WHERE host_id = %(host)s"
                    " AND owner = %(owner)s AND {open}"
                ).format(open=_OPEN),
                owned,
            )
            if ((await rows.fetchone()) or (0,))[0] >= limit:
                return None
            task = new.task
            [stored_task] = await fetch_rows(
                connection,
                StoredTask,
                sql.SQL(
                    "INSERT INTO a2a_task_t AS r (host_id, task_id, agent, owner, context_id,"
                    " message_key, caller, work, state, task, status_ts, attempt, node,"
                    " lease_until)"
                    " VALUES (%(host)s, %(id)s, %(agent)s, %(owner)s, %(context)s, %(key)s,"
                    " %(caller)s, %(work)s, %(state)s, %(task)s, %(time)s, %(attempt)s, %(node)s,"
                    " clock_timestamp() + make_interval(secs => %(lease)s)) RETURNING {columns}"
                ).format(columns=_COLUMNS),
                {
                    **owned,
                    "id": task.id,
                    "context": task.context_id,
                    "caller": new.caller.decode(),
                    "work": "running" if here else "queued",
                    "attempt": int(here),
                    **self._values,
                    **_state_of(task),
                },
            )
        return stored_task, True

    async def get(self, host_id: str, owner: str, agent: str, id_: str) -> StoredTask | None:
        """A task of an owner; None also for that of another one, or of another agent."""
        try:
            UUID(id_)
        except ValueError:
            return None
        return await self._fetch_row(
            StoredTask,
            sql.SQL(
                "SELECT {columns} FROM a2a_task_t AS r WHERE host_id = %s AND task_id = %s"
                " AND owner = %s AND (agent = %s OR %s = '')"
            ).format(columns=_COLUMNS),
            [host_id, id_, owner, agent, agent],
        )

    async def find(self, host_id: str, id_: str) -> StoredTask | None:
        """A task of any owner."""
        return await self._fetch_row(
            StoredTask,
            sql.SQL("SELECT {} FROM a2a_task_t AS r WHERE host_id = %s AND task_id = %s").format(
                _COLUMNS
            ),
            [host_id, id_],
        )

    async def page(
        self, host_id: str, owner: str, agent: str, request: ListRequest, *, list_bytes: int
    ) -> tuple[list[StoredTask], str, int]:
        """Tasks by the time of their status, the newest first, up to the one that reaches
        `list_bytes`; the token of the next page ("": it is the last one); and their number on all
        pages. Raises InvalidParameters."""
        state = request.status.value if request.status is not TaskState.UNSPECIFIED else None
        values: dict[str, Any] = {
            "host": host_id,
            "owner": owner,
            "agent": agent,
            "context": request.context_id or None,
            "state": state,
            "since": request.status_timestamp_after,
            "limit": request.page_size + 1,
            "bytes": list_bytes,
            **_read_token(request.page_token),
        }
        condition = sql.SQL(
            "host_id = %(host)s AND owner = %(owner)s AND (agent = %(agent)s OR %(agent)s = '')"
            " AND reply IS NULL"
            " AND (%(context)s::text IS NULL OR context_id = %(context)s)"
            " AND (%(state)s::text IS NULL OR state = %(state)s)"
            " AND (%(since)s::timestamptz IS NULL OR status_ts >= %(since)s)"
        )
        async with borrow(self._pool) as connection:
            # with one task more than the page has: whether there is a next one
            rows = await fetch_rows(
                connection,
                StoredTask,
                sql.SQL(
                    "SELECT {columns} FROM (SELECT *, sum(octet_length(task)) OVER newest"
                    " - octet_length(task) - coalesce(lag(octet_length(task)) OVER newest, 0)"
                    " AS bytes FROM a2a_task_t WHERE {condition}"
                    " AND (%(before)s::timestamptz IS NULL"
                    " OR (status_ts, task_id) < (%(before)s, %(id)s::uuid))"
                    " WINDOW newest AS (ORDER BY status_ts DESC, task_id DESC)"
                    " ORDER BY status_ts DESC, task_id DESC LIMIT %(limit)s) AS r"
                    " WHERE bytes < %(bytes)s ORDER BY status_ts DESC, task_id DESC"
                ).format(columns=_COLUMNS, condition=condition),
                values,
            )
            count = await connection.execute(
                sql.SQL("SELECT count(*) FROM a2a_task_t WHERE {}").format(condition), values
            )
            total = ((await count.fetchone()) or (0,))[0]
        sizes = accumulate((len(row.data) for row in rows), initial=0)
        page = [
            row
            for row, before in zip(rows[: request.page_size], sizes, strict=False)
            if before < list_bytes
        ]
        token = _write_token(page[-1]) if len(page) < len(rows) else ""
        return page, token, total

    async def events(
        self, host_id: str, id_: str, after: int, limit: int = 100
    ) -> list[tuple[int, StreamResponse]]:
        """The oldest events of a task behind a number."""
        rows = await self._fetch(
            "SELECT number, data FROM a2a_event_t WHERE host_id = %s AND task_id = %s"
            " AND number > %s ORDER BY number LIMIT %s",
            [host_id, id_, after, limit],
        )
        return [(number, _events.decode(data)) for number, data in rows]

    async def change(self, row: StoredTask, change: Change, messages_read: int) -> bool:
        """Store a change of a task that this process holds, after the event `messages_read`.
        False: the lease was lost, or there is a newer event."""
        condition = sql.SQL("{} AND r.number = %(seen)s").format(_LEASES.of_one)
        async with borrow(self._pool) as connection, connection.transaction():
            values = {**held_row(row), "seen": messages_read}
            return await self._change(connection, change, values, condition) is not None

    async def change_idle(self, row: StoredTask, change: Change) -> bool:
        """Store a change of a task that no process holds. False: the task has changed since `row`
        was read."""
        values = {"host": row.tenant, "id": row.id, "seen": row.number, "worked": row.work}
        condition = sql.SQL(
            "r.host_id = %(host)s AND r.task_id = %(id)s AND r.number = %(seen)s"
            " AND r.work = %(worked)s"
        )
        async with borrow(self._pool) as connection, connection.transaction():
            return await self._change(connection, change, values, condition) is not None

    async def _change(
        self,
        connection: AsyncConnection,
        change: Change,
        values: Mapping[str, Any],
        condition: sql.Composable,
    ) -> int | None:
        ended = change.task.status.state in TERMINAL or change.reply is not None
        # Only a running task keeps its lease, also while its call waits. A question of a task that
        # was cancelled meanwhile is not asked: the state `waiting` lets a process end the task.
        rows = await connection.execute(
            sql.SQL(
                "UPDATE a2a_task_t AS r SET work = CASE WHEN r.cancel AND %(work)s = 'asking'"
                " THEN 'waiting' ELSE %(work)s END, state = %(state)s, task = %(task)s,"
                " status_ts = %(time)s, approval = %(approval)s, number = number + 1,"
                " reply = %(reply)s, lease_until = CASE %(work)s WHEN 'running' THEN lease_until"
                " END WHERE {} RETURNING number"
            ).format(condition),
            {
                **values,
                "work": "ended" if ended else change.work,
                "approval": change.approval,
                "reply": None if change.reply is None else _encode(change.reply),
                **_state_of(change.task),
            },
        )
        row = await rows.fetchone()
        if row is None:
            return None
        place = {**values, "number": row[0]}
        await connection.execute(
            "INSERT INTO a2a_event_t (host_id, task_id, number, data)"
            " VALUES (%(host)s, %(id)s, %(number)s, %(data)s)",
            {**place, "data": _encode(change.event)},
        )
        await connection.execute(
            "UPDATE a2a_push_t SET due_ts = coalesce(due_ts, now())"
            " WHERE host_id = %(host)s AND task_id = %(id)s",
            place,
        )
        return int(row[0])

    async def keep_run(self, row: StoredTask, run: str) -> None:
        """Store the run of the agent wing that works on a task. Raises LeaseLost."""
        await self._write(row, _KEEP_RUN, {"run": run})

    async def ask_to_cancel(self, row: StoredTask) -> None:
        """Ask for the end of a task; the process that has it notices."""
        await self._execute(
            sql.SQL(
                "UPDATE a2a_task_t SET cancel = true WHERE host_id = %s AND task_id = %s AND {}"
            ).format(_OPEN),
            [row.tenant, row.id],
        )

    async def prune(self, days: int) -> None:
        """Delete tasks that ended so long ago, with their events and webhooks."""
        while await _OLD.delete(self._pool, {"days": days, "limit": PRUNED_ROWS}):
            pass


def with_message(task: Task, message: Message) -> tuple[Task, StreamResponse]:
    """A task that has got a message of its client, and the event of it: work goes on."""
    event = status_event(task, make_status(TaskState.WORKING))
    applied = apply_update(task, event)
    return replace(applied, history=(*applied.history, message)), event


def _state_of(task: Task) -> dict[str, Any]:
    time = datetime.fromisoformat(task.status.timestamp)
    return {"task": _encode(task), "state": task.status.state.value, "time": time}


def _write_token(row: StoredTask) -> str:
    text = f"{row.task.status.timestamp} {row.id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _read_token(token: str) -> dict[str, Any]:
    """Raises InvalidParameters."""
    if not token:
        return {"before": None, "id": None}
    try:
        time, _, id_ = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        return {"before": datetime.fromisoformat(time), "id": str(UUID(id_))}
    except ValueError as error:
        raise InvalidParameters("pageToken: expected one that a list has given") from error
