"""Tools made by hand: a request, its conversion to a binding and an input schema. Pure.

A REST tool is made from `GET https://api.example.com/pets/{id}?limit={limit}`: a description with
one operation is generated and imported, so that a tool made by hand is called exactly like an
imported one. A GraphQL tool is made from a document with one field, without the server's schema.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec
from graphql import (
    FieldNode,
    GraphQLError,
    ListTypeNode,
    NamedTypeNode,
    NonNullTypeNode,
    OperationDefinitionNode,
    TypeNode,
    VariableNode,
    Visitor,
    parse,
    print_ast,
    visit,
)
from msgspec import Raw
from msgspec.structs import replace

from config.value_types import HttpUrl, SourceName
from registry.documents.ssrf_protection import check_host
from registry.importers.drafts import truncate
from registry.importers.openapi import read
from registry.tools.manual_edits import (
    TOOL_KINDS,
    Address,
    Details,
    KnownSources,
    NewTool,
    ToolRefused,
    ToolRequest,
    check_schema,
)
from schemas.binding import (
    Body,
    Credential,
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    OpenAPIBinding,
    Parameter,
    ScriptBinding,
    Variable,
)
from schemas.errors import ImportRejected
from schemas.hybrid import split
from schemas.jsonrpc import encode
from schemas.source import MANUAL, HybridOptions
from schemas.tool import Annotations, ToolDraft

_SCALARS = {
    "String": "string", "ID": "string", "Int": "integer", "Float": "number", "Boolean": "boolean"
}  # fmt: skip
_EXPECTED = (
    "expected one operation with one field, such as query ($id: ID!) { pet(id: $id) { name } }"
)
TOKENS_LIMIT = 5000

Json = dict[str, Any]


def read_document(name: str, document: str) -> tuple[GraphQLBinding, Json]:
    """Parse the document. Raises ToolRefused."""
    operation, root = _operation(name, document)
    types = {
        definition.variable.name.value: definition
        for definition in operation.variable_definitions or ()
    }
    if any(definition.default_value is not None for definition in types.values()):
        raise ToolRefused(f"{name}: give defaults in the input schema, not in the document")
    variables = []
    for argument in root.arguments or ():
        if not isinstance(argument.value, VariableNode):
            raise ToolRefused(f"{name}: give {argument.name.value} as a variable")
        variable = argument.value.name.value
        if variable not in types:
            raise ToolRefused(f"{name}: the document does not declare ${variable}")
        kind = print_ast(types[variable].type)
        variables.append(Variable(variable, argument.name.value, kind))
    selection = print_ast(root.selection_set) if root.selection_set else ""
    if unused := types.keys() - {variable.argument for variable in variables}:
        listed = ", ".join(sorted(unused))
        raise ToolRefused(f"{name}: arguments of the field alone can be variables, not {listed}")
    if root.selection_set and _has_variables(root):
        raise ToolRefused(f"{name}: arguments of the field alone can be variables")
    operator = cast("Any", operation.operation.value)  # checked in _operation
    binding = GraphQLBinding(operator, root.name.value, tuple(variables), selection)
    return binding, _argument_schema(
        {variable.argument: types[variable.argument].type for variable in variables}
    )


def _operation(name: str, document: str) -> tuple[OperationDefinitionNode, FieldNode]:
    try:
        parsed = parse(document, no_location=True, max_tokens=TOKENS_LIMIT)
    except (GraphQLError, RecursionError) as error:
        reason = error.message if isinstance(error, GraphQLError) else "it is nested too deeply"
        raise ToolRefused(f"{name}: {_EXPECTED}: {reason}") from error
    definitions = parsed.definitions
    if len(definitions) != 1 or not isinstance(definitions[0], OperationDefinitionNode):
        raise ToolRefused(f"{name}: {_EXPECTED}")
    operation = definitions[0]
    fields = operation.selection_set.selections
    if operation.operation.value not in ("query", "mutation") or len(fields) != 1:
        raise ToolRefused(f"{name}: {_EXPECTED}")
    field = fields[0]
    if not isinstance(field, FieldNode) or field.alias or field.directives:
        raise ToolRefused(f"{name}: {_EXPECTED}")
    return operation, field


def _has_variables(root: FieldNode) -> bool:
    class Finder(Visitor):
        found = False

        def enter_variable(self, *_: Any) -> None:
            self.found = True

    finder = Finder()
    if root.selection_set:
        visit(root.selection_set, finder)
    return finder.found


def _argument_schema(types: dict[str, TypeNode]) -> Json:
    required = [name for name, type_ in types.items() if isinstance(type_, NonNullTypeNode)]
    made: Json = {"type": "object", "properties": {n: _type(type_) for n, type_ in types.items()}}
    made |= {"required": required} if required else {}
    return made | {"additionalProperties": False}


def _type(node: TypeNode) -> Json:
    if isinstance(node, NonNullTypeNode):
        return _type(node.type)
    if isinstance(node, ListTypeNode):
        return {"type": "array", "items": _type(node.type)}
    name = node.name.value if isinstance(node, NamedTypeNode) else ""
    if name in _SCALARS:
        return {"type": _SCALARS[name]}
    return {"description": f"GraphQL type {name}"}


METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY = ("POST", "PUT", "PATCH")
_REQUEST = re.compile(r"(?P<method>[A-Za-z]+)\s+(?P<target>\S+)")
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_PART = re.compile(r"\{\w+\}")  # a placeholder of an argument; other braces are literal, as of JSON


@dataclass(frozen=True, slots=True)
class RestRequest:
    binding: OpenAPIBinding
    input_schema: Json
    annotations: Annotations
    base_url: str | None  # None: the target was a path


def read_request(name: str, text: str, schema: Mapping[str, Any] | None) -> RestRequest:
    """Arguments fill the placeholders in the target; the others go into the query, or into a JSON
    body where the method has one. Raises ToolRefused."""
    match = _REQUEST.fullmatch(text.strip())
    method = match["method"].upper() if match else ""
    if match is None or method not in METHODS:
        raise ToolRefused(
            f'{name}: expected a request such as "GET https://api.example.com/pets/{{id}}", '
            f"with one of {', '.join(METHODS)}"
        )
    base_url, path, query = _split(name, match["target"])
    in_path = _PLACEHOLDER.findall(path)
    if set("{}") & set(_PLACEHOLDER.sub("", path)):
        raise ToolRefused(f"{name}: a brace in the path {path} has no other, or nothing in it")
    in_query = {wire: placeholder for wire, value in query if (placeholder := _placeholder(value))}
    fixed = [(wire, value) for wire, value in query if not _placeholder(value)]
    for wire, value in fixed:
        if _PART.search(value):
            raise ToolRefused(f"{name}: an argument has to be all of {wire}, not a part of {value}")
    required_names = list(
        dict.fromkeys([*in_path, *in_query.values()] if schema is None else in_path)
    )
    full = _full_schema(name, schema, [*in_path, *in_query.values()], required_names)
    wires = in_query | _rest_of_query(method, full, [*in_path, *in_query.values()])
    binding, annotations = _imported_binding(name, method, path, full, wires=wires)
    return RestRequest(
        replace(binding, parameters=(*binding.parameters, *map(_constant, fixed))),
        full,
        annotations,
        base_url,
    )


def _split(name: str, target: str) -> tuple[str | None, str, list[tuple[str, str]]]:
    """Base URL, path and query."""
    try:
        parts = urlsplit(target)
    except ValueError:  # brackets without a valid IPv6 address
        parts = SplitResult("", "", "", "", "")
    is_path = target.startswith("/") and not parts.netloc
    if parts.fragment or (not parts.scheme and not is_path):
        raise ToolRefused(f"{name}: expected a URL, or a path that begins with /, to call")
    base_url = f"{parts.scheme}://{parts.netloc}" if parts.scheme else None
    return base_url, parts.path or "/", parse_qsl(parts.query, keep_blank_values=True)


def _placeholder(value: str) -> str | None:
    """The argument of a placeholder."""
    match = _PLACEHOLDER.fullmatch(value)
    return match[1] if match else None


def _full_schema(
    name: str, given: Mapping[str, Any] | None, placeholders: list[str], required_names: list[str]
) -> Json:
    if given is None:
        properties = {placeholder: {"type": "string"} for placeholder in placeholders}
        made: Json = {"type": "object", "properties": properties, "additionalProperties": False}
        return made | ({"required": required_names} if required_names else {})
    check_schema(name, given)
    missing = [
        placeholder
        for placeholder in placeholders
        if placeholder not in given.get("properties", {})
    ]
    if missing:
        raise ToolRefused(
            f"{name}: the request has a place for {', '.join(missing)}, which the input schema "
            "does not describe"
        )
    required = list(dict.fromkeys([*given.get("required", []), *required_names]))
    return {**given, **({"required": required} if required else {})}


def _rest_of_query(method: str, schema: Json, placeholders: list[str]) -> dict[str, str]:
    if method in _WITH_BODY:
        return {}
    return {name: name for name in schema.get("properties", {}) if name not in placeholders}


def _imported_binding(
    name: str, method: str, path: str, schema: Json, *, wires: Mapping[str, str]
) -> tuple[OpenAPIBinding, Annotations]:
    """The binding and annotations of the generated description; `wires`: names of arguments, by
    those of query parameters."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    in_path = dict.fromkeys(_PLACEHOLDER.findall(path))
    parameters = [
        {"name": argument, "in": "path", "required": True, "schema": properties[argument]}
        for argument in in_path
    ] + [
        {
            "name": wire,
            "in": "query",
            "required": argument in required,
            "schema": properties[argument],
        }
        for wire, argument in wires.items()
    ]
    in_body = [
        argument
        for argument in properties
        if argument not in in_path and argument not in wires.values()
    ]
    operation: Json = {"operationId": name, "parameters": parameters, "responses": {}}
    if in_body:
        body = {
            "type": "object",
            "properties": {argument: properties[argument] for argument in in_body},
            "required": [argument for argument in required if argument in in_body],
        }
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": bool(body["required"]), "content": content}
    document = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": "1"},
        "paths": {path: {method.lower(): operation}},
        "$defs": schema.get("$defs", {}),
    }
    try:
        imported = read(document)
    except ImportRejected as error:
        raise ToolRefused(f"{name}: {error}") from error
    if not imported.drafts:
        raise ToolRefused(f"{name}: {imported.outcomes[0].reason}")
    draft = imported.drafts[0]
    binding = cast("OpenAPIBinding", draft.binding)  # made by that importer
    return _rename_arguments(name, binding, wires), draft.annotations


