"""Imports: a description is read, turned into tools and written atomically."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from config.settings import Imports
from config.sources import SourceSettings
from registry.documents.containers import Bundle
from registry.importers.drafts import ImportedDescription
from registry.names.tool_names import is_reserved
from registry.sources.import_plan import scrub
from registry.sources.import_specs import UPLOAD, ImportSpec, as_imported, credential_names, spec_of
from registry.sources.import_writer import (
    Check,
    PreviousImport,
    Progress,
    same_stored_spec,
    stored_spec,
)
from registry.sources.source_reader import (
    IMPORTERS,
    NO_SERVICES,
    NOTHING_OFFERED,
    DescriptionsByWing,
    FoundSource,
    Lister,
    Origins,
    Services,
    declared_base,
    find,
    is_url,
    reread,
)
from registry.sources.tool_store import SavedTools, SourceDraft, ToolStore
from schemas.errors import ImportRejected
from schemas.source import STDIO, OpenAPIOptions, Outcome, Source, facts_of
from schemas.tool import ToolDraft


def draft_source(
    spec: ImportSpec, source: FoundSource, description: ImportedDescription
) -> SourceDraft:
    """The source that the import makes."""
    stated = stated_base_url(spec)
    declared = IMPORTERS[spec.kind].declared(source.location, description.servers)
    declared, title, version = map(scrub, (declared, description.title, description.version))
    return SourceDraft(
        name=spec.name,
        kind=spec.kind,
        location=source.location,
        base_url=stated or declared,
        base_url_trusted=not spec.options.guarded
        and (stated is not None or leads_home(spec, declared)),
        title=title,
        version=version,
        include=spec.include,
        exclude=spec.exclude,
        digest=source.digest,
        options=spec.options,
        server=description.server,
        logins=description.logins,
        items=description.items,
        outcomes=Counter(outcome.status for outcome in description.outcomes),
        origin=spec.origin,
    )


def relative_server(
    spec: ImportSpec, source: FoundSource, description: ImportedDescription
) -> str | None:
    """The remedy where a description read from a file names a server by a relative URL."""
    if not IMPORTERS[spec.kind].relative or spec.base_url or is_url(source.location):
        return None
    relative = next(
        (server for server in description.servers if server and "://" not in server), None
    )
    if relative is None or declared_base(source.location, description.servers):
        return None
    return (
        f"its server {relative!r} is relative to the URL that the description is served at, and it "
        f"was read from {source.location}: name the address of the service, as in --base-url "
        f"https://api.example.com{relative if relative.startswith('/') else ''}, or base_url in "
        f"the settings (sources.{spec.name}.base_url)"
    )


def stated_base_url(spec: ImportSpec) -> str | None:
    """The operator's base URL, if one was given; an MCP server is called where it is listed."""
    if spec.facts.server and not spec.location.startswith(STDIO):
        return spec.location
    return spec.base_url


def same_origin(location: str, server_url: str | None) -> bool:
    """Whether the declared server has the origin that the operator entered, which is trusted
    already."""
    return server_url is not None and urlsplit(location)[:2] == urlsplit(server_url)[:2]


def leads_home(spec: ImportSpec, server_url: str | None) -> bool:
    """Whether the declared server is where the operator has said that calls may go."""
    if server_url is None or same_origin(spec.location, server_url):
        return server_url is not None
    parts = urlsplit(server_url)
    return not {parts.hostname, parts.netloc}.isdisjoint(spec.options.allowed_hosts)


def is_rolled_back(source: Source, spec: ImportSpec, description: FoundSource) -> bool:
    """Whether this document is the one that the source was rolled back from."""
    rolled_back = source.rolled_back
    if rolled_back is None or description.document is None:
        return False
    return same_stored_spec(
        rolled_back.spec, _stored_spec_for(spec, description)
    ) and rolled_back.document == (hashlib.sha256(description.document).hexdigest())


def is_current(source: Source, spec: ImportSpec, description: FoundSource) -> bool:
    """Whether the source has this document already, and no rollback that importing it would end."""
    if source.rolled_back is not None or source.origin != spec.origin:
        return False
    if source.location != description.location:
        return False
    if not _same_target(source, spec):
        return False
    return source.digest == description.digest and same_stored_spec(
        stored_spec(source), _stored_spec_for(spec, description)
    )


def _stored_spec_for(spec: ImportSpec, source: FoundSource) -> dict[str, Any]:
    return stored_spec(
        SourceDraft(
            spec.name,
            spec.kind,
            source.location,
            include=spec.include,
            exclude=spec.exclude,
            options=spec.options,
        )
    )


