"""Successful responses of an operation: their JSON schema, and the Accept header.

A bad response description never costs the operation: undescribable parts are left out with a note.
"""

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.schema_components import Schemas
from registry.importers.openapi.schema_conversion import ConvertedSchema, ReferenceTarget
from registry.importers.openapi.schema_cycles import Cycles
from schemas.json_schema.keywords import UNIONS
from schemas.json_schema.references import definition_name, is_bare_reference, siblings
from schemas.json_schema.validators import compiled_as_2020
from schemas.json_schema.walk import map_subschemas
from schemas.untrusted_json import mapping

# Keywords that accept less when a schema in them, or beside them, accepts more.
_REVERSED_TYPES = frozenset(
    ("not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties")
)
_REDIRECTS = frozenset({"301", "302", "303", "307", "308", "3XX", "3xx"})


def widen(schema: Any, dropped_names: Collection[str]) -> Any:
    """A schema with references to the `dropped_names` definitions replaced by any value."""
    if isinstance(schema, list):
        return [widen(member, dropped_names) for member in schema]
    if not isinstance(schema, dict):
        return schema
    members = siblings(schema) if definition_name(schema) in dropped_names else schema
    out: dict[str, Any] = {}
    for key, value in members.items():
        if key in _REVERSED_TYPES:
            continue
        widened = map_subschemas(key, value, lambda member: widen(member, dropped_names))
        if key in UNIONS:  # values may match several branches of `oneOf` now
            _add_choice(out, widened)
        else:
            out[key] = widened
    return out


def _add_choice(out: dict[str, Any], branches: list[Any]) -> None:
    """Add `anyOf`, or one more where `anyOf` and `oneOf` are siblings."""
    if "anyOf" in out:
        out["allOf"] = [*out.get("allOf", ()), {"anyOf": branches}]
    else:
        out["anyOf"] = branches


