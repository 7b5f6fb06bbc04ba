"""OpenAPI descriptions: their files are gathered and stored, and parsed from what is stored.

A description is an entry file and the files that it refers to, at any location. An unreadable file
does not fail the import: the operations that need it report the reason.
"""

import posixpath
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from yarl import URL

from config.settings import Imports
from registry.documents.containers import (
    ZIP,
    Archive,
    Bundle,
    Container,
    FolderContainer,
    Unreadable,
    file_location,
    unpack,
)
from registry.documents.fetch import FetchedDocument, StatusRefused, fetch, local_path
from registry.importers.drafts import ImportedDescription
from registry.importers.openapi import OpenApiOptions, Overlay, overlay, parse, read
from registry.importers.openapi.multi_file_documents import (
    Files,
    is_url,
    scan,
    scheme,
    stands_alone,
)
from registry.importers.openapi.x_toolgate import NO_OVERLAY
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import (
    OVERLAY_EXPECTED,
    FoundSource,
    Limits,
    Origins,
    check_overlay,
    check_public,
    non_empty,
    reread,
    schemas_limit_bytes,
    with_location,
)
from schemas.errors import ImportRejected
from schemas.source import OpenAPIOptions

_SUFFIXES = (".yaml", ".yml", ".json")
_USUAL = re.compile(r"(openapi|swagger)\.(ya?ml|json)", re.IGNORECASE)
_KEYS = ("openapi", "swagger")
_NAMES = 10  # names in one message

_CONCURRENT_READS = 4  # concurrent requests; their bodies are in memory before they count


def entry_of(container: Container, location: str, limit_bytes: int) -> str:
    """The entry file. Raises ImportRejected when there is none, or more than one."""
    names = [name for name in container.names() if name.lower().endswith(_SUFFIXES)]
    usual = [name for name in names if _USUAL.fullmatch(name.rpartition("/")[2])]
    entries = _shallowest(usual) or _described_files(container, names, limit_bytes)
    if len(entries) == 1:
        return entries[0]
    if entries:
        listed = ", ".join(entries[:_NAMES]) + (", ..." if len(entries) > _NAMES else "")
        raise ImportRejected(
            f"{location} holds several descriptions: {listed}. Name the one to import (--entry, or "
            "`entry` in the settings)."
        )
    raise ImportRejected(
        f"{location} holds no OpenAPI description: expected openapi.yaml, openapi.json or the "
        "like, or a file with `openapi` or `swagger` at its root."
    )


def _shallowest(names: list[str]) -> list[str]:
    depth = min((name.count("/") for name in names), default=0)
    return [name for name in names if name.count("/") == depth]


def _described_files(container: Container, names: list[str], limit_bytes: int) -> list[str]:
    names_ = []
    for name in names:
        try:
            data = container.read(name, limit_bytes)
        except Unreadable:
            continue
        limit_bytes -= len(data)
        if _is_description(data, name):
            names_.append(name)
    return names_


def _is_description(data: bytes, name: str) -> bool:
    if not any(key.encode() in data for key in _KEYS):
        return False
    try:
        root = parse(data, name)
    except ImportRejected:
        return False
    return any(isinstance(root.get(key), str | int | float) for key in _KEYS)


_SAVE = "Save the description to a file, as with curl, and import that."
REMEDIES = {  # by the status of what answers instead of a description
    401: _SAVE,
    403: _SAVE,
    404: "Addresses of descriptions end in /openapi.json (FastAPI), /v3/api-docs (Spring) or so.",
}


@dataclass(frozen=True, slots=True)
class GatheredFiles:
    location: str  # absolute path or URL, without credentials
    bundle: Bundle


async def gather_files(
    location: str, entry: str | None, limits: Imports, *, by_operator: bool = True
) -> GatheredFiles:
    """Gather the files of a description; `by_operator` as in `fetch`. Raises ImportRejected when
    there is no entry file."""
    path = local_path(location)
    if path is not None and await anyio.Path(path).is_dir():
        folder = await to_thread.run_sync(FolderContainer, path, limits.local_files_limit)
        return await _in_place(folder, str(path), entry, limits)
    try:
        first = await fetch(
            location,
            limit_bytes=limits.document_limit_bytes,
            timeout_s=limits.fetch_timeout_s,
            private_networks=limits.private_networks,
            by_operator=by_operator,
        )
    except StatusRefused as refused:
        if remedy := REMEDIES.get(refused.status):
            raise ImportRejected(f"{refused} {remedy}") from refused
        raise
    if first.data.startswith(ZIP):
        archive = await to_thread.run_sync(
            Archive, first.data, first.location, limits.local_files_limit
        )
        return await _in_place(archive, first.location, entry, limits)
    if entry is not None:
        raise ImportRejected(
            f"{first.location} is one file; an entry is named in a directory or an archive."
        )
    if path is None:
        remote = RemoteFiles(limits, first, location if by_operator else "")
        return await _Gathering(first.location, None, remote, limits).run(first)
    folder = await to_thread.run_sync(FolderContainer, path.parent, limits.local_files_limit)
    return await _Gathering(path.name, folder, RemoteFiles(limits), limits).run(first)


