"""GraphQL schemas: found as the bytes that are kept of them, and read from those."""

from collections.abc import Awaitable, Callable

import msgspec

from config.settings import Imports
from registry.documents.bundles import Bundle, unpack
from registry.documents.fetch import fetch, has_credentials
from registry.importers.imported import Imported
from registry.importers.openapi import parse
from registry.sources.introspection import is_endpoint
from registry.sources.openapi_documents import OpenApiDescription
from schemas.errors import ImportRejected
from schemas.source import GraphQLOptions

_OVERLAY = "expected an overlay, an object with `operations` and `defaults`"


async def describe_graphql(
    location: str, options: GraphQLOptions, limits: Imports, ask: Callable[[], Awaitable[bytes]]
) -> OpenApiDescription:
    """The schema at `location`, read or asked for, and its overlay. Raises ImportRejected."""
    if is_endpoint(location):
        found, data = location, await ask()
    else:
        found, data = await _fetch(location, limits, named=not options.guarded)
    bundle = Bundle(found, {found: data})
    if options.overlay is not None:
        if has_credentials(options.overlay):  # options are kept and shown
            raise ImportRejected("The overlay's URL holds credentials; name one without.")
        at, beside = await _fetch(options.overlay, limits)
        bundle = msgspec.structs.replace(bundle, overlay=beside, overlay_location=at)
    return OpenApiDescription(found, bundle.pack(found))


async def _fetch(location: str, limits: Imports, *, named: bool = True) -> tuple[str, bytes]:
    fetched = await fetch(
        location,
        limit_bytes=limits.document_limit_bytes,
        timeout_s=limits.fetch_timeout_s,
        private_networks=limits.private_networks,
        named=named,
    )
    return fetched.location, fetched.data


def read_graphql(
    document: bytes,
    location: str,
    options: GraphQLOptions,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> Imported:
    """What `describe_graphql` found, as tools; no network and no file system is asked. Raises
    ImportRejected."""
    # graphql-core takes 0.1 s to import, which every command would pay for
    from registry.importers.graphql import GraphQLChoice, GraphQLOverlay, read, read_overlay

    bundle = unpack(document, location)
    beside = GraphQLOverlay()
    if bundle.overlay is not None:
        at = bundle.overlay_location
        beside = read_overlay(parse(bundle.overlay, at, _OVERLAY, unique=True), at)
    wanted = GraphQLChoice(
        include, exclude, beside, options.only_marked, options.depth, options.cost
    )
    endpoint = location if is_endpoint(location) else None
    return read(bundle.files[bundle.entry], location, wanted, endpoint)
