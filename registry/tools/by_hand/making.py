"""Makes a tool and its binding from a request. Pure."""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from config.types import HttpUrl, SourceName
from registry.documents.addresses import check_host
from registry.importers.imported import cut
from registry.tools.by_hand.changes import (
    WAYS,
    Address,
    Details,
    KnownSources,
    New,
    ToolRefused,
    ToolRequest,
)
from registry.tools.by_hand.graphql import read_document
from registry.tools.by_hand.rest import read_request
from schemas.binding import (
    Credential,
    FunctionBinding,
    HybridBinding,
    ScriptBinding,
)
from schemas.hybrid import split
from schemas.source import MANUAL, HybridOptions
from schemas.tool import Annotations, ToolDraft


def address_of(
    wanted: ToolRequest,
    known: KnownSources,
    base_url: str | None,
    kinds: tuple[str, ...],
    options: HybridOptions | None = None,
) -> Address:
    """The target of calls; `base_url` as far as it is known already."""
    if base_url is not None and wanted.url is not None:
        raise ToolRefused(f"{wanted.name}: it has two addresses, {base_url} and the url")
    url = wanted.url or base_url
    if url is not None:
        if "mcp" in kinds:
            raise ToolRefused(f"{wanted.name}: import the server first, then name it as source")
        url = _checked(wanted.name, url)
        return Address(_source_name(wanted) or _name_of(url), url, options or HybridOptions())
    if wanted.source is None:
        raise ToolRefused(f"{wanted.name}: nothing says where its calls go: give a url or a source")
    source = known.sources.get(wanted.source)
    if source is None:
        there = ", ".join(sorted(known.sources)) or "none"
        raise ToolRefused(f"{wanted.name}: there is no source {wanted.source}; there: {there}")
    if source.kind not in kinds:
        raise ToolRefused(
            f"{wanted.name}: the source {source.name} is of the kind {source.kind}; "
            f"expected {' or '.join(kinds)}"
        )
    return Address(source.name)


def security_of(known: KnownSources, source: str) -> tuple[tuple[Credential, ...], ...]:
    """The security requirements of most tools of the source; none for a source that was not
    imported."""
    counts = Counter(one.binding.security for one in known.tools if one.source == source)
    return counts.most_common(1)[0][0] if counts else ()


def _checked(name: str, url: str) -> str:
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


Json = dict[str, Any]


def way_of(wanted: ToolRequest) -> str:
    """The one of WAYS that is set. Raises ToolRefused unless exactly one is."""
    ways = [way for way in WAYS if getattr(wanted, way) is not None]
    if not ways:
        raise ToolRefused(
            f"{wanted.name}: it does not say what a call does: give it one of {', '.join(WAYS)}, "
            f"as in rest: GET https://api.example.com/pets/{{id}}"
        )
    if len(ways) != 1:
        found = ", ".join(ways)
        raise ToolRefused(
            f"{wanted.name}: expected exactly one of {', '.join(WAYS)}, found {found}"
        )
    return ways[0]


def make(wanted: ToolRequest, known: KnownSources) -> New:
    """Make the tool. Raises ToolRefused."""
    made = _MAKERS[way_of(wanted)](wanted, known)
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
        description=cut(draft.description),
        input_schema=schema,
        binding=draft.binding,
        output_schema=wanted.output_schema or draft.output_schema,
        annotations=wanted.annotations or draft.annotations,
        tags=wanted.tags or draft.tags,
        definition=draft.definition,
        toolsets=wanted.toolsets,
    )
    return New(finished, made.address, _details(wanted))


def _details(wanted: ToolRequest) -> Details:
    return Details(
        wanted.domain,
        wanted.namespace,
        wanted.tier,
        wanted.weight,
        wanted.lifecycle,
        wanted.personas,
        wanted.keywords or None,
        wanted.cost,
    )


def _draft(wanted: ToolRequest, binding: Any, schema: Json | None, **more: Any) -> ToolDraft:
    given = {"type": "object", "properties": {}} if schema is None else schema
    return ToolDraft("", wanted.name, wanted.description, given, binding, **more)


def _rest(wanted: ToolRequest, known: KnownSources) -> New:
    request = read_request(wanted.name, wanted.rest or "", wanted.input_schema)
    address = address_of(wanted, known, request.base_url, ("openapi", MANUAL))
    security = security_of(known, address.name)
    binding = replace(request.binding, security=security)
    schema, hints = request.input_schema, request.annotations
    return New(_draft(wanted, binding, schema, annotations=hints), address)


