"""Answers that depend on the catalog alone: written once for all who ask."""

from collections.abc import Callable
from typing import Any

from msgspec import Raw

from registry.catalog import Catalog
from registry.catalogs import Catalogs
from schemas.jsonrpc import encode


class Written:
    """What `write` makes of a tenant's catalog, encoded, until the catalog is another one."""

    def __init__(self, catalogs: Catalogs, write: Callable[[Catalog], Any]) -> None:
        self._catalogs = catalogs
        self._write = write
        self._kept: dict[str, tuple[Catalog, Raw]] = {}

    def of(self, tenant: str) -> Raw:
        catalog = self._catalogs.of(tenant)
        known, written = self._kept.get(tenant, (None, Raw(b"")))
        if known is not catalog:
            written = Raw(encode(self._write(catalog)))
            self._kept[tenant] = (catalog, written)
        return written
