"""tools/list and tools/call, and tools called by name as methods on `/rpc`."""

import logging
from dataclasses import replace
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace as replaced

from gateway.abc import Execute, ToolCall
from gateway.context import Context
from gateway.methods.answers import Answering
from gateway.methods.call_tool import CALLS, Passing
from gateway.methods.capabilities import check_task
from gateway.methods.checks import check_key, check_scope, problems_of, told
from gateway.methods.describe_tools import unknown_tool
from gateway.methods.lists import Lists, Mean
from gateway.methods.prompts import handed_on, members_of, view
from gateway.methods.results import META_APPROVAL, call_result, plain_members, plain_result, renamed
from gateway.methods.search_tools import Usage
from gateway.protocol import failures
from gateway.protocol.shapes import Members, tool_result
from registry.catalog.catalog import Catalog
from schemas.binding import Binding
from schemas.errors import (
    ApprovalRequired,
    Denied,
    InvalidParams,
    MethodNotFound,
    RelayedFault,
)
from schemas.jsonrpc import Request
from schemas.jsonschema import ArgumentProblem, Checker
from schemas.mcp.headers import check_params
from schemas.mcp.messages import CallToolParams, CallToolResult, read
from schemas.tool import FIELDS, RelayedResult, TextContent, Tool, ToolResult

log = logging.getLogger("toolgate.tools")

Json = dict[str, Any]


