"""Sources: imports and their maintenance.

Users of this API are not operators by default: descriptions and calls reach public addresses only,
unless imports.private_networks allows more. Sources of the settings cannot be changed here, because
their credentials go where their address leads; so a source keeps its address while it exists.
"""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, get_args

import msgspec
from anyio import CancelScope
from msgspec import Meta, Struct

from config.settings import Imports, Toolset
from config.sources import SourceSettings
from gateway.admin.registry_parts import JobParts
from gateway.admin.resources.connections import ConnectionOperations
from gateway.admin.resources.import_requests import (
    AnyImport,
    Document,
    Import,
    ImportRequest,
    MachineImport,
)
from gateway.admin.resources.member_texts import IMPORT, ROLLBACK, UPLOAD
from gateway.admin.resources.secrets import SecretOperations
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
    TaggedView,
)
from gateway.operations.paging import ListPage, Paging, place
from gateway.operations.problems import (
    ProblemDetails,
    changed_problem,
    conflict,
    invalid,
    not_found,
    unavailable,
)
from gateway.upstreams.auth.required_credentials import SourceCredentials, hint, place_of, standing
from registry.catalog.toolsets import unknown
from registry.display.token_budgets import tokens
from registry.documents.ssrf_protection import has_private_host
from registry.sources.import_plan import SavedTools
from registry.sources.import_specs import (
    ImportSpec,
    configured_import,
    removed_from_settings,
    spec_of,
)
from registry.sources.imports import ImportReport, SourceChanged, SourceExists, Sources, preview
from registry.sources.source_reader import Lister
from registry.sources.source_versions import Difference, History, Versions
from registry.sources.tool_store import ImportFailure, ToolStore
from schemas.binding import Binding
from schemas.mcp.snapshot import ItemKind, ServerFacts
from schemas.source import STDIO, Options, Origin, Outcome, OutcomeStatus, Source, Version
from schemas.tool import ToolDraft
from schemas.urls import without_queries

READ, WRITE = "admin:registry:read", "admin:registry:write"
OUTCOMES = 1000  # maximum number of outcomes in a result

# Collections of the middle generation, after which all objects are visited (`gc.set_threshold`).
FULL_COLLECTION = 10  # Python's default
IMPORTING_COLLECTION = 300  # 60 million new objects; a description of 24 MB has 3 million


def _set_full_collections(threshold: int) -> None:
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, threshold)


class SourceView(TaggedView, frozen=True):
    """A source. `base_url`: of its calls, which is that of the settings if they have one. The
    command of a process, in `location` and `options`, is for operators."""

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
    options: Any  # of its kind
    server: ServerFacts | None  # facts that an MCP server announced


class ImportFailureView(Struct, frozen=True):
    """A source whose last import by a gateway failed; the tools that it has stay."""

    source: str
    reason: str
    failed: str


class CredentialView(Struct, frozen=True):
    """A security scheme that operations require, and whether the settings or secrets meet it."""

    scheme: str
    place: str
    configured: bool


class SourceDetail(SourceView, frozen=True):
    """A source. `items`: numbers of its prompts, resources and templates; `held`: names of tools
    that wait to be accepted; `aliases`: former names that still call a tool; `advice`: what to
    configure where calls would be refused."""

    untagged = frozenset({"items", "held", "aliases", "credentials", "advice"})
    items: Mapping[ItemKind, int]
    held: tuple[str, ...]
    aliases: Mapping[str, str]
    credentials: tuple[CredentialView, ...]
    advice: str | None


class SourceUpload(Struct, frozen=True, forbid_unknown_fields=True):
    document: Document


class RollbackRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`to`: a version number; by default the previous one."""

    to: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class CompareRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the next description is, by default where the last one was. For commands alone."""

    location: str | None = None


class OperationReport(Struct, frozen=True):
    """Outcome of one operation. `tokens`: characters / 4 of its definition, before lists shorten
    it."""

    key: str
    operation: str
    name: str | None
    status: OutcomeStatus
    reason: str | None
    tokens: int | None


class SavedCounts(Struct, frozen=True):
    """Numbers of written tools, and of prompts and resources (`items`)."""

    added: int
    updated: int
    unchanged: int
    removed: int
    held: int
    items: Mapping[str, int]


