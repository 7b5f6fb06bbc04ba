"""Sources: read a description, turn it into tools, write them. All of it or nothing."""

import asyncio
from dataclasses import dataclass, replace

from config.settings import Imports
from registry.documents.bundles import Bundle
from registry.importers.imported import Imported
from registry.names.reserved import is_reserved
from registry.sources.drafting import drafted, relative_server
from registry.sources.freshness import is_current, is_rolled_back
from registry.sources.source_reader import (
    NO_SERVICES,
    Found,
    ImportSpec,
    Lister,
    Origins,
    Services,
    find,
    reread,
)
from registry.sources.specs import UPLOAD, as_imported, spec_of
from registry.sources.store import SavedTools, SourceDraft, ToolStore
from registry.sources.write import Check, Progress
from registry.sources.write_source import Before
from schemas.errors import ImportRejected
from schemas.source import Outcome, Source
from schemas.tool import ToolDraft


class SourceExists(ImportRejected):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is a source {name} already.")


class SourceChanged(ImportRejected):
    """It is not what somebody has looked at any longer."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did; with `saved` None nothing: it was a dry run, or `rolled_back`."""

    source: SourceDraft
    outcomes: tuple[Outcome, ...]
    saved: SavedTools | None
    notes: tuple[str, ...] = ()  # about the document as a whole, or the patterns
    drafts: tuple[ToolDraft, ...] = ()
    rolled_back: int | None = None  # the version that is served instead of this one
    held: int | None = None  # which version this one is, then


class Sources:
    """Imports for one tenant."""

    def __init__(
        self,
        store: ToolStore,
        host_id: str,
        limits: Imports,
        services: Services = NO_SERVICES,
        lister: Lister | None = None,
    ) -> None:
        """`services` are those that this process serves: only it knows their actions. `lister`
        asks other MCP servers; without it none is imported."""
        self._store = store
        self._host_id = host_id
        self._limits = limits
        self._origins = Origins(services, lister)

    async def import_(
        self, spec: ImportSpec, progress: Progress | None = None, *, anew: bool = False
    ) -> ImportReport:
        """Import or re-import a source. Raises ImportRejected; then nothing was written.

        A description that was rolled back is not imported again, unless `anew`.
        """
        found = await self._find(spec)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and not anew and is_rolled_back(known, spec, found):
            held = known.rolled_back.version if known.rolled_back else None
            return replace(await _dry(spec, found), rolled_back=known.number, held=held)
        return await self._save(spec, found, progress, None if anew else _still(spec.name, known))

    async def import_changed(self, spec: ImportSpec) -> ImportReport | None:
        """Like `import_`, but None when everything is as it was at the last import."""
        found = await self._find(spec)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and (
            is_rolled_back(known, spec, found) or is_current(known, spec, found)
        ):
            return None
        return await self._save(spec, found, check=_still(spec.name, known))

    async def refresh(self, name: str, progress: Progress | None = None) -> ImportReport:
        """Import a known source again, from where and as it was imported. Raises LookupError."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        return await self.import_(spec_of(source), progress, anew=True)

    async def create(self, spec: ImportSpec, document: bytes | None = None) -> ImportReport:
        """Import a source that is not there yet; `document` came by itself, instead of from a
        location. Raises SourceExists, and ImportRejected."""
        if await self._store.source(self._host_id, spec.name) is not None:
            raise SourceExists(spec.name)
        if document is None:
            return await self._save(spec, await self._find(spec), check=_none(spec.name))
        return await self._save(*_uploaded(spec, document, self._limits), check=_none(spec.name))

    async def upload(
        self, name: str, document: bytes, expected_number: int | None = None
    ) -> ImportReport:
        """Import a source that was uploaded again, from `document`; `expected_number` is that of
        the version that is served. Raises LookupError, and ImportRejected."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        if not source.location.startswith(UPLOAD):
            raise ImportRejected(f"{name} was not uploaded: it is read where it was found.")
        check = _same(name, expected_number)
        return await self._save(
            *_uploaded(as_imported(source), document, self._limits), check=check
        )

    async def _find(self, spec: ImportSpec) -> Found:
        return await find(spec, self._limits, self._origins)

    async def _save(
        self,
        spec: ImportSpec,
        found: Found,
        progress: Progress | None = None,
        check: Check | None = None,
    ) -> ImportReport:
        imported = await asyncio.to_thread(found.read)
        draft = drafted(spec, found, imported)
        saved = await self._store.save(
            self._host_id,
            draft,
            imported.drafts,
            found.document,
            progress,
            versions_kept=self._limits.versions_kept,
            check=check,
        )
        outcomes = (_named(outcome, saved) for outcome in imported.outcomes)
        notes = _notes(spec, found, imported)
        return ImportReport(draft, tuple(outcomes), saved, notes, imported.drafts)


async def preview(spec: ImportSpec, limits: Imports, lister: Lister | None = None) -> ImportReport:
    """What an import would make of the description; no database is asked. Raises ImportRejected.

    The names are those that the tools get unless other sources have taken them.
    """
    return await _dry(spec, await find(spec, limits, Origins(lister=lister)))


async def _dry(spec: ImportSpec, found: Found) -> ImportReport:
    imported = await asyncio.to_thread(found.read)
    draft = drafted(spec, found, imported)
    notes = _notes(spec, found, imported)
    return ImportReport(draft, imported.outcomes, None, notes, imported.drafts)


def _notes(spec: ImportSpec, found: Found, imported: Imported) -> tuple[str, ...]:
    note = relative_server(spec, found, imported)
    return (*imported.notes, *([note] if note else []))


def _named(outcome: Outcome, saved: SavedTools) -> Outcome:
    """With the name that the thing got, or why it got none; what was skipped may have the key of
    one that was not."""
    if outcome.name is None:
        return outcome
    name = saved.names.get(outcome.key) or saved.items.names.get(outcome.key)
    if name is None:
        taken = saved.refused.get(outcome.key) or saved.items.refused[outcome.key]
        owner = "the gateway" if is_reserved(taken) else "another source"
        reason = f"{owner} has the name {taken}, and this one's prefix is never"
        return replace(outcome, name=None, status="skipped", reason=reason)
    if name in saved.held and outcome.key in saved.names:
        return replace(outcome, name=name, status="held", reason=saved.held[name])
    return replace(outcome, name=name)


def _uploaded(spec: ImportSpec, document: bytes, limits: Imports) -> tuple[ImportSpec, Found]:
    """Nothing that the document refers to is read."""
    spec = replace(spec, location=UPLOAD + spec.name)
    packed = Bundle(spec.location, {spec.location: document}).pack(spec.location)
    return spec, reread(spec, packed, limits)


def _none(name: str) -> Check:
    def check(before: Before | None) -> None:
        if before is not None:
            raise SourceExists(name)

    return check


def _same(name: str, number: int | None) -> Check:
    def check(before: Before | None) -> None:
        if number is not None and (before is None or before.version != number):
            raise SourceChanged(f"{name} was imported in the meantime.")

    return check


def _still(name: str, known: Source | None) -> Check:
    """No rollback that came while the description was read is undone by it."""
    held = known.rolled_back if known else None

    def check(before: Before | None) -> None:
        if before and before.rolled_back not in (None, held and held.version):
            raise ImportRejected(
                f"{name} was rolled back while it was imported; nothing was written. "
                f"To take it after all: toolgate sources refresh {name}"
            )

    return check
