"""Sources: imports and their maintenance.

Users of this API are not operators by default: descriptions and calls reach public addresses only,
unless imports.private_networks allows more. Sources of the settings cannot be changed here, because
their credentials go where their address leads; so a source keeps its address while it exists.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from config.settings import Imports
from config.sources import SourceSettings
from gateway.admin.parts import JobParts
from gateway.admin.resources.import_requests import Document, Import, ImportRequest
from gateway.admin.resources.secrets import SecretOperations
from gateway.operations.jobs import AsJob
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
)
from gateway.operations.pages import ListPage, Paging, place
from gateway.operations.problems import (
    ProblemDetails,
    changed_problem,
    conflict,
    invalid,
    not_found,
    unavailable,
)
from registry.sources.import_specs import configured_import, removed_from_settings, spec_of
from registry.sources.imports import ImportReport, SourceChanged, SourceExists, Sources
from registry.sources.source_reader import ImportSpec, Lister
from registry.sources.tool_store import ToolStore
from registry.sources.versions import Difference, History, Versions
from schemas.source import Origin, Outcome, Source, Version
from schemas.urls import without_queries

READ, WRITE = "admin:registry:read", "admin:registry:write"
TOLD = 1000  # maximum number of outcomes in a result


class SourceView(Struct, frozen=True):
    """A source."""

    name: str
    kind: str
    location: str
    base_url: str | None
    title: str | None
    version: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tools: int
    updated: str
    number: int | None  # of the served version
    rolled_back_from: int | None
    guarded: bool  # public addresses only
    in_settings: bool  # defined by the settings
    origin: Origin | None  # of the last import
    removed_from_settings: bool  # imported from settings that no longer name it


class SourceUpload(Struct, frozen=True, forbid_unknown_fields=True):
    document: Document


class RollbackRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`to`: a version number; by default the previous one."""

    to: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class ImportResult(Struct, frozen=True):
    """Result of an import. `outcomes`: the first of those with a remark."""

    source: str
    counts: Mapping[str, int]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]
    rolled_back: int | None  # the version that is served instead


