"""Sources: fetch a description, turn it into tools, write them. All of it or nothing."""

import asyncio
import hashlib
from dataclasses import dataclass, replace
from urllib.parse import urljoin, urlsplit

from config.settings import Imports, SourceSettings
from registry.fetch import Fetched, fetch
from registry.importers.openapi import Imported, Options, parse, read
from registry.saving import Progress
from registry.store import Saved, SourceDraft, ToolStore
from schemas.errors import ImportRejected
from schemas.source import Outcome, Source

IMPORTER = 1  # raise it when the same document would give other tools than before


@dataclass(frozen=True, slots=True)
class ImportSpec:
    """What to import, as the operator said it."""

    name: str
    location: str  # path or URL
    base_url: str | None = None  # None: the description's own server
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def configured(name: str, wanted: SourceSettings) -> ImportSpec | None:
    """What the settings want imported as `name`; None when they only adjust how it is called."""
    if wanted.openapi is None:
        return None
    return ImportSpec(name, wanted.openapi, wanted.base_url, wanted.include, wanted.exclude)


@dataclass(frozen=True, slots=True)
class Report:
    """What an import did; with `saved` None it was a dry run."""

    source: SourceDraft
    outcomes: tuple[Outcome, ...]
    saved: Saved | None
    notes: tuple[str, ...] = ()  # about the document as a whole, or the patterns


class Sources:
    """Imports for one tenant."""

    def __init__(self, store: ToolStore, host_id: str, limits: Imports) -> None:
        self._store = store
        self._host_id = host_id
        self._limits = limits

    async def import_openapi(self, spec: ImportSpec, progress: Progress | None = None) -> Report:
        """Import or re-import a description. Raises ImportRejected; then nothing was written."""
        return await self._save(spec, await _fetch(spec, self._limits), progress)

    async def import_changed(self, spec: ImportSpec) -> Report | None:
        """Like `import_openapi`, but None when everything is as it was at the last import."""
        fetched = await _fetch(spec, self._limits)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and _is_current(known, spec, fetched):
            return None
        return await self._save(spec, fetched)

    async def refresh(self, name: str, progress: Progress | None = None) -> Report:
        """Import a known source again, from where and as it was imported. Raises LookupError."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        return await self.import_openapi(_spec_of(source), progress)

    async def _save(
        self, spec: ImportSpec, fetched: Fetched, progress: Progress | None = None
    ) -> Report:
        imported = await asyncio.to_thread(_read, fetched, spec)
        draft = _source(spec, fetched, imported)
        saved = await self._store.save(
            self._host_id, draft, imported.drafts, fetched.data, progress
        )
        outcomes = (replace(o, name=saved.names.get(o.key, o.name)) for o in imported.outcomes)
        return Report(draft, tuple(outcomes), saved, imported.notes)


async def preview(spec: ImportSpec, limits: Imports) -> Report:
    """What an import would make of the description; no database is asked. Raises ImportRejected.

    The names are those that the tools get unless other sources have taken them.
    """
    fetched = await _fetch(spec, limits)
    imported = await asyncio.to_thread(_read, fetched, spec)
    return Report(_source(spec, fetched, imported), imported.outcomes, None, imported.notes)


async def _fetch(spec: ImportSpec, limits: Imports) -> Fetched:
    return await fetch(
        spec.location,
        limit_bytes=limits.document_limit_bytes,
        timeout_s=limits.fetch_timeout_s,
        private_networks=limits.private_networks,
    )


def _read(fetched: Fetched, spec: ImportSpec) -> Imported:
    """Raises ImportRejected, also when there would be no tools."""
    document = parse(fetched.data, fetched.location)
    try:
        imported = read(document, Options(spec.include, spec.exclude))
    except ImportRejected as error:
        raise ImportRejected(f"{fetched.location}: {error}") from error
    if not imported.drafts:
        raise ImportRejected(_nothing(imported))
    return imported


def _is_current(known: Source, spec: ImportSpec, fetched: Fetched) -> bool:
    same_target = (
        not known.base_url_trusted or _same_origin(spec.location, known.base_url)
        if spec.base_url is None
        else known.base_url == spec.base_url
    )
    asked = (fetched.location, spec.include, spec.exclude, _digest(fetched.data))
    return same_target and asked == (
        known.location, known.include, known.exclude, known.digest
    )  # fmt: skip


def _digest(document: bytes) -> str:
    """Names a document as this importer reads it; another importer may make other tools of it."""
    return hashlib.sha256(b"%d\0" % IMPORTER + document).hexdigest()


def _spec_of(source: Source) -> ImportSpec:
    typed = source.base_url if source.base_url_trusted else None
    return ImportSpec(source.name, source.location, typed, source.include, source.exclude)


def _source(spec: ImportSpec, fetched: Fetched, imported: Imported) -> SourceDraft:
    declared = _declared_base(fetched.location, imported.servers)
    return SourceDraft(
        name=spec.name,
        kind="openapi",
        location=fetched.location,
        base_url=spec.base_url or declared,
        base_url_trusted=spec.base_url is not None or _same_origin(spec.location, declared),
        title=imported.title,
        version=imported.version,
        include=spec.include,
        exclude=spec.exclude,
        digest=_digest(fetched.data),
    )


def _declared_base(location: str, servers: tuple[str, ...]) -> str | None:
    """The first server of the description that is an HTTP address, relative ones resolved."""
    at = location if location.startswith(("http://", "https://")) else ""
    for server in servers or ("/",):  # OpenAPI 3.1, 4.8.1: no servers means `/`
        url = urljoin(at, server) if at else server
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname:
            return url.rstrip("/")
    return None


def _same_origin(typed: str, declared: str | None) -> bool:
    """A relative server of a fetched description: the operator named that host already."""
    return declared is not None and urlsplit(typed)[:2] == urlsplit(declared)[:2]


def _nothing(imported: Imported) -> str:
    excluded = sum(outcome.status == "excluded" for outcome in imported.outcomes)
    if not imported.outcomes:
        return "Nothing to import: the description has no operations (`paths` is empty)"
    if excluded == len(imported.outcomes):
        return f"Nothing to import: the patterns exclude all {excluded} operations"
    skipped = next(o for o in imported.outcomes if o.status == "skipped")
    return (
        f"Nothing to import: every operation was skipped, as {skipped.operation}: {skipped.reason}"
    )
