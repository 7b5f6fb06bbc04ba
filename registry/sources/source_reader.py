"""Source reader: finds and reads what an import needs: a description at a location, a service in
this process, or the lists of another MCP server.

It knows no database. The modules of an importer are loaded with the first source of its kind, so a
gateway whose tools are stored starts without them.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urljoin, urlsplit

from config.settings import Imports
from registry.documents.containers import unpack
from registry.documents.fetch import fetch, has_credentials, local_path
from registry.importers.drafts import SCHEMAS_LIMIT_BYTES, ImportedDescription, join_notes
from registry.importers.hybrid import describe_actions, read_file, select
from registry.importers.mcp import read_snapshot
from registry.sources.import_plan import storable
from registry.sources.import_specs import ImportSpec
from schemas.description_kinds import DESCRIPTIONS, looks_like
from schemas.errors import ImportRejected
from schemas.hybrid import Action, Side

IMPORTER = 5  # increment when the same document would give other tools than before


Services = Mapping[str, Sequence[Action]]  # by name of a source written in Python

OWN_TENANT = (
    "expected a caller of the gateway's own tenant (tenant.host_id), since such servers are asked "
    "with the credentials of the settings"
)
DescriptionsByWing = Mapping[str, ImportedDescription]  # by name of a wing of this process

NO_SERVICES: Services = {}
NOTHING_OFFERED: DescriptionsByWing = {}


Lister = Callable[[ImportSpec], Awaitable[bytes]]
"""Asks an MCP server for all its lists: an encoded Snapshot; or a GraphQL endpoint for its schema:
the answer of an introspection. Raises ImportRejected."""

Limits = Imports | None  # None: the defaults


@dataclass(frozen=True, slots=True)
class Origins:
    """Where imports come from besides the network and the file system."""

    services: Services = field(default_factory=dict)  # those served by this process
    lister: Lister | None = None  # None: this process lists no servers
    offered: DescriptionsByWing = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A found source; parsing takes time, so it is deferred until needed."""

    location: str
    document: bytes | None
    digest: str
    read: Callable[
        [], ImportedDescription
    ]  # raises ImportRejected, also when there would be no tools


Read = Callable[[bytes, str, ImportSpec, Limits], ImportedDescription]
Find = Callable[[ImportSpec, Imports, Origins], Awaitable[FoundSource]]


async def find(spec: ImportSpec, limits: Imports, origins: Origins) -> FoundSource:
    """Find a source. Raises ImportRejected."""
    return await IMPORTERS[spec.kind].find(spec, limits, origins)


async def find_description(spec: ImportSpec, limits: Imports, _origins: Origins) -> FoundSource:
    """The bytes at a file or a URL, unchanged. Raises ImportRejected."""
    check_public(spec)
    fetched = await fetch(
        spec.location,
        limit_bytes=limits.document_limit_bytes,
        timeout_s=limits.fetch_timeout_s,
        private_networks=limits.private_networks,
        by_operator=not spec.options.guarded,
    )
    return reread(replace(spec, location=fetched.location), fetched.data)


def check_public(spec: ImportSpec) -> None:
    if spec.options.guarded and local_path(spec.location) is not None:
        raise ImportRejected(f"{spec.location}: expected an http(s) URL.")


OVERLAY_EXPECTED = "expected an overlay, an object with `operations` and `defaults`"


def check_overlay(location: str) -> None:
    if has_credentials(location):  # options are stored and shown
        raise ImportRejected("The overlay's URL holds credentials; name one without.")


async def _find_hybrid(spec: ImportSpec, limits: Imports, origins: Origins) -> FoundSource:
    if spec.base_url is None:
        raise ImportRejected(
            f"The source {spec.name} has no base_url; the description of a hybrid service "
            "does not contain its address."
        )
    return await find_description(spec, limits, origins)


async def _find_python(spec: ImportSpec, _limits: Imports, origins: Origins) -> FoundSource:
    return await asyncio.to_thread(_python_service, spec, origins.services)


async def _find_mcp(spec: ImportSpec, _limits: Imports, origins: Origins) -> FoundSource:
    if origins.lister is None:
        raise ImportRejected(f"The source {spec.name} is an MCP server: {OWN_TENANT}")
    return reread(spec, await origins.lister(spec))