class ImportReportView(Struct, frozen=True):
    """All of an import. `saved`: null if it wrote nothing; `refused`: the number of the version
    that was rolled back, and is not imported again; `command`: of the process that is called, for
    operators;
    `is_refused`: whether calls are, because the description leads to a private address."""

    title: str | None
    version: str | None
    base_url: str | None
    is_refused: bool
    command: tuple[str, ...]
    server: ServerFacts | None
    saved: SavedCounts | None
    refused: int | None
    operations: tuple[OperationReport, ...]


class ReportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`report`: whether the answer has all outcomes, with the tokens of each tool."""

    report: bool = False


class ImportResult(Struct, frozen=True):
    """Result of an import. `outcomes`: the first of those with a remark."""

    source: str
    counts: Mapping[str, int]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]
    rolled_back: int | None  # the version that is served instead
    report: ImportReportView | None = None


class RollbackView(ImportResult, frozen=True, kw_only=True):
    """Result of a rollback: the version that is served again, and what changed."""

    version: Version
    difference: Difference


class SourceOperations:
    _at_machine = False

    def __init__(
        self,
        dependencies: OperationDependencies,
        limits: Imports,
        *,
        settings_sources: Callable[[], Mapping[str, SourceSettings]],
        lister: Lister | None,
        secrets: SecretOperations,
        connections: ConnectionOperations,
        toolsets: Mapping[str, Toolset],
        at_machine: bool,
    ) -> None:
        """`settings_sources`: those of the settings, which belong to the gateway's own tenant.
        `at_machine`: see `JobParts`."""
        self._dependencies = dependencies
        self._limits = limits
        self._settings_sources = settings_sources
        self._lister = lister
        self._secrets = secrets
        self._connections = connections
        self._toolsets = toolsets
        self._at_machine = at_machine
        self._running: Counter[str] = Counter()  # running imports by tenant

    @classmethod
    def of(cls, parts: JobParts) -> "SourceOperations":
        return cls(
            parts.dependencies,
            parts.settings.imports,
            settings_sources=parts.sources,
            lister=parts.lister,
            secrets=SecretOperations.of(parts),
            connections=ConnectionOperations.of(parts),
            toolsets=parts.settings.toolsets,
            at_machine=parts.at_machine,
        )

    @property
    def operations(self) -> Sequence[Operation]:
        item, page, again = "/sources/{source}", ListPage[SourceView], AsJob(lock="source:{source}")
        body = AnyImport if self._at_machine else Import
        return (
            Operation(
                "listSources", "GET", "/sources", "List the sources.", READ, self.list,
                page, query=Paging,
            ),
            Operation(
                "importSource", "POST", "/sources", "Import a new source.", WRITE,
                self.create, ImportResult, 201, query=ReportQuery, body=body, members=IMPORT,
                job=AsJob(lock="source:{body.name}"),
            ),
            Operation(
                "previewImport", "POST", "/imports/preview",
                "Read a description and tell what an import would make of it.", WRITE,
                self.preview, ImportResult, query=ReportQuery, body=body, members=IMPORT,
                waits=True,
            ),
            Operation(
                "listImportFailures", "GET", "/imports/failures",
                "List the sources whose last import failed, with the reasons.", READ,
                self.failures, ListPage[ImportFailureView], query=Paging,
            ),
            Operation("getSource", "GET", item, "Show a source.", READ, self.get, SourceDetail),
            Operation(
                "deleteSource", "DELETE", item, "Remove a source and its tools.", WRITE,
                self.delete, status=204, match="optional", problems=(409,),
            ),
            Operation(
                "uploadDocument", "PUT", f"{item}/document",
                "Import another description of an uploaded source.", WRITE,
                self.upload, ImportResult, body=SourceUpload, members=UPLOAD,
                match="optional", of="getSource",
                problems=(409,), no_tool="models do not upload documents",
                job=again,
            ),
            Operation(
                "refreshSource", "POST", f"{item}/refresh", "Import a source again.", WRITE,
                self.refresh, ImportResult, query=ReportQuery, match="optional", of="getSource",
                job=again,
            ),
            Operation(
                "compareSource", "POST", f"{item}/difference",
                "Read a source again and tell what an import would change.", WRITE, self.compare,
                Difference, body=CompareRequest, optional_body=True, waits=True,
            ),
            Operation(
                "listVersions", "GET", f"{item}/versions", "List the versions of a source.", READ,
                self.versions, ListPage[Version], query=Paging,
            ),
            Operation(
                "rollBack", "POST", f"{item}/rollback", "Serve an older version again.", WRITE,
                self.roll_back, RollbackView, query=ReportQuery, body=RollbackRequest,
                members=ROLLBACK,
                optional_body=True, match="optional", of="getSource", job=again,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[SourceView]:
        pages, query = self._dependencies.pages, request.query
        sources = await self._store.sources(
            request.tenant, after=place(query.after), limit=pages.limit(query) + 1
        )
        views = [self._view(request, source) for source in sources]
        return pages.cut(query, views, lambda view: view.name)

    async def failures(self, request: OperationInput) -> ListPage[ImportFailureView]:
        pages, query = self._dependencies.pages, request.query
        failures = await self._store.failures(
            request.tenant, after=place(query.after), limit=pages.limit(query) + 1
        )
        views = [
            ImportFailureView(row.source, self._mask_reason(request, row), row.failed)
            for row in failures
        ]
        return pages.cut(query, views, lambda view: view.source)

    def _mask_reason(self, request: OperationInput, failure: ImportFailure) -> str:
        """The reason; of a process, whose command and output it may quote, for operators alone.
        Where neither the settings nor the registry have the source, it may be that of a process in
        the settings of another gateway."""
        stated = self._settings_sources().get(failure.source) if self._is_own(request) else None
        processes = {failure.runs_process, None if stated is None else bool(stated.command)}
        if (True not in processes and False in processes) or self._dependencies.is_operator(
            request
        ):
            return failure.reason
        return "its import failed; operators see the reason, which may quote a command"

    async def get(self, request: OperationInput) -> SourceDetail:
        source = await self._find_source(request)
        store, tenant, name = self._store, request.tenant, source.name
        tools = await store.tools(tenant, source=name)
        items = Counter(item.kind for item in await store.items(tenant) if item.source == name)
        bindings = [tool.binding for tool in tools]
        credentials = await self._credentials(request, name, bindings)
        return SourceDetail(
            **msgspec.structs.asdict(self._view(request, source)),
            items={kind: items[kind] for kind in get_args(ItemKind)},
            held=tuple(tool.name for tool in await store.tools(tenant, held=True, source=name)),
            aliases={alias: tool.name for tool in tools for alias in tool.aliases},
            credentials=tuple(
                CredentialView(scheme, place_of(credential), is_met)
                for scheme, (credential, is_met) in credentials.schemes.items()
            ),
            advice=hint(name, credentials) if credentials.is_wrong else None,
        )

    async def _credentials(
        self, request: OperationInput, name: str, bindings: Sequence[Binding]
    ) -> SourceCredentials:
        is_own = self._is_own(request)
        stored = await self._secrets.entries(request.tenant, name) if is_own else {}
        settings = self._settings_sources().get(name) if is_own else None
        return standing(bindings, settings, dict(stored))

    async def create(self, request: OperationInput) -> OperationOutput:
        body: AnyImport = request.body
        if isinstance(body, MachineImport):
            stated = self._settings_sources().get(body.name) if self._is_own(request) else None
            spec = body.spec(stated)
            report = await self._sources(request).import_(spec, request.job.progress)
            return OperationOutput(await self._result(request, report))
        spec, document = await self._asked_for(request)
        try:
            with self._turn(request.tenant):
                report = await self._sources(request).create(spec, document, request.job.progress)
        except SourceExists as error:
            raise conflict(f"{error} It can be refreshed, or deleted first.") from error
        result = await self._result(request, report)
        return OperationOutput(result, location=f"/sources/{body.name}")

    async def preview(self, request: OperationInput) -> ImportResult:
        """Names are those that the tools get unless other sources have taken them."""
        body: AnyImport = request.body
        if isinstance(body, MachineImport):  # without a database
            spec = body.spec(self._settings_sources().get(body.name))
            return await self._result(request, await preview(spec, self._limits, self._lister))
        spec, document = await self._asked_for(request)
        with self._turn(request.tenant):
            report = await self._sources(request).preview(spec, document)
        return await self._result(request, report)

    async def _asked_for(self, request: OperationInput) -> tuple[ImportSpec, bytes | None]:
        """Specification of the import, and the document if it was uploaded. Raises
        ProblemDetails."""
        body: Import = request.body
        self._check_ours(request, body.name)
        if await self._secrets.has_secrets(request.tenant, body.name):
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
        return self.restrict_spec(spec), document

    async def save_published(
        self,
        request: OperationInput,
        spec: ImportSpec,
        secrets: Mapping[str, str],
        after_secrets: Callable[[], Awaitable[None]],
    ) -> ImportResult:
        """Import a server of a registry, with secrets of its own; `after_secrets` makes them count
        here. It replaces the source that it is an update of. Raises ProblemDetails."""
        source = await self._store.source(request.tenant, spec.name)
        if not self._at_machine:
            self._check_ours(request, spec.name)
        if source is not None and not is_same_server(source.options, spec.options):
            raise conflict(f"There is a source {spec.name} already, of something else.")
        has_secrets = await self._secrets.has_secrets(request.tenant, spec.name)
        if source is None and has_secrets and not self._at_machine:
            raise conflict(f"There are secrets for {spec.name}, which it would get.")
        try:
            await self._secrets.store(request.tenant, spec.name, secrets)
            await after_secrets()
            with self._turn(request.tenant):
                report = await self._sources(request).import_(
                    self.restrict_spec(spec), request.job.progress, force=True
                )
        except BaseException:
            if source is None and not has_secrets:
                with CancelScope(shield=True):
                    await self._secrets.forget(request.tenant, spec.name)
            raise
        return await self._result(request, report)

    async def difference(self, request: OperationInput, spec: ImportSpec) -> Difference:
        """The changes that an import of `spec` would make. Raises ProblemDetails.

        A spec that others wrote, such as a registry, is to be restricted first."""
        lister = self._lister if self._is_own(request) else None
        history = History(
            self._store,
            Versions(self._dependencies.pool),
            request.tenant,
            self._limits,
            lister=lister,
        )
        with self._turn(request.tenant):
            return await history.difference(spec)

    async def upload(self, request: OperationInput) -> ImportResult:
        name = request.names["source"]
        self._check_ours(request, name)
        try:
            with self._turn(request.tenant):
                report = await self._sources(request).upload(
                    name, request.body.document.encode(), _number(request), request.job.progress
                )
        except LookupError as error:
            raise not_found("source", name) from error
        except SourceChanged as error:
            raise changed_problem() from error
        return await self._result(request, report)

    async def refresh(self, request: OperationInput) -> ImportResult:
        name = request.names["source"]
        settings = self._settings_sources().get(name)
        spec = configured_import(name, settings) if settings and self._is_own(request) else None
        sources = self._sources(request)
        try:
            with self._turn(request.tenant):
                if spec is not None:
                    report = await sources.import_(spec, request.job.progress, force=True)
                else:
                    report = await sources.refresh(name, request.job.progress)
        except LookupError as error:
            raise not_found("source", name) from error
        return await self._result(request, report)

    async def compare(self, request: OperationInput) -> Difference:
        name = request.names["source"]
        settings = self._settings_sources().get(name)
        is_configured = settings is not None and self._is_own(request)
        spec = configured_import(name, settings) if is_configured and settings else None
        spec = spec or spec_of(await self._find_source(request))
        if request.body is not None and request.body.location is not None:
            spec = self._elsewhere(spec, request.body.location)
        return await self.difference(request, spec)

    def _elsewhere(self, spec: ImportSpec, location: str) -> ImportSpec:
        """The spec with another location. Raises ProblemDetails."""
        if not self._at_machine:
            raise invalid("Locations are read for commands alone.")
        if not spec.facts.has_description:
            raise invalid(f"{spec.name} has no description; leave {location} out")
        return replace(spec, location=location)

    async def delete(self, request: OperationInput) -> None:
        name = request.names["source"]
        self._check_ours(request, name)
        if await self._store.remove(request.tenant, name, _number(request)) is None:
            await self._find_source(request)
            raise changed_problem()
        await self._secrets.forget(request.tenant, name)
        await self._connections.forget(request.tenant, name)

    async def versions(self, request: OperationInput) -> ListPage[Version]:
        name = request.names["source"]
        versions = await Versions(self._dependencies.pool).list_versions(request.tenant, name)
        if not versions:
            await self._find_source(request)
        masked_versions = [
            replace(version, spec=self._mask_spec(request, version.spec)) for version in versions
        ]
        return self._dependencies.pages.page(
            request.query, masked_versions, lambda version: f"{2**31 - version.number:010}"
        )

    async def roll_back(self, request: OperationInput) -> RollbackView:
        name, to = request.names["source"], request.body.to if request.body else None
        versions = Versions(self._dependencies.pool)
        history = History(self._store, versions, request.tenant, self._limits)
        try:
            with self._turn(request.tenant):
                done = await history.roll_back(name, to, request.job.progress)
        except LookupError as error:
            raise not_found("source", name) from error
        result = await self._result(request, done.report)
        version = replace(done.version, spec=self._mask_spec(request, done.version.spec))
        members = msgspec.structs.asdict(result)
        return RollbackView(**members, version=version, difference=done.difference)

    @property
    def _store(self) -> ToolStore:
        return ToolStore(self._dependencies.pool)

    def _sources(self, request: OperationInput) -> Sources:
        # an upstream server is sent the credentials that settings and own tenant have for that name
        is_own = self._is_own(request)
        return Sources(
            self._store,
            request.tenant,
            self._limits,
            lister=self._lister if is_own else None,
            configured=self._settings_sources() if is_own else None,
        )

    async def _find_source(self, request: OperationInput) -> Source:
        name = request.names["source"]
        source = await self._store.source(request.tenant, name)
        if source is None:
            raise not_found("source", name)
        return source

    def restrict_spec(self, spec: ImportSpec) -> ImportSpec:
        guarded = not self._limits.private_networks
        return replace(spec, options=msgspec.structs.replace(spec.options, guarded=guarded))

    def _check_ours(self, request: OperationInput, name: str) -> None:
        if self._is_own(request) and name in self._settings_sources():
            raise conflict(
                f"The source {name} is one of the settings: change it there (sources.{name})."
            )

    def _is_own(self, request: OperationInput) -> bool:
        return self._dependencies.is_own(request)

    @contextmanager
    def _turn(self, tenant: str) -> Iterator[None]:
        """Limits concurrent imports, per tenant and in total. Raises Problem.

        While imports run, full collections of garbage are rarer: each would visit all objects of
        the descriptions, up to 4 s in which nobody is answered. Those objects have no cycles.
        """
        limits, running = self._limits, self._running
        if running[tenant] >= limits.tenant_concurrency:
            text = "Other imports of this tenant run (imports.tenant_concurrency); try again later."
            raise ProblemDetails(429, "too-many-requests", text, headers={"Retry-After": "1"})
        if running.total() >= limits.concurrency:
            raise unavailable("Other imports run (imports.concurrency); try again later.")
        running[tenant] += 1
        _set_full_collections(IMPORTING_COLLECTION)
        try:
            yield
        finally:
            running[tenant] -= 1
            if not running[tenant]:
                del running[tenant]
            if not running:
                _set_full_collections(FULL_COLLECTION)

    def _mask_spec(self, request: OperationInput, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Members of a source or a version, without secrets in URLs; without the command of its
        process, whose arguments some have secrets in, for callers who are no operators."""
        texts = {name: spec[name] for name in ("location", "base_url") if spec.get(name)}
        masked = {**spec, **{name: without_queries(text) for name, text in texts.items()}}
        options = spec.get("options") or {}
        if "command" in options and not self._dependencies.is_operator(request):
            masked["location"] = f"{STDIO}***"
            masked["options"] = {name: options[name] for name in options if name != "command"}
        return masked

    def _view(self, request: OperationInput, source: Source) -> SourceView:
        stated = self._settings_sources().get(source.name) if self._is_own(request) else None
        base_url = (stated.base_url if stated else None) or source.base_url
        options = msgspec.to_builtins(source.options)
        members = {"location": source.location, "base_url": base_url, "options": options}
        spec = self._mask_spec(request, members)
        return SourceView(
            name=source.name,
            kind=source.kind,
            location=spec["location"],
            base_url=spec["base_url"],
            title=source.title,
            version=source.version,
            include=source.include,
            exclude=source.exclude,
            tools=source.tool_count,
            updated=source.updated,
            number=source.number,
            rolled_back_from=source.rolled_back.version if source.rolled_back else None,
            guarded=source.options.guarded,
            in_settings=stated is not None,
            origin=source.origin,
            removed_from_settings=bool(removed_from_settings([source], self._settings_sources())),
            options=spec["options"],
            server=source.server,
        )

    async def _result(self, request: OperationInput, report: ImportReport) -> ImportResult:
        name = report.source.name
        counts: Counter[str] = Counter(outcome.status for outcome in report.outcomes)
        outcomes = [outcome for outcome in report.outcomes if outcome.status != "imported"][
            :OUTCOMES
        ]
        notes = [*report.notes, *self._homeless(report)]
        bindings = [draft.binding for draft in report.drafts]
        is_dry = self._at_machine and report.saved is None  # there may be no database
        stated = self._settings_sources().get(name) if self._is_own(request) else None
        if bindings and not is_dry:
            credentials = await self._credentials(request, name, bindings)
        else:
            credentials = standing(bindings, stated)
        if credentials.is_wrong:
            notes.append(hint(name, credentials))
        wants_all = isinstance(request.query, ReportQuery) and request.query.report
        return ImportResult(
            source=name,
            counts=counts,
            outcomes=tuple(outcomes),
            notes=tuple(notes),
            rolled_back=report.rolled_back,
            report=_report(report, stated, is_operator=self._dependencies.is_operator(request))
            if wants_all
            else None,
        )

    def _homeless(self, report: ImportReport) -> Iterator[str]:
        """Hints about toolsets of the description that the settings lack."""
        names = (draft.toolsets for draft in report.drafts)
        for name, count in unknown(names, self._toolsets).items():
            tools = "1 tool" if count == 1 else f"{count} tools"
            yield (
                f"{tools} would be in the toolset {name}, which the settings do not have: add "
                f"toolsets: {{{name}: {{}}}}"
            )


