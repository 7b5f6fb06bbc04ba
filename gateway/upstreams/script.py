"""Executes `ScriptBinding`: hand-made tools whose source code is in the registry."""

from collections.abc import Callable
from typing import Any, cast

from config.settings import Scripts
from gateway.context import Context
from gateway.sandbox.script_runner import Sandbox, ScriptFailed
from gateway.upstreams.http.responses_as_results import failure_result
from gateway.upstreams.python import tool_result
from schemas.binding import ScriptBinding
from schemas.jsonrpc import decode_json
from schemas.source import Source
from schemas.tool import Tool, ToolResult

OFF = "scripts are switched off (scripts.enabled)"


class ScriptUpstream:
    def __init__(self, settings: Callable[[], Scripts]) -> None:
        """An upstream of scripts; `settings` returns the current ones."""
        self._settings = settings
        self._sandbox = Sandbox(settings)

    async def call(
        self,
        tool: Tool,
        source: Source | None,  # noqa: ARG002 - the script is in the tool
        arguments: dict[str, Any],
        context: Context,  # noqa: ARG002 - nothing of it goes into the sandbox
    ) -> ToolResult:
        # app/upstreams.py: each upstream has its own kind
        binding = cast("ScriptBinding", tool.binding)
        if not self._settings().enabled:
            return failure_result(f"{tool.name} cannot be called: {OFF}")
        try:
            answer = await self._sandbox.run(binding.language, binding.source, arguments)
        except ScriptFailed as error:
            return failure_result(f"{tool.name} {error}")
        value = decode_json(bytes(answer))
        return tool_result(value if isinstance(value, str) or value is None else answer)