async def _in_place(
    files: Container, location: str, entry: str | None, limits: Imports
) -> GatheredFiles:
    """The files in a directory or an archive."""
    limit = limits.document_limit_bytes
    if entry is None:
        name = await to_thread.run_sync(entry_of, files, location, limit)
    else:
        name = posixpath.normpath(entry)
    try:
        data = await to_thread.run_sync(files.read, name, limit)
    except Unreadable as error:
        raise ImportRejected(f"Cannot read {name} in {location}: {error}.") from error
    first = FetchedDocument(data, location)
    return await _Gathering(name, files, RemoteFiles(limits), limits).run(first)


class RemoteFiles:
    """Files at URLs. Those at the operator's origin are as trusted as the description itself."""

    def __init__(
        self, limits: Imports, first: FetchedDocument | None = None, typed: str = ""
    ) -> None:
        """`first` is the description, if it is at a URL; `typed` is the URL as entered, perhaps
        with credentials."""
        self._limits = limits
        self._typed = URL(typed)
        self._first = URL(first.location) if first else URL()
        self._private = first is not None and first.private
        self._until = time.monotonic() + limits.fetch_timeout_s  # one deadline for all of them

    async def read(self, name: str, limit: int) -> bytes:
        """The bytes of one file. Raises Unreadable."""
        if not is_url(name):
            raise Unreadable("expected a path or an http(s) URL")
        try:
            return await self._fetch(URL(name), limit)
        except ValueError as error:
            raise Unreadable(f"no URL: {error}") from error
        except ImportRejected as error:
            raise Unreadable(str(error).rstrip(".")) from error

    async def _fetch(self, url: URL, limit: int) -> bytes:
        if self._first.scheme == "https" and url.scheme == "http":
            raise Unreadable("it leads from https to http")
        timeout_s = self._until - time.monotonic()
        if timeout_s <= 0:
            raise Unreadable("imports.fetch_timeout_s was over before it")
        same_origin = bool(self._typed.host) and url.origin() == self._typed.origin()
        if same_origin and self._typed.user:
            url = url.with_user(self._typed.user).with_password(self._typed.password)
        overlay_file = self._private and url.origin() == self._first.origin()
        fetched = await fetch(
            str(url),
            limit_bytes=limit,
            timeout_s=timeout_s,
            private_networks=self._limits.private_networks,
            by_operator=same_origin or overlay_file,
        )
        return fetched.data


