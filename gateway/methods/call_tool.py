"""call_tool: calls another tool by name; and the executor of the gateway's built-in tools."""

from collections.abc import Mapping
from typing import Any, cast

from gateway.abc import Upstream
from gateway.context import Context
from gateway.methods.checks import problems_of, told
from gateway.methods.describe_tools import unknown_tool
from gateway.methods.lists import Lists
from gateway.methods.skills.agents import Handles
from schemas.binding import Does, GatewayBinding
from schemas.errors import InvalidParams, MethodNotFound, ParseError
from schemas.jsonrpc import Request, decode_json
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult

CALLS = GatewayBinding("call_tool")

Json = dict[str, Any]


class Passing:
    def __init__(self, lists: Lists, handles: Handles | None = None) -> None:
        """`handles` resolve skills to the tools they grant; None: no skills."""
        self._lists = lists
        self._handles = handles

    async def meant(
        self, own: Tool, arguments: Json, context: Context, request: Request | None = None
    ) -> tuple[str, Json]:
        """The target tool's name in the caller's list, and the arguments to pass to it.
        Raises InvalidParams for invalid arguments, and for a tool that does not exist, is hidden
        from the caller, or does not belong to the skill that the caller names."""
        catalog, chosen = self._lists.visible(context), self._lists.profile(context, request)
        arguments = {**arguments, "arguments": _read(arguments.get("arguments", {}))}
        if problems := problems_of(catalog.checker(own), arguments):
            raise InvalidParams(told(problems))
        name: str = arguments["name"]
        tool = catalog.find(name, chosen)
        if tool is None:
            raise InvalidParams(unknown_tool(name, catalog))
        if tool.binding == CALLS:
            raise InvalidParams(f"name: {name} does not call itself")
        if self._handles is not None and "skill" in arguments:
            given = await self._handles.given(context, catalog, arguments["skill"])
            given.check(tool)
        return name, arguments["arguments"]


def _read(arguments: Any) -> Any:
    """Decode arguments sent as a JSON string, as models that cannot fill an open object (Gemini)
    do."""
    try:
        return decode_json(arguments.encode()) if isinstance(arguments, str) else arguments
    except (ParseError, UnicodeEncodeError):
        return arguments


class Own:
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
