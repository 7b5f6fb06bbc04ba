"""The gateway's own tools: executes `GatewayBinding`."""

from collections.abc import Mapping
from typing import Any

from gateway.abc import Upstream
from gateway.context import Context
from schemas.binding import Does, GatewayBinding
from schemas.errors import MethodNotFound
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult


class Own:
    """Implements `Upstream`."""

    def __init__(self, by_what: Mapping[Does, Upstream]) -> None:
        self._by_what = by_what

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult | RelayedResult:
        binding = tool.binding
        upstream = self._by_what.get(binding.does) if isinstance(binding, GatewayBinding) else None
        if upstream is None:
            raise MethodNotFound(f"{tool.name} cannot be called here")
        return await upstream.call(tool, source, arguments, context)
