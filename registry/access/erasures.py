"""Erasures of people, as rows: those that run, and the reports of those that have ended."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

from registry.database.person_rows import ErasedPerson
from registry.database.postgres import Pool, borrow, is_uuid
from registry.database.tables import Tables

_LOCK = int.from_bytes(b"erasure")
_COLUMNS = (
    "SELECT erasure_id::text AS id, pseudonym, requester, report::text AS report,"
    " begun_ts AS begun, ended_ts AS ended FROM erasure_t WHERE host_id = %(host)s"
)


class ErasureRow(Struct, frozen=True):
    id: str
    pseudonym: str
    requester: str
    report: str  # JSON
    begun: datetime
    ended: datetime | None


class ErasureStore(Tables):
    """Erasures of one tenant. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, host_id: str) -> None:
        super().__init__(pool)
        self._host_id = host_id

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Whether no other erasure runs. Of all tenants, as each holds a connection of the pool."""
        async with borrow(self._pool) as connection:
            rows = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            yield await rows.fetchone() == (True,)

    async def begin(
        self, person: str, requester: str, addresses: Sequence[str]
    ) -> tuple[ErasureRow, ErasedPerson]:
        """A new erasure, or the one of the same person that was interrupted."""
        values = {
            "host": self._host_id,
            "hash": hashlib.sha256(f"{self._host_id} {person}".encode()).digest(),
            "addresses": [*addresses],
            "pseudonym": new_pseudonym(),
            "requester": requester,
        }
        [row] = await self._fetch(
            "INSERT INTO erasure_t (host_id, person_hash, addresses, pseudonym, requester, report)"
            " VALUES (%(host)s, %(hash)s, %(addresses)s, %(pseudonym)s, %(requester)s, '{}')"
            " ON CONFLICT (host_id, person_hash) DO UPDATE SET requester = excluded.requester"
            " RETURNING erasure_id::text, pseudonym, requester, report::text, begun_ts, ended_ts,"
            " addresses",
            values,
        )
        erasure = ErasureRow(*row[:-1])
        return erasure, ErasedPerson(self._host_id, person, erasure.pseudonym, tuple(row[-1]))

    async def advance(self, id_: str, report: bytes, *, ends: bool) -> None:
        await self._execute(
            "UPDATE erasure_t SET report = %(report)s, ended_ts = CASE WHEN %(ends)s THEN"
            " clock_timestamp() END, person_hash = CASE WHEN NOT %(ends)s THEN person_hash END,"
            " addresses = CASE WHEN %(ends)s THEN '{}' ELSE addresses END"
            " WHERE host_id = %(host)s AND erasure_id = %(id)s AND ended_ts IS NULL",
            {
                "report": report.decode(),
                "ends": ends,
                "host": self._host_id,
                "id": id_,
            },
        )

    async def all(self) -> list[ErasureRow]:
        return await self._fetch_rows(ErasureRow, _COLUMNS, {"host": self._host_id})

    async def get(self, id_: str) -> ErasureRow | None:
        if not is_uuid(id_):
            return None
        values = {"host": self._host_id, "id": id_}
        return await self._fetch_row(ErasureRow, _COLUMNS + " AND erasure_id = %(id)s", values)


def new_pseudonym() -> str:
    return f"erased-{secrets.token_hex(16)}"
