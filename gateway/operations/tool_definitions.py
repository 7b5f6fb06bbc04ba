"""Operations as MCP tools: one tool for each row, generated from its declaration.

The arguments are the path parameters, the query parameters, and the members of the body, or the
whole body as `body` where it is no plain object or shares a name with the others.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Raw

from gateway.operations.job_declarations import JobView
from gateway.operations.openapi import without_null
from gateway.operations.operation import BODY, IF_MATCH, IF_NONE_MATCH, Effect, Operation, scopes_of
from gateway.operations.tool_calls import AS_JOB, members_of
from registry.catalog.catalog import Catalog
from registry.display.tool_shaper import ToolShaper
from schemas.binding import Binding, OperationBinding
from schemas.json_schema.references import close, dereference
from schemas.jsonrpc import encode
from schemas.memo import Memo
from schemas.tool import Annotations, Tool, ToolDraft

Json = dict[str, Any]

SOURCE = "toolgate"  # their source in rules and in the audit log
REFS = "#/$defs/"
VIEWS = 64  # cached catalogs, by the scopes of callers

HINTS: Mapping[Effect, Annotations] = {
    "read": Annotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True),
    "act": Annotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False),
    "change": Annotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
    "remove": Annotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
}
_IF_MATCH = {
    "type": "string",
    "description": "ETag of the resource, as the tool that reads it returned it: the change is "
    'made only if the resource has not changed since. "*": change any version.',
}
_IF_NONE_MATCH = {
    "const": "*",
    "description": "Create the resource, only if it does not exist; used instead of if_match.",
}


_AS_JOB = {
    "type": "boolean",
    "description": "Answer with a job at once, which getJob shows.",
}


class OperationCatalogs:
    """The tools of some operations: all of them, and those that a caller's scopes allow."""

    def __init__(self, operations: Iterable[Operation], shaper: ToolShaper) -> None:
        tools = [operation for operation in operations if not operation.no_tool]
        self._opened_by = {operation.id: scopes_of(operation.scope) for operation in tools}
        self._scopes = frozenset().union(*self._opened_by.values())
        changing = (
            self._opened_by[operation.id] for operation in tools if operation.effect != "read"
        )
        self._changing = frozenset().union(*changing)
        self._shaper = shaper
        self.whole = self._catalog(tool_of(operation) for operation in tools)
        self._views: Memo[frozenset[str], Catalog] = Memo(VIEWS)

    def of(self, scopes: frozenset[str]) -> Catalog:
        """The tools that a caller with these scopes sees and may call. Those that take no scope are
        shown with others of their effect only."""
        relevant = scopes & self._scopes
        view = self._views.use(relevant)
        if view is None:
            tools = [tool for tool in self.whole.tools if self._opens(relevant, tool)]
            view = self._views.put(relevant, self._catalog(tools))
        return view

    def _opens(self, scopes: frozenset[str], tool: Tool) -> bool:
        opened_by = self._opened_by[tool.name]
        if "" in opened_by:
            return bool(scopes if tool.annotations is HINTS["read"] else scopes & self._changing)
        return not scopes.isdisjoint(opened_by)

    def _catalog(self, tools: Iterable[Tool]) -> Catalog:
        return Catalog(tools, shaper=self._shaper, searchable=False)  # lists are complete


def draft_of(operation: Operation, binding: Binding) -> ToolDraft:
    """The operation as a tool that is stored like any other."""
    return ToolDraft(
        operation.id,
        operation.tool_name,
        description_of(operation),
        input_schema(operation),
        binding,
        output_schema=None if operation.brief else output_schema(operation),
        annotations=operation.hints or HINTS[operation.effect],
    )


def description_of(operation: Operation) -> str:
    needs = f"Required scope: {operation.scope}." if operation.scope else ""
    return " ".join(filter(None, (operation.summary, operation.details, needs)))