class _Gathering:
    """Gathering of one description.

    Files are named as in `registry.importers.openapi.multi_file_documents`.
    """

    def __init__(
        self, entry: str, files: Container | None, remote: RemoteFiles, limits: Imports
    ) -> None:
        self._entry = entry
        self._container = files
        self._remote = remote
        self._files = Files(entry)
        self._limits = limits
        self._requested = {True: 0, False: 0}  # counts of files, by whether they are fetched
        self._bytes_left = limits.document_limit_bytes
        self._data: dict[str, bytes] = {}
        self._unread: dict[str, str] = {}

    async def run(self, first: FetchedDocument) -> GatheredFiles:
        self._store(self._entry, first.data)
        if not stands_alone(first.data):
            where = file_location(first.location, self._entry)
            await to_thread.run_sync(self._scan, self._entry, first.data, where)
            while names := self._files.wanted_names():
                await self._read([name for name in names if not scheme(name)], fetched=False)
                await self._read([name for name in names if scheme(name)], fetched=True)
        return GatheredFiles(first.location, Bundle(self._entry, self._data, self._unread))

    async def _read(self, names: list[str], fetched: bool) -> None:
        fetched = (
            fetched or self._container is None
        )  # next to a description at a URL, all are fetched
        setting = "files_limit" if fetched else "local_files_limit"
        limit: int = getattr(self._limits, setting)
        count_left = max(0, limit - 1 - self._requested[fetched])  # one is the first
        self._requested[fetched] += min(count_left, len(names))
        for name in names[count_left:]:
            self._record_missing(name, f"more than {limit:,} files (setting imports.{setting})")
        for start in range(0, min(count_left, len(names)), _CONCURRENT_READS):
            batch = names[start : min(count_left, start + _CONCURRENT_READS)]
            answers: dict[str, bytes | Unreadable] = {}
            async with anyio.create_task_group() as group:
                for name in batch:
                    group.start_soon(self._read_one, name, answers)
            for name in batch:  # in this order, not in that of the answers
                await to_thread.run_sync(self._take, name, answers[name])

    async def _read_one(self, name: str, answers: dict[str, bytes | Unreadable]) -> None:
        try:
            if scheme(name):
                answers[name] = await self._remote.read(name, self._bytes_left)
            elif self._container is None:
                raise Unreadable("expected an http(s) URL")
            else:
                answers[name] = await to_thread.run_sync(
                    self._container.read, name, self._bytes_left
                )
        except Unreadable as error:
            answers[name] = error

    def _take(self, name: str, answer: bytes | Unreadable) -> None:
        if isinstance(answer, Unreadable):
            self._record_missing(name, str(answer))
        elif len(answer) > self._bytes_left:
            self._record_missing(name, "imports.document_limit_bytes was used up before it")
        else:
            try:
                self._scan(name, answer, name)
                self._store(name, answer)
            except ImportRejected as error:
                self._record_missing(name, str(error).rstrip("."))

    def _scan(self, name: str, data: bytes, location: str) -> None:
        self._files.add(scan(name, parse(data, location)))

    def _store(self, name: str, data: bytes) -> None:
        self._data[name] = data
        self._bytes_left -= len(data)

    def _record_missing(self, name: str, reason: str) -> None:
        self._unread[name] = reason
        self._files.miss(name, reason)


async def find_openapi(spec: ImportSpec, limits: Imports, _origins: Origins) -> FoundSource:
    """All files of the description at the location, and its overlay. Raises ImportRejected."""
    check_public(spec)
    options = _options(spec)
    gathered = await gather_files(
        spec.location, options.entry, limits, by_operator=not options.guarded
    )
    bundle = gathered.bundle
    if options.overlay is not None:
        check_overlay(options.overlay)  # the description's own location is stored without
        overlay_file = await fetch(
            options.overlay,
            limit_bytes=limits.document_limit_bytes,
            timeout_s=limits.fetch_timeout_s,
            private_networks=limits.private_networks,
        )
        bundle = msgspec.structs.replace(
            bundle, overlay=overlay_file.data, overlay_location=overlay_file.location
        )
    location = gathered.location
    return reread(replace(spec, location=location), bundle.pack(location), limits)


def read_openapi(
    document: bytes, location: str, spec: ImportSpec, limits: Limits
) -> ImportedDescription:
    """Tools of what `find_openapi` has read, without network or file access. Raises
    ImportRejected."""
    options, bundle = _options(spec), unpack(document, location)
    overlay_file = _overlay(bundle)
    duplicates: list[str] = []
    root = _assemble_bundle(bundle, location, duplicates)
    choice = OpenApiOptions(
        spec.include,
        spec.exclude,
        options.only_marked,
        options.media_types,
        overlay=overlay_file,
        schemas_limit_bytes=schemas_limit_bytes(limits),
        credentials=options.credentials or (),
    )
    with with_location(location):
        return non_empty(read(root, choice, duplicates))


def _options(spec: ImportSpec) -> OpenAPIOptions:
    return spec.options if isinstance(spec.options, OpenAPIOptions) else OpenAPIOptions()


def _assemble_bundle(bundle: Bundle, location: str, duplicates: list[str]) -> dict[str, Any]:
    """The root of the description; `duplicates` takes notes on its duplicate keys."""
    entry = bundle.files[bundle.entry]
    root = parse(entry, file_location(location, bundle.entry), notes=duplicates)
    if stands_alone(entry):
        return root
    files = Files(bundle.entry)
    files.add(scan(bundle.entry, root))
    for name, data in bundle.files.items():
        if name != bundle.entry:
            files.add(scan(name, parse(data, name, notes=duplicates)))
    for name, reason in bundle.unread.items():
        files.miss(name, reason)
    return files.assemble()


def _overlay(bundle: Bundle) -> Overlay:
    if bundle.overlay is None:
        return NO_OVERLAY
    location = bundle.overlay_location
    return overlay(parse(bundle.overlay, location, OVERLAY_EXPECTED, unique=True), location)