def is_same_server(stored_options: Options, new_options: Options) -> bool:
    """Whether both are versions of one server, of one registry."""
    pair = [getattr(options, "published", None) for options in (stored_options, new_options)]
    return None not in pair and len({(each.registry, each.name) for each in pair if each}) == 1


def _number(request: OperationInput) -> int | None:
    """The version number in If-Match; None without it."""
    return None if request.present is None else request.present.number


def _report(
    report: ImportReport, settings: SourceSettings | None, *, is_operator: bool
) -> ImportReportView:
    source, saved = report.source, report.saved
    costs = {draft.key: tokens(_definition(draft)) for draft in report.drafts}
    stated = settings.base_url if settings else None
    base_url = stated or source.base_url
    return ImportReportView(
        title=source.title,
        version=source.version,
        base_url=base_url and without_queries(base_url),
        is_refused=not source.base_url_trusted
        and stated is None
        and source.base_url is not None
        and has_private_host(source.base_url),
        command=source.options.command if is_operator else (),
        server=source.server,
        saved=None if saved is None else _saved_counts(saved),
        refused=report.held,
        operations=tuple(
            OperationReport(
                key=outcome.key,
                operation=outcome.operation,
                name=outcome.name,
                status=outcome.status,
                reason=outcome.reason,
                tokens=costs.get(outcome.key) if outcome.name else None,
            )
            for outcome in report.outcomes
        ),
    )


def _saved_counts(saved_tools: SavedTools) -> SavedCounts:
    names = ("added", "updated", "unchanged", "removed")
    tools = {name: len(getattr(saved_tools, name)) for name in names}
    items = {name: getattr(saved_tools.items, name) for name in names}
    return SavedCounts(**tools, held=len(saved_tools.held), items=items)


def _definition(draft: ToolDraft) -> bytes:
    """The definition of a tool as the longest list would have it."""
    members = {
        "name": draft.name,
        "title": draft.title,
        "description": draft.description,
        "inputSchema": draft.input_schema,
        "annotations": draft.annotations,
    }
    return msgspec.json.encode({key: value for key, value in members.items() if value is not None})
