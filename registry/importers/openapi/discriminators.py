"""Values of discriminators, as constants of the schemas that they choose."""

from typing import Any
from urllib.parse import unquote

from registry.importers.openapi.document import OpenApiDocument
from registry.importers.openapi.raw_schema_facts import RawSchemas
from schemas.json_schema.pointers import unescape
from schemas.json_schema.references import reference_of
from schemas.untrusted_json import mapping, sequence


class Discriminators:
    """Reads Discriminator Objects (OpenAPI 3.1, section 4.8.25)."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._raw_schemas = RawSchemas(document)

    def values(self, discriminator: dict[str, Any], branches: list[Any]) -> dict[int, list[str]]:
        """The values that select each branch, by its index; left out are branches that state them
        themselves, and those that no value is known of."""
        name = str(discriminator["propertyName"])
        by_target: dict[str, list[str]] = {}
        for value, target in mapping(discriminator.get("mapping")).items():
            by_target.setdefault(_last_segment(str(target)), []).append(value)
        values: dict[int, list[str]] = {}
        for index, branch in enumerate(branches):
            target = _last_segment(reference_of(branch) or "")
            mapped = by_target.get(target, [])
            if target and (legal := self._legal(branch, name, mapped or [target], bool(mapped))):
                values[index] = legal
        return values

    def _legal(self, branch: Any, name: str, values: list[str], mapped: bool) -> list[str]:
        """Values of `values` that the branch's own schema of the property allows. Names of schemas
        are the values where nothing else is stated, and many descriptions rely on that unknowingly:
        any example, default or pattern of the property counts as a statement."""
        properties = self._raw_schemas.properties(branch)
        if name not in properties:
            closed = any(
                part.get("additionalProperties") is False
                for part in self._raw_schemas.parts(branch)
            )
            return values if mapped and not closed else []
        for part in self._raw_schemas.parts(properties[name]):
            if part.get("readOnly") is True or part.get("type", "string") != "string":
                return []
            if not mapped and not _STATEMENTS.isdisjoint(part):
                return []
            stated = [part["const"]] if "const" in part else sequence(part.get("enum")) or values
            values = [value for value in values if value in stated]
        return values


_STATEMENTS = frozenset({"const", "enum", "default", "example", "examples", "pattern", "format"})


def _last_segment(ref: str) -> str:
    """`Cat` for `#/components/schemas/Cat`, `cat.yaml#/Cat` and the bare name."""
    return unescape(unquote(ref.rpartition("/")[2].removeprefix("#")))