def _rename_arguments(
    name: str, binding: OpenAPIBinding, wires: Mapping[str, str]
) -> OpenAPIBinding:
    """The binding with the argument names of the input schema, which the importer may have
    changed."""
    parameters = tuple(
        replace(
            parameter,
            argument=wires[parameter.name] if parameter.location == "query" else parameter.name,
        )
        for parameter in binding.parameters
    )
    return replace(binding, parameters=parameters, body=_body(name, binding.body))


def _body(name: str, body: Body | None) -> Body | None:
    if body is None:
        return None
    if body.properties is None:
        raise ToolRefused(f"{name}: its body cannot be made of the arguments")
    return replace(body, properties=tuple((wire, wire) for _, wire in body.properties))


def _constant(pair: tuple[str, str]) -> Parameter:
    wire, value = pair
    return Parameter("", wire, "query", "form", explode=True, fixed=Raw(encode(value)))


def address_of(
    wanted: ToolRequest,
    known: KnownSources,
    base_url: str | None,
    kinds: tuple[str, ...],
    *,
    options: HybridOptions | None = None,
) -> Address:
    """The target of calls; `base_url` as far as it is known already."""
    if base_url is not None and wanted.url is not None:
        raise ToolRefused(f"{wanted.name}: it has two addresses, {base_url} and the url")
    url = wanted.url or base_url
    if url is not None:
        if "mcp" in kinds:
            raise ToolRefused(f"{wanted.name}: import the server first, then name it as source")
        url = _check_url(wanted.name, url)
        return Address(_source_name(wanted) or _name_of(url), url, options or HybridOptions())
    if wanted.source is None:
        raise ToolRefused(f"{wanted.name}: expected a url or a source, where its calls go")
    source = known.sources.get(wanted.source)
    if source is None:
        names = ", ".join(sorted(known.sources)) or "none"
        raise ToolRefused(f"{wanted.name}: there is no source {wanted.source}; there: {names}")
    if source.kind not in kinds:
        raise ToolRefused(
            f"{wanted.name}: the source {source.name} is of the kind {source.kind}; "
            f"expected {' or '.join(kinds)}"
        )
    return Address(source.name)


