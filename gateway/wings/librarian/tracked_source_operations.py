"""Operations of tracked sources, and their webhooks."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from config.knowledge import CollectionName
from config.librarian import LibrarianSettings
from config.sources import SchemeSettings
from config.value_types import HostId
from gateway.http_client.webhooks import PREFIX
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.problems import invalid, not_found
from gateway.wings.document_library import CollectionStatus, SourcePlace
from gateway.wings.interface import WingParts
from gateway.wings.librarian.library_access import READ, WRITE, LibraryAccess, context_of
from gateway.wings.librarian.member_texts import TRACKED_SOURCE
from gateway.wings.librarian.requests_and_views import Collections
from gateway.wings.librarian.tracked_sources import TrackedSource, TrackedSources
from registry.access.secrets import Keys, SecretRefused, Secrets
from registry.database.postgres import Pool

HOOKS = "/librarian/hooks"
SECRETS = "librarian"  # name of the source whose secrets are those of webhooks, also in SQL
SECRET_BYTES = 32
SOURCE = {"source": HostId}


class TrackSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A place that a collection follows."""

    collection: CollectionName
    type: Literal["git", "url", "s3"]
    location: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2048,
            description="an https URL, or s3://BUCKET/PREFIX; credentials are secrets of the source"
            " `knowledge`, never in it",
        ),
    ]
    ref: Annotated[
        str, Meta(max_length=255, description="branch or tag of git; empty: the default branch")
    ] = ""
    filter: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...],
        Meta(max_length=20, description="patterns in the syntax of .gitignore; empty: all files"),
    ] = ()
    below: Annotated[
        str, Meta(max_length=255, description="folder of the documents in the collection")
    ] = ""
    every_s: Annotated[
        int, Meta(ge=0, le=31_536_000, description="seconds between readings; 0: no schedule")
    ] = 0
    webhook: Annotated[bool, Meta(description="whether a signed webhook has it read again")] = False


class TrackedSourceView(Struct, frozen=True, omit_defaults=True):
    """A tracked source, and what became of its files when it was read last."""

    id: str
    collection: str
    type: str
    location: str
    status: Annotated[str, Meta(description="pending, reading, ready or failed")]
    ref: str = ""
    filter: tuple[str, ...] = ()
    below: str = ""
    every_s: int = 0
    error: str | None = None
    commit: Annotated[str, Meta(description="or the validator of a URL")] = ""
    read: datetime | None = None
    due: datetime | None = None
    report: Mapping[str, Any] = {}
    webhook: Annotated[str, Meta(description="its path; empty: it has none")] = ""

    @classmethod
    def of(cls, source: TrackedSource) -> "TrackedSourceView":
        place = source.place
        return cls(
            source.id,
            source.collection,
            place.type,
            place.location,
            source.status,
            place.ref,
            place.filter,
            below=place.folder,
            every_s=source.interval_s,
            error=source.error if source.status == "failed" else None,
            commit=place.seen,
            read=source.read,
            due=source.due,
            report=source.report,
            webhook=f"{HOOKS}/{source.tenant}/{source.id}" if source.webhook else "",
        )


class SourceTracked(Struct, frozen=True, omit_defaults=True):
    source: TrackedSourceView
    secret: Annotated[
        str, Meta(description="of its webhook, for Standard Webhooks or GitHub; shown only once")
    ] = ""


class TrackedSourceList(Struct, frozen=True):
    sources: tuple[TrackedSourceView, ...]


class TrackedSourcesRead(Struct, frozen=True):
    sources: int


class AskStatus(Struct, frozen=True, forbid_unknown_fields=True):
    collections: Collections = ()


class CollectionStatusView(Struct, frozen=True):
    """Searchable state of a collection."""

    collection: str
    documents: Annotated[Mapping[str, int], Meta(description="by the status of their last version")]
    chunks: Annotated[int, Meta(description="found by words")]
    embedded: Annotated[int, Meta(description="of them, found by meaning, too")]

    @classmethod
    def of(cls, status: CollectionStatus) -> "CollectionStatusView":
        return cls(status.name, status.documents, status.chunks, status.embedded)


class CollectionStatusList(Struct, frozen=True):
    collections: tuple[CollectionStatusView, ...]


class LibraryStatus(Struct, frozen=True):
    collections: tuple[CollectionStatusView, ...]
    sources: Annotated[
        tuple[TrackedSourceView, ...], Meta(description="of collections to which you may write")
    ]


class HookSecrets:
    """The secrets of webhooks, encrypted in the registry."""

    def __init__(self, pool: Pool, keys: Keys) -> None:
        self._pool = pool
        self._keys = keys

    async def of(self, source: TrackedSource) -> str | None:
        secret = await self._secrets(source).get(SECRETS, source.id)
        return None if secret is None else secret.token

    async def make(self, source: TrackedSource) -> str:
        """A new secret. Raises ProblemDetails without a key to encrypt it."""
        secret = PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        try:
            await self._secrets(source).put(SECRETS, source.id, SchemeSettings(token=secret))
        except SecretRefused as error:
            raise invalid(f"webhook: {error}.") from error
        return secret

    def check(self) -> None:
        """Raises ProblemDetails without a key to encrypt secrets."""
        try:
            self._keys.sealing()
        except SecretRefused as error:
            raise invalid(f"webhook: {error}.") from error

    def _secrets(self, source: TrackedSource) -> Secrets:
        return Secrets(self._pool, source.tenant, self._keys)


