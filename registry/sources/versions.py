"""The versions of the descriptions that sources were imported from."""

import zlib
from datetime import datetime
from typing import Any

from anyio import to_thread

from registry.database.postgres import Pool, borrowed
from schemas.source import Version


class Versions:
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def listed(self, host_id: str, source: str) -> list[Version]:
        """The newest first; empty when there is no such source."""
        async with borrowed(self._pool) as connection:
            rows = await connection.execute(
                """
                SELECT version.number, version.created_ts, version.title, version.api_version,
                    coalesce(version.document_digest, version.digest), version.outcomes,
                    version.current, version.document IS NOT NULL, version.asked
                FROM api_t AS api JOIN api_version_t AS version USING (host_id, api_id)
                WHERE host_id = %s AND api.name = %s
                ORDER BY version.number DESC
                """,
                [host_id, source],
            )
            return [_version(*row) async for row in rows]

    async def document(self, host_id: str, source: str, number: int) -> bytes | None:
        """The description that this version was imported from, as long as it is kept."""
        async with borrowed(self._pool) as connection:
            found = await connection.execute(
                "SELECT version.document FROM api_t AS api"
                " JOIN api_version_t AS version USING (host_id, api_id)"
                " WHERE host_id = %s AND api.name = %s AND version.number = %s",
                [host_id, source, number],
                binary=True,
            )
            row = await found.fetchone()
        return await to_thread.run_sync(zlib.decompress, row[0]) if row and row[0] else None


def _version(
    number: int,
    imported: datetime,
    title: str | None,
    version: str | None,
    digest: str | None,
    outcomes: dict[str, int] | None,
    current: bool,
    kept: bool,
    asked: dict[str, Any] | None,
) -> Version:
    return Version(
        number,
        imported.isoformat(),
        title,
        version,
        digest,
        outcomes or {},
        current,
        kept,
        asked or {},
    )
