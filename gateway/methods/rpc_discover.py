"""rpc.discover: this endpoint as an OpenRPC 1.3 document (https://spec.open-rpc.org)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from anyio import to_thread
from msgspec import Raw

from gateway.context import Context
from gateway.methods.lists import EncodedAnswers, Lists
from gateway.methods.results_by_revision import SERVER
from registry.catalog.catalog import Catalog
from registry.catalog.tool_lists import searchable_text
from schemas.json_schema.walk import rewrite_references
from schemas.jsonrpc import Request, decode_json, encode
from schemas.mcp.messages import ToolListParams, read
from schemas.tool import Tool

Json = dict[str, Any]

_OWN_METHODS: tuple[Json, ...] = (
    {
        "name": "tools/list",
        "summary": "The tools of this gateway, page by page",
        "paramStructure": "by-name",
        "params": [
            {"name": "cursor", "schema": {"type": "string"}},
            {"name": "query", "schema": {"type": "string"}},
            {"name": "intent", "schema": {"type": "string"}},
        ],
        "result": {"name": "page", "schema": {"type": "object", "required": ["tools"]}},
    },
    {
        "name": "tools/call",
        "summary": "Call a tool; the result is that of MCP",
        "paramStructure": "by-name",
        "params": [
            {"name": "name", "required": True, "schema": {"type": "string"}},
            {"name": "arguments", "schema": {"type": "object"}},
        ],
        "result": {"name": "result", "schema": {"type": "object", "required": ["content"]}},
    },
    {
        "name": "rpc.discover",
        "summary": "This document",
        "params": [],
        "result": {"name": "OpenRPC", "schema": {"type": "object"}},
    },
)


class Discovery:
    def __init__(self, lists: Lists) -> None:
        self._lists = lists
        self._written = EncodedAnswers(lambda catalog: openrpc(catalog.tools))

    async def discover(self, context: Context, request: Request) -> Raw:
        """Return the document, filtered like a list by `query`, `intent` and the caller's rights.
        Raises the Fault of an invalid token."""
        params = request.params
        texts = read(params, ToolListParams).texts if isinstance(params, dict) else []
        catalog = self._lists.visible(context)
        if not texts:
            return await to_thread.run_sync(self._written.of, catalog)
        return await to_thread.run_sync(_narrow, catalog, texts)


def _narrow(catalog: Catalog, texts: Sequence[str]) -> Raw:
    folded_texts = [text.casefold() for text in texts]
    tools = [
        tool
        for tool in catalog.tools
        if all(text in searchable_text(tool) for text in folded_texts)
    ]
    return Raw(encode(openrpc(tools)))


def openrpc(tools: Iterable[Tool]) -> Json:
    """Every tool as a method; its `$defs` become components under the tool's name."""
    schemas: Json = {}
    methods = [*_OWN_METHODS, *(_method(tool, schemas) for tool in tools)]
    return {
        "openrpc": "1.3.2",
        "info": {"title": SERVER.name, "version": SERVER.version},
        "methods": methods,
        "components": {"schemas": schemas},
    }


def _method(tool: Tool, components: Json) -> Json:
    place = f"#/components/schemas/{tool.name}."
    schema = rewrite_references(
        decode_json(bytes(tool.input_schema)),
        lambda reference: place + reference.removeprefix("#/$defs/"),
    )
    for name, definition in schema.get("$defs", {}).items():
        components[f"{tool.name}.{name}"] = definition
    return {
        "name": tool.name,
        "summary": tool.title or tool.name,
        "description": tool.description,
        "paramStructure": "by-name",
        "params": list(_params(schema)),
        "result": {"name": "result", "schema": {}},
    }


def _params(schema: Json) -> Iterator[Json]:
    required = set(schema.get("required", ()))
    properties = schema.get("properties", {})
    for name in sorted(properties, key=lambda name: name not in required):  # required ones first
        yield {"name": name, "required": name in required, "schema": properties[name]}
