"""Parts of schemas by a path: what `describe_tools` gives of one argument."""

from typing import Any

from registry.display.schema_summaries import Summaries
from schemas.json_schema.keywords import COMPOSITIONS
from schemas.json_schema.references import close, find, reference_of
from schemas.json_schema.walk import subschemas

Json = dict[str, Any]

STEPS = 64  # path segments
BRANCHES = 16  # alternative schemas of one property
HOPS = 16  # chained references and unions
_BRANCHES = (*COMPOSITIONS, "prefixItems")


class MissingPart(Exception):
    """The path leads nowhere; `known` are the property names that could follow where it breaks
    off."""

    def __init__(self, step: str, members: list[str]) -> None:
        super().__init__(step)
        self.step = step
        self.known = members


def part(schema: Json, path: str) -> Json:
    """The schema at the end of `path`, with the definitions that it needs. Raises MissingPart."""
    lookup = _Lookup(schema)
    schemas: list[Json] = [schema]
    for step in path.replace("[]", "").split(".")[:STEPS]:
        before = schemas
        schemas = [inner for schema in before for inner in lookup.step(schema, step)][:BRANCHES]
        if not schemas:
            raise MissingPart(step, lookup.names(before))
    joined = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return close(joined, schema)


class _Lookup:
    def __init__(self, schema: Json) -> None:
        self._schema = schema

    def step(self, schema: Json, name: str) -> list[Json]:
        """Schemas of the property `name`, of the object or of the items of the array."""
        members: list[Json] = []
        for alternative in self._alternatives(schema, HOPS):
            inner = alternative.get("properties")
            more = alternative.get("additionalProperties")
            if isinstance(inner, dict) and name in inner:
                members.append(inner[name] if isinstance(inner[name], dict) else {})
            elif name == "*" and isinstance(more, dict):
                members.append(more)
        return [member for i, member in enumerate(members) if member not in members[:i]]

    def names(self, schemas: list[Json]) -> list[str]:
        summaries = Summaries(self._schema, "")
        each = (
            alternative for schema in schemas for alternative in self._alternatives(schema, HOPS)
        )
        return list(
            dict.fromkeys(name for alternative in each for name in summaries.fields(alternative))
        )

    def _alternatives(self, schema: Any, hops: int) -> list[Json]:
        """The schema and its subschemas that may apply: references, unions, array items."""
        if not isinstance(schema, dict) or not hops:
            return []
        schemas = [schema]
        target = find(self._schema, reference_of(schema))
        for branch in (schema.get("items"), target, *subschemas(schema, _BRANCHES)):
            schemas += self._alternatives(branch, hops - 1)
            if len(schemas) > 1000:
                break
        return schemas
