"""Files from URLs and S3 buckets, through the gateway's guarded fetch: to public addresses alone,
unless private networks are allowed, with limits of size and time.

Requests to S3 are signed by botocore, as URLs with a short life, and sent by the same fetch.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from anyio import to_thread
from lxml import etree
from msgspec import Struct

from gateway.wings.documents.reading.archives import safe_name
from gateway.wings.documents.reading.reading_limits import GUARD, ReadingRefused
from gateway.wings.documents.reading.source_files import Entry, LeftOut, SourceFile, WantedFiles
from registry.documents.fetch import GUARD as IMPORTS_GUARD
from registry.documents.fetch import FetchedDocument, fetch, has_credentials
from schemas.errors import ImportRejected

if TYPE_CHECKING:
    from gateway.wings.documents.reading.s3_signing import Signer

_CONDITIONS = ("If-None-Match", "If-Modified-Since")
_LISTING_BYTES = 4 * 2**20


class FetchOptions(Struct, frozen=True):
    """How URLs are fetched."""

    private_networks: bool = False  # GUARD
    timeout_s: float = 30.0


class Bucket(Struct, frozen=True):
    """A bucket of S3, or of a service that speaks its protocol, and the keys to it."""

    name: str
    prefix: str = ""
    region: str = "us-east-1"
    endpoint: str = ""  # empty: that of AWS
    key_id: str = ""
    secret: str = ""
    token: str = ""


class UrlFile(Struct, frozen=True):
    """Content of a URL: a file, or None if unchanged since it was `seen`."""

    file: SourceFile | None
    seen: str


async def url_file(url: str, fetching: FetchOptions, selection: WantedFiles) -> UrlFile:
    """The file at a URL; its name is the host and the path. Raises ReadingRefused."""
    parts = check_file_url(url)
    response = await _fetch_source(url, fetching, selection.limits.container_bytes, selection.state)
    validator = ": ".join(filter(None, response.validator))
    if response.unchanged:
        return UrlFile(None, validator)
    name = safe_name(f"{parts.hostname}/{unquote(parts.path)}", selection.limits)
    file = SourceFile.of(name or str(parts.hostname), response.data, selection.content_ids)
    return UrlFile(file, validator)


def check_file_url(url: str) -> SplitResult:
    """The parts of the URL of a file. Raises ReadingRefused."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ReadingRefused("expected a URL") from error
    if parts.scheme not in ("http", "https") or has_credentials(url):
        raise ReadingRefused("expected an http or https URL without user and password")
    return parts


async def _fetch_source(
    url: str, fetching: FetchOptions, limit_bytes: int, validator: str = ""
) -> FetchedDocument:
    condition, _, value = validator.partition(": ")
    try:
        return await fetch(
            url,
            limit_bytes=limit_bytes,
            timeout_s=fetching.timeout_s,
            private_networks=fetching.private_networks,
            by_operator=False,
            validator=(condition, value) if condition in _CONDITIONS else ("", ""),
        )
    except ImportRejected as error:
        raise ReadingRefused(_without_query(str(error), url)) from None


def _without_query(reason: str, url: str) -> str:
    """A reason without what signs a URL, and without settings of imports: others decide here."""
    words = reason.split(" ")
    plain = " ".join(word.partition("?")[0] if "://" in word else word for word in words)
    plain = plain.replace(IMPORTS_GUARD, GUARD).partition(" (setting imports.")[0]
    # the report of the file names the URL
    return plain.removeprefix(f"Cannot fetch {url.partition('?')[0]}").lstrip(": ").rstrip(".")


async def bucket_files(
    bucket: Bucket, fetching: FetchOptions, selection: WantedFiles
) -> AsyncIterator[Entry]:
    """The files of a bucket; their ids are their etags. Raises ReadingRefused."""
    from gateway.wings.documents.reading.s3_signing import Signer  # 0.1 s and 10 MB

    signer = await to_thread.run_sync(Signer, bucket)
    budget_bytes, count, after = selection.limits.source_bytes, 0, ""
    for _ in range(selection.limits.listings):
        page = await _fetch_source(signer.listing(after), fetching, _LISTING_BYTES)
        listed = await to_thread.run_sync(_parse_listing, page.data, selection)
        for entry in listed.entries:
            if isinstance(entry, LeftOut):
                yield entry
                continue
            count += 1
            if count > selection.limits.files:
                raise ReadingRefused(f"the bucket has more than {selection.limits.files:,} files")
            file = await _object(entry, signer, fetching=fetching, selection=selection)
            budget_bytes -= len(file.data or b"") if isinstance(file, SourceFile) else 0
            if budget_bytes < 0:
                limit = selection.limits.source_bytes
                raise ReadingRefused(f"the files are larger than {limit:,} bytes")
            yield file
        after = listed.after
        if not after:
            return
    raise ReadingRefused(f"the listing has more than {selection.limits.listings:,} pages")


class _Object(Struct, frozen=True):
    key: str
    id: str
    path: str


class _Listing(Struct, frozen=True):
    """A page of a listing: what is wanted of it, and what has no safe name."""

    entries: list[_Object | LeftOut]
    after: str  # empty: these are the last


async def _object(
    entry: _Object, signer: "Signer", *, fetching: FetchOptions, selection: WantedFiles
) -> Entry:
    if selection.content_ids.get(entry.path) == entry.id:
        return SourceFile(entry.path, entry.id, None)
    try:
        response = await _fetch_source(
            signer.object(entry.key), fetching, selection.limits.container_bytes
        )
    except ReadingRefused as error:
        return LeftOut(entry.path, str(error), unread=True)
    return SourceFile(entry.path, entry.id, response.data)


def _parse_listing(data: bytes, selection: WantedFiles) -> _Listing:
    """A page of a listing of S3. Raises ReadingRefused."""
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.LxmlError, ValueError) as error:
        raise ReadingRefused("the listing of the bucket is not one of S3") from error
    entries: list[_Object | LeftOut] = []
    for content in root.iterfind("{*}Contents"):
        key = unquote_plus(content.findtext("{*}Key") or "")
        path = safe_name(key, selection.limits)
        if not path:
            entries.append(LeftOut(key[:100], "its name is not safe"))
        elif not key.endswith("/") and selection.selects(path):
            tag = (content.findtext("{*}ETag") or "").strip('"')
            entries.append(_Object(key, f"s3:{tag}", path))
    more = (root.findtext("{*}IsTruncated") or "").lower() == "true"
    return _Listing(entries, (root.findtext("{*}NextContinuationToken") or "") if more else "")
