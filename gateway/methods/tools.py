"""tools/list and tools/call, tools called by name as methods on `/rpc`, and built-in tools."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace as replaced

from gateway.context import Context
from gateway.interfaces import ToolCall, Upstream
from gateway.methods.call_checks import (
    check_idempotency_key,
    check_scope,
    problem_text,
    problems_of,
    restore_names,
    uncheckable,
    without_null,
)
from gateway.methods.call_plans import CallPlan, CallPlans
from gateway.methods.capabilities import check_task
from gateway.methods.connection_requests import ask_to_connect, is_declined
from gateway.methods.describe_tools import near, unknown_tool
from gateway.methods.lists import Lists, Mean
from gateway.methods.prompts import params_of, relay_context, view
from gateway.methods.result_processing import NOTHING_ASKED, AnswerProcessing
from gateway.methods.results_by_revision import (
    call_result,
    note_rename,
    plain_members,
    plain_result,
    rate_limit_result,
)
from gateway.methods.search_tools import Usage
from gateway.methods.skills.acting_agents import Handles
from gateway.operations.tool_calls import AS_JOB, OperationResult, job_location
from gateway.policy.approval_gate import META_APPROVAL
from gateway.protocol import upstream_errors
from gateway.protocol.account_request_state import times_asked
from gateway.protocol.revision_adapter import TRUE, Members, tool_result
from registry.catalog.catalog import Catalog
from schemas.binding import Does, GatewayBinding, ServiceBinding
from schemas.errors import (
    ApprovalRequired,
    ConnectionRequired,
    Denied,
    Fault,
    InvalidArguments,
    InvalidParams,
    MethodNotFound,
    ParseError,
    RelayedFault,
)
from schemas.json_schema.checker import ArgumentProblem
from schemas.jsonrpc import Request, decode_json
from schemas.mcp.headers import check_params
from schemas.mcp.messages import CallToolParams, CallToolResult, read
from schemas.source import Source
from schemas.tool import CONTINUE, FIELDS, RelayedResult, TextContent, Tool, ToolResult

CALLS = GatewayBinding("call_tool")

Json = dict[str, Any]


class CallToolResolver:
    def __init__(self, lists: Lists, handles: Handles | None = None) -> None:
        """`handles` resolve skills to the tools they grant; None: no skills."""
        self._lists = lists
        self._handles = handles

    async def resolve(self, call_tool: Tool, arguments: Json, context: Context) -> tuple[str, Json]:
        """The target tool's name in the caller's list, and the arguments to pass to it.
        Raises InvalidParams for invalid arguments, and for a tool that does not exist, is hidden
        from the caller, or does not belong to the skill that the caller names."""
        catalog = self._lists.visible(context)
        arguments = {**arguments, "arguments": _read(arguments.get("arguments", {}))}
        if problems := problems_of(catalog.checker(call_tool), arguments):
            raise InvalidArguments(
                problem_text(problems), [problem.argument for problem in problems]
            )
        name: str = arguments["name"]
        tool = catalog.find(name)
        if tool is None:
            raise InvalidParams(unknown_tool(name, catalog))
        if tool.binding == CALLS:
            raise InvalidParams(f"name: {name} does not call itself")
        if self._handles is not None and "skill" in arguments:
            grants = await self._handles.granted_tools(context, catalog, arguments["skill"])
            grants.check(tool)
        return name, arguments["arguments"]


def _read(arguments: Any) -> Any:
    """Decode arguments sent as a JSON string, as models that cannot fill an open object (Gemini)
    do."""
    try:
        return decode_json(arguments.encode()) if isinstance(arguments, str) else arguments
    except (ParseError, UnicodeEncodeError):
        return arguments


class BuiltInTools:
    """Implements `Upstream`."""

    def __init__(self, by_what: Mapping[Does, Upstream]) -> None:
        self._by_what = by_what

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult | RelayedResult:
        binding = cast("GatewayBinding", tool.binding)  # app.py: one upstream per binding type
        upstream = self._by_what.get(binding.does)
        if upstream is None:
            raise MethodNotFound(f"{tool.name} cannot be called here")
        return await upstream.call(tool, source, arguments, context)


class ToolMethods:
    def __init__(
        self,
        lists: Lists,
        plans: CallPlans,
        *,
        verify_scope: bool,
        answering: AnswerProcessing,
        call_tool: CallToolResolver | None = None,
        usage: Usage | None = None,
        mean: Mean | None = None,
        waits_s: float = 0.0,
    ) -> None:
        """`mean`: semantic search for lists; None disables it. `waits_s`: the longest time that a
        call waits for its caller to connect an account."""
        self._waits_s = waits_s
        self._mean = mean
        self._call_tool = call_tool or CallToolResolver(lists)
        self._usage = usage
        self._lists = lists
        self._plans = plans
        self._answering = answering
        self._verify_scope = verify_scope

    async def list(self, context: Context, request: Request) -> Raw:
        return await self._lists.tools(context, request, self._mean)

    async def call(self, context: Context, request: Request) -> CallToolResult | Members:
        """Call a tool by its name in the caller's list."""
        params = read(request.params, CallToolParams)
        try:
            return await self._call_named(params, context, request)
        except Denied as denied:
            raise self._no_tool(context, params.name) from denied
        except ApprovalRequired as fault:
            if not context.revision.argument_results:
                raise
            content = (TextContent(fault.message),)
            meta = {META_APPROVAL: fault.data}
            return call_result(ToolResult(content, is_error=True, meta=meta), context)
        except ConnectionRequired as fault:
            times = times_asked(params_of(request))
            if times and not is_declined(request) and await fault.wait(self._waits_s):
                with suppress(ConnectionRequired):
                    return await self._call_named(params, context, request)
            return await ask_to_connect(fault, relay_context(context, request), times)

    async def _call_named(
        self, params: CallToolParams, context: Context, request: Request
    ) -> CallToolResult | Members:
        """Raises Denied, besides."""
        name = params.name
        catalog, plans = self._plans.of_caller(context, self._lists)
        plan = plans.get(name)
        if plan is None:
            plan = self._plan(catalog, name, context)
        tool, arguments = plan.tool, params.arguments or {}
        if params.task is not None and context.revision.tasks and not plan.is_own:
            check_task(catalog, tool)
        if plan.own_names:
            arguments = restore_names(arguments, plan.own_names)
        result: ToolResult | Members
        try:
            if plan.is_relayed:
                relayed = relay_context(context, request)
                result = await self._relay(catalog, plan, arguments, relayed)
            else:
                is_retry = isinstance(request.params, dict) and "requestState" in request.params
                if plan.reads_request or is_retry:
                    if tool.binding == CALLS:
                        return await self._forward(tool, arguments, context, request)
                    context = self._with_request(plan, context, request)
                is_own_name = name == tool.name or name in tool.aliases
                result = await self._run(plan, arguments, context, "" if is_own_name else name)
        except InvalidArguments as fault:
            result = _refused_result(fault, context)
        if self._usage is not None:
            self._usage.on_call(context, tool, result)
        if not isinstance(result, ToolResult):
            return result
        if result.is_error:
            result = self._answering.checked_error(result, tool, context.revision)
        if name in tool.aliases:
            result = note_rename(result, tool.name)
        return call_result(result, context)

    def rate_limit_result(
        self, context: Context, request: Request, fault: Fault
    ) -> CallToolResult | None:
        """The result of an MCP tool call over a rate limit; None for any other request or fault."""
        result = rate_limit_result(context, request, fault)
        if result is None:
            return None
        tool = self._lists.catalog(context).find(str(params_of(request).get("name")))
        if tool is not None:
            result = self._answering.checked_error(result, tool, context.revision)
        return call_result(result, context)

    def _with_request(self, plan: CallPlan, context: Context, request: Request) -> Context:
        """The context of a call of a tool that reads its request."""
        if not plan.is_own:
            return relay_context(context, request)
        profile = self._lists.profile(context, request).name  # built-in tools use that of lists
        return replaced(context, options=replace(context.options, profile=profile))

    def _plan(self, catalog: Catalog, name: str, context: Context) -> CallPlan:
        """The plan of the tool of this name in the caller's list. Raises InvalidParams."""
        tool = catalog.find(name)
        if tool is None:
            raise self._no_tool(context, name)
        return self._plans.plan(catalog, tool)

    def _no_tool(self, context: Context, name: str) -> InvalidParams:
        """The fault of a name that is no tool of the caller, with similar names of those that
        are."""
        return InvalidParams(f"Unknown tool: {name[:100]}{self._similar(context, name)}")

    async def _forward(
        self, call_tool: Tool, arguments: Json, context: Context, request: Request
    ) -> CallToolResult | Members:
        """Forward call_tool as if the client had called the tool itself, other params kept. Raises
        InvalidArguments."""
        try:
            name, inner = await self._call_tool.resolve(call_tool, arguments, context)
        except InvalidParams as fault:
            raise _refusal(call_tool, fault.message) from fault
        params = {**params_of(request), "name": name, "arguments": inner}
        inside = replaced(context, headers=replaced(context.headers, mirrored=None))
        passed = replaced(request, params=params)
        try:
            return await self._call_named(read(params, CallToolParams), inside, passed)
        except Denied as denied:
            text = unknown_tool(name, self._lists.visible(context))
            raise _refusal(call_tool, text) from denied

    async def call_by_name(self, context: Context, request: Request) -> Raw:
        """Handle `/rpc`: method is the tool, params are its arguments, the result is its data."""
        if context.identity.refusal is not None:
            raise context.identity.refusal
        catalog = self._lists.catalog(context)
        tool = catalog.find(request.method)
        if tool is None:
            raise self._no_method(context, request)
        return await self.run_by_name(self._plans.plan(catalog, tool), context, request)

    async def run_by_name(self, plan: CallPlan, context: Context, request: Request) -> Raw:
        """Run a tool of the caller's catalog that `request` names as its method."""
        if context.identity.refusal is not None:
            raise context.identity.refusal
        if isinstance(request.params, list):
            raise InvalidParams("A tool takes its params by name: an object, not an array")
        arguments = {} if request.params is UNSET else request.params
        if plan.is_own and plan.tool.binding == CALLS:
            return await self._forwarded_by_name(plan.tool, arguments, context, request)
        if plan.own_names:
            arguments = restore_names(arguments, plan.own_names)
        preference = context.headers.respond_async
        if preference is not None and plan.takes_job:
            arguments = {**arguments, AS_JOB: True}
        try:
            if not plan.is_relayed:
                gateway_result = await self._run(plan, arguments, context)
                if preference is not None and isinstance(gateway_result, OperationResult):
                    preference.location = job_location(gateway_result)
                data = gateway_result.structured_content
                return (
                    plain_result(gateway_result)
                    if gateway_result.is_error or data is UNSET
                    else data
                )
            result = await self._relay(self._lists.catalog(context), plan, arguments, context)
        except Denied as denied:
            raise self._no_method(context, request) from denied
        return plain_result(result) if isinstance(result, ToolResult) else plain_members(result)

    def _no_method(self, context: Context, request: Request) -> MethodNotFound:
        """The fault of a method that is no tool of the caller, with similar names of those that
        are."""
        hint = self._similar(context, request.method)
        return MethodNotFound(f"Method not found: {request.method[:100]}{hint}")

    def _similar(self, context: Context, name: str) -> str:
        similar = near(name, self._lists.visible(context))
        return f"; did you mean {' or '.join(similar)}?" if similar else ""

    async def _forwarded_by_name(
        self, call_tool: Tool, arguments: Json, context: Context, request: Request
    ) -> Raw:
        """Forward call_tool as if the client had called the tool itself."""
        name, inner = await self._call_tool.resolve(call_tool, arguments, context)
        try:
            return await self.call_by_name(context, replaced(request, method=name, params=inner))
        except MethodNotFound as error:
            if not isinstance(error.__cause__, Denied):
                raise
            text = unknown_tool(name, self._lists.visible(context))
            raise InvalidParams(text) from error

    async def _run(
        self, plan: CallPlan, arguments: Json, context: Context, listed_name: str = ""
    ) -> ToolResult:
        """`listed_name`: the tool's name in the caller's list, where that differs. Raises
        InvalidArguments."""
        tool, action, reserved = plan.tool, plan.action, NOTHING_ASKED
        if action is not None:
            self._check_action(action, context)
        if listed_name or FIELDS in arguments or CONTINUE in arguments:
            try:
                reserved, arguments = self._answering.split_arguments(tool, arguments, listed_name)
            except InvalidParams as fault:
                raise _refusal(tool, fault.message) from fault
            if reserved.handle is not None:
                name = listed_name or tool.name
                return await self._answering.continue_answer(
                    reserved.handle, name, tool.id, context
                )
        checker = plan.checker
        if checker is None:  # the service might not validate either
            text = f"{tool.name} cannot be called: its input schema cannot be checked"
            return ToolResult((TextContent(text),), is_error=True)
        try:
            accepted = checker.accepts(arguments)
            kept_arguments = arguments if accepted else without_null(tool, checker, arguments)
        except ValueError as error:  # SchemaTooCostly is one
            raise uncheckable(error) from error
        if kept_arguments is None:
            raise _refusal(tool, *problems_of(checker, arguments))
        arguments = kept_arguments
        if reserved.fields and tool.binding.facts.projects == "selection":
            # they determine the GraphQL selection
            arguments = {**arguments, FIELDS: reserved.texts}
        try:
            result = await plan.execute(ToolCall(tool, plan.source, arguments, context))
        except InvalidParams as fault:  # valid by the schema but not encodable in a request
            raise _refusal(tool, fault.message) from fault
        if not isinstance(result, ToolResult):
            return tool_result(result.members)
        if plan.keeps_answers and not self._answering.is_done(result, tool, reserved):
            return await self._answering.process(result, tool, reserved, context, checker=checker)
        return result

    def _check_action(self, action: ServiceBinding, context: Context) -> None:
        """Raises StatusFault."""
        if self._verify_scope:
            check_scope(action, context.identity)
        check_idempotency_key(action, context.headers.idempotency_key)

    async def _relay(
        self, catalog: Catalog, plan: CallPlan, arguments: Json, context: Context
    ) -> ToolResult | Members:
        """Call a tool of another MCP server; errors of the gateway itself are a ToolResult. Raises
        InvalidArguments."""
        tool, mirrored_headers = plan.tool, context.headers.mirrored
        mirrored = tool.binding.mirrored
        if context.revision.routing_headers and mirrored and mirrored_headers is not None:
            check_params(mirrored, mirrored_headers, arguments)
        problems = problems_of(plan.checker, arguments) if plan.checker else []
        if problems:
            raise _refusal(tool, *problems)
        try:
            result = await plan.execute(ToolCall(tool, plan.source, arguments, context))
        except RelayedFault as fault:
            result = RelayedResult(upstream_errors.as_result(fault, context.revision))
        if isinstance(result, ToolResult):
            return result
        members = result.members
        if members.get("isError") == TRUE:  # `is_failure`, without a call for each result
            members = self._answering.checked_failure(members, tool, context.revision)
        return view(catalog, tool.source, context).call_result(members)


def _refusal(tool: Tool, *problems: ArgumentProblem | str) -> InvalidArguments:
    """The fault of arguments that a tool cannot be called with."""
    listed = [
        ArgumentProblem((), problem) if isinstance(problem, str) else problem
        for problem in problems
    ]
    errors = [{"argument": problem.argument, "message": problem.message} for problem in listed]
    text = f"Invalid arguments for {tool.name}: {problem_text(listed)}"
    return InvalidArguments(text, [problem.argument for problem in listed], {"errors": errors})


def _refused_result(fault: InvalidArguments, context: Context) -> ToolResult:
    """The fault as an error result for the model. Raises it where the revision has none."""
    if not context.revision.argument_results:
        raise fault
    return ToolResult((TextContent(fault.message),), is_error=True)
