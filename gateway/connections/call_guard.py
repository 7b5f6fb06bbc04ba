"""Guard of the calls that are made with accounts of people, in front of the rules, which may read
whose account it is."""

from collections.abc import Callable

from msgspec.structs import replace

from gateway.connections.connector import PersonalConnector
from gateway.interfaces import Execute, ToolCall
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult


class ConnectionGuard:
    def __init__(self, connector: PersonalConnector, reads: Callable[[str], bool]) -> None:
        """`reads`: whether rules of a tenant read `connection`."""
        self._connector = connector
        self._reads = reads

    def applies(self, _tool: Tool, source: Source | None) -> bool:
        return source is not None and self._connector.connect_of(source.place).is_shared

    def guard(self, execute: Execute) -> Execute:
        async def note_lender(call: ToolCall) -> ToolResult | RelayedResult:
            context, source = call.context, call.source
            if source is not None and self._reads(context.principal.tenant):
                borrows = await self._connector.borrows(source, call.tool.binding.security, context)
                call = replace(call, context=replace(context, borrows=borrows))
            return await execute(call)

        return note_lender
