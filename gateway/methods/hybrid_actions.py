"""Hybrid actions called by their id, and the portal's own tools/list and tools/call.

The order of checks is that of light-hybrid-4j: existence of the action, validation of its data,
authorization. `auth_first` (always set on `/rpc`) swaps the last two.
"""

from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Raw

from gateway.context import Context
from gateway.interfaces import ToolCall
from gateway.methods.call_checks import check_idempotency_key, check_scope
from gateway.methods.call_plans import CallPlan, CallPlans
from gateway.methods.lists import EncodedAnswers, Lists
from gateway.methods.results_by_revision import call_result, payload_of, plain_result
from gateway.methods.tools import ToolMethods
from gateway.protocol.dialects import Payload
from gateway.protocol.revision_adapter import tool_result
from registry.catalog.catalog import Catalog
from schemas.binding import ServiceBinding
from schemas.errors import Denied, InvalidParams, MethodNotFound
from schemas.hybrid import HANDLER_NOT_FOUND, InvalidData, ServiceFailed, StatusFault, split
from schemas.json_schema.validators import SchemaTooCostly
from schemas.jsonrpc import Request, decode_json, json_type
from schemas.mcp.messages import CallToolParams, CallToolResult, read
from schemas.tool import Tool, ToolResult


@dataclass(frozen=True, slots=True)
class _Found:
    tool: Tool
    binding: ServiceBinding
    catalog: Catalog
    plan: CallPlan | None  # made before


class Services:
    def __init__(
        self,
        lists: Lists,
        plans: CallPlans,
        verify_scope: bool,
        tools: ToolMethods,
    ) -> None:
        """`tools` handles methods that are tools but not services."""
        self._lists = lists
        self._plans = plans
        self._verify_scope = verify_scope
        self._tools = tools
        self._listed = EncodedAnswers(_list_services)

    async def call_by_id(self, context: Context, request: Request) -> Raw | Payload:
        """Call an action: method is its id, params are its data, the result is its output."""
        if context.revision.tools_are_methods and context.toolset is None:
            plan = self._plans.of_caller(context, self._lists)[1].get(request.method)
            if plan is not None and not plan.is_action_id:
                return await self._tools.run_by_name(plan, context, request)
        service = self._find(context, request.method)
        if service is None:
            return await self._unknown(context, request)
        legacy = context.revision.text_results
        data = request.params if legacy else _by_name(service.binding, request.params)
        try:
            result = await self._run(service, data, context)
        except Denied:
            return await self._unknown(context, request)
        if result.is_error:
            raise failure(result)
        return payload_of(result) if legacy else plain_result(result)

    async def _unknown(self, context: Context, request: Request) -> Raw:
        if context.revision.tools_are_methods:
            return await self._otherwise(context, request)
        self._check_stranger(context)
        raise StatusFault(HANDLER_NOT_FOUND, request.method[:512])

    def _check_stranger(self, context: Context) -> None:
        """Require a token before a not-found error: anonymous callers must not probe names."""
        if context.headers.auth_first or self._lists.narrows(context):
            context.require_identity()

    async def _otherwise(self, context: Context, request: Request) -> Raw:
        try:
            return await self._tools.call_by_name(context, request)
        except MethodNotFound as error:
            if split(request.method) is None:
                raise
            text = error.message
            raise StatusFault(HANDLER_NOT_FOUND, request.method[:512], text=text) from error

    async def list(self, context: Context, _request: Request) -> Raw:
        """List all actions under their ids, unpaginated, as light-hybrid-4j does for a portal."""
        return self._listed.of(self._lists.whole(context))

    async def call(self, context: Context, request: Request) -> CallToolResult:
        """Handle tools/call with the id of an action as the name."""
        params = read(request.params, CallToolParams)
        service = self._find(context, params.name)
        if service is None:
            self._check_stranger(context)
            raise InvalidParams(f"Unknown tool: {params.name[:100]}")
        data: Any = UNSET if params.arguments is None else params.arguments
        if service.binding.argument is not None:  # as the listed schema has it
            data = (params.arguments or {}).get(service.binding.argument, UNSET)
        try:
            return call_result(await self._run(service, data, context), context)
        except Denied as denied:
            self._check_stranger(context)
            raise InvalidParams(f"Unknown tool: {params.name[:100]}") from denied

    def _find(self, context: Context, id_: str) -> _Found | None:
        if context.toolset is None:
            catalog, plans = self._plans.of_caller(context, self._lists)
        else:
            catalog = self._lists.whole(context)
            plans = self._plans.of(catalog)
        tool = catalog.service(id_)
        if tool is None or (action := tool.binding.action) is None:
            return None
        sides = {action.side, context.headers.side} - {None}
        return _Found(tool, action, catalog, plans.get(tool.name)) if len(sides) < 2 else None

    async def _run(self, action: _Found, data: Any, context: Context) -> ToolResult:
        binding = action.binding
        if context.headers.auth_first:
            self._authorize(binding, context)
        arguments = _check_data(action, data)
        if not context.headers.auth_first:
            self._authorize(binding, context)
        check_idempotency_key(binding, context.headers.idempotency_key)
        plan = action.plan
        if plan is None or plan.tool is not action.tool:
            plan = self._plans.plan(action.catalog, action.tool)
        result = await plan.execute(ToolCall(action.tool, plan.source, arguments, context))
        return result if isinstance(result, ToolResult) else tool_result(result.members)

    def _authorize(self, binding: ServiceBinding, context: Context) -> None:
        if not binding.skip_auth:
            context.require_identity()
        if self._verify_scope:
            check_scope(binding, context.identity)


