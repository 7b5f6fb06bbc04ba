"""Facts about a value from its raw schema, through `$ref`, `allOf` and choices.

They decide how a value is sent (file, list, properties) and whether it is sent at all
(`readOnly`), which the converted schemas, made for validation, do not show.
"""

from collections.abc import Iterator
from typing import Any, Literal

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from schemas.json_schema.keywords import COMPOSITIONS
from schemas.json_schema.references import reference_of
from schemas.json_schema.walk import subschemas
from schemas.untrusted_json import mapping, sequence

_HOPS = 16  # through `$ref` and `allOf`; flags further away are ignored

Flag = Literal["readOnly", "writeOnly"]


class Visibility:
    """Evaluates raw schemas, through `$ref` and `allOf`; cached per component."""

    def __init__(self, document: OpenApiDocument, flag: Flag = "readOnly") -> None:
        self._document = document
        self._flag = flag
        self._hidden: dict[str, bool] = {}
        self._names: dict[str, frozenset[str]] = {}

    def is_hidden(self, schema: object, hops: int = _HOPS) -> bool:
        """Whether a property with this schema is left out."""
        raw = mapping(schema)
        if raw.get(self._flag) is True:
            return True
        ref = reference_of(raw)
        if ref is not None and hops and self._hidden_target(ref, hops):
            return True
        return any(self.is_hidden(part, hops - 1) for part in self._parts(raw, hops))

    def names(self, schema: object, hops: int = _HOPS) -> frozenset[str]:
        """The hidden properties of `schema` and the schemas that it includes: a `required` in one
        part may name a property of another."""
        raw = mapping(schema)
        properties = _named_properties(self._document, raw)
        hidden = frozenset(name for name, value in properties.items() if self.is_hidden(value))
        ref = reference_of(raw)
        if ref is not None and hops:
            hidden |= self._names_of_target(ref, hops)
        return hidden.union(*(self.names(part, hops - 1) for part in self._parts(raw, hops)))

    def _parts(self, raw: dict[str, Any], hops: int) -> list[Any]:
        return sequence(raw.get("allOf")) if hops else []

    def _hidden_target(self, ref: str, hops: int) -> bool:
        if ref not in self._hidden:
            self._hidden[ref] = False  # the answer for recursion
            self._hidden[ref] = self.is_hidden(self._find(ref), hops - 1)
        return self._hidden[ref]

    def _names_of_target(self, ref: str, hops: int) -> frozenset[str]:
        if ref not in self._names:
            self._names[ref] = frozenset()
            self._names[ref] = self.names(self._find(ref), hops - 1)
        return self._names[ref]

    def _find(self, ref: str) -> object:
        try:
            return self._document.find(ref)
        except SkipOperation:
            return None  # reported by the conversion of the reference


def _named_properties(document: OpenApiDocument, raw: dict[str, Any]) -> dict[str, Any]:
    try:
        return document.named_members(raw.get("properties"))
    except SkipOperation:
        return {}


_PARTS_LIMIT = 500  # raw schemas combined into one


class RawSchemas:
    """Reads the raw schemas of one document."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document

    def resolve(self, raw: object) -> dict[str, Any]:
        """`raw`, or the target of its `$ref`; empty if there is none."""
        try:
            return self._document.resolve(raw)
        except SkipOperation:
            return {}

    def parts(self, raw: object) -> Iterator[dict[str, Any]]:
        """`raw` and all schemas that it is composed of, each once."""
        seen: set[int] = set()
        queue = [raw]
        while queue and len(seen) < _PARTS_LIMIT:
            part = self.resolve(queue.pop(0))
            if not part or id(part) in seen:
                continue
            seen.add(id(part))
            yield part
            queue.extend(subschemas(part, COMPOSITIONS))

    def properties(self, raw: object) -> dict[str, Any]:
        """The raw schemas of the properties; of duplicates the first wins."""
        properties: dict[str, Any] = {}
        for part in self.parts(raw):
            for name, schema in _named_properties(self._document, part).items():
                properties.setdefault(name, schema)
        return properties

    def kind(self, raw: object) -> str | None:
        """The type, stated or inferred from the keywords."""
        for part in self.parts(raw):
            stated = part.get("type")
            for name in stated if isinstance(stated, list) else [stated]:
                if isinstance(name, str) and name != "null":
                    return name.lower()
            if "properties" in part or "additionalProperties" in part:
                return "object"
            if "items" in part or "prefixItems" in part:
                return "array"
        return None

    def items(self, raw: object) -> Any:
        """The raw schema of an array's items."""
        return next((part["items"] for part in self.parts(raw) if "items" in part), {})

    def binary(self, raw: object) -> bool:
        """Whether the value is bytes: up to 3.0 by `format: binary` or `type: file`, in 3.1
        (4.8.14) by a `contentMediaType` without `contentEncoding`."""
        return any(_is_binary(part) for part in self.parts(raw))

    def files(self, raw: object) -> bool:
        """Whether the value is a file, or a list of files."""
        if self.kind(raw) == "array":
            return self.binary(self.items(raw))
        return self.binary(raw)

    def has_files(self, raw: object) -> bool:
        """Whether any property is a file."""
        return any(self.files(schema) for schema in self.properties(raw).values())


def _is_binary(schema: dict[str, Any]) -> bool:
    if schema.get("format") == "binary" or schema.get("type") == "file":
        return schema.get("type", "string") in ("string", "file", ["string", "null"])
    media_type = schema.get("contentMediaType")
    encoded = "contentEncoding" in schema or not isinstance(media_type, str)
    return not encoded and schema.get("type", "string") == "string" and not is_textual(media_type)


def is_textual(media_type: object) -> bool:
    """Whether values of this media type are text that a model can write."""
    essence = str(media_type).partition(";")[0].strip().lower()
    kind, _, name = essence.partition("/")
    return (
        kind == "text"
        or name.endswith(("json", "xml", "yaml", "json-seq", "jsonl", "ndjson"))
        or name in _TEXTS
    )


_TEXTS = frozenset(
    {
        "javascript", "ecmascript", "graphql", "sql", "jwt", "jose", "x-www-form-urlencoded",
        "toml", "x-sh", "rtf", "n-triples", "n-quads", "sparql-query", "sparql-update", "trig",
        "logout-token+jwt", "secevent+jwt", "x-pem-file", "csv", "svg+xml", "x-sql", "x-toml",
    }
)  # fmt: skip