def tool_of(operation: Operation) -> Tool:
    schema, output = Raw(encode(input_schema(operation))), output_schema(operation)
    encoded = None if output is None else Raw(encode(output))
    description = description_of(operation)
    full_description = (
        operation.tool_name,
        description,
        bytes(schema),
        bytes(encoded or b""),
        operation.effect,
    )
    return Tool(
        id=str(uuid5(NAMESPACE_URL, f"toolgate:operation:{operation.id}")),
        name=operation.tool_name,
        title=None,
        description=description,
        input_schema=schema,
        output_schema=encoded,
        annotations=HINTS[operation.effect],
        binding=OperationBinding(operation.id),
        source=SOURCE,
        digest=sha256(repr(full_description).encode()).hexdigest(),
    )


def input_schema(operation: Operation) -> Json:
    """JSON Schema 2020-12 of the arguments."""
    fields = msgspec.structs.fields(operation.query)
    names = {name: operation.type_of(name) for name in operation.names}
    kinds = [*names.values(), *(field.type for field in fields)]
    body = [] if operation.body is None else [operation.body]
    schemas, definitions = msgspec.json.schema_components(
        [*kinds, *body], ref_template=REFS + "{name}"
    )
    keys = [*names, *(field.encode_name for field in fields)]
    properties = dict(zip(keys, map(without_null, schemas), strict=False))
    required = [*names, *(field.encode_name for field in fields if field.required)]
    if body:
        inner, needed = _of_body(operation, schemas[-1], definitions)
        properties |= inner
        required += needed
    if operation.match:
        properties[IF_MATCH] = _IF_MATCH
    if operation.creates:
        properties[IF_NONE_MATCH] = _IF_NONE_MATCH
    if operation.job is not None and not operation.job.always:
        properties[AS_JOB] = _AS_JOB
    if operation.brief:
        properties = {name: _without_default(schemas) for name, schemas in properties.items()}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return _close(schema | ({"required": required} if required else {}), definitions)


def _without_default(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "default"}


def output_schema(operation: Operation) -> Json | None:
    """JSON Schema of an object; None for an operation without a body in its response, or with
    another type."""
    kinds = _answers(operation)
    components, definitions = msgspec.json.schema_components(kinds, ref_template=REFS + "{name}")
    schemas = [dereference(inner, definitions) for inner in components]
    if not schemas or any(resolved.get("type") != "object" for resolved in schemas):
        return None
    schema = schemas[0] if len(schemas) == 1 else {"type": "object", "anyOf": list(components)}
    return _close(schema, definitions)


def _answers(operation: Operation) -> list[Any]:
    """The types that an operation may answer with."""
    if operation.gives is None:
        return []
    if operation.job is None:
        return [operation.gives]
    return [JobView] if operation.job.always else [operation.gives, JobView]


def _of_body(operation: Operation, body_schema: Json, definitions: Json) -> tuple[Json, list[str]]:
    """Properties of the body, and the names of the required ones."""
    if not members_of(operation):
        return {BODY: body_schema}, [] if operation.optional_body else [BODY]
    schema = dereference(body_schema, definitions)
    required = [] if operation.optional_body else schema.get("required", [])
    return schema["properties"], required


def _close(schema: Json, definitions: Json) -> Json:
    """The schema with the definitions that it references."""
    closed = close(schema, {"$defs": dict(sorted(definitions.items()))})
    return {key: _without_tuples(value) for key, value in closed.items()}


def _without_tuples(schema: Any) -> Any:
    """The schema with arrays of fixed length whose items share a schema. Clients that read draft
    07, as the TypeScript SDK does, know no `prefixItems`: `items: false` means none to them."""
    if isinstance(schema, list):
        return [_without_tuples(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _without_tuples(value) for key, value in schema.items()}
    if schema.get("items") is not False or "prefixItems" not in schema:
        return schema
    kinds = schema.pop("prefixItems")
    kinds = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    return {**schema, "items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