def security_of(known: KnownSources, source: str) -> tuple[tuple[Credential, ...], ...]:
    """The security requirements of most tools of the source; none for a source that was not
    imported."""
    counts = Counter(tool.binding.security for tool in known.tools if tool.source == source)
    return counts.most_common(1)[0][0] if counts else ()


def _check_url(name: str, url: str) -> str:
    try:
        made = msgspec.convert(url, HttpUrl)
        check_host(made)
    except ValueError:
        raise ToolRefused(
            f"{name}: expected an http:// or https:// URL without credentials, query and fragment "
            "(credentials go into the settings, as sources.NAME.headers)"
        ) from None
    return made


def _source_name(wanted: ToolRequest) -> str | None:
    """The name of a new source."""
    try:
        return wanted.source and msgspec.convert(wanted.source, SourceName)
    except msgspec.ValidationError:
        raise ToolRefused(
            f'{wanted.name}: the name of a source has at most 63 characters out of a-z, 0-9, "_" '
            f'and "-", not {wanted.source!r:.80}'
        ) from None


def _name_of(url: str) -> str:
    """A source name from its address: api.example.com gives api-example-com."""
    host = url.partition("://")[2].partition("/")[0].lower()
    return re.sub(r"[^a-z0-9_-]+", "-", host).strip("-_")[:63] or "manual"


