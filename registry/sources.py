"""Sources: read a description, turn it into tools, write them. All of it or nothing."""

import asyncio
import hashlib
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, cast, get_args
from urllib.parse import urljoin, urlsplit

from config.settings import Imports, SourceSettings
from registry.bundle import Bundle
from registry.found import (
    NO_SERVICES,
    Found,
    ImportSpec,
    Kind,
    Lister,
    Origins,
    Services,
    find,
    reread,
)
from registry.importers.imported import Imported
from registry.saving import Check, Progress
from registry.source_saving import Before
from registry.store import Saved, SourceDraft, ToolStore
from registry.version_saving import asked_of, same_asked
from schemas.errors import ImportRejected
from schemas.source import (
    MANUAL,
    GraphQLOptions,
    HybridOptions,
    McpOptions,
    OpenAPIOptions,
    Options,
    Outcome,
    Source,
)
from schemas.tool import ToolDraft

__all__ = [
    "NO_SERVICES",
    "ImportSpec",
    "Lister",
    "Report",
    "Services",
    "Sources",
    "configured",
    "preview",
    "spec_of",
    "stdio",
]

UPLOAD = "upload:"  # in front of the name: the location of a description that came by itself
STDIO = "stdio:"  # in front of a command: the location of an MCP server that has no address


def configured(name: str, wanted: SourceSettings) -> ImportSpec | None:
    """What the settings want imported as `name`; None when they only adjust how it is called."""
    locations: dict[Kind, str | None] = {
        "openapi": wanted.openapi,
        "graphql": wanted.graphql,
        "hybrid": wanted.hybrid,
        "python": wanted.python,
        "mcp": wanted.mcp or (stdio(wanted.command) if wanted.command else None),
    }
    for kind, location in locations.items():
        if location is not None:
            patterns = (wanted.include, wanted.exclude)
            base_url = None if kind == "mcp" else wanted.base_url
            return ImportSpec(name, location, base_url, *patterns, kind, _asked(kind, wanted))
    return None


def stdio(command: tuple[str, ...]) -> str:
    """The location of an MCP server that is started by `command`."""
    return STDIO + shlex.join(command)


def _asked(kind: Kind, wanted: SourceSettings) -> Options:
    """The options of a source of this kind that the settings ask for."""
    if kind == "graphql":
        return GraphQLOptions(wanted.overlay, wanted.only_marked, wanted.depth, wanted.cost)
    if kind == "mcp":
        return McpOptions(
            wanted.command, wanted.era, wanted.prefix, wanted.own_sessions, wanted.pin
        )
    if kind == "openapi":
        return OpenAPIOptions(wanted.entry, wanted.overlay, wanted.only_marked, wanted.media_types)
    return HybridOptions(wanted.side, wanted.dialect, wanted.batch)


class SourceExists(ImportRejected):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is a source {name} already.")


