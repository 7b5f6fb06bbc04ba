"""From files to documents: each is read in a process of its own, and stored in a transaction of its
own. One that cannot be read leaves its older version serving, and does not stop the others.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from config.knowledge import KnowledgeSettings
from gateway.operations.job_declarations import Job, NoJob
from gateway.operations.problems import ProblemDetails, invalid
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.reading.media_types import TEXT, ZIP, media_type
from gateway.wings.documents.reading.process_pool import ReadingWorkers, Turn
from gateway.wings.documents.reading.reader_messages import (
    ArchiveReading,
    GitFetch,
    GitHead,
    NotRead,
    ReadDocument,
)
from gateway.wings.documents.reading.reading_limits import ReadingLimits, ReadingRefused
from gateway.wings.documents.reading.source_files import LeftOut, SourceFile, WantedFiles, git_url
from gateway.wings.documents.reading.url_and_s3_files import (
    Bucket,
    FetchOptions,
    bucket_files,
    check_file_url,
    url_file,
)
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import DocumentStore, KeptDocument, NewDocument
from gateway.wings.knowledge.metrics import KnowledgeMetrics
from gateway.wings.knowledge.source_credentials import (
    PlaceCredentials,
    bucket_of,
    login,
    place_of,
    place_of_bucket,
)

INLINE = frozenset({TEXT, "text/markdown", "text/x-rst"})  # cut without grammars and parsers
INLINE_BYTES = 65_536
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
UNREAD_REPORTED = 100  # files of a report that were not read
BATCH = 100  # documents of one transaction
SourceType = Literal["url", "git", "s3"]


@dataclass(frozen=True, slots=True)
class UnreadFile:
    path: str
    reason: str


@dataclass(slots=True)
class IngestReport:
    """Outcomes of a source's files."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    failed: list[UnreadFile] = field(default_factory=list)
    left_out: list[UnreadFile] = field(default_factory=list)
    seen: str = ""  # state of the source: a commit, or the validator of a URL
    track_id: str = ""  # of the last document

    def count(self, document: KeptDocument) -> None:
        self.track_id = document.track_id
        if not document.changed:
            self.unchanged += 1
        elif document.version == 1:
            self.added += 1
        else:
            self.changed += 1

    @property
    def files_done(self) -> int:
        return self.added + self.changed + self.unchanged + len(self.failed)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where files come from. `below` is the folder of their paths in the collection."""

    type: SourceType | Literal["upload"]
    location: str
    ref: str = ""
    filter: tuple[str, ...] = ()
    below: str = ""
    seen: str = ""  # `IngestReport.seen` of the reading before; "": all is compared

    @property
    def key(self) -> str:
        return f"{self.type}:{self.location}"


@dataclass(frozen=True, slots=True)
class _Run:
    """One reading of a source, and what became of its files so far."""

    reader: KnowledgeReader
    target: NewCollection
    spec: SourceSpec
    job: Job
    report: IngestReport = field(default_factory=IngestReport)
    origin: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.origin["source"] = self.spec.key


class Ingestion:
    def __init__(
        self,
        documents: DocumentStore,
        workers: ReadingWorkers,
        credentials: PlaceCredentials,
        settings: KnowledgeSettings,
        *,
        metrics: KnowledgeMetrics,
    ) -> None:
        self._metrics = metrics
        self._documents = documents
        self._credentials = credentials
        self._workers = workers
        self._settings = settings
        self.limits = reading_limits(settings)
        self._chunking = ChunkingOptions(settings.chunking.size, settings.chunking.overlap)

    async def text(
        self, reader: KnowledgeReader, collection: NewCollection, new: NewDocument
    ) -> KeptDocument:
        """Store a text, which is cut here if that takes milliseconds. Raises ProblemDetails."""
        try:
            document = await self._text(reader, collection, new)
        except ProblemDetails:
            self._metrics.count_failed()
            raise
        self._metrics.count_stored(
            document.chunks, changed=document.changed, skipped=not document.id
        )
        return document

    async def _text(
        self, reader: KnowledgeReader, collection: NewCollection, new: NewDocument
    ) -> KeptDocument:
        type_ = media_type(new.path, b"")
        size = len(new.text.encode())
        if size > self._settings.document_bytes:
            raise ProblemDetails(
                413,
                "too-large",
                f"The text has {size} bytes, expected at most {self._settings.document_bytes}"
                " (knowledge.document_bytes).",
            )
        if type_ in INLINE and size <= INLINE_BYTES:
            new = replace(new, media_type=type_)
        else:
            name = new.path if type_.startswith(("text/", "application/")) else f"{new.path}.txt"
            try:
                document = await self._workers.read(
                    name, new.text.encode(), self._chunking, turn=_turn(reader)
                )
                new = _with_text(new, document)
            except ReadingRefused as error:
                raise invalid(f"text: {error}.") from error
        return await self._documents.add(reader, collection, new)

    async def file(
        self, reader: KnowledgeReader, target: NewCollection, path: str, data: bytes, *, job: Job
    ) -> IngestReport:
        """Store a file, or the files of an archive below its path. Raises ProblemDetails."""
        spec = SourceSpec("upload", path, below=path)
        run = _Run(reader, target, spec, job)
        if media_type(path, data) != ZIP and not path.lower().endswith(TARS):
            await self._store(run, SourceFile.of(path, data))
            if run.report.failed:
                raise invalid(f"{path}: {run.report.failed[0].reason}.")
            return run.report
        run = replace(run, target=await self._documents.ensure(reader, target))
        contents = _read(await self._known_contents(run))
        task = ArchiveReading(data, WantedFiles(content_ids=contents, limits=self.limits))
        try:
            async with self._workers.files(task, self.limits.fetch_s, turn=_turn(reader)) as files:
                await self._ingest(run, files)
        except ReadingRefused as error:
            raise invalid(f"{path}: {error}.") from error
        return run.report

    async def ensure(self, reader: KnowledgeReader, target: NewCollection) -> NewCollection:
        """As `DocumentStore.ensure`. Raises ProblemDetails."""
        return await self._documents.ensure(reader, target)

    async def source(
        self, reader: KnowledgeReader, target: NewCollection, spec: SourceSpec, *, job: Job
    ) -> IngestReport:
        """Store the files of a source, and delete those that it no longer has. Raises
        ProblemDetails."""
        run = _Run(reader, await self._documents.ensure(reader, target), spec, job)
        contents = await self._known_contents(run)
        validator = spec.seen if all(contents.values()) else ""
        wanted_files = WantedFiles(spec.filter, _read(contents), validator, self.limits)
        try:
            paths = await self._fetch(run, wanted_files)
        except ReadingRefused as error:
            raise invalid(f"{spec.location}: {error}.") from error
        if paths is None:
            run.report.unchanged = len(wanted_files.content_ids)
            return run.report
        had = await self._documents.of_source(reader, target.name, spec.key)
        gone = [id_ for id_, path in had if path not in paths]
        for at in range(0, len(gone), BATCH):
            ids = gone[at : at + BATCH]
            run.report.deleted += await self._documents.delete(reader, target.name, ids)
        return run.report

    async def _known_contents(self, run: "_Run") -> dict[str, str]:
        """Ids of the contents that are served, by their paths in the source; empty for those that
        are to be read again. The same content at another path, or in another folder of the
        collection, is another document."""
        contents = await self._documents.contents(run.reader, run.target.name, run.spec.key)
        below = f"{run.spec.below}/" if run.spec.below else ""
        return {path.removeprefix(below): id_ for path, id_ in contents if path.startswith(below)}

    async def _fetch(self, run: "_Run", wanted_files: WantedFiles) -> set[str] | None:
        """The paths that were found; None: the source is as it was."""
        spec, fetching = run.spec, FetchOptions(self._settings.private_networks)
        if spec.type == "url":
            response = await url_file(spec.location, fetching, wanted_files)
            run.report.seen = response.seen
            return None if response.file is None else await self._ingest(run, _one(response.file))
        if spec.type == "s3":
            bucket = await self._bucket(run)
            return await self._ingest(run, bucket_files(bucket, fetching, wanted_files))
        url = git_url(spec.location)
        user, password = login(await self._credentials.of(run.reader.tenant, place_of(url)))
        task = GitFetch(
            url,
            spec.ref,
            user=user,
            password=password,
            private_networks=fetching.private_networks,
            files=wanted_files,
        )
        async with self._workers.files(task, self.limits.fetch_s, turn=_turn(run.reader)) as files:
            return await self._ingest(run, files)

    async def _bucket(self, run: "_Run") -> Bucket:
        """Raises ReadingRefused."""
        bucket = bucket_of(run.spec.location)
        place, tenant = place_of_bucket(bucket), run.reader.tenant
        entry = await self._credentials.of(tenant, place)
        if bucket.prefix and entry != await self._credentials.of(tenant, place.rpartition("/")[0]):
            # It is the credential of this folder, not of names that begin like it.
            bucket = msgspec.structs.replace(bucket, prefix=f"{bucket.prefix.rstrip('/')}/")
        return msgspec.structs.replace(
            bucket,
            key_id=entry.username or "",
            secret=entry.password or "",
            token=entry.token or "",
        )

    async def _ingest(self, run: "_Run", files: AsyncIterable[Any]) -> set[str] | None:
        """The paths that were found; None: the source is as it was."""
        paths: set[str] = set()
        is_unchanged = False
        async for file in files:
            if isinstance(file, GitHead):
                run.origin["commit"] = run.report.seen = file.commit
                is_unchanged = file.unchanged
                continue
            path = f"{run.spec.below}/{file.path}" if run.spec.below else file.path
            if isinstance(file, LeftOut):
                _note(run.report.left_out, file.path, file.reason)
                if file.unread:
                    paths.add(path)
                continue
            paths.add(path)
            if file.data is None:
                run.report.unchanged += 1
            else:
                await self._store(run, SourceFile(path, file.id, file.data))
            run.job.progress(run.report.files_done, note=path[:200])
        return None if is_unchanged else paths

    async def take(
        self,
        reader: KnowledgeReader,
        target: NewCollection,
        file: SourceFile,
        reading: ReadDocument | NotRead,
        *,
        report: IngestReport,
    ) -> None:
        """Store a file that was read elsewhere, as `file` does. Raises ProblemDetails."""
        spec = SourceSpec("upload", file.path, below=file.path)
        await self._store(_Run(reader, target, spec, NoJob(), report), file, reading)

    async def _store(
        self, run: "_Run", file: SourceFile, reading: ReadDocument | NotRead | None = None
    ) -> None:
        """`reading`: of a file that was read already."""
        new = NewDocument(file.path, "", origin={**run.origin, "id": file.id}, is_file=True)
        begun = await self._documents.begin(run.reader, run.target, new)
        try:
            if isinstance(reading, NotRead):
                raise ReadingRefused(reading.reason)
            if reading is None:
                reading = await self._workers.read(
                    file.path, file.data or b"", self._chunking, turn=_turn(run.reader)
                )
            new = _with_text(new, reading)
            target = replace(run.target, id=begun.collection)
            document = await self._documents.add(run.reader, target, new)
            run.report.count(document)
            self._metrics.count_stored(document.chunks, changed=document.changed)
        except (ReadingRefused, ProblemDetails) as error:
            reason = error.detail if isinstance(error, ProblemDetails) else str(error)
            self._metrics.count_failed()
            await self._documents.fail(begun, reason)
            _note(run.report.failed, file.path, reason)


def _turn(reader: KnowledgeReader) -> Turn:
    return Turn(reader.tenant, reader.owner)


def _with_text(new: NewDocument, reading: ReadDocument) -> NewDocument:
    title = {"title": reading.title[:255]} if reading.title else {}
    note: dict[str, Any] = {"note": reading.note} if reading.note else {}
    if reading.degraded:
        note["degraded"] = True
    return replace(
        new,
        text=reading.text,
        media_type=reading.media_type,
        chunks=reading.chunks,
        metadata={**title, **new.metadata},
        origin={**new.origin, **note},
    )


def _read(contents: Mapping[str, str]) -> dict[str, str]:
    """Documents that need not be read again."""
    return {path: id_ for path, id_ in contents.items() if id_}


def check_location(type_: SourceType, location: str) -> None:
    """Raises ReadingRefused for a location that no source has, such as one with credentials."""
    if type_ == "git":
        git_url(location)
    elif type_ == "s3":
        bucket_of(location)
    else:
        check_file_url(location)


def reading_limits(settings: KnowledgeSettings) -> ReadingLimits:
    return ReadingLimits(file_bytes=settings.document_bytes, container_bytes=settings.upload_bytes)


async def _one(file: SourceFile) -> AsyncIterator[SourceFile]:
    yield file


def _note(files: list[UnreadFile], path: str, reason: str) -> None:
    if len(files) < UNREAD_REPORTED:
        files.append(UnreadFile(path[:255], reason[:500]))
