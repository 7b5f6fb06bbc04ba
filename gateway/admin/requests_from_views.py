"""Requests that make stored entries again, from what the operations show of these entries."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.admin.resources.import_requests import AnyImport, Import, MachineImport
from gateway.operations.operation import Operation
from registry.access.api_keys import earlier_mark
from registry.tools.tool_request import ToolRequest
from schemas.binding import (
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    ScriptBinding,
)
from schemas.source import MANUAL, facts_of

Json = dict[str, Any]
AnyBinding = (
    OpenAPIBinding | GraphQLBinding | HybridBinding | McpBinding | FunctionBinding | ScriptBinding
)
MASK = "***"  # in a URL: a part that may be a secret


class NotPortable(ValueError):
    """An entry cannot be made again from what is stored of it; with the reason."""


def source_request(view: Json) -> Json | None:
    """The import of a source; None: tools made by hand, or a wing that is switched on, make it
    again."""
    if view["kind"] == MANUAL or facts_of(view["kind"]).own:
        return None
    location, options = view["location"], view["options"] or {}
    if MASK in location or MASK in str(options):
        raise NotPortable("its address has a query or a command that is not shown")
    members = {
        "name": view["name"],
        "base_url": view["base_url"],
        "include": view["include"],
        "exclude": view["exclude"],
    }
    import_options = {name: value for name, value in options.items() if name != "guarded"}
    by_url = {**members, **import_options, "kind": view["kind"], "url": location}
    if view["kind"] in {"mcp", "a2a"}:
        del by_url["base_url"]
    if location.startswith(("http://", "https://")):
        try:
            msgspec.convert(by_url, Import)
        except msgspec.ValidationError:
            pass  # it has options that only commands set
        else:
            return by_url
    if not location and not import_options.get("command"):
        raise NotPortable("its description was uploaded, and is not at an address")
    return {
        **members,
        "kind": "machine",
        "importer": view["kind"],
        "location": location,
        "choices": _choices(view["kind"], import_options),
    }


def _choices(kind: str, options: Mapping[str, Any]) -> Json:
    """Options of an importer, without those that an import finds out itself."""
    found_out = {"credentials", "published"}
    choices = set(facts_of(kind).options.__struct_fields__) - found_out
    return {name: value for name, value in options.items() if name in choices}


def local_import(request: AnyImport) -> MachineImport:
    """An import as commands make it on their machine, which replaces an earlier one."""
    if isinstance(request, MachineImport):
        return request
    document = getattr(request, "document", None)
    if document is not None:
        raise NotPortable("expected url, not document")
    choices = msgspec.to_builtins(request.options)
    return MachineImport(
        name=request.name,
        include=request.include,
        exclude=request.exclude,
        importer=request.kind,
        location=request.url or "",
        base_url=getattr(request, "base_url", None),
        choices=choices,
    )


def tool_request(view: Json) -> Json:
    """The request of a tool made by hand. `view` has the address of its source, `base_url`, where
    no import has made that source."""
    binding = view["binding"]
    if binding is None:
        raise NotPortable("its binding is shown to operators alone: use a key with their role")
    try:
        how = _how(msgspec.json.decode(msgspec.json.encode(binding), type=AnyBinding), view)
    except msgspec.ValidationError as error:
        raise NotPortable("no request makes a tool of its kind") from error
    schema = dict(view["input_schema"])
    examples = schema.pop("examples", ())
    members = {
        name: view[name]
        for name in (
            "name", "description", "title", "output_schema", "annotations", "tags", "toolsets",
            "keywords", "domain", "namespace", "tier", "weight", "lifecycle", "personas", "cost",
        )
    }  # fmt: skip
    defaults = {"weight": 1.0, "lifecycle": "active"}
    members |= {name: None for name, value in defaults.items() if members[name] == value}
    source = {"source": view["source"]} if view["source"] else {}
    request = {**members, **source, **how, "input_schema": schema, "examples": examples}
    return {name: value for name, value in request.items() if value is not None}


def _how(binding: Any, view: Json) -> Json:
    """The call, and its target where the tool has brought it."""
    address = view.get("base_url")
    url = {"url": address} if address else {}
    match binding:
        case OpenAPIBinding():
            return {"rest": f"{binding.method} {address or ''}{_target(binding)}"}
        case GraphQLBinding():
            return {"graphql": _graphql(binding), **url}
        case HybridBinding():
            return {
                "hybrid": binding.service, "scope": binding.scope, "side": binding.side,
                "dialect": view.get("dialect", "jsonrpc"), **url,
            }  # fmt: skip
        case McpBinding():
            return {"mcp": binding.name}
        case FunctionBinding():
            return {"function": binding.name}
        case ScriptBinding():
            return {"code": binding.source, "language": binding.language}
    raise AssertionError(binding)


def _target(binding: OpenAPIBinding) -> str:
    query = []
    for parameter in binding.parameters:
        if parameter.location != "query":
            continue
        if parameter.fixed is msgspec.UNSET:
            value = f"{{{parameter.argument}}}"
        else:
            value = quote(str(msgspec.json.decode(parameter.fixed)), safe="")
        query.append(f"{quote(parameter.name, safe='')}={value}")
    return binding.path + (f"?{'&'.join(query)}" if query else "")


def _graphql(binding: GraphQLBinding) -> str:
    variables = ", ".join(f"${item.argument}: {item.type}" for item in binding.variables)
    arguments = ", ".join(f"{item.name}: ${item.argument}" for item in binding.variables)
    head = f"({variables})" if variables else ""
    inner = f"({arguments})" if arguments else ""
    return f"{binding.operation}{head} {{ {binding.field}{inner} {binding.selection} }}"


def key_request(view: Json) -> Json | None:
    """None: a rotation has replaced the key, and it ends by itself."""
    return None if earlier_mark("") in view["name"] else view


READERS: Mapping[str, Callable[[Json], Json | None]] = {
    "sources": source_request,
    "tools": tool_request,
    "keys": key_request,
}
"""Sections whose views have other members than the requests that make their entries."""


def type_of_request(section: str, operation: Operation) -> Any:
    """The type of an entry in the file."""
    return {"sources": AnyImport, "tools": ToolRequest}.get(section, operation.body)
