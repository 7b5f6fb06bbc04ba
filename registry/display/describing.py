"""`describe_tool`: the gateway's own tool, which tells what lists leave out. Pure.

Its name is its alone (`registry.names.reserved`).
"""

from typing import Any

from msgspec import Raw

from registry.display.summaries import Summaries
from schemas.binding import GatewayBinding
from schemas.jsonrpc import encode
from schemas.tool import Annotations, Tool

NAME = "describe_tool"
SOURCE = "toolgate"  # what it counts as in lists by source
STEPS = 64  # of a path
BRANCHES = 16  # schemas of one property
HOPS = 16  # references and unions, one after the other

_DESCRIPTION = (
    "Tells everything about one of the tools here: its whole input schema, its output schema, its "
    "whole description and examples. Lists show large tools shortened; ask for the part whose "
    "fields you need by its path."
)
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Name of the tool."},
        "path": {
            "type": "string",
            "description": "A part of its input schema alone: the names of properties from the "
            'arguments down, as in "spec.containers.resources".',
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}
_HINTS = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

Json = dict[str, Any]


DESCRIBER = Tool(
    id="00000000-0000-0000-0000-000000000000",
    name=NAME,
    title="Describe a tool",
    description=_DESCRIPTION,
    input_schema=Raw(encode(_SCHEMA)),
    output_schema=None,
    annotations=_HINTS,
    binding=GatewayBinding("describe"),
    source=SOURCE,
    digest=f"toolgate {NAME}",
)


class MissingPart(Exception):
    """There is no such part; `known` are the names that could go on from where it ends."""

    def __init__(self, step: str, known: list[str]) -> None:
        super().__init__(step)
        self.step = step
        self.known = known


def part(schema: Json, path: str) -> Json:
    """The schema at the end of `path`, with the definitions that it needs. Raises Missing."""
    lookup = _Lookup(schema)
    found: list[Json] = [schema]
    for step in path.replace("[]", "").split(".")[:STEPS]:
        before = found
        found = [inner for one in before for inner in lookup.step(one, step)][:BRANCHES]
        if not found:
            raise MissingPart(step, lookup.names(before))
    shown = found[0] if len(found) == 1 else {"anyOf": found}
    return _complete(shown, schema)


class _Lookup:
    def __init__(self, schema: Json) -> None:
        self._schema = schema

    def step(self, schema: Json, name: str) -> list[Json]:
        """What stands for the property `name`, of the object or of the items of the array."""
        found: list[Json] = []
        for one in self._alternatives(schema, HOPS):
            inner = one.get("properties")
            more = one.get("additionalProperties")
            if isinstance(inner, dict) and name in inner:
                found.append(inner[name] if isinstance(inner[name], dict) else {})
            elif name == "*" and isinstance(more, dict):
                found.append(more)
        return [one for i, one in enumerate(found) if one not in found[:i]]

    def names(self, schemas: list[Json]) -> list[str]:
        summaries = Summaries(self._resolve, "")
        each = (one for schema in schemas for one in self._alternatives(schema, HOPS))
        return list(dict.fromkeys(name for one in each for name in summaries.fields(one)))

    def _alternatives(self, schema: Any, hops: int) -> list[Json]:
        """The schema and what applies beside it; of arrays what their items are."""
        if not isinstance(schema, dict) or not hops:
            return []
        found = [schema]
        inner: list[Any] = [schema.get("items")]
        if isinstance(schema.get("$ref"), str):
            inner.append(self._resolve(schema["$ref"]))
        for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            branches = schema.get(keyword)
            inner += branches if isinstance(branches, list) else []
        for one in inner:
            found += self._alternatives(one, hops - 1)
            if len(found) > 1000:
                break
        return found

    def _resolve(self, reference: str) -> Any:
        if reference == "#":
            return self._schema
        start, _, name = reference.rpartition("/")
        definitions = self._schema.get(start.removeprefix("#/"))
        return definitions.get(name) if isinstance(definitions, dict) else None


def _complete(shown: Json, schema: Json) -> Json:
    """With the definitions that it leads to, and no others."""
    complete = dict(shown)
    for keyword in ("$defs", "definitions"):
        definitions = schema.get(keyword)
        if isinstance(definitions, dict) and (needed := _reachable(shown, keyword, definitions)):
            kept = {name: one for name, one in definitions.items() if name in needed}
            complete[keyword] = kept
    return complete


def _reachable(shown: Json, keyword: str, definitions: Json) -> set[str]:
    needed: set[str] = set()
    waiting: list[Any] = [shown]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith(f"#/{keyword}/"):
                name = reference.removeprefix(f"#/{keyword}/")
                if name in definitions and name not in needed:
                    needed.add(name)
                    waiting.append(definitions[name])
            waiting += value.values()
    return needed
