"""Executes `WingBinding`: hands a call to the wing that has the operation, while that is open."""

from collections.abc import Mapping
from typing import Any, cast

from gateway.context import Context
from gateway.interfaces import Upstream
from gateway.upstreams.http.responses_as_results import failure_result
from schemas.binding import WingBinding
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult


class WingUpstream:
    def __init__(self, open_wings: Mapping[str, Upstream]) -> None:
        """An upstream of the wings in `open_wings`, by name, which changes as wings are opened and
        closed."""
        self._open = open_wings

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult | RelayedResult:
        # app/upstreams.py: each upstream has its own kind
        binding = cast("WingBinding", tool.binding)
        upstream = self._open.get(binding.wing)
        if upstream is None:
            return failure_result(
                f"{tool.name}: the wing {binding.wing} is not open in this gateway"
            )
        return await upstream.call(tool, source, arguments, context)
