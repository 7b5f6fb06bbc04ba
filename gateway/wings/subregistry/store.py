"""Versions of toolsets in the database."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from registry.database.postgres import Pool, borrow
from registry.database.tables import Tables


class StoredVersion(NamedTuple):
    name: str
    patch: int
    document: bytes
    published_ts: datetime


class VersionStore(Tables):
    """All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool, tenant: str) -> None:
        self._pool = pool
        self._tenant = tenant

    async def add(self, name: str, content: bytes, document: bytes, versions_to_keep: int) -> None:
        """Add a version, unless the newest one has this content; `versions_to_keep` of them stay.
        Of several gateways that do so at once, one succeeds."""
        async with borrow(self._pool) as connection:
            added = await connection.execute(
                "WITH newest AS (SELECT patch, content FROM subregistry_version_t"
                "  WHERE host_id = %(host)s AND name = %(name)s ORDER BY patch DESC LIMIT 1)"
                " INSERT INTO subregistry_version_t (host_id, name, patch, content, document)"
                " SELECT %(host)s, %(name)s, coalesce((SELECT patch FROM newest), -1) + 1,"
                "  %(content)s, %(document)s"
                " WHERE NOT EXISTS (SELECT FROM newest WHERE content = %(content)s)"
                " ON CONFLICT DO NOTHING RETURNING patch",
                {"host": self._tenant, "name": name, "content": content, "document": document},
            )
            for (patch,) in await added.fetchall():
                await connection.execute(
                    "DELETE FROM subregistry_version_t"
                    " WHERE (host_id, name) = (%s, %s) AND patch <= %s",
                    [self._tenant, name, patch - versions_to_keep],
                )

    async def versions(self, names: Collection[str]) -> list[StoredVersion]:
        """Versions of these servers, the oldest of each first."""
        return await self._fetch_rows(
            StoredVersion,
            "SELECT name, patch, document, published_ts FROM subregistry_version_t"
            " WHERE host_id = %s AND name = ANY(%s) ORDER BY name, patch",
            [self._tenant, list(names)],
        )
