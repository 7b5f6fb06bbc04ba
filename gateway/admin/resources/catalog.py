"""Catalog: MCP servers of registries, found by name, reviewed as plans, and added as sources.

A registry is asked by these operations alone. Its texts are shown, never believed: what is added is
what a plan showed, as its SHA-256 says. Programs are installed by commands at the machine alone, as
other processes are.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from config.settings import Settings
from config.value_types import SourceName
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.secrets import SecretOperations
from gateway.admin.resources.sources import ImportResult, ReportQuery, SourceOperations
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
)
from gateway.operations.paging import ListPage, Paging, cursor, place, unknown
from gateway.operations.problems import ProblemDetails, conflict, invalid, not_found
from gateway.upstreams.mcp.registries.registry_reader import (
    LATEST,
    Entry,
    EntryMissing,
    RegistryReader,
)
from gateway.upstreams.mcp.registries.server_plans import (
    Choice,
    Draft,
    Packages,
    Plan,
    PlanRequest,
    Program,
    check_digest,
    choices_of,
    make_plan,
    namespace_proof,
)
from registry.sources.import_specs import ImportSpec
from registry.sources.source_versions import Difference
from registry.sources.tool_store import ToolStore
from schemas.errors import ImportRejected
from schemas.invisible_characters import without_hidden_in
from schemas.mcp.registry_entries import Package, PostInstallStep, ServerName
from schemas.source import McpOptions, PublishedServer, Source, stdio_location

MISSING, UNREADABLE = "missing", "unreadable"
READ, WRITE = "admin:registry:read", "admin:registry:write"
VERSIONS = 100  # that an entry lists
CHANGES = 500  # of a server.json that are shown
TEXT = 1000  # characters of one of them
_FROM_SETTINGS = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
NO_ADVICE = "packages are installed at the machine: toolgate import mcp --from NAME"


Registry = Annotated[
    Line, Meta(description="the registry of the settings, by default each in turn")
]


class CatalogQuery(Paging, frozen=True, kw_only=True):
    search: Annotated[Line, Meta(description="a part of names of servers")] = ""
    registry: Registry = ""


class EntryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    registry: Registry = ""
    version: Annotated[Line, Meta(description="the version")] = LATEST


class CatalogServer(Struct, frozen=True):
    """A server in a registry, at its latest version. Its publisher wrote title and description."""

    name: str
    registry: str
    version: str
    title: str
    description: str
    status: str
    updated: str


class CatalogEntry(CatalogServer, frozen=True, kw_only=True):
    """One version of a server. `choices`: how it could be reached; `steps`: texts for a person,
    which nothing runs."""

    namespace: str
    published: str
    status_message: str
    repository: str
    website: str
    versions: tuple[str, ...]
    choices: tuple[Choice, ...]
    remotes: tuple[str, ...]
    packages: tuple[str, ...]
    steps: tuple[PostInstallStep, ...]
    sha256: str


Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="`sha256` of the plan")]


class AddRequest(PlanRequest, frozen=True, kw_only=True):
    """A plan that was reviewed, and the name of the source that it becomes."""

    source: SourceName
    sha256: Digest
    secrets: Mapping[str, str] = {}


class UpdatePlanRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tools`: whether the new version is asked for its tools, after it was installed."""

    version: Line = LATEST
    inputs: Mapping[str, str] = {}
    allow: tuple[str, ...] = ()
    tools: bool = False


class UpdateRequest(UpdatePlanRequest, frozen=True, kw_only=True):
    """An update that was reviewed."""

    sha256: Digest
    secrets: Mapping[str, str] = {}


class JsonChange(Struct, frozen=True):
    """A member of server.json; null: it has none."""

    path: str
    before: str | None
    after: str | None


class UpdatePlan(Struct, frozen=True):
    """The plan of another version, and what differs from the present one."""

    version: str
    plan: Plan
    changes: tuple[JsonChange, ...]
    difference: Difference | None


class OutdatedServer(Struct, frozen=True):
    """A source that is not what its registry has now. `altered`: the registry changed the version
    that is used, which it must not. `status`: also `missing`, where the registry has it no more,
    and `unreadable`, where it does not answer, or is not in the settings any more."""

    source: str
    registry: str
    name: str
    version: str
    latest: str
    status: str
    altered: bool


