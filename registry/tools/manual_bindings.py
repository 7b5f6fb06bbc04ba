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
from typing import Any

import msgspec
from msgspec.structs import replace

from config.value_types import HttpUrl, SourceName
from registry.documents.ssrf_protection import check_host
from registry.importers.drafts import truncate
from registry.tools.editable_columns import Address, Details, NewTool
from registry.tools.manual_rest import read_request
from registry.tools.tool_errors import ToolRefused
from registry.tools.tool_request import TOOL_KINDS, KnownSources, ToolRequest
from schemas.binding import Credential, FunctionBinding, HybridBinding, ScriptBinding
from schemas.hybrid import split
from schemas.source import MANUAL, HybridOptions
from schemas.tool import Annotations, ToolDraft


def address_of(
    request: ToolRequest,
    sources: KnownSources,
    base_url: str | None,
    kinds: tuple[str, ...],
    *,
    options: HybridOptions | None = None,
) -> Address:
    """The target of calls; `base_url` as far as it is known already."""
    if base_url is not None and request.url is not None:
        raise ToolRefused(f"{request.name}: it has two addresses, {base_url} and the url")
    url = request.url or base_url
    if url is not None:
        if "mcp" in kinds:
            raise ToolRefused(f"{request.name}: import the server first, then name it as source")
        url = _check_url(request.name, url)
        return Address(_source_name(request) or _name_of(url), url, options or HybridOptions())
    if request.source is None:
        raise ToolRefused(f"{request.name}: expected a url or a source, where its calls go")
    source = sources.sources.get(request.source)
    if source is None:
        names = ", ".join(sorted(sources.sources)) or "none"
        raise ToolRefused(
            f"{request.name}: there is no source {request.source}; there are: {names}"
        )
    if source.kind not in kinds:
        raise ToolRefused(
            f"{request.name}: the source {source.name} is of the kind {source.kind}; "
            f"expected {' or '.join(kinds)}"
        )
    return Address(source.name)


def security_of(sources: KnownSources, source: str) -> tuple[tuple[Credential, ...], ...]:
    """The security requirements of most tools of the source; none for a source that was not
    imported."""
    counts = Counter(tool.binding.security for tool in sources.tools if tool.source == source)
    return counts.most_common(1)[0][0] if counts else ()


def _check_url(name: str, url: str) -> str:
    try:
        checked_url = msgspec.convert(url, HttpUrl)
        check_host(checked_url)
    except ValueError:
        raise ToolRefused(
            f"{name}: expected an http:// or https:// URL without credentials, query and fragment "
            "(credentials go into the settings, as sources.NAME.headers)"
        ) from None
    return checked_url


def _source_name(request: ToolRequest) -> str | None:
    """The name of a new source."""
    try:
        return request.source and msgspec.convert(request.source, SourceName)
    except msgspec.ValidationError:
        raise ToolRefused(
            f'{request.name}: the name of a source has at most 63 characters out of a-z, 0-9, "_" '
            f'and "-", not {request.source!r:.80}'
        ) from None


def _name_of(url: str) -> str:
    """A source name from its address: api.example.com gives api-example-com."""
    host = url.partition("://")[2].partition("/")[0].lower()
    return re.sub(r"[^a-z0-9_-]+", "-", host).strip("-_")[:63] or "manual"


def tool_kind(request: ToolRequest) -> str:
    """The one of TOOL_KINDS that is set. Raises ToolRefused unless exactly one is."""
    kinds = [kind for kind in TOOL_KINDS if getattr(request, kind) is not None]
    if not kinds:
        raise ToolRefused(
            f"{request.name}: its call is missing: expected one of {', '.join(TOOL_KINDS)}, "
            f"as in rest: GET https://api.example.com/pets/{{id}}"
        )
    if len(kinds) != 1:
        kinds_ = ", ".join(kinds)
        raise ToolRefused(
            f"{request.name}: expected exactly one of {', '.join(TOOL_KINDS)}, found {kinds_}"
        )
    return kinds[0]


def make_tool(request: ToolRequest, sources: KnownSources) -> NewTool:
    """Make the tool. Raises ToolRefused."""
    new_tool = _MAKERS[tool_kind(request)](request, sources)
    draft = new_tool.draft
    if not draft.description.strip():
        raise ToolRefused(f"{request.name}: it needs a description, by which models choose it")
    schema = dict(draft.input_schema)
    if request.examples:
        schema["examples"] = list(request.examples)
    finished = ToolDraft(
        key="",
        name=request.name,
        title=request.title or draft.title,
        description=truncate(draft.description),
        input_schema=schema,
        binding=draft.binding,
        output_schema=request.output_schema or draft.output_schema,
        annotations=request.annotations or draft.annotations,
        tags=request.tags or draft.tags,
        definition=draft.definition,
        toolsets=request.toolsets,
    )
    return NewTool(finished, new_tool.address, _details(request))


def _details(request: ToolRequest) -> Details:
    return Details(
        routing_domain=request.domain,
        semantic_namespace=request.namespace,
        sensitivity_tier=request.tier,
        semantic_weight=request.weight,
        lifecycle_status=request.lifecycle,
        target_personas=request.personas,
        keywords=request.keywords or None,
        cost_tier=request.cost,
    )


def _draft(
    request: ToolRequest, binding: Any, schema: dict[str, Any] | None, **more: Any
) -> ToolDraft:
    input_schema = {"type": "object", "properties": {}} if schema is None else schema
    return ToolDraft("", request.name, request.description, input_schema, binding=binding, **more)


