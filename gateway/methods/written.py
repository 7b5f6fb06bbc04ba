"""Answers that depend on the catalog alone: written once for all who ask."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw

from registry.catalog.catalog import Catalog
from schemas.jsonrpc import encode


class EncodedAnswers:
    """What `write` makes of a catalog, encoded, for as long as there is that catalog."""

    def __init__(self, write: Callable[[Catalog], Any]) -> None:
        self._write = write
        self._kept: WeakKeyDictionary[Catalog, Raw] = WeakKeyDictionary()

    def of(self, catalog: Catalog) -> Raw:
        written = self._kept.get(catalog)
        if written is None:
            written = self._kept[catalog] = Raw(encode(self._write(catalog)))
        return written