def tool_kind(wanted: ToolRequest) -> str:
    """The one of TOOL_KINDS that is set. Raises ToolRefused unless exactly one is."""
    kinds = [kind for kind in TOOL_KINDS if getattr(wanted, kind) is not None]
    if not kinds:
        raise ToolRefused(
            f"{wanted.name}: what a call does is missing: expected one of {', '.join(TOOL_KINDS)}, "
            f"as in rest: GET https://api.example.com/pets/{{id}}"
        )
    if len(kinds) != 1:
        kinds_ = ", ".join(kinds)
        raise ToolRefused(
            f"{wanted.name}: expected exactly one of {', '.join(TOOL_KINDS)}, found {kinds_}"
        )
    return kinds[0]


def make_tool(wanted: ToolRequest, known: KnownSources) -> NewTool:
    """Make the tool. Raises ToolRefused."""
    made = _MAKERS[tool_kind(wanted)](wanted, known)
    draft = made.draft
    if not draft.description.strip():
        raise ToolRefused(f"{wanted.name}: it needs a description, by which models choose it")
    schema = dict(draft.input_schema)
    if wanted.examples:
        schema["examples"] = list(wanted.examples)
    finished = ToolDraft(
        key="",
        name=wanted.name,
        title=wanted.title or draft.title,
        description=truncate(draft.description),
        input_schema=schema,
        binding=draft.binding,
        output_schema=wanted.output_schema or draft.output_schema,
        annotations=wanted.annotations or draft.annotations,
        tags=wanted.tags or draft.tags,
        definition=draft.definition,
        toolsets=wanted.toolsets,
    )
    return NewTool(finished, made.address, _details(wanted))


def _details(wanted: ToolRequest) -> Details:
    return Details(
        routing_domain=wanted.domain,
        semantic_namespace=wanted.namespace,
        sensitivity_tier=wanted.tier,
        semantic_weight=wanted.weight,
        lifecycle_status=wanted.lifecycle,
        target_personas=wanted.personas,
        keywords=wanted.keywords or None,
        cost_tier=wanted.cost,
    )


def _draft(wanted: ToolRequest, binding: Any, schema: Json | None, **more: Any) -> ToolDraft:
    given = {"type": "object", "properties": {}} if schema is None else schema
    return ToolDraft("", wanted.name, wanted.description, given, binding=binding, **more)


def _rest(wanted: ToolRequest, known: KnownSources) -> NewTool:
    request = read_request(wanted.name, wanted.rest or "", wanted.input_schema)
    address = address_of(wanted, known, request.base_url, ("openapi", MANUAL))
    security = security_of(known, address.name)
    binding = replace(request.binding, security=security)
    schema, hints = request.input_schema, request.annotations
    return NewTool(_draft(wanted, binding, schema, annotations=hints), address)


def _graphql(wanted: ToolRequest, known: KnownSources) -> NewTool:
    binding, schema = read_document(wanted.name, wanted.graphql or "")
    query = binding.operation == "query"
    hints = Annotations(
        read_only_hint=query,
        destructive_hint=False if query else msgspec.UNSET,
        idempotent_hint=query,
        open_world_hint=True,
    )
    address = address_of(wanted, known, None, ("graphql", MANUAL))
    return NewTool(
        _draft(wanted, binding, wanted.input_schema or schema, annotations=hints), address
    )