def _rest(request: ToolRequest, sources: KnownSources) -> NewTool:
    parsed = read_request(request.name, request.rest or "", request.input_schema)
    address = address_of(request, sources, parsed.base_url, ("openapi", MANUAL))
    security = security_of(sources, address.name)
    binding = replace(parsed.binding, security=security)
    schema, hints = parsed.input_schema, parsed.annotations
    return NewTool(_draft(request, binding, schema, annotations=hints), address)


def _graphql(request: ToolRequest, sources: KnownSources) -> NewTool:
    from registry.tools.manual_graphql import read_document  # graphql-core: 0.1 s

    binding, schema = read_document(request.name, request.graphql or "")
    query = binding.operation == "query"
    hints = Annotations(
        read_only_hint=query,
        destructive_hint=False if query else msgspec.UNSET,
        idempotent_hint=query,
        open_world_hint=True,
    )
    address = address_of(request, sources, None, ("graphql", MANUAL))
    return NewTool(
        _draft(request, binding, request.input_schema or schema, annotations=hints), address
    )


def _hybrid(request: ToolRequest, sources: KnownSources) -> NewTool:
    service = request.hybrid or ""
    if not service.strip() or not service.isprintable() or len(service) > 512:
        raise ToolRefused(
            f"{request.name}: expected the id of an action, host/service/action/0.1.0"
        )
    if request.dialect == "legacy" and split(service) is None:
        raise ToolRefused(
            f"{request.name}: {service} is not host/service/action/version, which the legacy "
            "payload needs"
        )
    options = HybridOptions(request.side, request.dialect)
    address = address_of(request, sources, None, ("hybrid", MANUAL), options=options)
    binding = HybridBinding(service, request.scope, side=request.side)
    return NewTool(_draft(request, binding, request.input_schema), address)


def _mcp(request: ToolRequest, sources: KnownSources) -> NewTool:
    address = address_of(request, sources, None, ("mcp",))
    source_tools = [tool for tool in sources.tools if tool.source == address.name]
    tools = [
        tool
        for tool in source_tools
        if tool.binding.peer_name == request.mcp or tool.name == request.mcp
    ]
    if not tools:
        names = ", ".join(
            sorted(filter(None, (tool.binding.peer_name for tool in source_tools)))[:10]
        )
        raise ToolRefused(
            f"{request.name}: {address.name} has no tool {request.mcp!r}; it has {names or 'none'}"
        )
    tool = tools[0]
    with_description = (
        request if request.description else replace(request, description=tool.description)
    )
    draft = _draft(
        with_description,
        tool.binding,
        request.input_schema or msgspec.json.decode(tool.input_schema),
        title=tool.title,
        output_schema=tool.output_schema and msgspec.json.decode(tool.output_schema),
        annotations=tool.annotations,
        definition=tool.definition and msgspec.json.decode(tool.definition),
    )
    return NewTool(draft, address)


def _function(request: ToolRequest, sources: KnownSources) -> NewTool:
    _check_no_address(request)
    name = request.function or ""
    if name not in sources.functions:
        names = ", ".join(sorted(sources.functions)) or "none"
        raise ToolRefused(
            f"{request.name}: the settings have no function {name!r}; there are: {names}"
        )
    function = sources.functions[name]
    if request.input_schema is None and function.schema is None:
        raise ToolRefused(
            f"{request.name}: the annotations of {name} do not define its parameters: give it an "
            "input schema"
        )
    described = (request.input_schema or {}).get("properties")
    named = described if isinstance(described, dict) else {}
    if unknown := [argument for argument in named if argument not in function.takes]:
        takes = ", ".join(function.takes) or "nothing"
        raise ToolRefused(
            f"{request.name}: the function {name} does not take {', '.join(unknown)}, which the "
            f"input schema has; it takes {takes}"
        )
    with_description = (
        request if request.description else replace(request, description=function.description)
    )
    return NewTool(
        _draft(with_description, FunctionBinding(name), request.input_schema or function.schema)
    )


def _script(request: ToolRequest, sources: KnownSources) -> NewTool:
    _check_no_address(request)
    code, language = request.code or "", request.language
    if language is None:
        raise ToolRefused(f"{request.name}: a script needs its language, python or javascript")
    size = len(code.encode("utf-8", "surrogatepass"))
    if size > sources.source_bytes:
        raise ToolRefused(
            f"{request.name}: the source code has {size} bytes, the most is {sources.source_bytes} "
            "(scripts.source_bytes)"
        )
    if "\0" in code or not code.strip():
        raise ToolRefused(f"{request.name}: the source code is empty, or no text")
    if language == "python":
        _check_python(request.name, code)
    elif not re.search(r"\bmain\b", code):
        raise ToolRefused(f"{request.name}: the source code defines no main(arguments)")
    return NewTool(_draft(request, ScriptBinding(language, code), request.input_schema))


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


def _check_no_address(request: ToolRequest) -> None:
    if request.url is not None or request.source is not None:
        raise ToolRefused(f"{request.name}: it runs in the gateway, so it has no url and no source")


_MAKERS: Mapping[str, Callable[[ToolRequest, KnownSources], NewTool]] = {
    "rest": _rest,
    "graphql": _graphql,
    "hybrid": _hybrid,
    "mcp": _mcp,
    "function": _function,
    "code": _script,
}