@dataclass(frozen=True, slots=True)
class Report:
    """What an import did; with `saved` None nothing: it was a dry run, or `rolled_back`."""

    source: SourceDraft
    outcomes: tuple[Outcome, ...]
    saved: Saved | None
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
    ) -> Report:
        """Import or re-import a source. Raises ImportRejected; then nothing was written.

        A description that was rolled back is not imported again, unless `anew`.
        """
        found = await self._find(spec)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and not anew and _is_rolled_back(known, spec, found):
            held = known.rolled_back.version if known.rolled_back else None
            return replace(await _dry(spec, found), rolled_back=known.number, held=held)
        return await self._save(spec, found, progress, None if anew else _still(spec.name, known))

    async def import_changed(self, spec: ImportSpec) -> Report | None:
        """Like `import_`, but None when everything is as it was at the last import."""
        found = await self._find(spec)
        known = await self._store.source(self._host_id, spec.name)
        if known is not None and (
            _is_rolled_back(known, spec, found) or _is_current(known, spec, found)
        ):
            return None
        return await self._save(spec, found, check=_still(spec.name, known))

    async def refresh(self, name: str, progress: Progress | None = None) -> Report:
        """Import a known source again, from where and as it was imported. Raises LookupError."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        return await self.import_(spec_of(source), progress, anew=True)

    async def create(self, spec: ImportSpec, document: bytes | None = None) -> Report:
        """Import a source that is not there yet; `document` came by itself, instead of from a
        location. Raises SourceExists, and ImportRejected."""
        if await self._store.source(self._host_id, spec.name) is not None:
            raise SourceExists(spec.name)
        if document is None:
            return await self._save(spec, await self._find(spec), check=_none(spec.name))
        return await self._save(*_uploaded(spec, document), check=_none(spec.name))

    async def upload(self, name: str, document: bytes) -> Report:
        """Import a source that was uploaded again, from `document`. Raises LookupError, and
        ImportRejected."""
        source = await self._store.source(self._host_id, name)
        if source is None:
            raise LookupError(name)
        if not source.location.startswith(UPLOAD):
            raise ImportRejected(f"{name} was not uploaded: it is read where it was found.")
        return await self._save(*_uploaded(_as_imported(source), document))

    async def _find(self, spec: ImportSpec) -> Found:
        return await find(spec, self._limits, self._origins)

    async def _save(
        self,
        spec: ImportSpec,
        found: Found,
        progress: Progress | None = None,
        check: Check | None = None,
    ) -> Report:
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
        return Report(draft, tuple(outcomes), saved, imported.notes, imported.drafts)


async def preview(spec: ImportSpec, limits: Imports, lister: Lister | None = None) -> Report:
    """What an import would make of the description; no database is asked. Raises ImportRejected.

    The names are those that the tools get unless other sources have taken them.
    """
    return await _dry(spec, await find(spec, limits, Origins(lister=lister)))


async def _dry(spec: ImportSpec, found: Found) -> Report:
    imported = await asyncio.to_thread(found.read)
    draft = drafted(spec, found, imported)
    return Report(draft, imported.outcomes, None, imported.notes, imported.drafts)


def _named(outcome: Outcome, saved: Saved) -> Outcome:
    """With the name that the thing got, or why it got none; what was skipped may have the key of
    one that was not."""
    if outcome.name is None:
        return outcome
    name = saved.names.get(outcome.key) or saved.items.names.get(outcome.key)
    if name is None:
        taken = saved.refused.get(outcome.key) or saved.items.refused[outcome.key]
        reason = f"another source has the name {taken}, and this one's prefix is never"
        return replace(outcome, name=None, status="skipped", reason=reason)
    if name in saved.held and outcome.key in saved.names:
        return replace(outcome, name=name, status="held", reason=saved.held[name])
    return replace(outcome, name=name)


def _uploaded(spec: ImportSpec, document: bytes) -> tuple[ImportSpec, Found]:
    """Nothing that the document refers to is read."""
    spec = replace(spec, location=UPLOAD + spec.name)
    packed = Bundle(spec.location, {spec.location: document}).pack(spec.location)
    return spec, reread(spec, packed)


def _none(name: str) -> Check:
    def check(before: Before | None) -> None:
        if before is not None:
            raise SourceExists(name)

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


def _is_rolled_back(known: Source, spec: ImportSpec, found: Found) -> bool:
    """Whether this is what the source was rolled back from."""
    held = known.rolled_back
    if held is None or found.document is None:
        return False
    return same_asked(held.asked, _asked_for(spec, found)) and held.document == (
        hashlib.sha256(found.document).hexdigest()
    )


def _is_current(known: Source, spec: ImportSpec, found: Found) -> bool:
    """Nor is anything else waiting for it, as the end of a rollback."""
    if known.rolled_back is not None or known.location != found.location:
        return False
    if not _same_target(known, spec):
        return False
    return known.digest == found.digest and same_asked(asked_of(known), _asked_for(spec, found))


def _asked_for(spec: ImportSpec, found: Found) -> dict[str, Any]:
    return asked_of(
        SourceDraft(
            spec.name,
            spec.kind,
            found.location,
            include=spec.include,
            exclude=spec.exclude,
            options=spec.options,
        )
    )


def _same_target(known: Source, spec: ImportSpec) -> bool:
    base_url = _said_base(spec)
    if base_url is None:
        return not known.base_url_trusted or _same_origin(spec.location, known.base_url)
    return known.base_url == base_url


def spec_of(source: Source) -> ImportSpec:
    """How it was imported. Raises ImportRejected for one that nobody imported, or of a kind that
    only a newer release knows."""
    if source.kind == MANUAL:
        raise ImportRejected(f"{source.name} was made for tools by hand: there is no description.")
    if source.location.startswith(UPLOAD):
        raise ImportRejected(
            f"{source.name} was uploaded: there is no place where its description could be read "
            "again. Upload it again, by the admin API."
        )
    if source.kind not in get_args(Kind):
        raise ImportRejected(f"{source.name} is of a kind that is not known here: {source.kind}.")
    return _as_imported(source)


def _as_imported(source: Source) -> ImportSpec:
    return ImportSpec(
        source.name,
        source.location,
        source.base_url if _said(source) else None,
        source.include,
        source.exclude,
        cast("Kind", source.kind),
        source.options,
    )


def _said(source: Source) -> bool:
    """Whether its address holds whatever the description says by now."""
    return source.kind != "mcp" and (source.base_url_trusted or source.options.guarded)


def _said_base(spec: ImportSpec) -> str | None:
    """Where calls go, if an operator said it; calls of an MCP server go where it is listed."""
    if spec.kind == "mcp" and not spec.location.startswith(STDIO):
        return spec.location
    return spec.base_url


def drafted(spec: ImportSpec, found: Found, imported: Imported) -> SourceDraft:
    """The source that the import makes."""
    declared = None
    if spec.kind == "openapi":
        declared = _declared_base(found.location, imported.servers)
    elif spec.kind == "graphql" and imported.servers:
        declared = imported.servers[0]  # an endpoint: the slash at its end counts
    said = _said_base(spec)
    return SourceDraft(
        name=spec.name,
        kind=spec.kind,
        location=found.location,
        base_url=said or declared,
        base_url_trusted=not spec.options.guarded
        and (said is not None or _same_origin(spec.location, declared)),
        title=imported.title,
        version=imported.version,
        include=spec.include,
        exclude=spec.exclude,
        digest=found.digest,
        options=spec.options,
        server=imported.server,
        items=imported.items,
        outcomes=Counter(outcome.status for outcome in imported.outcomes),
    )


def _declared_base(location: str, servers: tuple[str, ...]) -> str | None:
    """The first server of the description that is an HTTP address, relative ones resolved."""
    at = location if location.startswith(("http://", "https://")) else ""
    for server in servers or ("/",):  # OpenAPI 3.1, 4.8.1: no servers means `/`
        try:
            url = urljoin(at, server) if at else server
            parts = urlsplit(url)
        except ValueError:  # http://[x
            continue
        if parts.scheme in {"http", "https"} and parts.hostname:
            return url.rstrip("/")
    return None


def _same_origin(typed: str, declared: str | None) -> bool:
    """A relative server of a fetched description: the operator named that host already."""
    return declared is not None and urlsplit(typed)[:2] == urlsplit(declared)[:2]