class SourceOperations:
    def __init__(
        self,
        ground: OperationDependencies,
        limits: Imports,
        *,
        wanted: Callable[[], Mapping[str, SourceSettings]],
        lister: Lister | None,
        secrets: SecretOperations,
    ) -> None:
        """`wanted`: sources of the settings, which belong to the gateway's own tenant."""
        self._ground = ground
        self._limits = limits
        self._wanted = wanted
        self._lister = lister
        self._secrets = secrets
        self._running: Counter[str] = Counter()  # running imports by tenant

    @classmethod
    def of(cls, parts: JobParts) -> "SourceOperations":
        return cls(
            parts.ground,
            parts.settings.imports,
            wanted=parts.sources,
            lister=parts.lister,
            secrets=SecretOperations.of(parts),
        )

    @property
    def operations(self) -> Sequence[Operation]:
        item, page, again = "/sources/{source}", ListPage[SourceView], AsJob(lock="source:{source}")
        return (
            Operation(
                "listSources", "GET", "/sources", "List the sources.", READ, self.list,
                page, query=Paging,
            ),
            Operation(
                "importSource", "POST", "/sources", "Import a new source.", WRITE,
                self.create, ImportResult, 201, body=Import, job=AsJob(lock="source:{body.name}"),
            ),
            Operation(
                "previewImport", "POST", "/imports/preview",
                "Read a description and tell what an import would make of it.", WRITE,
                self.preview, ImportResult, body=Import, waits=True,
            ),
            Operation("getSource", "GET", item, "Show a source.", READ, self.get, SourceView),
            Operation(
                "deleteSource", "DELETE", item, "Remove a source and its tools.", WRITE,
                self.delete, status=204, match="optional", problems=(409,),
            ),
            Operation(
                "uploadDocument", "PUT", f"{item}/document",
                "Import another description of an uploaded source.", WRITE,
                self.upload, ImportResult, body=SourceUpload, match="optional", of="getSource",
                problems=(409,), no_tool="models do not upload documents",
                job=again,
            ),
            Operation(
                "refreshSource", "POST", f"{item}/refresh", "Import a source again.", WRITE,
                self.refresh, ImportResult, match="optional", of="getSource", job=again,
            ),
            Operation(
                "compareSource", "POST", f"{item}/difference",
                "Read a source again and tell what an import would change.", WRITE, self.compare,
                Difference, waits=True,
            ),
            Operation(
                "listVersions", "GET", f"{item}/versions", "List the versions of a source.", READ,
                self.versions, ListPage[Version], query=Paging,
            ),
            Operation(
                "rollBack", "POST", f"{item}/rollback", "Serve an older version again.", WRITE,
                self.roll_back, ImportResult, body=RollbackRequest, optional_body=True,
                match="optional", of="getSource", job=again,
            ),
        )  # fmt: skip

    async def list(self, asked: OperationInput) -> ListPage[SourceView]:
        pages, query = self._ground.pages, asked.query
        sources = await self._store.sources(
            asked.tenant, after=place(query.after), limit=pages.limit(query) + 1
        )
        views = [self._view(asked, source) for source in sources]
        return pages.cut(query, views, lambda one: one.name)

    async def get(self, asked: OperationInput) -> SourceView:
        return self._view(asked, await self._find_source(asked))

    async def create(self, asked: OperationInput) -> OperationOutput:
        body: Import = asked.body
        spec, document = await self._asked_for(asked)
        try:
            with self._turn(asked.tenant):
                report = await self._sources(asked).create(spec, document, asked.job.progress)
        except SourceExists as error:
            raise conflict(f"{error} It can be refreshed, or deleted first.") from error
        return OperationOutput(_import_result(report), location=f"/sources/{body.name}")

    async def preview(self, asked: OperationInput) -> ImportResult:
        """Names are those that the tools get unless other sources have taken them."""
        spec, document = await self._asked_for(asked)
        with self._turn(asked.tenant):
            return _import_result(await self._sources(asked).preview(spec, document))

    async def _asked_for(self, asked: OperationInput) -> tuple[ImportSpec, bytes | None]:
        """Specification of the import, and the document if it was uploaded. Raises
        ProblemDetails."""
        body: Import = asked.body
        self._check_ours(asked, body.name)
        if await self._secrets.has_secrets(asked.tenant, body.name):
            raise conflict(f"There are secrets for {body.name}, which it would get.")
        document, base_url = None, None
        if isinstance(body, ImportRequest):
            if (body.url is None) == (body.document is None):
                raise invalid("Expected one of url and document.")
            document = None if body.document is None else body.document.encode()
            base_url = body.base_url
        patterns = (body.include, body.exclude)
        how = (*patterns, body.kind, body.options)
        spec = ImportSpec(body.name, body.url or "", base_url, *how, "admin")
        return self._restrict_spec(spec), document

    async def upload(self, asked: OperationInput) -> ImportResult:
        name = asked.names["source"]
        self._check_ours(asked, name)
        try:
            with self._turn(asked.tenant):
                report = await self._sources(asked).upload(
                    name, asked.body.document.encode(), _number(asked), asked.job.progress
                )
        except LookupError as error:
            raise not_found("source", name) from error
        except SourceChanged as error:
            raise changed_problem() from error
        return _import_result(report)

    async def refresh(self, asked: OperationInput) -> ImportResult:
        name = asked.names["source"]
        wanted = self._wanted().get(name)
        spec = configured_import(name, wanted) if wanted and self._is_own(asked) else None
        sources = self._sources(asked)
        try:
            with self._turn(asked.tenant):
                if spec is not None:
                    return _import_result(
                        await sources.import_(spec, asked.job.progress, force=True)
                    )
                return _import_result(await sources.refresh(name, asked.job.progress))
        except LookupError as error:
            raise not_found("source", name) from error

    async def compare(self, asked: OperationInput) -> Difference:
        name = asked.names["source"]
        wanted = self._wanted().get(name)
        is_configured = wanted is not None and self._is_own(asked)
        spec = configured_import(name, wanted) if is_configured and wanted else None
        lister = self._lister if self._is_own(asked) else None
        history = History(
            self._store, Versions(self._ground.pool), asked.tenant, self._limits, lister=lister
        )
        with self._turn(asked.tenant):
            return await history.difference(spec or spec_of(await self._find_source(asked)))

    async def delete(self, asked: OperationInput) -> None:
        name = asked.names["source"]
        self._check_ours(asked, name)
        if await self._store.remove(asked.tenant, name, _number(asked)) is None:
            await self._find_source(asked)
            raise changed_problem()
        await self._secrets.forget(asked.tenant, name)

    async def versions(self, asked: OperationInput) -> ListPage[Version]:
        name = asked.names["source"]
        versions = await Versions(self._ground.pool).list_versions(asked.tenant, name)
        if not versions:
            await self._find_source(asked)
        shown = [replace(version, spec=_mask_location(version.spec)) for version in versions]
        return self._ground.pages.page(asked.query, shown, lambda one: f"{2**31 - one.number:010}")

    async def roll_back(self, asked: OperationInput) -> ImportResult:
        name, to = asked.names["source"], asked.body.to if asked.body else None
        versions = Versions(self._ground.pool)
        history = History(self._store, versions, asked.tenant, self._limits)
        try:
            with self._turn(asked.tenant):
                return _import_result(
                    (await history.roll_back(name, to, asked.job.progress)).report
                )
        except LookupError as error:
            raise not_found("source", name) from error

    @property
    def _store(self) -> ToolStore:
        return ToolStore(self._ground.pool)

    def _sources(self, asked: OperationInput) -> Sources:
        # an upstream server is sent the credentials that settings and own tenant have for that name
        is_own = self._is_own(asked)
        return Sources(
            self._store,
            asked.tenant,
            self._limits,
            lister=self._lister if is_own else None,
            configured=self._wanted() if is_own else None,
        )

    async def _find_source(self, asked: OperationInput) -> Source:
        name = asked.names["source"]
        source = await self._store.source(asked.tenant, name)
        if source is None:
            raise not_found("source", name)
        return source

    def _restrict_spec(self, spec: ImportSpec) -> ImportSpec:
        guarded = not self._limits.private_networks
        return replace(spec, options=msgspec.structs.replace(spec.options, guarded=guarded))

    def _check_ours(self, asked: OperationInput, name: str) -> None:
        if self._is_own(asked) and name in self._wanted():
            raise conflict(f"What {name} is stands in the settings of the gateway.")

    def _is_own(self, asked: OperationInput) -> bool:
        return self._ground.is_own(asked)

    @contextmanager
    def _turn(self, tenant: str) -> Iterator[None]:
        """Limits concurrent imports, per tenant and in total. Raises Problem."""
        limits, running = self._limits, self._running
        if running[tenant] >= limits.tenant_concurrency:
            text = "Other imports of this tenant run (imports.tenant_concurrency); try again later."
            raise ProblemDetails(429, "too-many-requests", text, headers={"Retry-After": "1"})
        if running.total() >= limits.concurrency:
            raise unavailable("Other imports run (imports.concurrency); try again later.")
        running[tenant] += 1
        try:
            yield
        finally:
            running[tenant] -= 1
            if not running[tenant]:
                del running[tenant]

    def _view(self, asked: OperationInput, source: Source) -> SourceView:
        in_settings = self._is_own(asked) and source.name in self._wanted()
        return SourceView(
            name=source.name,
            kind=source.kind,
            location=without_queries(source.location),
            base_url=source.base_url and without_queries(source.base_url),
            title=source.title,
            version=source.version,
            include=source.include,
            exclude=source.exclude,
            tools=source.tool_count,
            updated=source.updated,
            number=source.number,
            rolled_back_from=source.rolled_back.version if source.rolled_back else None,
            guarded=source.options.guarded,
            in_settings=in_settings,
            origin=source.origin,
            removed_from_settings=bool(removed_from_settings([source], self._wanted())),
        )


def _number(asked: OperationInput) -> int | None:
    """The version number in If-Match; None without it."""
    return None if asked.present is None else asked.present.number


def _mask_location(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The members without secrets in URLs."""
    return {**asked, "location": without_queries(asked.get("location", ""))}


def _import_result(report: ImportReport) -> ImportResult:
    counts: Counter[str] = Counter(outcome.status for outcome in report.outcomes)
    told = [outcome for outcome in report.outcomes if outcome.status != "imported"][:TOLD]
    return ImportResult(
        source=report.source.name,
        counts=counts,
        outcomes=tuple(told),
        notes=report.notes,
        rolled_back=report.rolled_back,
    )