def _graphql(wanted: ToolRequest, known: KnownSources) -> New:
    binding, schema = read_document(wanted.name, wanted.graphql or "")
    query = binding.operation == "query"
    hints = Annotations(
        read_only_hint=query,
        destructive_hint=False if query else msgspec.UNSET,
        idempotent_hint=query,
        open_world_hint=True,
    )
    address = address_of(wanted, known, None, ("graphql", MANUAL))
    return New(_draft(wanted, binding, wanted.input_schema or schema, annotations=hints), address)


def _hybrid(wanted: ToolRequest, known: KnownSources) -> New:
    service = wanted.hybrid or ""
    if not service.strip() or not service.isprintable() or len(service) > 512:
        raise ToolRefused(f"{wanted.name}: expected the id of an action, host/service/action/0.1.0")
    if wanted.dialect == "legacy" and split(service) is None:
        raise ToolRefused(
            f"{wanted.name}: {service} is not host/service/action/version, which the legacy "
            "payload needs"
        )
    options = HybridOptions(wanted.side, wanted.dialect)
    address = address_of(wanted, known, None, ("hybrid", MANUAL), options)
    binding = HybridBinding(service, wanted.scope, side=wanted.side)
    return New(_draft(wanted, binding, wanted.input_schema), address)


def _mcp(wanted: ToolRequest, known: KnownSources) -> New:
    address = address_of(wanted, known, None, ("mcp",))
    own = [one for one in known.tools if one.source == address.name]
    found = [one for one in own if one.binding.peer_name == wanted.mcp or one.name == wanted.mcp]
    if not found:
        names = ", ".join(sorted(filter(None, (one.binding.peer_name for one in own)))[:10])
        raise ToolRefused(
            f"{wanted.name}: {address.name} has no tool {wanted.mcp!r}; it has {names or 'none'}"
        )
    tool = found[0]
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
    return New(draft, address)


def _function(wanted: ToolRequest, known: KnownSources) -> New:
    _goes_nowhere(wanted)
    name = wanted.function or ""
    if name not in known.functions:
        there = ", ".join(sorted(known.functions)) or "none"
        raise ToolRefused(f"{wanted.name}: the settings have no function {name!r}; there: {there}")
    function = known.functions[name]
    if wanted.input_schema is None and function.schema is None:
        raise ToolRefused(
            f"{wanted.name}: the annotations of {name} do not say what it takes: give it an input "
            "schema"
        )
    described = (wanted.input_schema or {}).get("properties")
    named = described if isinstance(described, dict) else {}
    if beyond := [one for one in named if one not in function.takes]:
        takes = ", ".join(function.takes) or "nothing"
        raise ToolRefused(
            f"{wanted.name}: the function {name} does not take {', '.join(beyond)}, which the "
            f"input schema has; it takes {takes}"
        )
    given = wanted if wanted.description else replace(wanted, description=function.description)
    return New(_draft(given, FunctionBinding(name), wanted.input_schema or function.schema))


def _script(wanted: ToolRequest, known: KnownSources) -> New:
    _goes_nowhere(wanted)
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
    return New(_draft(wanted, ScriptBinding(language, code), wanted.input_schema))


def _check_python(name: str, code: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except SyntaxError as error:
        raise ToolRefused(f"{name}: line {error.lineno} of the source: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ToolRefused(f"{name}: the source code cannot be read: {error}") from error
    defined = (one.id for one in ast.walk(tree) if isinstance(one, ast.Name))
    functions = (one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    if "main" not in {*defined, *functions}:
        raise ToolRefused(f"{name}: the source code defines no main(arguments)")


def _goes_nowhere(wanted: ToolRequest) -> None:
    if wanted.url is not None or wanted.source is not None:
        raise ToolRefused(f"{wanted.name}: it runs in the gateway, so it has no url and no source")


_MAKERS: Mapping[str, Callable[[ToolRequest, KnownSources], New]] = {
    "rest": _rest,
    "graphql": _graphql,
    "hybrid": _hybrid,
    "mcp": _mcp,
    "function": _function,
    "code": _script,
    "script": _script,
}
