"""Calls that wait for an approval, and the approvals, each valid for one call."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from psycopg import sql
from psycopg.rows import class_row

from registry.database.postgres import Pool, borrow, is_uuid
from registry.database.rows import lock
from schemas.errors import ToolgateError

State = Literal["waiting", "approved", "denied", "used"]

KEPT_DAYS = 7  # after an approval has expired; the audit log keeps them longer

_COLUMNS = sql.SQL(
    "approval_id::text AS id, principal, makers, tool, source, arguments, rule, reason, state,"
    " created_ts AS created, expire_ts AS expires, decide_user AS decided_by"
)
_WAITING = sql.SQL(
    "(host_id, principal) = (%(host)s, %(principal)s) AND state = 'waiting'"
    " AND expire_ts > clock_timestamp()"
)


class ApprovalRefused(ToolgateError):
    """This principal may not decide this approval."""


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


class Approvals:
    """Approvals of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def waiting(self) -> list[Approval]:
        """Waiting approvals, oldest first."""
        async with borrow(self._pool) as connection:
            cursor = connection.cursor(row_factory=class_row(Approval))
            await cursor.execute(
                sql.SQL(
                    "SELECT {columns} FROM approval_t WHERE host_id = %s AND state = 'waiting'"
                    " AND expire_ts > clock_timestamp() ORDER BY created_ts, approval_id"
                ).format(columns=_COLUMNS),
                [self._host_id],
            )
            return await cursor.fetchall()

    async def is_waiting(self, approval_id: str) -> bool:
        """Whether an approval waits for its decision, and has not expired."""
        if not is_uuid(approval_id):
            return False
        async with borrow(self._pool) as connection:
            rows = await connection.execute(
                "SELECT FROM approval_t WHERE host_id = %s AND approval_id = %s"
                " AND state = 'waiting' AND expire_ts > clock_timestamp()",
                [self._host_id, approval_id],
            )
            return await rows.fetchone() is not None

    async def get(self, approval_id: str) -> Approval | None:
        """An approval, also when decided or expired."""
        if not is_uuid(approval_id):
            return None
        async with borrow(self._pool) as connection:
            cursor = connection.cursor(row_factory=class_row(Approval))
            await cursor.execute(
                sql.SQL(
                    "SELECT {columns} FROM approval_t WHERE host_id = %s AND approval_id = %s"
                ).format(columns=_COLUMNS),
                [self._host_id, approval_id],
            )
            return await cursor.fetchone()

    async def decide(
        self, approval_id: str, approve: bool, by: str, makers: Collection[str] = ()
    ) -> Approval | None:
        """Approve or reject a waiting call; an approved one may be made for as long as it could
        have waited. `makers`: of the key that `by` decides with. None: the call does not wait, or
        no longer. Raises ApprovalRefused where the same people are behind call and approval."""
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
            return decided

    async def use(self, wanted: ApprovalRequest) -> str | None:
        """Consume an approval of this call; returns its id, if there was one. Two calls never share
        one."""
        async with borrow(self._pool) as connection:
            used = await connection.execute(
                """
                UPDATE approval_t SET state = 'used'
                WHERE (host_id, approval_id) = (
                    SELECT host_id, approval_id FROM approval_t
                    WHERE (host_id, principal, digest) = (%s, %s, %s) AND makers = %s
                        AND state = 'approved' AND expire_ts > clock_timestamp()
                    ORDER BY expire_ts LIMIT 1 FOR UPDATE SKIP LOCKED)
                RETURNING approval_id::text
                """,
                [self._host_id, wanted.principal, wanted.digest, sorted(wanted.makers)],
            )
            row = await used.fetchone()
        return None if row is None else str(row[0])

    async def give_back(self, approval_id: str) -> None:
        """Make a consumed approval usable again, if it has not expired."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "UPDATE approval_t SET state = 'approved'"
                " WHERE host_id = %s AND approval_id = %s AND state = 'used'",
                [self._host_id, approval_id],
            )

    async def request(
        self, wanted: ApprovalRequest, arguments: str, waits_s: float, limit: int
    ) -> tuple[str, datetime]:
        """Request an approval of this call: its id and expiry; idempotent. Raises TooManyWaiting
        for a caller who has `limit` of them."""
        values = {
            "host": self._host_id,
            "principal": wanted.principal,
            "makers": sorted(wanted.makers),
            "digest": wanted.digest,
            "tool_id": wanted.tool_id,
            "tool": wanted.tool,
            "source": wanted.source,
            "arguments": arguments,
            "rule": wanted.rule,
            "reason": wanted.reason,
            "waits": waits_s,
            "kept": KEPT_DAYS,
            "limit": limit,
        }
        async with borrow(self._pool) as connection, connection.transaction():
            await lock(connection, self._host_id)
            rows = await connection.execute(
                sql.SQL(
                    "SELECT approval_id::text, expire_ts FROM approval_t WHERE {waiting}"
                    " AND (digest, makers) = (%(digest)s, %(makers)s)"
                ).format(waiting=_WAITING),
                values,
            )
            if (known := await rows.fetchone()) is not None:
                return known[0], known[1]
            rows = await connection.execute(
                sql.SQL(
                    "SELECT FROM approval_t WHERE {waiting} LIMIT 1 OFFSET %(limit)s - 1"
                ).format(waiting=_WAITING),
                values,
            )
            if await rows.fetchone() is not None:
                raise TooManyWaiting(f"{limit} of your calls wait for approval, as many as can")
            await connection.execute(
                "DELETE FROM approval_t WHERE host_id = %(host)s"
                " AND expire_ts < statement_timestamp() - %(kept)s * interval '1 day'",
                values,
            )
            rows = await connection.execute(
                """
                INSERT INTO approval_t (host_id, principal, makers, tool_id, tool, source, digest,
                    arguments, rule, reason, expire_ts)
                VALUES (%(host)s, %(principal)s, %(makers)s, %(tool_id)s, %(tool)s, %(source)s,
                    %(digest)s,
                    %(arguments)s, %(rule)s, %(reason)s,
                    clock_timestamp() + %(waits)s * interval '1 second')
                RETURNING approval_id::text, expire_ts
                """,
                values,
            )
            (made,) = await rows.fetchall()
        return made[0], made[1]

    async def erase(self, principal: str) -> None:
        """Delete the undecided calls of a principal, and the arguments of its decided ones."""
        async with borrow(self._pool) as connection:
            await connection.execute(
                "DELETE FROM approval_t"
                " WHERE host_id = %s AND principal = %s AND state = 'waiting'",
                [self._host_id, principal],
            )
            await connection.execute(
                "UPDATE approval_t SET arguments = '{}' WHERE host_id = %s AND principal = %s",
                [self._host_id, principal],
            )


def _check_four_eyes(call: Approval, by: str, makers: Collection[str]) -> None:
    """The four-eyes principle. Raises ApprovalRefused."""
    if by == call.principal:
        raise ApprovalRefused("a principal cannot approve calls of its own: ask another principal")
    shared = {by, *makers} & {call.principal, *call.makers}
    if shared:
        text = "a principal cannot approve calls of a key that it made, or with a key of the caller"
        raise ApprovalRefused(f"{text}: ask another principal than {min(shared)[:100]}")