# Everything that Stripe's customer can refer to is 1.5 MB, for each of 400 operations. Definitions
# nearest to the answer are kept; the rest accepts any value.
CHARACTERS_LIMIT = 20_000
_ROOT_LIMIT = 400_000  # of the operation's own schema
_HOPS = 16
_ACCEPT_TYPES = 4  # media types in one Accept header

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,80}/[A-Za-z0-9!#$&^_.+-]{1,80}(;[ -~]{1,80})?")
_UNCONSTRAINING = frozenset(("title", "description", "examples", "default", "deprecated"))


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """The successful responses of one operation."""

    output_schema: dict[str, Any] | None = None  # of the JSON; None: no JSON, or any
    accept: str | None = None  # the header; None: JSON, or any
    notes: tuple[str, ...] = ()
    raw_schema: Any = None  # of the usual response, as described; None: unreadable
    headers: frozenset[str] = frozenset()  # of the usual response, in lower case


class Responses:
    """Reads the responses of one document; shared schemas are converted once."""

    def __init__(self, document: OpenApiDocument, cycles: Cycles | None = None) -> None:
        self._document = document
        self._schemas = Schemas(document, "writeOnly", cycles)
        self._sizes: dict[ReferenceTarget, int] = {}  # -1: unusable
        self._closed: dict[ReferenceTarget, dict[str, Any]] = {}

    def of(self, operation: DocumentOperation) -> ResponseFacts:
        try:
            good = successful_responses(operation, self._document)
        except SkipOperation as skip:
            return ResponseFacts(notes=(f"answers: {skip}",))
        accept = _accept([key for response in good for key in mapping(response.get("content"))])
        usual = [
            str(name).lower() for response in good[:1] for name in mapping(response.get("headers"))
        ]
        facts = ResponseFacts(accept=accept, headers=frozenset(usual))
        try:
            raws = json_schemas(good, self._document)
            facts = replace(facts, raw_schema=raws[0] if raws else True)
            schema = None if operation.method == "HEAD" else self._schema(raws)
        except (SkipOperation, ValueError) as problem:
            reason = str(problem).partition("\n")[0]
            return replace(facts, notes=(f"its output schema is left out: {reason}",))
        return replace(facts, output_schema=schema)

    def _schema(self, raws: list[Any]) -> dict[str, Any] | None:
        """The schema of all successful responses together. Raises `SkipOperation`."""
        schemas = [self._one(raw) for raw in raws]
        if not schemas or any(schema.keys() <= _UNCONSTRAINING for schema in schemas):
            return None
        if len(schemas) == 1:
            return schemas[0]
        definitions: dict[str, Any] = {}
        for schema in schemas:
            definitions |= schema.get("$defs", {})
        return {
            "anyOf": [_without_definitions(schema) for schema in schemas],
            **({"$defs": definitions} if definitions else {}),
        }

    def _one(self, raw: Any) -> dict[str, Any]:
        converted = self._schemas.convert(raw)
        shared = converted.uses[0] if is_bare_reference(converted.schema) else None
        if shared is not None and shared in self._closed:
            return self._closed[shared]
        closed = self._close(converted)
        if shared is not None:
            self._closed[shared] = closed
        return closed

    def _close(self, conversion: ConvertedSchema) -> dict[str, Any]:
        """`conversion` bundled with its definitions, the nearest first."""
        root = self._root(conversion)
        room = CHARACTERS_LIMIT - _size(root.schema)
        if room < CHARACTERS_LIMIT - _ROOT_LIMIT:
            raise SkipOperation(f"it has more than {_ROOT_LIMIT:,} characters")
        self._check_schema(root)
        definitions: dict[str, dict[str, Any]] = {}
        dropped: set[str] = set()
        queue = deque(root.uses)
        while queue:
            component = queue.popleft()
            name = self._schemas.name(component)
            if name in definitions or name in dropped:
                continue
            part = self._component(component)
            if part is None or self._sizes[component] > room:
                dropped.add(name)
                continue
            room -= self._sizes[component]
            definitions[name] = part.schema
            queue.extend(part.uses)
        schema = {
            **root.schema,
            **({"$defs": dict(sorted(definitions.items()))} if definitions else {}),
        }
        return widen(schema, dropped) if dropped else schema

    def _root(self, schema: ConvertedSchema) -> ConvertedSchema:
        """The referenced root schema: clients expect `type: object` at the root."""
        for _ in range(_HOPS):
            target = self._schemas.target(schema.schema)
            if target is None:
                break
            schema = target
        return schema

    def _component(self, component: ReferenceTarget) -> ConvertedSchema | None:
        """A component; None if it is unusable: any value replaces it."""
        if component not in self._sizes:
            try:
                converted = self._schemas.component(component)
                self._check_schema(converted)
                self._sizes[component] = _size(converted.schema)
            except (SkipOperation, ValueError):
                self._sizes[component] = -1
        return None if self._sizes[component] < 0 else self._schemas.component(component)

    def _check_schema(self, schema: ConvertedSchema) -> None:
        """Raises ValueError for an invalid schema. Referenced components are checked separately,
        each once."""
        stubs = {self._schemas.name(component): True for component in schema.uses}
        compiled_as_2020({**schema.schema, "$defs": stubs})


def successful_responses(
    operation: DocumentOperation, document: OpenApiDocument
) -> list[dict[str, Any]]:
    """The responses for 2xx, the most usual first; else `default`. Raises `SkipOperation`."""
    responses = {str(key).upper(): value for key, value in _responses(operation).items()}
    keys = sorted((key for key in responses if re.fullmatch(r"2[0-9X]{2}", key)), key=_status_rank)
    if not keys and "DEFAULT" in responses:
        keys = ["DEFAULT"]
    return [document.resolve(responses[key]) for key in keys]


def json_schemas(good: list[dict[str, Any]], document: OpenApiDocument) -> list[Any]:
    """The distinct JSON schemas of these responses; true for any JSON."""
    schemas: list[Any] = []
    for response in good:
        content = mapping(response.get("content"))
        best = min((key for key in content if is_json_type(key)), key=_rank, default=None)
        if best is None:
            continue
        raw = document.resolve(content[best]).get("schema", True)
        if raw not in schemas:
            schemas.append(raw)
    return schemas


def is_json_type(media_type: str) -> bool:
    essence = _essence(media_type)
    return essence in ("application/json", "text/json") or essence.endswith("+json")


def describes_redirects(operation: DocumentOperation) -> bool:
    return not _REDIRECTS.isdisjoint(map(str, _responses(operation)))


def _responses(operation: DocumentOperation) -> dict[Any, Any]:
    return mapping(operation.node.get("responses"))


def _status_rank(key: str) -> tuple[bool, str]:
    return key == "2XX", key


def _accept(media_types: list[str]) -> str | None:
    """Accept header for these types, the most exact first; None for JSON or no types: the client's
    default header covers them."""
    named = [key for key in media_types if _MEDIA_TYPE.fullmatch(key) and "*" not in key]
    ordered = sorted(dict.fromkeys(named), key=_rank)[:_ACCEPT_TYPES]
    if not ordered or _essence(ordered[0]) == "application/json":
        return None
    weighed = [f"{key};q=0.{9 - rank}" for rank, key in enumerate(ordered[1:])]
    return ", ".join([ordered[0], *weighed, "*/*;q=0.1"])


def _rank(media_type: str) -> int:
    essence = _essence(media_type)
    if essence == "application/json":
        return 0
    if is_json_type(media_type):
        return 1
    return 2 if essence.startswith("text/") or essence.endswith(("xml", "yaml")) else 3


def _essence(media_type: str) -> str:
    return media_type.split(";", 1)[0].strip().lower()


def _without_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$defs"}


def _size(schema: dict[str, Any]) -> int:
    return len(msgspec.json.encode(schema))
