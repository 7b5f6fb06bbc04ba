"""Sources: read a description, turn it into tools, write them. All of it or nothing."""

import asyncio
from dataclasses import dataclass, replace
from typing import cast, get_args
from urllib.parse import urljoin, urlsplit

from config.settings import Imports, SourceSettings
from registry.found import NO_SERVICES, Found, ImportSpec, Kind, Services, find
from registry.importers.imported import Imported
from registry.saving import Progress
from registry.store import Saved, SourceDraft, ToolStore
from schemas.errors import ImportRejected
from schemas.source import HybridOptions, Outcome, Source

__all__ = ["NO_SERVICES", "ImportSpec", "Report", "Services", "Sources", "configured", "preview"]


def configured(name: str, wanted: SourceSettings) -> ImportSpec | None:
    """What the settings want imported as `name`; None when they only adjust how it is called."""
    locations: dict[Kind, str | None] = {
        "openapi": wanted.openapi,
        "hybrid": wanted.hybrid,
        "python": wanted.python,
    }
    options = HybridOptions(wanted.side, wanted.dialect, wanted.batch)
    for kind, location in locations.items():
        if location is not None:
            patterns = (wanted.include, wanted.exclude)
            asked = HybridOptions() if kind == "openapi" else options
            return ImportSpec(name, location, wanted.base_url, *patterns, kind, asked)
    return None


@dataclass(frozen=True, slots=True)
class Report:
    """What an import did; with `saved` None it was a dry run."""

    source: SourceDraft
    outcomes: tuple[Outcome, ...]
    saved: Saved | None
    notes: tuple[str, ...] = ()  # about the document as a whole, or the patterns


class Sources:
    """Imports for one tenant."""

    def __init__(
        self, store: ToolStore, host_id: str, limits: Imports, services: Services = NO_SERVICES
    ) -> None:
        """`services` are those that this process serves: only it knows their actions."""
        self._store = store
        self._host_id = host_id
        self._limits = limits
        self._services = services

    async def import_(self, spec: ImportSpec, progress: Progress | None = None) -> Report:
        """Import or re-import a source. Raises ImportRejected; then nothing was written."""
        return await self._save(spec, await self._find(spec), progress)

    async def import_changed(self, spec: ImportSpec) -> Report | None:
        """Like `import_`, but None when everything is as it was at the last import."""
        found = await self._find(spec)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and _is_current(known, spec, found):
            return None
        return await self._save(spec, found)

    async def refresh(self, name: str, progress: Progress | None = None) -> Report:
        """Import a known source again, from where and as it was imported. Raises LookupError."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        return await self.import_(_spec_of(source), progress)

    async def _find(self, spec: ImportSpec) -> Found:
        return await find(spec, self._limits, self._services)

    async def _save(
        self, spec: ImportSpec, found: Found, progress: Progress | None = None
    ) -> Report:
        imported = await asyncio.to_thread(found.read)
        draft = _source(spec, found, imported)
        saved = await self._store.save(
            self._host_id, draft, imported.drafts, found.document, progress
        )
        outcomes = (_named(outcome, saved) for outcome in imported.outcomes)
        return Report(draft, tuple(outcomes), saved, imported.notes)


async def preview(spec: ImportSpec, limits: Imports) -> Report:
    """What an import would make of the description; no database is asked. Raises ImportRejected.

    The names are those that the tools get unless other sources have taken them.
    """
    found = await find(spec, limits, NO_SERVICES)
    imported = await asyncio.to_thread(found.read)
    return Report(_source(spec, found, imported), imported.outcomes, None, imported.notes)


def _named(outcome: Outcome, saved: Saved) -> Outcome:
    """With the name that the tool got; what became no tool may have the key of one that did."""
    if outcome.name is None:
        return outcome
    return replace(outcome, name=saved.names[outcome.key])


def _is_current(known: Source, spec: ImportSpec, found: Found) -> bool:
    same_target = (
        not known.base_url_trusted or _same_origin(spec.location, known.base_url)
        if spec.base_url is None
        else known.base_url == spec.base_url
    )
    asked = (spec.kind, found.location, spec.include, spec.exclude, spec.options, found.digest)
    return same_target and asked == (
        known.kind, known.location, known.include, known.exclude, known.options, known.digest
    )  # fmt: skip


def _spec_of(source: Source) -> ImportSpec:
    """Raises ImportRejected for a source of a kind that only a newer release can import."""
    if source.kind not in get_args(Kind):
        raise ImportRejected(f"{source.name} is of a kind that is not known here: {source.kind}.")
    return ImportSpec(
        source.name,
        source.location,
        source.base_url if source.base_url_trusted else None,
        source.include,
        source.exclude,
        cast("Kind", source.kind),
        source.options,
    )


def _source(spec: ImportSpec, found: Found, imported: Imported) -> SourceDraft:
    declared = _declared_base(found.location, imported.servers) if spec.kind == "openapi" else None
    return SourceDraft(
        name=spec.name,
        kind=spec.kind,
        location=found.location,
        base_url=spec.base_url or declared,
        base_url_trusted=spec.base_url is not None or _same_origin(spec.location, declared),
        title=imported.title,
        version=imported.version,
        include=spec.include,
        exclude=spec.exclude,
        digest=found.digest,
        options=spec.options,
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
