"""Writing which version of its description a source has, in the caller's transaction.

A version is a document and how it was read. Read by a later importer, found elsewhere, or called at
another address, it is the same one.
"""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from registry.sources.plan import SourceDraft
from registry.sources.write_source import StoredDocument
from schemas.errors import ImportRejected
from schemas.source import RolledBack, Source

PLACES = ("location", "base_url", "base_url_trusted")  # say nothing about what tools there are


@dataclass(frozen=True, slots=True)
class RollbackTarget:
    """A version that is to be served again."""

    version: int  # its number
    held: RolledBack | None  # what must not be imported meanwhile; None: this is the newest


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    title: str | None
    version: str | None
    digest: str | None
    document_digest: str | None
    asked: dict[str, Any] | None
    outcomes: dict[str, int] | None
    current: bool
    kept: bool


def asked_of(source: SourceDraft | Source) -> dict[str, Any]:
    """How a source was imported, as `api_version_t.asked` keeps it."""
    asked = {
        "kind": source.kind,
        "location": source.location,
        "base_url": source.base_url,
        "base_url_trusted": source.base_url_trusted,
        "include": source.include,
        "exclude": source.exclude,
        "options": source.options,
    }
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asked))
    return found


def same_asked(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether the two read a document alike."""
    return _reading(one) == _reading(other)


def _reading(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (asked or {}).items() if name not in PLACES}


class VersionSaving:
    """The versions of one source."""

    def __init__(
        self, connection: AsyncConnection, host_id: str, api_id: str, source: SourceDraft
    ) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {"host": host_id, "api": api_id}
        self._source = source
        self._asked = asked_of(source)

    async def run(self, document: StoredDocument | None, kept: int) -> str:
        """The id of the version that `document` is: the current one, the newest one, or a new one.
        Of the others the last `kept` keep their documents."""
        for row in await self._candidates():
            if await self._is(row, document):
                await self._become(row, document)
                return row.id
        version_id = await self._add(document)
        await self._prune(kept)
        return version_id

    async def restore(self, number: int) -> str:
        """Make this version the current one again. Raises ImportRejected when it is not kept."""
        rows = await self._rows("number = %(number)s", number=number)
        if not rows or not rows[0].kept:
            raise ImportRejected(f"Version {number} of {self._source.name} is no longer kept.")
        await self._become(rows[0], None)
        return rows[0].id

    async def _candidates(self) -> list[_Row]:
        """The current version, and the newest one if that can be had again."""
        newest = (
            "(SELECT max(number) FROM api_version_t WHERE host_id = %(host)s AND api_id = %(api)s)"
        )
        rows = await self._rows(f"(current OR number = {newest})")
        return sorted(
            (row for row in rows if row.current or row.kept), key=lambda row: not row.current
        )

    async def _is(self, row: _Row, document: StoredDocument | None) -> bool:
        if (row.title, row.version) != (self._source.title, self._source.version):
            return False
        if row.asked is not None and not same_asked(row.asked, self._asked):
            return False
        if document is None or not row.kept:
            return row.digest == self._digest(document)
        return (row.document_digest or await self._hashed(row)) == document.digest

    async def _hashed(self, row: _Row) -> str:
        """Of a document that a release stored which did not keep its digest."""
        found = await self._connection.execute(
            "SELECT document FROM api_version_t"
            " WHERE host_id = %(host)s AND api_version_id = %(version)s",
            self._values | {"version": row.id},
            binary=True,
        )
        (packed,) = await found.fetchone() or (b"",)
        return await to_thread.run_sync(lambda: hashlib.sha256(zlib.decompress(packed)).hexdigest())

    async def _become(self, row: _Row, document: StoredDocument | None) -> None:
        """Serve this version, as it is read now."""
        digest = self._digest(document) or row.digest
        document_digest = document.digest if document else row.document_digest
        outcomes = dict(self._source.outcomes) or row.outcomes
        now = (True, digest, document_digest, self._asked, outcomes)
        if (row.current, row.digest, row.document_digest, row.asked, row.outcomes) == now:
            return
        if not row.current:
            await self._supersede()
        await self._connection.execute(
            """
            UPDATE api_version_t SET current = true, digest = %(digest)s,
                document_digest = %(document_digest)s, asked = %(asked)s, outcomes = %(outcomes)s,
                aggregate_version = aggregate_version + 1, update_ts = current_timestamp
            WHERE host_id = %(host)s AND api_version_id = %(version)s
            """,
            self._values
            | {
                "version": row.id,
                "digest": digest,
                "document_digest": document_digest,
                "asked": Jsonb(self._asked),
                "outcomes": Jsonb(outcomes) if outcomes else None,
            },
        )

    async def _add(self, document: StoredDocument | None) -> str:
        await self._supersede()
        found = await self._connection.execute(
            """
            INSERT INTO api_version_t (host_id, api_id, title, api_version, digest, document_digest,
                document, asked, outcomes)
            VALUES (%(host)s, %(api)s, %(title)s, %(version)s, %(digest)s, %(document_digest)s,
                %(document)b, %(asked)s, %(outcomes)s)
            RETURNING api_version_id::text
            """,
            self._values
            | {
                "title": self._source.title,
                "version": self._source.version,
                "digest": self._digest(document),
                "document_digest": document.digest if document else None,
                "document": document.packed if document else None,
                "asked": Jsonb(self._asked),
                "outcomes": Jsonb(dict(self._source.outcomes)) if self._source.outcomes else None,
            },
        )
        (version_id,) = await found.fetchone() or ("",)
        return str(version_id)

    async def _supersede(self) -> None:
        """The source counts as written: it is another version of it."""
        done = await self._connection.execute(
            "UPDATE api_version_t SET current = false, update_ts = current_timestamp"
            " WHERE host_id = %(host)s AND api_id = %(api)s AND current",
            self._values,
        )
        if done.rowcount:
            await self._connection.execute(
                "UPDATE api_t SET aggregate_version = aggregate_version + 1,"
                " update_ts = current_timestamp WHERE host_id = %(host)s AND api_id = %(api)s",
                self._values,
            )

    async def _prune(self, kept: int) -> None:
        await self._connection.execute(
            """
            UPDATE api_version_t SET document = NULL, update_ts = current_timestamp
            WHERE host_id = %(host)s AND api_id = %(api)s AND NOT current
                AND document IS NOT NULL AND number <= (
                    SELECT max(number) FROM api_version_t
                    WHERE host_id = %(host)s AND api_id = %(api)s) - %(kept)s
            """,
            self._values | {"kept": kept},
        )

    def _digest(self, document: StoredDocument | None) -> str | None:
        return self._source.digest or (document.digest if document else None)

    async def _rows(self, condition: str, **values: object) -> list[_Row]:
        rows = await self._connection.execute(
            b"SELECT api_version_id::text, title, api_version, digest, document_digest, asked,"
            b" outcomes, current, document IS NOT NULL FROM api_version_t"
            b" WHERE host_id = %(host)s AND api_id = %(api)s AND " + condition.encode(),
            self._values | values,
        )
        return [_Row(*row) async for row in rows]
