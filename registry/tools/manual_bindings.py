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


def _draft(
    wanted: ToolRequest, binding: Any, schema: dict[str, Any] | None, **more: Any
) -> ToolDraft:
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
    from registry.tools.manual_graphql import read_document  # graphql-core: 0.1 s

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