def _hybrid(wanted: ToolRequest, known: KnownSources) -> NewTool:
    service = wanted.hybrid or ""
    if not service.strip() or not service.isprintable() or len(service) > 512:
        raise ToolRefused(f"{wanted.name}: expected the id of an action, host/service/action/0.1.0")
    if wanted.dialect == "legacy" and split(service) is None:
        raise ToolRefused(
            f"{wanted.name}: {service} is not host/service/action/version, which the legacy "
            "payload needs"
        )
    options = HybridOptions(wanted.side, wanted.dialect)
    address = address_of(wanted, known, None, ("hybrid", MANUAL), options=options)
    binding = HybridBinding(service, wanted.scope, side=wanted.side)
    return NewTool(_draft(wanted, binding, wanted.input_schema), address)


def _mcp(wanted: ToolRequest, known: KnownSources) -> NewTool:
    address = address_of(wanted, known, None, ("mcp",))
    own = [tool for tool in known.tools if tool.source == address.name]
    tools = [
        tool for tool in own if tool.binding.peer_name == wanted.mcp or tool.name == wanted.mcp
    ]
    if not tools:
        names = ", ".join(sorted(filter(None, (tool.binding.peer_name for tool in own)))[:10])
        raise ToolRefused(
            f"{wanted.name}: {address.name} has no tool {wanted.mcp!r}; it has {names or 'none'}"
        )
    tool = tools[0]
    given = wanted if wanted.description else replace(wanted, description=tool.description)
    draft = _draft(
        given,
        tool.binding,
        wanted.input_schema or msgspec.json.decode(tool.input_schema),
        title=tool.title,
        output_schema=tool.output_schema and msgspec.json.decode(tool.output_schema),
        annotations=tool.annotations,
        definition=tool.definition and msgspec.json.decode(tool.definition),
    )
    return NewTool(draft, address)


def _function(wanted: ToolRequest, known: KnownSources) -> NewTool:
    _check_no_address(wanted)
    name = wanted.function or ""
    if name not in known.functions:
        names = ", ".join(sorted(known.functions)) or "none"
        raise ToolRefused(f"{wanted.name}: the settings have no function {name!r}; there: {names}")
    function = known.functions[name]
    if wanted.input_schema is None and function.schema is None:
        raise ToolRefused(
            f"{wanted.name}: the annotations of {name} do not define its parameters: give it an "
            "input schema"
        )
    described = (wanted.input_schema or {}).get("properties")
    named = described if isinstance(described, dict) else {}
    if unknown := [argument for argument in named if argument not in function.takes]:
        takes = ", ".join(function.takes) or "nothing"
        raise ToolRefused(
            f"{wanted.name}: the function {name} does not take {', '.join(unknown)}, which the "
            f"input schema has; it takes {takes}"
        )
    given = wanted if wanted.description else replace(wanted, description=function.description)
    return NewTool(_draft(given, FunctionBinding(name), wanted.input_schema or function.schema))


def _script(wanted: ToolRequest, known: KnownSources) -> NewTool:
    _check_no_address(wanted)
    code, language = wanted.code or "", wanted.language
    if language is None:
        raise ToolRefused(f"{wanted.name}: a script needs its language, python or javascript")
    size = len(code.encode("utf-8", "surrogatepass"))
    if size > known.source_bytes:
        raise ToolRefused(
            f"{wanted.name}: the source code has {size} bytes, the most is {known.source_bytes} "
            "(scripts.source_bytes)"
        )
    if "\0" in code or not code.strip():
        raise ToolRefused(f"{wanted.name}: the source code is empty, or no text")
    if language == "python":
        _check_python(wanted.name, code)
    elif not re.search(r"\bmain\b", code):
        raise ToolRefused(f"{wanted.name}: the source code defines no main(arguments)")
    return NewTool(_draft(wanted, ScriptBinding(language, code), wanted.input_schema))


def _check_python(name: str, code: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except SyntaxError as error:
        raise ToolRefused(f"{name}: line {error.lineno} of the source: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ToolRefused(f"{name}: the source code cannot be read: {error}") from error
    defined = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    functions = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    if "main" not in {*defined, *functions}:
        raise ToolRefused(f"{name}: the source code defines no main(arguments)")


def _check_no_address(wanted: ToolRequest) -> None:
    if wanted.url is not None or wanted.source is not None:
        raise ToolRefused(f"{wanted.name}: it runs in the gateway, so it has no url and no source")


_MAKERS: Mapping[str, Callable[[ToolRequest, KnownSources], NewTool]] = {
    "rest": _rest,
    "graphql": _graphql,
    "hybrid": _hybrid,
    "mcp": _mcp,
    "function": _function,
    "code": _script,
}
