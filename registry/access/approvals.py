"""Calls that wait for an approval, and the approvals, each valid for one call.

Those that a program makes wait together, and their approval is of this run and this code. It may
grant the run further calls of a tool.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row

from registry.database.postgres import Pool, borrow, is_uuid
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from schemas.errors import ToolgateError

State = Literal["waiting", "approved", "denied", "used"]

KEPT_DAYS = 7  # after an approval has expired; the audit log keeps them longer

_COLUMNS = sql.SQL(
    "approval_id::text AS id, principal, makers, tool, source, arguments, rule, reason, state,"
    " created_ts AS created, expire_ts AS expires, decide_user AS decided_by,"
    " run_id::text AS run"
)
_WAITING = sql.SQL(
    "(host_id, principal) = (%(host)s, %(principal)s) AND state = 'waiting'"
    " AND expire_ts > clock_timestamp()"
)


class ApprovalRefused(ToolgateError):
    """This principal may not decide this approval."""


class NotPending(ToolgateError):
    """A grant is of a tool that no pending call is of."""


class TooManyWaiting(ToolgateError):
    """A caller has reached the limit of waiting approvals."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that needs an approval."""

    principal: str
    tool_id: str
    tool: str
    source: str
    digest: str  # SHA-256 of the current tool and the arguments
    rule: str
    reason: str
    makers: frozenset[str] = frozenset()  # makers of the API key that sent it
    definition: str = ""  # digest of the current tool


@dataclass(frozen=True, slots=True)
class RunCall:
    """The place of a call in a run of a program."""

    run: str
    code_digest: bytes  # SHA-256
    number: int


@dataclass(frozen=True, slots=True)
class HeldProgram:
    """A run whose calls wait, as approvers see it. `view` is JSON, of the program and the calls
    that it has made."""

    run: str
    code_digest: bytes
    tool: str  # that runs it
    view: bytes


@dataclass(frozen=True, slots=True)
class Grant:
    """Uses that an approver grants to a run: any calls of a tool, at most `calls`. `until` None: as
    long as the approved calls."""

    tool: str
    calls: int
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """An approval that a call has consumed. `place`: that of a call of a program, or of a grant."""

    approval: str
    place: int | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True)
class HeldCallView:
    """A call of a program that an approval is about. `number`: of the call in its run; None: a
    grant of calls of the tool, of which `uses` were made."""

    tool: str
    source: str
    arguments: str
    number: int | None
    most: int
    uses: int
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class Approval:
    id: str
    principal: str
    makers: list[str]  # makers of the caller's key: they may not approve its calls
    tool: str
    source: str
    arguments: str  # for display: masked and truncated
    rule: str
    reason: str
    state: State
    created: datetime
    expires: datetime
    decided_by: str | None
    run: str | None = None  # of the program whose calls these are


