"""OpenAPI descriptions: fetched as the bytes that are stored, and parsed from those."""

from dataclasses import dataclass
from typing import Any

import msgspec

from config.settings import Imports
from registry.documents.bundles import Bundle, place, unpack
from registry.documents.fetch import fetch, has_credentials
from registry.importers.imported import Imported
from registry.importers.openapi import OpenApiOptions, Overlay, overlay, parse, read
from registry.importers.openapi.files import Files, scan, stands_alone
from registry.importers.openapi.marks import NO_OVERLAY
from registry.importers.openapi.operations import SCHEMAS_LIMIT_BYTES
from registry.sources.openapi_files import gather
from schemas.errors import ImportRejected
from schemas.source import OpenAPIOptions

_OVERLAY = "expected an overlay, an object with `operations` and `defaults`"


@dataclass(frozen=True, slots=True)
class OpenApiDescription:
    location: str  # absolute path or URL, without credentials
    document: bytes  # a packed `Bundle`


async def describe(location: str, options: OpenAPIOptions, limits: Imports) -> OpenApiDescription:
    """All files of the description at `location`, and its overlay. Raises ImportRejected."""
    gathered = await gather(location, options.entry, limits, named=not options.guarded)
    bundle = gathered.bundle
    if options.overlay is not None:
        if has_credentials(options.overlay):
            # options are stored and shown; the description's own location is stored without
            raise ImportRejected("The overlay's URL holds credentials; name one without.")
        beside = await fetch(
            options.overlay,
            limit_bytes=limits.document_limit_bytes,
            timeout_s=limits.fetch_timeout_s,
            private_networks=limits.private_networks,
        )
        bundle = msgspec.structs.replace(
            bundle, overlay=beside.data, overlay_location=beside.location
        )
    return OpenApiDescription(gathered.location, bundle.pack(gathered.location))


def read_described(
    document: bytes,
    location: str,
    options: OpenAPIOptions,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    schemas_limit_bytes: int = SCHEMAS_LIMIT_BYTES,
) -> Imported:
    """The result of `describe` as tools, without network or file access. Raises ImportRejected."""
    bundle = unpack(document, location)
    beside = _overlay(bundle)
    root = _together(bundle, location)
    marked, media_types = options.only_marked, options.media_types
    wanted = OpenApiOptions(include, exclude, marked, media_types, beside, schemas_limit_bytes)
    try:
        return read(root, wanted)
    except ImportRejected as error:
        raise ImportRejected(f"{location}: {error}") from error


def _together(bundle: Bundle, location: str) -> dict[str, Any]:
    entry = bundle.files[bundle.entry]
    root = parse(entry, place(location, bundle.entry))
    if stands_alone(entry):
        return root
    files = Files(bundle.entry)
    files.add(scan(bundle.entry, root))
    for name, data in bundle.files.items():
        if name != bundle.entry:
            files.add(scan(name, parse(data, name)))
    for name, reason in bundle.unread.items():
        files.miss(name, reason)
    return files.assembled()


def _overlay(bundle: Bundle) -> Overlay:
    if bundle.overlay is None:
        return NO_OVERLAY
    location = bundle.overlay_location
    return overlay(parse(bundle.overlay, location, _OVERLAY, unique=True), location)