class CatalogOperations:
    _at_machine = False

    def __init__(
        self,
        dependencies: OperationDependencies,
        settings: Settings,
        sources: SourceOperations,
        *,
        parts: RegistryParts,
    ) -> None:
        self._dependencies = dependencies
        self._settings = settings
        self._sources = sources
        self._secrets = SecretOperations.of(parts)
        self._parts = parts
        self._reader = RegistryReader(settings.registries, settings.imports)

    @classmethod
    def of(cls, parts: RegistryParts) -> "CatalogOperations":
        return cls(parts.dependencies, parts.settings, SourceOperations.of(parts), parts=parts)

    @property
    def operations(self) -> Sequence[Operation]:
        secret = "its request holds secrets, which no model is to see"  # noqa: S105 - a reason
        types = {"server": ServerName}
        return (
            Operation(
                "searchCatalog", "GET", "/catalog", "Search MCP servers in registries.", READ,
                self.search, ListPage[CatalogServer], query=CatalogQuery, waits=True,
            ),
            Operation(
                "planServer", "POST", "/catalog/plan",
                "Tell what adding a server of a registry would do.", READ, self.plan, Plan,
                body=PlanRequest, waits=True,
            ),
            Operation(
                "getCatalogEntry", "GET", "/catalog/{server}", "Show a server of a registry.",
                READ, self.get, CatalogEntry, query=EntryQuery, types=types, waits=True,
                problems=(422,),
            ),
            Operation(
                "addServer", "POST", "/catalog", "Add a server of a registry as a source.", WRITE,
                self.add, ImportResult, 201, query=ReportQuery, body=AddRequest, secret=True,
                no_tool=secret, waits=True, problems=(409,),
            ),
            Operation(
                "listOutdated", "GET", "/outdated",
                "List sources of which registries have other versions.", READ, self.list_outdated,
                ListPage[OutdatedServer], query=Paging, waits=True,
            ),
            Operation(
                "planUpdate", "POST", "/sources/{source}/update/plan",
                "Tell what an update of a source would change.", WRITE, self.plan_update,
                UpdatePlan, body=UpdatePlanRequest, secret=True, no_tool=secret, waits=True,
                problems=(409,),
            ),
            Operation(
                "updateServer", "POST", "/sources/{source}/update",
                "Update a source to another version of its server.", WRITE, self.update,
                ImportResult, query=ReportQuery, body=UpdateRequest, secret=True,
                no_tool=secret, waits=True, problems=(409,),
            ),
        )  # fmt: skip

    async def search(self, request: OperationInput) -> ListPage[CatalogServer]:
        """A page of one registry; the last page of one is followed by the next registry."""
        query: CatalogQuery = request.query
        names = list(self._reader.names(query.registry))
        registry, _, after = place(query.after).partition("\n")
        if registry and registry not in names:
            raise unknown()
        registry = registry or names[0]
        limit = self._dependencies.pages.limit(query)
        page = await self._reader.search(registry, query.search, after, limit)
        later = names[names.index(registry) + 1 :]
        following = f"{registry}\n{page.cursor}" if page.cursor else next(iter(later), "")
        views = tuple(CatalogServer(**_facts(entry)) for entry in page.entries)
        return ListPage(views, cursor(following) if following else "")

    async def get(self, request: OperationInput) -> CatalogEntry:
        name, query = request.names["server"], request.query
        entry = await self._find(name, query.version, query.registry)
        server, kinds = entry.server, self._settings.packages.kinds
        versions = await self._reader.versions(entry.registry, name)
        return CatalogEntry(
            **_facts(entry),
            namespace=namespace_proof(server.name),
            published=entry.meta.published_at,
            status_message=entry.meta.status_message,
            repository=server.repository.url if server.repository else "",
            website=server.website_url,
            versions=tuple(versions[:VERSIONS]),
            choices=choices_of(server, kinds),
            remotes=tuple(f"{remote.type} {remote.url}" for remote in server.remotes),
            packages=tuple(map(_package_text, server.packages)),
            steps=tuple(
                step for package in server.packages for step in package.post_install_instructions
            ),
            sha256=entry.sha256,
        )

    async def plan(self, request: OperationInput) -> Plan:
        return (await self._draft(request.body, {})).plan

    async def add(self, request: OperationInput) -> OperationOutput:
        body: AddRequest = request.body
        draft = await self._draft(body, body.secrets)
        result = await self._save(request, body.source, draft, body.sha256)
        return OperationOutput(result, location=f"/sources/{body.source}")

    async def list_outdated(self, request: OperationInput) -> ListPage[OutdatedServer]:
        rows = [
            row
            for source in await ToolStore(self._dependencies.pool).sources(request.tenant)
            if (row := await self._standing(source)) is not None
        ]
        return self._dependencies.pages.page(request.query, rows, lambda row: row.source)

    async def plan_update(self, request: OperationInput) -> UpdatePlan:
        body: UpdatePlanRequest = request.body
        source, published = await self._published_server(request)
        draft = await self._update_draft(request, published, body, {})
        difference = None
        if body.tools:
            _check_complete(draft.plan)
            spec = await self._spec(source, draft, published)
            difference = await self._sources.difference(request, self._sources.restrict_spec(spec))
        changes = await self._changes(published, draft.plan)
        return UpdatePlan(published.version, draft.plan, changes, difference)

    async def update(self, request: OperationInput) -> ImportResult:
        body: UpdateRequest = request.body
        source, published = await self._published_server(request)
        draft = await self._update_draft(request, published, body, body.secrets)
        return await self._save(request, source, draft, body.sha256)

    async def _find(self, name: str, version: str, registry: str) -> Entry:
        try:
            return await self._reader.find(name, version, registry)
        except EntryMissing as error:
            raise not_found("server", name) from error

    async def _draft(
        self, request: PlanRequest, secrets: Mapping[str, str], stored_names: Collection[str] = ()
    ) -> Draft:
        entry = await self._find(request.name, request.version, request.registry)
        return await make_plan(
            entry, request, self._packages, secrets=secrets, stored_names=stored_names
        )

    @property
    def _packages(self) -> Packages:
        if not self._parts.at_machine:
            return _NoPackages()
        from gateway.upstreams.mcp.registries.installed_packages import InstalledPackages

        return InstalledPackages(self._settings)

    async def _save(
        self, request: OperationInput, source: str, draft: Draft, reviewed_digest: str
    ) -> ImportResult:
        """Raises ProblemDetails for what is not as it was reviewed, or not complete."""
        plan = draft.plan
        if plan.sha256 != reviewed_digest:
            raise conflict(f"{plan.name}@{plan.version} is not what was reviewed: plan it again.")
        _check_complete(plan)
        secrets = {name: text for name, text in draft.secrets.items()
                   if not self._is_from_settings(source, name, text)}  # fmt: skip
        stored_source = await ToolStore(self._dependencies.pool).source(request.tenant, source)
        spec = await self._spec(
            source, draft, _published_of(stored_source) if stored_source else None
        )

        async def reload() -> None:
            await self._parts.reload("secrets")

        return await self._sources.save_published(request, spec, secrets, reload)

    def _is_from_settings(self, source: str, name: str, text: str) -> bool:
        """Whether a secret stands in the settings instead: `${NAME}` is no value."""
        if not _FROM_SETTINGS.search(text):
            return False
        settings = self._parts.sources().get(source)
        if settings is None or name not in {**settings.env, **settings.headers}:
            raise invalid(
                f"{name} refers to a variable: write it into the settings, as in sources: "
                f"{{{source}: {{env: {{{name}: ...}}}}}}, or headers."
            )
        return True

    async def _spec(
        self, source: str, draft: Draft, stored_server: PublishedServer | None
    ) -> ImportSpec:
        """The import, of a program that is installed now. Raises ImportRejected for one that is not
        what was planned, or not what `stored_server` was pinned to in the same version."""
        options, plan = draft.options, draft.plan
        published = options.published
        if published is not None:
            digest = plan.digest if draft.install is None else await draft.install()
            if plan.digest:
                check_digest(plan.name, digest, plan.digest)
            if (
                stored_server is not None
                and stored_server.digest
                and stored_server.version == plan.version
            ):
                check_digest(f"{plan.name}@{plan.version}", digest, stored_server.digest)
            published = msgspec.structs.replace(published, digest=digest)
            options = msgspec.structs.replace(options, published=published)
        location = plan.url or stdio_location(plan.command)
        return ImportSpec(source, location, kind="mcp", options=options, origin="admin")

    async def _published_server(self, request: OperationInput) -> tuple[str, PublishedServer]:
        name = request.names["source"]
        source = await ToolStore(self._dependencies.pool).source(request.tenant, name)
        if source is None:
            raise not_found("source", name)
        published = _published_of(source)
        if published is None:
            raise conflict(f"{name} was not added from a registry.")
        return name, published

    async def _update_draft(
        self,
        request: OperationInput,
        entry: PublishedServer,
        body: UpdatePlanRequest,
        secrets: Mapping[str, str],
    ) -> Draft:
        wish = PlanRequest(
            name=entry.name,
            version=body.version,
            registry=entry.registry,
            choice=msgspec.convert(entry.choice, Choice),
            inputs={**dict(entry.inputs), **body.inputs},
            allow=(*entry.allow, *body.allow),
            unpinned=not entry.pinned,
        )
        stored = await self._secrets.entries(request.tenant, request.names["source"])
        return await self._draft(wish, secrets, stored)

    async def _changes(self, entry: PublishedServer, plan: Plan) -> tuple[JsonChange, ...]:
        """The difference of two server.json. A version that its registry altered is told first."""
        after = await self._find(plan.name, plan.version, plan.registry)
        try:
            before = await self._find(entry.name, entry.version, entry.registry)
        except (ImportRejected, ProblemDetails) as error:
            text = f"{entry.version} cannot be read again: {error}"
            return (JsonChange("", text[:TEXT], None),)
        altered = before.sha256 != entry.sha256
        rows = [JsonChange("", entry.sha256, before.sha256)] if altered else []
        rows += _compare(_flat(before.document), _flat(after.document))
        return tuple(rows[:CHANGES])

    async def _standing(self, source: Source) -> OutdatedServer | None:
        published = _published_of(source)
        if published is None:
            return None
        try:
            latest = await self._reader.find(published.name, LATEST, published.registry)
            present = latest
            if latest.server.version != published.version:
                present = await self._reader.find(
                    published.name, published.version, published.registry
                )
        except ImportRejected as error:  # one that vanished hides no others
            status = MISSING if isinstance(error, EntryMissing) else UNREADABLE
            return OutdatedServer(
                source=source.name, registry=published.registry, name=published.name,
                version=published.version, latest="", status=status, altered=False,
            )  # fmt: skip
        altered = present.sha256 != published.sha256
        if latest is present and not altered and present.meta.status == "active":
            return None
        return OutdatedServer(
            source=source.name,
            registry=published.registry,
            name=published.name,
            version=published.version,
            latest=latest.server.version,
            status=present.meta.status,
            altered=altered,
        )