async def count_waiting(pool: Pool) -> int:
    """Calls of all tenants that wait for an approval. Raises `psycopg.OperationalError`."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT count(*) FROM approval_t"
            " WHERE state = 'waiting' AND expire_ts > clock_timestamp()"
        )
        [(count,)] = await rows.fetchall()
        return int(count)


class Approvals(Tables):
    """Approvals of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def waiting(self) -> list[Approval]:
        """Waiting approvals, oldest first."""
        return await self._fetch_rows(
            Approval,
            sql.SQL(
                "SELECT {columns} FROM approval_t WHERE host_id = %s AND state = 'waiting'"
                " AND expire_ts > clock_timestamp() ORDER BY created_ts, approval_id"
            ).format(columns=_COLUMNS),
            [self._host_id],
        )

    async def is_waiting(self, approval_id: str) -> bool:
        """Whether an approval waits for its decision, and has not expired."""
        if not is_uuid(approval_id):
            return False
        row = await self._fetch_first(
            "SELECT FROM approval_t WHERE host_id = %s AND approval_id = %s"
            " AND state = 'waiting' AND expire_ts > clock_timestamp()",
            [self._host_id, approval_id],
        )
        return row is not None

    async def get(self, approval_id: str) -> Approval | None:
        """An approval, also when decided or expired."""
        if not is_uuid(approval_id):
            return None
        return await self._fetch_row(
            Approval,
            sql.SQL(
                "SELECT {columns} FROM approval_t WHERE host_id = %s AND approval_id = %s"
            ).format(columns=_COLUMNS),
            [self._host_id, approval_id],
        )

    async def program(self, approval_id: str) -> tuple[bytes, Any]:
        """SHA-256 and view of the program that an approval is about; nothing, where it is about
        none."""
        row = await self._fetch_first(
            "SELECT code_digest, program FROM approval_t WHERE host_id = %s AND approval_id = %s",
            [self._host_id, approval_id],
        )
        digest, view = row or (None, None)
        return digest or b"", view

    async def calls(self, approval_id: str) -> list[HeldCallView]:
        """The calls of a program that an approval is about, and its grants."""
        return await self._fetch_rows(
            HeldCallView,
            "SELECT tool, source, arguments, number, most, uses, expire_ts AS expires"
            " FROM approval_call_t WHERE host_id = %s AND approval_id = %s ORDER BY place",
            [self._host_id, approval_id],
        )

    async def decide(
        self,
        approval_id: str,
        approve: bool,
        by: str,
        makers: Collection[str] = (),
        *,
        grants: Sequence[Grant] = (),
    ) -> Approval | None:
        """Approve or reject a waiting call; an approved one may be made for as long as it could
        have waited. `makers`: of the key that `by` decides with. None: the call does not wait, or
        no longer. Raises ApprovalRefused where the same people are behind call and approval, and
        NotPending."""
        if not is_uuid(approval_id):
            return None
        async with borrow(self._pool) as connection, connection.transaction():
            cursor = connection.cursor(row_factory=class_row(Approval))
            await cursor.execute(
                sql.SQL("""
                UPDATE approval_t SET state = %(state)s, decide_ts = clock_timestamp(),
                    decide_user = %(by)s,
                    expire_ts = clock_timestamp() + (expire_ts - created_ts)
                WHERE host_id = %(host)s AND approval_id = %(id)s AND state = 'waiting'
                    AND expire_ts > clock_timestamp()
                RETURNING {columns}
                """).format(columns=_COLUMNS),
                {
                    "host": self._host_id,
                    "id": approval_id,
                    "state": "approved" if approve else "denied",
                    "by": by,
                },
            )
            decided = await cursor.fetchone()
            if decided is not None and approve:
                _check_four_eyes(decided, by, makers)
                for grant in grants:
                    await self._store_grant(connection, decided, grant)
            return decided

    async def _store_grant(
        self, connection: AsyncConnection, approval: Approval, grant: Grant
    ) -> None:
        """Raises NotPending."""
        stored = await connection.execute(
            """
            INSERT INTO approval_call_t (host_id, approval_id, place, tool_id, tool, source,
                definition, most, expire_ts)
            SELECT host_id, approval_id, (SELECT max(place) + 1 FROM approval_call_t
                WHERE host_id = %(host)s AND approval_id = %(id)s), tool_id, tool, source,
                definition, %(calls)s, %(until)s
            FROM approval_call_t
            WHERE host_id = %(host)s AND approval_id = %(id)s AND tool = %(tool)s
                AND number IS NOT NULL
            LIMIT 1
            """,
            {
                "host": self._host_id,
                "id": approval.id,
                "tool": grant.tool,
                "calls": grant.calls,
                "until": grant.until or approval.expires,
            },
        )
        if not stored.rowcount:
            raise NotPending(f"no pending call of this run is one of {grant.tool}")

    async def use(self, request: ApprovalRequest) -> Use | None:
        """Consume an approval of this call, if there is one. Two calls never share one."""
        row = await self._fetch_first(
            """
            UPDATE approval_t SET state = 'used'
            WHERE (host_id, approval_id) = (
                SELECT host_id, approval_id FROM approval_t
                WHERE (host_id, principal, digest) = (%s, %s, %s) AND makers = %s
                    AND state = 'approved' AND expire_ts > clock_timestamp()
                ORDER BY expire_ts LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING approval_id::text
            """,
            [self._host_id, request.principal, request.digest, sorted(request.makers)],
        )
        return None if row is None else Use(str(row[0]))

    async def use_in_run(self, request: ApprovalRequest, call: RunCall) -> Use | None:
        """Consume an approval of this call of a run, or else a grant. The call with this number may
        do so again: its run repeats it only with the same Idempotency-Key."""
        row = await self._fetch_first(
            """
            UPDATE approval_call_t SET uses = uses + 1
            WHERE (host_id, approval_id, place) = (
                SELECT c.host_id, c.approval_id, c.place
                FROM approval_t AS a JOIN approval_call_t AS c USING (host_id, approval_id)
                WHERE (a.host_id, a.run_id, a.principal) = (%(host)s, %(run)s, %(principal)s)
                    AND a.makers = %(makers)s AND a.code_digest = %(code)s
                    AND a.state = 'approved'
                    AND c.tool_id = %(tool)s AND c.definition = %(definition)s
                    AND (c.number = %(number)s AND c.digest = %(digest)s
                            AND a.expire_ts > clock_timestamp()
                        OR c.number IS NULL AND c.uses < c.most
                            AND c.expire_ts > clock_timestamp())
                ORDER BY c.number LIMIT 1 FOR UPDATE OF c)
            RETURNING approval_id::text, place, number IS NULL
            """,
            {
                "host": self._host_id,
                "run": call.run,
                "principal": request.principal,
                "makers": sorted(request.makers),
                "code": call.code_digest,
                "tool": request.tool_id,
                "definition": request.definition,
                "number": call.number,
                "digest": request.digest,
            },
        )
        return None if row is None else Use(*row)

    async def give_back(self, use: Use) -> None:
        """Make a consumed approval usable again, if it has not expired."""
        if use.place is not None:
            await self._execute(
                "UPDATE approval_call_t SET uses = uses - 1"
                " WHERE host_id = %s AND approval_id = %s AND place = %s",
                [self._host_id, use.approval, use.place],
            )
            return
        await self._execute(
            "UPDATE approval_t SET state = 'approved'"
            " WHERE host_id = %s AND approval_id = %s AND state = 'used'",
            [self._host_id, use.approval],
        )

    async def request(
        self, request: ApprovalRequest, arguments: str, waits_s: float, limit: int
    ) -> tuple[str, datetime]:
        """Request an approval of this call: its id and expiry; idempotent. Raises TooManyWaiting
        for a caller who has `limit` of them."""
        values = self._values(request, arguments, waits_s, limit)
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            rows = await connection.execute(
                sql.SQL(
                    "UPDATE approval_t SET requests = requests + 1 WHERE {waiting}"
                    " AND (digest, makers) = (%(digest)s, %(makers)s)"
                    " RETURNING approval_id::text, expire_ts"
                ).format(waiting=_WAITING),
                values,
            )
            if (row := await rows.fetchone()) is not None:
                return row[0], row[1]
            return await _insert(connection, values)

    async def request_together(
        self,
        program: HeldProgram,
        requests: Mapping[int, tuple[ApprovalRequest, str]],
        waits_s: float,
        limit: int,
    ) -> tuple[str, datetime]:
        """Request one approval of calls of a run, by their numbers, with their arguments for
        display, instead of one that it still waits for: its id and expiry. Raises TooManyWaiting,
        as `request`."""
        counts = Counter(call.tool for call, _ in requests.values())
        digests = [[number, call.digest] for number, (call, _) in requests.items()]
        first, arguments = next(iter(requests.values()))
        if len(requests) > 1:
            arguments = json.dumps({"calls": counts}, ensure_ascii=False)
        together = replace(
            first,
            tool=first.tool if len(counts) == 1 else program.tool,
            digest=hashlib.sha256(f"{program.run} {digests}".encode()).hexdigest(),
        )
        values = self._values(together, arguments, waits_s, limit)
        values |= {"run": program.run, "code": program.code_digest}
        values |= {"program": program.view.decode()}
        async with borrow(self._pool) as connection, connection.transaction():
            await lock_tenant(connection, self._host_id)
            await connection.execute(
                "DELETE FROM approval_t WHERE host_id = %(host)s AND run_id = %(run)s"
                " AND state = 'waiting'",
                values,
            )
            id_, expires = await _insert(connection, values)
            async with connection.cursor() as cursor:
                await cursor.executemany(
                    "INSERT INTO approval_call_t (host_id, approval_id, place, tool_id, tool,"
                    " source, definition, arguments, number, digest)"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    [
                        (self._host_id, id_, place, call.tool_id, call.tool, call.source,
                         call.definition, display, number, call.digest)
                        for place, (number, (call, display)) in enumerate(requests.items())
                    ],
                )  # fmt: skip
        return id_, expires

    async def withdraw(self, approval_ids: Sequence[str] = (), *, run: str | None = None) -> None:
        """Withdraw the requests of cancelled calls, which count against the limit of their caller,
        or of a cancelled run of a program. An id may occur several times, as it was requested. An
        approval is deleted with its last request."""
        if not approval_ids and run is None:
            return
        await self._execute(
            """
            WITH taken AS MATERIALIZED (
                SELECT id, count(*) AS requests FROM unnest(%(ids)s::uuid[]) AS id GROUP BY id
                UNION ALL SELECT approval_id, requests FROM approval_t
                WHERE host_id = %(host)s AND run_id = %(run)s AND state = 'waiting'
            ), shared AS (
                UPDATE approval_t AS a SET requests = a.requests - taken.requests FROM taken
                WHERE a.host_id = %(host)s AND a.approval_id = taken.id AND a.state = 'waiting'
                    AND a.requests > taken.requests
            )
            DELETE FROM approval_t AS a USING taken
            WHERE a.host_id = %(host)s AND a.approval_id = taken.id AND a.state = 'waiting'
                AND a.requests <= taken.requests
            """,
            {"host": self._host_id, "ids": list(approval_ids), "run": run},
        )

    def _values(
        self, request: ApprovalRequest, arguments: str, waits_s: float, limit: int
    ) -> dict[str, Any]:
        return {
            "host": self._host_id,
            "principal": request.principal,
            "makers": sorted(request.makers),
            "digest": request.digest,
            "tool_id": request.tool_id,
            "tool": request.tool,
            "source": request.source,
            "arguments": arguments,
            "rule": request.rule,
            "reason": request.reason,
            "waits": waits_s,
            "kept": KEPT_DAYS,
            "limit": limit,
            "run": None,
            "code": None,
            "program": None,
        }


