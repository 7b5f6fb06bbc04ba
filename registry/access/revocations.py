"""Revocations of unexpired tokens: of one token, or of all tokens of a subject."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables
from registry.database.tenants import lock_tenant
from schemas.errors import ToolgateError

TEXT_LIMIT = 255  # characters


class RevocationRefused(ToolgateError):
    """An invalid revocation; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """Revocation of a token: either `jti`, or `subject` with `issued_before`. All times have a time
    zone."""

    jti: str | None
    subject: str | None  # the id of a principal; its tokens without `iat` are revoked, too
    _: KW_ONLY
    issued_before: datetime | None  # this second included: `iat` is no finer
    expires: datetime  # when the tokens have expired anyway
    reason: str = ""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True, slots=True)
class RevocationCache:
    """The revocations of all tenants, as cached by a gateway."""

    tokens: frozenset[tuple[str, str]] = frozenset()  # tenant, jti
    subjects: dict[tuple[str, str], float] = field(default_factory=dict)  # -> s since the epoch

    def has(self, tenant: str, subject: str | None, claims: Mapping[str, Any]) -> bool:
        """Whether a token with these claims is revoked; `subject` is the id of its principal. The
        `sid` of a login that has ended is among the tokens."""
        for name in ("jti", "sid") if self.tokens else ():
            id_ = claims.get(name)
            if isinstance(id_, str) and (tenant, id_) in self.tokens:
                return True
        if not self.subjects or subject is None:
            return False
        before = self.subjects.get((tenant, subject))
        return before is not None and _issue_time(claims) <= before


class Revocations(Tables):
    """Revocations of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        self._pool = pool
        self._host_id = host_id

    async def add(self, revocation: Revocation) -> None:
        """Add a revocation. Raises RevocationRefused."""
        _check(revocation)
        values = [
            *(self._host_id, revocation.id, revocation.jti, revocation.subject),
            *(revocation.issued_before, revocation.reason, revocation.created, revocation.expires),
        ]
        async with borrow(self._pool) as connection:
            await lock_tenant(connection, self._host_id)
            await connection.execute(
                "INSERT INTO revocation_t (host_id, revocation_id, jti, subject, issued_before_ts,"
                " reason, created_ts, expires_ts) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                values,
            )

    async def all(self) -> list[Revocation]:
        """All revocations, newest first."""
        rows = await self._fetch(
            "SELECT revocation_id, jti, subject, issued_before_ts, reason, created_ts,"
            " expires_ts FROM revocation_t"
            " WHERE host_id = %s AND expires_ts > current_timestamp"
            " ORDER BY created_ts DESC, revocation_id",
            [self._host_id],
        )
        return [_revocation(*row) for row in rows]

    async def get(self, revocation_id: str) -> Revocation | None:
        return next(
            (revocation for revocation in await self.all() if revocation.id == revocation_id), None
        )

    async def remove(self, revocation_id: str) -> bool:
        """Remove a revocation; returns whether it existed. Its tokens are valid again."""
        try:
            named = UUID(revocation_id)
        except ValueError:
            return False
        changed = await self._execute(
            "DELETE FROM revocation_t WHERE (host_id, revocation_id) = (%s, %s)",
            [self._host_id, named],
        )
        return changed > 0


async def load_revocations(pool: Pool) -> RevocationCache:
    """The current revocations of all tenants."""
    async with borrow(pool) as connection:
        rows = await connection.execute(
            "SELECT host_id::text, jti, subject, extract(epoch FROM issued_before_ts)::float8"
            " FROM revocation_t WHERE expires_ts > current_timestamp"
        )
        records = await rows.fetchall()
    subjects: dict[tuple[str, str], float] = {}
    for tenant, _, subject, before in records:
        if subject is not None:
            subjects[tenant, subject] = max(before, subjects.get((tenant, subject), before))
    return RevocationCache(
        frozenset((row[0], row[1]) for row in records if row[1] is not None), subjects
    )


async def purge(pool: Pool) -> None:
    """Delete revocations whose tokens have expired."""
    async with borrow(pool) as connection:
        await connection.execute("DELETE FROM revocation_t WHERE expires_ts <= current_timestamp")


def _issue_time(claims: Mapping[str, Any]) -> float:
    """`iat`, s since the epoch; tokens without it count as issued before any revocation."""
    issued = claims.get("iat")
    return issued if isinstance(issued, int | float) else -float("inf")


def _revocation(id_: UUID, *row: Any) -> Revocation:
    jti, subject, issued_before, reason, created, expires = row
    return Revocation(
        jti,
        subject,
        issued_before=issued_before,
        expires=expires,
        reason=reason,
        created=created,
        id=str(id_),
    )


def _check(entry: Revocation) -> None:
    """Check a revocation. Raises RevocationRefused."""
    of_subject = entry.subject is not None and entry.issued_before is not None
    if (entry.jti is None) == (entry.subject is None) or (entry.subject is not None) != of_subject:
        raise RevocationRefused("expected a jti, or a subject and the time before which")
    if entry.jti is not None and entry.issued_before is not None:
        raise RevocationRefused("expected no time beside a jti: it names one token")
    for name, text in (("jti", entry.jti), ("subject", entry.subject)):
        if text is not None and (not text or len(text) > TEXT_LIMIT or "\0" in text):
            raise RevocationRefused(f"expected 1 to {TEXT_LIMIT} characters as {name}")
    if len(entry.reason) > TEXT_LIMIT or "\0" in entry.reason:
        raise RevocationRefused(f"expected at most {TEXT_LIMIT} characters as reason")
    if entry.expires <= datetime.now(UTC):
        raise RevocationRefused("expected a time to come at which the revocation expires")
