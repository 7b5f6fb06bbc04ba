"""Properties excluded from one direction: `readOnly` ones are never sent in a request."""

from typing import Any, Literal

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.values import mapping, sequence

_HOPS = 16  # through `$ref` and `allOf`; flags further away are ignored

Flag = Literal["readOnly", "writeOnly"]


class Visibility:
    """Evaluates raw schemas, through `$ref` and `allOf`; cached per component."""

    def __init__(self, document: OpenApiDocument, flag: Flag = "readOnly") -> None:
        self._document = document
        self._flag = flag
        self._hidden: dict[str, bool] = {}
        self._names: dict[str, frozenset[str]] = {}

    def hidden(self, schema: object, hops: int = _HOPS) -> bool:
        """Whether a property with this schema is left out."""
        raw = mapping(schema)
        if raw.get(self._flag) is True:
            return True
        ref = raw.get("$ref")
        if isinstance(ref, str) and hops and self._hidden_target(ref, hops):
            return True
        return any(self.hidden(part, hops - 1) for part in self._parts(raw, hops))

    def names(self, schema: object, hops: int = _HOPS) -> frozenset[str]:
        """The hidden properties of `schema` and the schemas that it includes: a `required` in one
        part may name a property of another."""
        raw = mapping(schema)
        properties = self._named(raw)
        own = frozenset(name for name, value in properties.items() if self.hidden(value))
        ref = raw.get("$ref")
        if isinstance(ref, str) and hops:
            own |= self._names_of_target(ref, hops)
        return own.union(*(self.names(part, hops - 1) for part in self._parts(raw, hops)))

    def _parts(self, raw: dict[str, Any], hops: int) -> list[Any]:
        return sequence(raw.get("allOf")) if hops else []

    def _hidden_target(self, ref: str, hops: int) -> bool:
        if ref not in self._hidden:
            self._hidden[ref] = False  # the answer for recursion
            self._hidden[ref] = self.hidden(self._find(ref), hops - 1)
        return self._hidden[ref]

    def _names_of_target(self, ref: str, hops: int) -> frozenset[str]:
        if ref not in self._names:
            self._names[ref] = frozenset()
            self._names[ref] = self.names(self._find(ref), hops - 1)
        return self._names[ref]

    def _named(self, raw: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._document.named(raw.get("properties"))
        except SkipOperation:
            return {}

    def _find(self, ref: str) -> object:
        try:
            return self._document.find(ref)
        except SkipOperation:
            return None  # reported by the conversion of the reference