async def _insert(connection: AsyncConnection, values: dict[str, Any]) -> tuple[str, datetime]:
    """Id and expiry of a new approval. Raises TooManyWaiting."""
    rows = await connection.execute(
        sql.SQL("SELECT FROM approval_t WHERE {waiting} LIMIT 1 OFFSET %(limit)s - 1").format(
            waiting=_WAITING
        ),
        values,
    )
    if await rows.fetchone() is not None:
        limit = values["limit"]
        raise TooManyWaiting(f"{limit} of your calls wait for approval, as many as can")
    await connection.execute(
        "DELETE FROM approval_t WHERE host_id = %(host)s"
        " AND expire_ts < statement_timestamp() - %(kept)s * interval '1 day'",
        values,
    )
    rows = await connection.execute(
        """
        INSERT INTO approval_t (host_id, principal, makers, tool_id, tool, source, digest,
            arguments, rule, reason, expire_ts, run_id, code_digest, program)
        VALUES (%(host)s, %(principal)s, %(makers)s, %(tool_id)s, %(tool)s, %(source)s,
            %(digest)s,
            %(arguments)s, %(rule)s, %(reason)s,
            clock_timestamp() + %(waits)s * interval '1 second',
            %(run)s, %(code)s, %(program)s::jsonb)
        RETURNING approval_id::text, expire_ts
        """,
        values,
    )
    (row,) = await rows.fetchall()
    return row[0], row[1]


def _check_four_eyes(call: Approval, by: str, makers: Collection[str]) -> None:
    """The four-eyes principle. Raises ApprovalRefused."""
    if by == call.principal:
        raise ApprovalRefused("a principal cannot approve calls of its own: ask another principal")
    shared = {by, *makers} & {call.principal, *call.makers}
    if shared:
        text = "a principal cannot approve calls of a key that it made, or with a key of the caller"
        raise ApprovalRefused(
            f"{text}: ask another principal than {min(shared)[:100]}, such as a person who logs in "
            "or a key that somebody else made"
        )