def _by_name(binding: ServiceBinding, params: Any) -> Any:
    """Convert positional params to named ones, where the action defines positions. JSON-RPC 2.0
    allows objects and arrays only (section 4.2)."""
    if params is UNSET or params is None or isinstance(params, dict):
        return params
    if not isinstance(params, list):
        text = f"Invalid params: an object is expected, not {json_type(params)}"
        raise InvalidParams(text)
    if binding.argument is not None:
        return params
    names, rest_name = binding.positional, binding.rest
    if not names and rest_name is None:
        raise InvalidParams("Invalid params: positional array params are not supported")
    if len(params) > len(names) and rest_name is None:
        text = f"Invalid params: at most {len(names)} by position ({', '.join(names)})"
        raise InvalidParams(f"{text}, not {len(params)}")
    named = dict(zip(names, params, strict=False))
    return named if rest_name is None else {**named, rest_name: params[len(names) :]}


def _check_data(action: _Found, data: Any) -> Any:
    """Validate `data` as arguments. Raises InvalidData with the first violation."""
    value = None if data is UNSET else data
    binding = action.binding
    if not binding.validated:
        return value
    arguments = value if binding.argument is None else {binding.argument: value}
    checker = action.catalog.checker(action.tool)
    try:
        if checker.accepts(arguments):
            return arguments
        violation = checker.violation(arguments, binding.argument)
    except SchemaTooCostly as error:
        raise InvalidData(f"$: {error}") from error
    except ValueError as error:
        violation = "$: is nested too deeply to be checked"
        raise InvalidData(violation) from error
    raise InvalidData(violation)


def failure(result: ToolResult) -> ServiceFailed:
    """The fault for a failed hybrid action that was called by its id."""
    structure = result.structured_content
    if structure is UNSET:  # no answer came at all
        return ServiceFailed(502, "The service gave no answer")
    answer = decode_json(bytes(structure))
    return ServiceFailed(answer["status"], answer.get("body", ""))


def _list_services(catalog: Catalog) -> dict[str, Any]:
    return {"tools": [_member(tool) for tool in catalog.services]}


def _member(tool: Tool) -> dict[str, Any]:
    action = tool.binding.action
    name = action.service if action is not None else tool.name
    return {"name": name, "description": tool.description, "inputSchema": tool.input_schema}