def _same_target(source: Source, spec: ImportSpec) -> bool:
    base_url = stated_base_url(spec)
    if base_url is None:
        return not source.base_url_trusted or leads_home(spec, source.base_url)
    return source.base_url == base_url


class SourceExists(ImportRejected):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is a source {name} already.")


class SourceChanged(ImportRejected):
    """The version to change is no longer the one that the caller saw."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Result of an import; `saved` is None when it wrote no rows: a dry run, or `rolled_back`."""

    source: SourceDraft
    outcomes: tuple[Outcome, ...]
    saved: SavedTools | None
    notes: tuple[str, ...] = ()  # about the document as a whole, or the patterns
    drafts: tuple[ToolDraft, ...] = ()
    rolled_back: int | None = None  # the version that is served instead of this one
    held: int | None = None  # then, the number of this version


class Sources:
    """Imports for one tenant."""

    def __init__(
        self,
        store: ToolStore,
        host_id: str,
        limits: Imports,
        services: Services = NO_SERVICES,
        *,
        lister: Lister | None = None,
        offered: DescriptionsByWing = NOTHING_OFFERED,
        configured: Mapping[str, SourceSettings] | None = None,
    ) -> None:
        """Imports for one tenant. `services` are those served by this process: only it knows their
        actions. `lister` lists other MCP servers; without it none is imported. `offered` by
        wings. `configured`: the present settings of the tenant's sources, which say what may fill
        parameters; None: the specs say it."""
        self._store = store
        self._host_id = host_id
        self._limits = limits
        self._configured = configured
        self._origins = Origins(services, lister, offered)

    async def import_(
        self, spec: ImportSpec, progress: Progress | None = None, *, force: bool = False
    ) -> ImportReport:
        """Import or re-import a source. Raises ImportRejected, with no rows written.

        A description that was rolled back is not imported again, unless `force`.
        """
        spec, source = await self._read(spec)
        stored_source = await self._existing_source(spec)
        if stored_source is not None and not force and is_rolled_back(stored_source, spec, source):
            held_version = stored_source.rolled_back.version if stored_source.rolled_back else None
            return replace(
                await _dry_run(spec, source), rolled_back=stored_source.number, held=held_version
            )
        return await self._save(
            spec,
            source,
            progress,
            None if force else _check_not_rolled_back(spec.name, stored_source),
        )

    async def import_changed(self, spec: ImportSpec) -> ImportReport | None:
        """Import a source, or None when it is unchanged since the last import."""
        spec, source = await self._read(spec)
        stored_source = await self._existing_source(spec)
        if stored_source is not None and (
            is_rolled_back(stored_source, spec, source) or is_current(stored_source, spec, source)
        ):
            return None
        return await self._save(
            spec, source, check=_check_not_rolled_back(spec.name, stored_source)
        )

    async def refresh(self, name: str, progress: Progress | None = None) -> ImportReport:
        """Re-import a known source from its location with its stored options. Raises
        LookupError."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        return await self.import_(spec_of(source), progress, force=True)

    async def create(
        self, spec: ImportSpec, document: bytes | None = None, progress: Progress | None = None
    ) -> ImportReport:
        """Import a new source; `document` was uploaded instead of read from a location. Raises
        SourceExists, and ImportRejected."""
        if await self._store.source(self._host_id, spec.name) is not None:
            raise SourceExists(spec.name)
        return await self._save(
            *await self._read(spec, document), progress, _check_absent(spec.name)
        )

    async def preview(self, spec: ImportSpec, document: bytes | None = None) -> ImportReport:
        """Outcome of `create` without writing anything. Raises ImportRejected."""
        return await _dry_run(*await self._read(spec, document))

    async def upload(
        self,
        name: str,
        document: bytes,
        expected_number: int | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Re-import an uploaded source from `document`; `expected_number` is that of the version
        that is served. Raises LookupError, and ImportRejected."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        if not source.location.startswith(UPLOAD):
            raise ImportRejected(f"{name} was not uploaded: it is read where it was found.")
        uploaded = await self._read(as_imported(source), document)
        return await self._save(*uploaded, progress, _check_version(name, expected_number))

    async def _existing_source(self, spec: ImportSpec) -> Source | None:
        """The source of this name. Raises SourceExists if either is a part of the gateway itself,
        and the other is not."""
        source = await self._store.source(self._host_id, spec.name)
        if source is not None and source.facts.own != facts_of(spec.kind).own:
            raise SourceExists(spec.name)
        return source

    async def _with_credentials(self, spec: ImportSpec) -> ImportSpec:
        """The spec with the names of the credentials that the settings and the registry have for
        the source now. A source to which callers authenticate themselves gets none of these."""
        options = spec.options
        if not isinstance(options, OpenAPIOptions):
            return spec
        known_names = options.credentials
        if self._configured is not None:
            known_names = credential_names(self._configured.get(spec.name, SourceSettings()))
        if known_names is None:
            return replace(spec, options=structs.replace(options, credentials=None))
        credentials = [credential for credential in known_names if not credential.stored]
        names = {credential.name for credential in credentials}
        stored = await self._store.credential_names(self._host_id, spec.name)
        credentials += [credential for credential in stored if credential.name not in names]
        return replace(spec, options=structs.replace(options, credentials=tuple(credentials)))

    async def _read(
        self, spec: ImportSpec, document: bytes | None = None
    ) -> tuple[ImportSpec, FoundSource]:
        """The description, uploaded or at its location, and the spec that it is imported by."""
        spec = await self._with_credentials(spec)
        if document is not None:
            return _read_upload(spec, document, self._limits)
        return spec, await find(spec, self._limits, self._origins)

    async def _save(
        self,
        spec: ImportSpec,
        source: FoundSource,
        progress: Progress | None = None,
        check: Check | None = None,
    ) -> ImportReport:
        imported = await asyncio.to_thread(source.read)
        draft = draft_source(spec, source, imported)
        saved = await self._store.save(
            self._host_id,
            draft,
            imported.drafts,
            source.document,
            progress=progress,
            versions_kept=self._limits.versions_kept,
            check=check,
        )
        outcomes = (_name_outcome(outcome, saved) for outcome in imported.outcomes)
        notes = _notes(spec, source, imported)
        return ImportReport(draft, tuple(outcomes), saved, notes, drafts=imported.drafts)


async def preview(spec: ImportSpec, limits: Imports, lister: Lister | None = None) -> ImportReport:
    """A dry run of an import, without database access. Raises ImportRejected.

    The names are those that the tools get unless other sources have taken them.
    """
    return await _dry_run(spec, await find(spec, limits, Origins(lister=lister)))


async def _dry_run(spec: ImportSpec, source: FoundSource) -> ImportReport:
    imported = await asyncio.to_thread(source.read)
    draft = draft_source(spec, source, imported)
    notes = _notes(spec, source, imported)
    return ImportReport(draft, imported.outcomes, None, notes, drafts=imported.drafts)


def _notes(
    spec: ImportSpec, source: FoundSource, description: ImportedDescription
) -> tuple[str, ...]:
    note = relative_server(spec, source, description)
    return (*description.notes, *([note] if note else []))


def _name_outcome(outcome: Outcome, saved_tools: SavedTools) -> Outcome:
    """The outcome with its tool name, or the reason for none; a skipped item may share the
    key of an imported one."""
    if outcome.name is None:
        return outcome
    name = saved_tools.names.get(outcome.key) or saved_tools.items.names.get(outcome.key)
    if name is None:
        refused_name = (
            saved_tools.refused.get(outcome.key) or saved_tools.items.refused[outcome.key]
        )
        owner = "the gateway" if is_reserved(refused_name) else "another source"
        reason = f"{owner} has the name {refused_name}, and this one's prefix is never"
        return replace(outcome, name=None, status="skipped", reason=reason)
    if name in saved_tools.held and outcome.key in saved_tools.names:
        return replace(outcome, name=name, status="held", reason=saved_tools.held[name])
    return replace(outcome, name=name)


def _read_upload(
    spec: ImportSpec, document: bytes, limits: Imports
) -> tuple[ImportSpec, FoundSource]:
    """An uploaded document; its external references are not followed."""
    spec = replace(spec, location=UPLOAD + spec.name)
    packed = Bundle(spec.location, {spec.location: document}).pack(spec.location)
    return spec, reread(spec, packed, limits)


def _check_absent(name: str) -> Check:
    def check(before: PreviousImport | None) -> None:
        if before is not None:
            raise SourceExists(name)

    return check


def _check_version(name: str, number: int | None) -> Check:
    def check(before: PreviousImport | None) -> None:
        if number is not None and (before is None or before.version != number):
            raise SourceChanged(f"{name} was imported in the meantime.")

    return check


def _check_not_rolled_back(name: str, source: Source | None) -> Check:
    """Check that no rollback made while the description was read is undone by this import."""
    rolled_back = source.rolled_back if source else None

    def check(before: PreviousImport | None) -> None:
        if before and before.rolled_back not in (None, rolled_back and rolled_back.version):
            raise ImportRejected(
                f"{name} was rolled back while it was imported; nothing was written. "
                f"To take it after all: toolgate sources refresh {name}"
            )

    return check