def reread(spec: ImportSpec, document: bytes, limits: Limits = None) -> FoundSource:
    """The result that `find` had when it found `document` at `spec.location`, without network or
    file access."""
    reader = _reader_with_hint(spec.kind)
    return FoundSource(
        spec.location,
        document,
        _digest(document),
        lambda: reader(document, spec.location, spec, limits),
    )


@asynccontextmanager
async def concurrent_lister(
    lister: Lister | None, specs: Sequence[ImportSpec]
) -> AsyncIterator[Lister | None]:
    """A lister that has begun to query all servers among `specs` concurrently, so that their
    timeouts do not add up; names are still assigned in the order of `specs`."""
    if lister is None:
        yield None
        return
    servers = (spec for spec in specs if IMPORTERS[spec.kind].needs_lister(spec))
    answers = {spec.name: asyncio.ensure_future(lister(spec)) for spec in servers}
    try:
        yield lambda spec: answers[spec.name]
    finally:
        for answer in answers.values():
            answer.cancel()
        await asyncio.gather(*answers.values(), return_exceptions=True)


def _read_mcp(
    snapshot: bytes, location: str, spec: ImportSpec, _limits: Limits
) -> ImportedDescription:
    with with_location(location):
        # Empty lists are a server's valid answer, not a mistake in a description.
        imported = read_snapshot(snapshot, spec.include, spec.exclude)
        return non_empty(imported) if imported.outcomes else imported


def _read_hybrid(
    data: bytes, location: str, spec: ImportSpec, _limits: Limits
) -> ImportedDescription:
    actions = read_file(data, location)
    with with_location(location):
        imported = select(actions, "hybrid", _side(spec), spec.include, exclude=spec.exclude)
    return non_empty(imported)


def schemas_limit_bytes(limits: Limits) -> int:
    return limits.schemas_limit_bytes if limits else SCHEMAS_LIMIT_BYTES


def _side(spec: ImportSpec) -> Side | None:
    return spec.options.side


def _reader_with_hint(kind: str) -> Read:
    """The reader of a kind; its rejections name the importer that reads the document, if there is
    one."""
    read = IMPORTERS[kind].read

    def read_with_hint(
        document: bytes, location: str, spec: ImportSpec, limits: Limits
    ) -> ImportedDescription:
        try:
            return read(document, location, spec, limits)
        except ImportRejected as error:
            likely_kind = looks_like(_entry(document, location))
            if likely_kind in (None, kind) or "toolgate import" in str(error):
                raise
            name = IMPORTERS[likely_kind].input_name
            hint = f"This looks like {name}: use `toolgate import {likely_kind}`"
            raise ImportRejected(
                f"{str(error).rstrip('.')}. {hint}, or {likely_kind}: in the settings."
            ) from error

    return read_with_hint


def _entry(document: bytes, location: str) -> bytes:
    """The entry file of a bundle."""
    bundle = unpack(document, location)
    return bundle.files[bundle.entry]


@contextmanager
def with_location(location: str) -> Iterator[None]:
    """Context whose rejections have the location added."""
    try:
        yield
    except ImportRejected as error:
        raise ImportRejected(f"{location}: {error}") from error


def _python_service(spec: ImportSpec, services: Services) -> FoundSource:
    """A service of this process: it has no document, so the digest is that of its tools."""
    if spec.name not in services:
        raise ImportRejected(
            f"The source {spec.name} is written in Python: it is imported by `toolgate serve`, "
            "when that starts, and by nothing else."
        )
    actions = describe_actions(services[spec.name])
    with with_location(spec.location):
        imported = select(actions, "python", _side(spec), spec.include, exclude=spec.exclude)
    digest = _digest("".join(storable(draft)[1] for draft in imported.drafts).encode())
    return FoundSource(spec.location, None, digest, lambda: non_empty(imported))


async def _find_offered(spec: ImportSpec, _limits: Imports, origins: Origins) -> FoundSource:
    """Contributions of a wing: without a document, so the digest covers its tools and items."""
    if spec.name not in origins.offered:
        raise ImportRejected(
            f"The source {spec.name} is a wing of the gateway: `toolgate serve` imports it, and "
            "nothing else."
        )
    imported = origins.offered[spec.name]
    parts = [*imported.drafts, *imported.items]
    parts += [] if imported.server is None else [imported.server]
    digest = _digest("".join(storable(part)[1] for part in parts).encode())
    return FoundSource(spec.location, None, digest, lambda: imported)