class _NoPackages:
    """Packages of callers who are not at the machine: none."""

    kinds: Sequence[Choice] = ()
    advice = NO_ADVICE

    async def program(self, *_arguments: object, **_options: object) -> Program:
        raise ImportRejected(NO_ADVICE)


def _facts(entry: Entry) -> dict[str, Any]:
    server, meta = entry.server, entry.meta
    return {
        "name": server.name,
        "registry": entry.registry,
        "version": server.version,
        "title": server.title or "",
        "description": server.description,
        "status": meta.status,
        "updated": meta.updated_at,
    }


def _package_text(package: Package) -> str:
    version = f"@{package.version}" if package.version else ""
    return f"{package.registry_type} {package.identifier}{version}"


def _published_of(source: Source) -> PublishedServer | None:
    return source.options.published if isinstance(source.options, McpOptions) else None


def _check_complete(plan: Plan) -> None:
    """Raises ProblemDetails."""
    if plan.missing:
        raise invalid(f"Expected values of {', '.join(plan.missing)} in inputs or secrets.")
    if plan.confirms:
        raise invalid(f"Expected a confirmation in `allow` of {', '.join(plan.confirms)}.")


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a JSON value by their paths."""
    if isinstance(value, Mapping) and value:
        for name, member in value.items():
            yield from _flat(member, f"{path}/{name}")
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _flat(item, f"{path}/{number}")
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield without_hidden_in(path), without_hidden_in(text)[:TEXT]


def _compare(
    before: Iterator[tuple[str, str]], after: Iterator[tuple[str, str]]
) -> list[JsonChange]:
    was, now = dict(before), dict(after)
    paths = sorted({*was, *now})
    return [
        JsonChange(path, was.get(path), now.get(path))
        for path in paths
        if was.get(path) != now.get(path)
    ]
