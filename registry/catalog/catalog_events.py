"""Events of the catalogs, for the parts of one process."""

import msgspec
from msgspec import Struct

from registry.database.postgres import Pool
from schemas.mcp.messages import ListKind
from schemas.signals import AsyncSignal, Signal


class CatalogEvents(Struct, frozen=True):
    database_connected: AsyncSignal[Pool] = msgspec.field(default_factory=AsyncSignal)
    """The database responds; awaited before the catalogs are loaded, at every connection."""

    catalog_loaded: Signal[str] = msgspec.field(default_factory=Signal)
    """A tenant's catalog was loaded: sources may have been added or removed, too."""

    lists_changed: Signal[str, frozenset[ListKind]] = msgspec.field(default_factory=Signal)
    """Lists of a tenant differ from those before."""

    toolset_changed: Signal[str, str] = msgspec.field(default_factory=Signal)
    """A toolset of a tenant was stored, changed or deleted."""

    source_changed: AsyncSignal[str] = msgspec.field(default_factory=AsyncSignal)
    """The server of a source announced other lists; awaited until they are imported."""