def _digest(document: bytes) -> str:
    """Digest of the document and this importer; another importer may make other tools of it."""
    return hashlib.sha256(b"%d\0" % IMPORTER + document).hexdigest()


def non_empty(description: ImportedDescription) -> ImportedDescription:
    """`description`, unless it has neither tools nor items. Raises ImportRejected."""
    if not description.drafts and not description.items:
        raise ImportRejected(_empty_reason(description))
    return description


def _empty_reason(description: ImportedDescription) -> str:
    excluded = sum(outcome.status == "excluded" for outcome in description.outcomes)
    if not description.outcomes:
        return "Nothing to import: the description has no operations (`paths` is empty)"
    if excluded == len(description.outcomes):
        reason = Counter(outcome.reason for outcome in description.outcomes).most_common(1)[0][0]
        notes = join_notes(description.notes)  # as a pattern or a key that matches nothing
        remarks = f"; {notes}" if notes else ""
        return f"Nothing to import: all {excluded} operations are left out ({reason}){remarks}"
    skipped = next(o for o in description.outcomes if o.status == "skipped")
    return (
        f"Nothing to import: every operation was skipped, as {skipped.operation}: {skipped.reason}"
    )


def _needs_no_lister(*_spec: object) -> bool:
    return False


def _no_declared_url(*_arguments: object) -> None:
    return None


def declared_base(location: str, servers: tuple[str, ...]) -> str | None:
    """The first server of the description that is an HTTP address, relative ones resolved. One with
    a variable left is none: resolved like a relative one, it would lead to the document's host."""
    at = location if is_url(location) else ""
    for server in servers or ("/",):  # OpenAPI 3.1, 4.8.1: no servers means `/`
        if "{" in server:
            continue
        try:
            url = urljoin(at, server) if at else server
            parts = urlsplit(url)
        except ValueError:  # http://[x
            continue
        if parts.scheme in {"http", "https"} and parts.hostname:
            return url.rstrip("/")
    return None


def is_url(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def _endpoint(_location: str, servers: tuple[str, ...]) -> str | None:
    return servers[0] if servers else None  # the slash at its end counts


def _no_document(*_read: object) -> ImportedDescription:
    raise ImportRejected("What is served by the gateway itself has no description.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """How the sources of one kind are found and read; all its functions raise ImportRejected."""

    read: Read  # a document as tools
    find: Find = find_description
    needs_lister: Callable[[ImportSpec], bool] = _needs_no_lister  # whether `find` needs the lister
    declared: Callable[[str, tuple[str, ...]], str | None] = _no_declared_url
    """Where calls go as the description says it, by its location and its servers."""
    relative: bool = False  # whether servers may be relative to the description's URL
    input_name: str = "a description"  # its input, in words


def on_demand(name: str) -> Callable[..., Any]:
    """A function by its name, as in "package.module:function"; the module is loaded by its first
    call."""
    return lambda *arguments: resolve_name(name)(*arguments)


IMPORTERS: dict[str, Importer] = {
    "openapi": Importer(
        read=on_demand("registry.sources.openapi_documents:read_openapi"),
        find=on_demand("registry.sources.openapi_documents:find_openapi"),
        declared=declared_base,
        relative=True,
        input_name=DESCRIPTIONS["openapi"],
    ),
    "graphql": Importer(
        read=on_demand("registry.sources.graphql_documents:read_graphql"),
        find=on_demand("registry.sources.graphql_documents:find_graphql"),
        needs_lister=on_demand("registry.sources.graphql_documents:needs_lister"),
        declared=_endpoint,
        input_name=DESCRIPTIONS["graphql"],
    ),
    "hybrid": Importer(read=_read_hybrid, find=_find_hybrid, input_name=DESCRIPTIONS["hybrid"]),
    "python": Importer(read=_no_document, find=_find_python),
    "mcp": Importer(read=_read_mcp, find=_find_mcp, needs_lister=lambda _spec: True),
    "a2a": Importer(
        read=on_demand("registry.sources.agent_cards:read_agent"),
        find=on_demand("registry.sources.agent_cards:find_agent"),
        declared=_endpoint,
    ),
    "wing": Importer(read=_no_document, find=_find_offered),
}
"""By kind of source; see `schemas.source.KINDS`."""
