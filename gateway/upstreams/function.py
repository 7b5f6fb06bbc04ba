"""Executes `FunctionBinding`: hand-made tools that call a Python function.

As with hybrid actions, a call runs to its end even if its client disconnects.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from gateway.context import Context
from gateway.hybrid.functions import Function
from gateway.hybrid.python_services import Call
from gateway.upstreams.http.responses_as_results import failure_result
from gateway.upstreams.python import PythonUpstream
from schemas.binding import FunctionBinding
from schemas.errors import InternalError
from schemas.jsonrpc import decode_json
from schemas.source import Source
from schemas.tool import Tool, ToolResult


class FunctionUpstream:
    def __init__(
        self,
        functions: Mapping[str, Function],
        python: PythonUpstream,
        timeout_of: Callable[[str], float],
    ) -> None:
        """An upstream of `functions`, by their names in the settings; `python` has the threads.
        `timeout_of`: seconds for one call, by the name of a source."""
        self._functions = functions
        self._python = python
        self._timeout_of = timeout_of

    async def call(
        self,
        tool: Tool,
        source: Source | None,  # noqa: ARG002 - the function is here
        arguments: dict[str, Any],
        context: Context,
    ) -> ToolResult:
        # app/upstreams.py: each upstream has its own kind
        binding = cast("FunctionBinding", tool.binding)
        function = self._functions.get(binding.name)
        if function is None:
            return failure_result(
                f"{tool.name}: the settings have no function {binding.name} any more"
            )
        if (reason := _misfit(function, tool, arguments)) is not None:
            return failure_result(f"{tool.name} cannot be called: its function {reason}")
        values = function.values(arguments)
        call = Call(context.principal, context.request_id, tool.name)
        try:
            return await self._python.complete(
                function.handler, values, call, self._timeout_of(tool.source)
            )
        except InternalError:
            return failure_result(f"{tool.name} failed; the reason is in the log of the gateway")


def _misfit(function: Function, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """How the signature of the function contradicts the tool's input schema; None if it fits."""
    beyond = [name for name in arguments if name not in function.takes]
    if beyond:  # arguments that the schema does not name either are ignored
        named = decode_json(bytes(tool.input_schema)).get("properties", {})
        beyond = [name for name in beyond if name in named]
    if beyond:
        return f"does not take {', '.join(beyond)}"
    lacking = [name for name in function.needs if name not in arguments]
    return f"needs {', '.join(lacking)}" if lacking else None