class ToolMethods:
    def __init__(
        self,
        lists: Lists,
        execute: Execute,
        *,
        verify_scope: bool,
        answering: Answering,
        passing: Passing | None = None,
        usage: Usage | None = None,
        mean: Mean | None = None,
    ) -> None:
        """`mean`: semantic search for lists; None disables it."""
        self._mean = mean
        self._passing = passing or Passing(lists)
        self._usage = usage
        self._lists = lists
        self._execute = execute
        self._answering = answering
        self._verify_scope = verify_scope
        self._unchecked: set[str] = set()  # digests of tools with unusable schemas

    async def list(self, context: Context, request: Request) -> Raw:
        return await self._lists.tools(context, request, self._mean)

    async def call(self, context: Context, request: Request) -> CallToolResult | Members:
        """Call a tool by its name in the caller's list."""
        params = read(request.params, CallToolParams)
        try:
            return await self._called(params, context, request)
        except Denied as denied:
            raise InvalidParams(f"Unknown tool: {params.name[:100]}") from denied
        except ApprovalRequired as fault:
            if not context.revision.argument_results:
                raise
            said = (TextContent(fault.message),)
            meta = {META_APPROVAL: fault.data}
            return call_result(ToolResult(said, is_error=True, meta=meta), context)

    async def _called(
        self, params: CallToolParams, context: Context, request: Request
    ) -> CallToolResult | Members:
        """Raises Denied, besides."""
        catalog, chosen = self._lists.catalog(context), self._lists.profile(context, request)
        tool = catalog.find(params.name, chosen)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {params.name[:100]}")
        arguments = params.arguments or {}
        own = tool.binding.facts.own
        if context.revision.tasks and not own and "task" in members_of(request):
            check_task(catalog, tool)
        if tool.binding.facts.relayed:
            surroundings = handed_on(context, request)
            result = await self._relayed(catalog, tool, tool.binding, arguments, surroundings)
        else:
            if own:  # built-in tools use the display profile of lists
                if tool.binding == CALLS:
                    return await self._passed_on(tool, arguments, context, request)
                context = replace(context, wishes=replace(context.wishes, profile=chosen.name))
            known = params.name == tool.name or params.name in tool.aliases
            called = "" if known else params.name
            result = await self._run(catalog, tool, arguments, context, called)
        if self._usage is not None:
            self._usage.called(context, tool, result)
        if not isinstance(result, ToolResult):
            return result
        if params.name in tool.aliases:
            result = renamed(result, tool.name)
        return call_result(result, context)

    async def _passed_on(
        self, own: Tool, arguments: Json, context: Context, request: Request
    ) -> CallToolResult | Members:
        """Forward call_tool as if the client had called the tool itself, other params kept."""
        try:
            name, inner = await self._passing.meant(own, arguments, context, request)
        except InvalidParams as fault:
            return call_result(
                _rejected(own, [ArgumentProblem("", fault.message)], context), context
            )
        params = {**members_of(request), "name": name, "arguments": inner}
        inside = replace(context, letter=replaced(context.letter, mirrored=None))
        passed = replaced(request, params=params)
        try:
            return await self._called(read(params, CallToolParams), inside, passed)
        except Denied:
            problem = ArgumentProblem("", unknown_tool(name, self._lists.visible(context)))
            return call_result(_rejected(own, [problem], context), context)

    async def call_by_name(self, context: Context, request: Request) -> Raw:
        """Handle `/rpc`: method is the tool, params are its arguments, the result is its data."""
        try:
            return await self._called_by_name(context, request)
        except Denied as denied:
            raise MethodNotFound(f"Method not found: {request.method[:100]}") from denied

    async def _called_by_name(self, context: Context, request: Request) -> Raw:
        """Raises Denied, besides."""
        context.require_identity()
        catalog = self._lists.catalog(context)
        tool = catalog.find(request.method)
        if tool is None:
            raise MethodNotFound(f"Method not found: {request.method[:100]}")
        if isinstance(request.params, list):
            raise InvalidParams("A tool takes its params by name: an object, not an array")
        arguments = {} if request.params is UNSET else request.params
        if tool.binding == CALLS:
            name, inner = await self._passing.meant(tool, arguments, context)
            try:
                passed = replaced(request, method=name, params=inner)
                return await self._called_by_name(context, passed)
            except Denied as denied:
                text = unknown_tool(name, self._lists.visible(context))
                raise InvalidParams(text) from denied
        if tool.binding.facts.relayed:
            result = await self._relayed(catalog, tool, tool.binding, arguments, context)
        else:
            result = await self._run(catalog, tool, arguments, context)
        return plain_result(result) if isinstance(result, ToolResult) else plain_members(result)

    async def _run(
        self, catalog: Catalog, tool: Tool, arguments: Json, context: Context, called: str = ""
    ) -> ToolResult:
        """`called`: the tool's name in the caller's list, where that differs."""
        if (action := tool.binding.action) is not None:
            if self._verify_scope:
                check_scope(action, context.identity)
            check_key(action, context.letter.idempotency_key)
        try:
            asked, arguments = self._answering.taken(tool, arguments, called)
        except InvalidParams as fault:
            return _rejected(tool, [ArgumentProblem("", fault.message)], context)
        if asked.handle is not None:
            name = called or tool.name
            return await self._answering.continued(asked.handle, name, tool.id, context)
        checker = self._checker(catalog, tool)
        if checker is None:  # the service might not validate either
            text = f"{tool.name} cannot be called: its input schema cannot be checked"
            return ToolResult((TextContent(text),), is_error=True)
        problems = problems_of(checker, arguments)
        if problems:
            return _rejected(tool, problems, context)
        if asked.fields and tool.binding.facts.projects == "selection":
            arguments = {**arguments, FIELDS: asked.texts}  # they determine the GraphQL selection
        source = catalog.sources.get(tool.source)
        try:
            result = await self._execute(ToolCall(tool, source, arguments, context))
        except InvalidParams as fault:  # valid by the schema but not encodable in a request
            return _rejected(tool, [ArgumentProblem("", fault.message)], context)
        if not isinstance(result, ToolResult):
            return tool_result(result.members)
        if tool.binding.facts.keeps_answers:
            return await self._answering.finished(result, tool, asked, context, checker)
        return result

    async def _relayed(
        self,
        catalog: Catalog,
        tool: Tool,
        binding: Binding,
        arguments: Json,
        context: Context,
    ) -> ToolResult | Members:
        """Call a tool of another MCP server; errors of the gateway itself are a ToolResult."""
        sent = context.letter.mirrored
        if context.revision.routing_headers and binding.mirrored and sent is not None:
            check_params(binding.mirrored, sent, arguments)
        checker = self._checker(catalog, tool)
        problems = problems_of(checker, arguments) if checker else []
        if problems:
            return _rejected(tool, problems, context)
        source = catalog.sources.get(tool.source)
        try:
            result = await self._execute(ToolCall(tool, source, arguments, context))
        except RelayedFault as fault:
            result = RelayedResult(failures.as_result(fault, context.revision))
        if isinstance(result, ToolResult):
            return result
        return view(catalog, tool.source, context).called(result.members)

    def _checker(self, catalog: Catalog, tool: Tool) -> Checker | None:
        """Checker of the input schema; None if unusable: another MCP server validates itself."""
        if tool.digest in self._unchecked:
            return None
        try:
            return catalog.checker(tool)
        except ValueError as error:
            self._unchecked.add(tool.digest)
            reason = str(error).split("\n", 1)[0][:300]
            log.warning("schema_unusable", extra={"tool": tool.name, "reason": reason})
            return None


def _rejected(tool: Tool, problems: list[ArgumentProblem], context: Context) -> ToolResult:
    """Report bad arguments as an error result for the model, or a fault, by revision."""
    text = f"Invalid arguments for {tool.name}: {told(problems)}"
    if context.revision.argument_results:
        return ToolResult((TextContent(text),), is_error=True)
    raise InvalidParams(
        text, {"errors": [{"argument": p.argument, "message": p.message} for p in problems]}
    )