@dataclass(eq=False)
class TrackingOperations:
    access: LibraryAccess
    sources: TrackedSources
    hooks: HookSecrets
    settings: LibrarianSettings

    @property
    def operations(self) -> tuple[Operation, ...]:
        path = "/sources/{source}"
        return (
            Operation(
                "librarian_add_source", "POST", "/sources",
                "Have a collection follow a git branch, a URL or a bucket.", WRITE, self.add,
                SourceTracked, 201, body=TrackSource, members=TRACKED_SOURCE,
            ),
            Operation(
                "librarian_sources", "GET", "/sources", "List the sources that are followed.",
                WRITE, self.list, TrackedSourceList,
            ),
            Operation(
                "librarian_get_source", "GET", path, "Show a source, and what became of its files.",
                WRITE, self.show, TrackedSourceView, types=SOURCE,
            ),
            Operation(
                "librarian_refresh", "POST", f"{path}/refresh",
                "Read what changed in a source.", WRITE, self.refresh, TrackedSourceView,
                types=SOURCE, job=AsJob(once=True, lock="librarian:{source}"),
            ),
            Operation(
                "librarian_delete_source", "DELETE", path,
                "Stop to follow a source; its documents stay.", WRITE, self.delete, status=204,
                types=SOURCE,
            ),
            Operation(
                "librarian_status", "POST", "/status",
                "Show how much of collections is found, and the state of their sources.", READ,
                self.status, LibraryStatus, body=AskStatus,
            ),
            Operation(
                "librarian_collections", "GET", "/collections",
                "List the collections that may be asked, and how much of them is found.", READ,
                self.collections, CollectionStatusList,
            ),
            Operation(
                "librarian_refresh_due", "POST", "/refresh",
                "Read the sources that are due.", WRITE, self.refresh_due, TrackedSourcesRead,
                job=AsJob(always=True, once=True, schedule=self.settings.refresh_schedule),
                no_tool="it runs on a schedule",
            ),
        )  # fmt: skip

    async def add(self, request: OperationInput) -> OperationOutput:
        body: TrackSource = request.body
        if body.webhook:
            self.hooks.check()
        if 0 < body.every_s < self.settings.min_interval_s:
            least = self.settings.min_interval_s
            raise invalid(f"every_s: expected 0 or at least {least} (librarian.min_interval_s)")
        place = SourcePlace(
            type=body.type,
            location=body.location,
            ref=body.ref,
            filter=body.filter,
            folder=body.below.strip("/"),
        )
        added = await self.sources.add(
            context_of(request),
            body.collection,
            place,
            interval_s=body.every_s,
            webhook=body.webhook,
        )
        view = TrackedSourceView.of(added)
        secret = await self.hooks.make(added) if body.webhook else ""
        return OperationOutput(SourceTracked(view, secret), untold=SourceTracked(view))

    async def list(self, request: OperationInput) -> TrackedSourceList:
        return TrackedSourceList(
            tuple(map(TrackedSourceView.of, await self.sources.of(context_of(request))))
        )

    async def show(self, request: OperationInput) -> TrackedSourceView:
        return TrackedSourceView.of(await self._one(request))

    async def refresh(self, request: OperationInput) -> TrackedSourceView:
        context = context_of(request)
        source = await self._one(request)
        return TrackedSourceView.of(await self.sources.refresh(context, source, request.job))

    async def delete(self, request: OperationInput) -> None:
        source = await self._one(request)
        await self.sources.delete(context_of(request), source.id)

    async def collections(self, request: OperationInput) -> CollectionStatusList:
        collections = await self.access.library.status(context_of(request), None)
        return CollectionStatusList(tuple(map(CollectionStatusView.of, collections)))

    async def status(self, request: OperationInput) -> LibraryStatus:
        body: AskStatus = request.body
        context, names = context_of(request), body.collections or None
        statuses = await self.access.library.status(context, names)
        sources = [
            source
            for source in await self.sources.of(context)
            if names is None or source.collection in names
        ]
        return LibraryStatus(
            tuple(map(CollectionStatusView.of, statuses)), tuple(map(TrackedSourceView.of, sources))
        )

    async def refresh_due(self, _request: OperationInput) -> TrackedSourcesRead:
        return TrackedSourcesRead(await self.sources.refresh_due())

    async def _one(self, request: OperationInput) -> TrackedSource:
        """Raises ProblemDetails."""
        id_ = request.names["source"]
        sources = await self.sources.of(context_of(request), id_)
        if not sources:
            raise not_found("source", id_)
        return sources[0]


def source_operations(parts: WingParts, access: LibraryAccess) -> Sequence[Operation]:
    sources = TrackedSources(parts.pool, access, parts.settings)
    hooks = HookSecrets(parts.pool, parts.keys)
    return TrackingOperations(access, sources, hooks, parts.settings).operations
