"""What there is to import, found and read: a description somewhere, or a service in this process.

Knows no database.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from config.settings import Imports
from registry.changes import storable
from registry.fetch import fetch
from registry.importers.hybrid import described, read_file, select
from registry.importers.imported import Imported
from registry.importers.openapi import Options, parse, read
from schemas.errors import ImportRejected
from schemas.hybrid import Action
from schemas.source import HybridOptions

IMPORTER = 1  # raise it when the same document would give other tools than before

Kind = Literal["openapi", "hybrid", "python"]
Services = Mapping[str, Sequence[Action]]  # of each source that is written in Python

NO_SERVICES: Services = {}


@dataclass(frozen=True, slots=True)
class ImportSpec:
    """What to import, as the operator said it."""

    name: str
    location: str  # path or URL; for kind "python" a module or the path of a .py file
    base_url: str | None = None  # None: the description's own server
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    kind: Kind = "openapi"
    options: HybridOptions = field(default_factory=HybridOptions)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to import; reading it takes time, so it is put off until it has to be."""

    location: str
    document: bytes | None
    digest: str
    read: Callable[[], Imported]  # raises ImportRejected, also when there would be no tools


async def find(spec: ImportSpec, limits: Imports, services: Services) -> Found:
    """Raises ImportRejected."""
    if spec.kind == "python":
        return await asyncio.to_thread(_written, spec, services)
    if spec.kind == "hybrid" and spec.base_url is None:
        raise ImportRejected(
            f"The source {spec.name} has no base_url; a hybrid service's description does not say "
            "where the service is."
        )
    fetched = await fetch(
        spec.location,
        limit_bytes=limits.document_limit_bytes,
        timeout_s=limits.fetch_timeout_s,
        private_networks=limits.private_networks,
    )
    reader = _read_hybrid if spec.kind == "hybrid" else _read_openapi

    def read_all() -> Imported:
        return _some(reader(fetched.data, fetched.location, spec))

    return Found(fetched.location, fetched.data, _digest(fetched.data), read_all)


def _read_openapi(data: bytes, location: str, spec: ImportSpec) -> Imported:
    document = parse(data, location)
    with _located(location):
        return read(document, Options(spec.include, spec.exclude))


def _read_hybrid(data: bytes, location: str, spec: ImportSpec) -> Imported:
    actions = read_file(data, location)
    with _located(location):
        return select(actions, "hybrid", spec.options.side, spec.include, spec.exclude)


@contextmanager
def _located(location: str) -> Iterator[None]:
    """What is rejected says where it stands."""
    try:
        yield
    except ImportRejected as error:
        raise ImportRejected(f"{location}: {error}") from error


def _written(spec: ImportSpec, services: Services) -> Found:
    """A service of this process: there is no document, so its tools are what the digest names."""
    if spec.name not in services:
        raise ImportRejected(
            f"The source {spec.name} is written in Python: it is imported by `toolgate serve`, "
            "when that starts, and by nothing else."
        )
    actions = described(services[spec.name])
    with _located(spec.location):
        imported = select(actions, "python", spec.options.side, spec.include, spec.exclude)
    digest = _digest("".join(storable(draft)[1] for draft in imported.drafts).encode())
    return Found(spec.location, None, digest, lambda: _some(imported))


def _digest(document: bytes) -> str:
    """Names a document as this importer reads it; another importer may make other tools of it."""
    return hashlib.sha256(b"%d\0" % IMPORTER + document).hexdigest()


def _some(imported: Imported) -> Imported:
    """`imported`, if it has any tools. Raises ImportRejected."""
    if not imported.drafts:
        raise ImportRejected(_nothing(imported))
    return imported


def _nothing(imported: Imported) -> str:
    excluded = sum(outcome.status == "excluded" for outcome in imported.outcomes)
    if not imported.outcomes:
        return "Nothing to import: the description has no operations (`paths` is empty)"
    if excluded == len(imported.outcomes):
        return f"Nothing to import: the patterns exclude all {excluded} operations"
    skipped = next(o for o in imported.outcomes if o.status == "skipped")
    return (
        f"Nothing to import: every operation was skipped, as {skipped.operation}: {skipped.reason}"
    )
