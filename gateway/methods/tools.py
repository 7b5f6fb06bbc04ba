"""tools/list and tools/call, and a tool called by its own name on `/rpc`."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw

from gateway.abc import Upstream
from gateway.context import Context
from gateway.methods.checks import check_key, check_scope
from gateway.methods.lifecycle import STAMP
from gateway.methods.results import call_result, plain_result
from gateway.protocol import cursors
from registry.catalog import Catalog, Catalogs, Page
from schemas.binding import ServiceBinding
from schemas.errors import InvalidParams, MethodNotFound
from schemas.jsonrpc import Request, encode
from schemas.jsonschema import Problem
from schemas.mcp.messages import (
    CallToolParams,
    CallToolResult,
    ListParams,
    ListToolsResult,
    read,
)
from schemas.mcp.revisions import Revision
from schemas.tool import TextContent, Tool, ToolResult


class Tools:
    def __init__(
        self,
        catalogs: Catalogs,
        upstreams: Mapping[type, Upstream],
        page_size: int,
        list_ttl_ms: int,
        verify_scope: bool,
    ) -> None:
        """`upstreams` is keyed by the class of the bindings that it executes."""
        self._catalogs = catalogs
        self._upstreams = upstreams
        self._page_size = page_size
        self._list_ttl_ms = list_ttl_ms
        self._verify_scope = verify_scope

    async def list(self, context: Context, request: Request) -> Raw:
        after = cursors.unseal(read(request.params, ListParams).cursor)
        catalog, revision = self._catalogs.of(context.principal.tenant), context.revision
        page = catalog.page(revision, after, self._page_size)
        result = page.results.get(revision.name)
        if result is None:  # a megabyte for a thousand tools: encoded once for all who list it
            result = page.results[revision.name] = Raw(encode(self._listed(page, revision)))
        return result

    def _listed(self, page: Page, revision: Revision) -> ListToolsResult:
        cursor = UNSET if page.last is None else cursors.seal(page.last)
        if not revision.result_type:
            return ListToolsResult(page.tools, cursor)
        return ListToolsResult(page.tools, cursor, "complete", self._list_ttl_ms, "private", STAMP)

    async def call(self, context: Context, request: Request) -> CallToolResult:
        params = read(request.params, CallToolParams)
        catalog = self._catalogs.of(context.principal.tenant)
        tool = catalog.get(params.name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {params.name[:100]}")
        result = await self._run(catalog, tool, params.arguments or {}, context)
        return call_result(result, context)

    async def call_by_name(self, context: Context, request: Request) -> Raw:
        """`/rpc`: the method is the tool, the params are its arguments, the result is its data."""
        context.require_identity()
        catalog = self._catalogs.of(context.principal.tenant)
        tool = catalog.get(request.method)
        if tool is None:
            raise MethodNotFound(f"Method not found: {request.method[:100]}")
        if isinstance(request.params, list):
            raise InvalidParams("A tool takes its params by name: an object, not an array")
        arguments = {} if request.params is UNSET else request.params
        return plain_result(await self._run(catalog, tool, arguments, context))

    async def _run(
        self, catalog: Catalog, tool: Tool, arguments: dict[str, Any], context: Context
    ) -> ToolResult:
        if isinstance(tool.binding, ServiceBinding):
            if self._verify_scope:
                check_scope(tool.binding, context.identity)
            check_key(tool.binding, context.letter.idempotency_key)
        checker = catalog.checker(tool)
        try:
            if not checker.accepts(arguments):
                return _rejected(tool, checker.explain(arguments), context)
        except ValueError as error:
            raise InvalidParams("The arguments are nested too deeply") from error
        upstream = self._upstreams[type(tool.binding)]
        source = catalog.sources.get(tool.source)
        try:
            return await upstream.call(tool, source, arguments, context)
        except InvalidParams as fault:  # a value that the schema allows and no request can carry
            return _rejected(tool, [Problem("", fault.message)], context)


def _rejected(tool: Tool, problems: "list[Problem]", context: Context) -> ToolResult:
    """Bad arguments: a result that a model can act on, or an error, as the revision has it."""
    lines = [f"{p.argument or 'arguments'}: {p.message}" for p in problems]
    text = f"Invalid arguments for {tool.name}: " + "; ".join(lines)
    if context.revision.argument_results:
        return ToolResult((TextContent(text),), is_error=True)
    raise InvalidParams(
        text, {"errors": [{"argument": p.argument, "message": p.message} for p in problems]}
    )
