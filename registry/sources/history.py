"""Versions of a source: stored, compared with a new description, and rolled back to."""

import asyncio
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from anyio import to_thread

from config.settings import Imports
from registry.database.postgres import Pool, borrowed
from registry.database.rows import options_of
from registry.importers.imported import Imported
from registry.sources.differences import Difference, difference
from registry.sources.imports import ImportReport, drafted
from registry.sources.source_reader import ImportSpec, Lister, Origins, find, reread
from registry.sources.store import SourceDraft, ToolStore
from registry.sources.write import Before, Check, Progress, RollbackTarget
from schemas.errors import ImportRejected
from schemas.source import RolledBack, Source, Version, is_importable


class Versions:
    """Stored versions of sources. All methods raise `psycopg.OperationalError`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def listed(self, host_id: str, source: str) -> list[Version]:
        """All versions, newest first; empty when there is no such source."""
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
        """The description that this version was imported from, as long as it is stored."""
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


@dataclass(frozen=True, slots=True)
class RolledTo:
    """The result of a rollback: the version that is served again."""

    version: Version
    report: ImportReport
    difference: Difference


class History:
    """Differences and rollbacks of one tenant's sources."""

    def __init__(
        self,
        store: ToolStore,
        versions: Versions,
        host_id: str,
        limits: Imports,
        lister: Lister | None = None,
    ) -> None:
        self._store = store
        self._versions = versions
        self._host_id = host_id
        self._limits = limits
        self._lister = lister

    async def difference(self, spec: ImportSpec) -> Difference:
        """The changes that an import would make, as a dry run. Raises ImportRejected."""
        found = await find(spec, self._limits, Origins(lister=self._lister))
        imported = await asyncio.to_thread(found.read)
        return await self._compared(drafted(spec, found, imported), imported)

    async def roll_back(
        self, name: str, to: int | None = None, progress: Progress | None = None
    ) -> RolledTo:
        """Serve version `to` again, or the previous one, with the options that it had then.

        The rollback lasts until the location has a description other than the current one, or the
        source is refreshed. Raises LookupError for an unknown source, and ImportRejected.
        """
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        if final := source.facts.final:
            raise ImportRejected(f"{name} {final}.")
        versions = {one.number: one for one in await self._versions.listed(self._host_id, name)}
        version = _wanted(name, versions, to)
        document = await self._versions.document(self._host_id, name, version.number)
        if document is None:
            raise ImportRejected(_not_kept(name, version.number))
        spec = _spec(source, version)
        found = reread(spec, document, self._limits)
        imported = await asyncio.to_thread(found.read)
        draft = replace(drafted(spec, found, imported), **_address(version))
        changed = await self._compared(draft, imported)
        held = await self._held(source, versions, version)
        saved = await self._store.save(
            self._host_id,
            draft,
            imported.drafts,
            progress=progress,
            versions_kept=self._limits.versions_kept,
            rollback=RollbackTarget(version.number, held),
            check=_still(name, versions),
        )
        report = ImportReport(draft, imported.outcomes, saved, imported.notes, imported.drafts)
        return RolledTo(version, report, changed)

    async def _compared(self, draft: SourceDraft, imported: Imported) -> Difference:
        changes, served = await self._store.compare(self._host_id, draft, imported.drafts)
        return await asyncio.to_thread(difference, draft.name, served, changes)

    async def _held(
        self, source: Source, versions: Mapping[int, Version], to: Version
    ) -> RolledBack | None:
        """The version not to import during the rollback: the one now at the source's location.
        None when that is `to` itself."""
        held = source.rolled_back
        if held is None:
            current = next(one for one in versions.values() if one.current)
            document = await self._versions.document(self._host_id, source.name, current.number)
            digest = hashlib.sha256(document).hexdigest() if document else None
            held = RolledBack(current.number, digest, dict(current.asked))
        return None if held.version == to.number else held


def _wanted(name: str, versions: Mapping[int, Version], to: int | None) -> Version:
    current = next((one.number for one in versions.values() if one.current), 0)
    if to is None:
        before = [n for n, one in versions.items() if n < current and one.kept]
        if not before:
            raise ImportRejected(f"{name} has no version before {current} that is kept.")
        return versions[max(before)]
    if to not in versions:
        known = ", ".join(map(str, sorted(versions)))
        raise ImportRejected(f"{name} has no version {to}; it has {known}.")
    if to == current:
        raise ImportRejected(f"Version {to} of {name} is the one that is served.")
    if not versions[to].kept:
        raise ImportRejected(_not_kept(name, to))
    return versions[to]


def _still(name: str, versions: Mapping[int, Version]) -> Check:
    """Check that the version held back is still the one served when the rollback is written."""
    current = next((one.number for one in versions.values() if one.current), None)

    def check(before: Before | None) -> None:
        if before is None or before.version != current:
            raise ImportRejected(
                f"{name} changed while it was rolled back; nothing was written. Try again."
            )

    return check


def _not_kept(name: str, number: int) -> str:
    return f"The description of version {number} of {name} is not kept: see imports.versions_kept."


def _spec(source: Source, version: Version) -> ImportSpec:
    """The import spec of a version. Raises ImportRejected for a kind that only a newer release
    knows."""
    name, asked = source.name, version.asked
    if not is_importable(asked.get("kind")):
        raise ImportRejected(
            f"How version {version.number} of {name} was imported is not known here: "
            f"{asked.get('kind') or 'an older release did not keep it'}."
        )
    return ImportSpec(
        name,
        asked["location"],
        asked["base_url"] if asked["base_url_trusted"] else None,
        tuple(asked["include"]),
        tuple(asked["exclude"]),
        asked["kind"],
        options_of(name, asked["kind"], asked["options"]),
        source.origin,
    )


def _address(version: Version) -> dict[str, Any]:
    return {key: version.asked[key] for key in ("base_url", "base_url_trusted")}
