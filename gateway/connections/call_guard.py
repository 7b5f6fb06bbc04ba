"""Guard of the calls that are made with accounts of people, in front of the rules, which may read
whose account it is. It also ends requests for scopes that would never end."""

import time
from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from config.connections import ConnectionsSettings
from gateway.connections.connector import PersonalConnector
from gateway.context import Context
from gateway.interfaces import Execute, ToolCall
from schemas.errors import ConnectionRequired, Forbidden
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult

HOUR_S = 3600.0


class ConnectionGuard:
    def __init__(
        self,
        connector: PersonalConnector,
        limits: ConnectionsSettings,
        reads: Callable[[str], bool],
    ) -> None:
        """`reads`: whether rules of a tenant read `connection`."""
        self._connector = connector
        self._limits = limits
        self._reads = reads
        # by person and tool: when it was asked for more than which account has
        self._rounds: OrderedDict[tuple[str, str, str], dict[str, float]] = OrderedDict()

    def applies(self, _tool: Tool, source: Source | None) -> bool:
        return source is not None and self._connector.connect_of(source.place).mode != "off"

    def guard(self, execute: Execute) -> Execute:
        async def guard_account(call: ToolCall) -> ToolResult | RelayedResult:
            context, source = call.context, call.source
            if source is not None and self._may_borrow(context, source):
                borrows = await self._connector.borrows(source, call.tool.binding.security, context)
                call = replace(call, context=replace(context, borrows=borrows))
            try:
                return await execute(call)
            except ConnectionRequired as fault:
                if fault.account and not self._may_ask(call, fault.account):
                    text = (
                        f"{call.tool.name} was refused: its service asks for more scopes, or "
                        "another login, again and again (connections.scope_rounds). It can be "
                        "called again in an hour."
                    )
                    raise Forbidden(text) from fault
                raise

        return guard_account

    def _may_borrow(self, context: Context, source: Source) -> bool:
        """Whether rules read that a shared account is used, and there may be one."""
        is_shared = self._connector.connect_of(source.place).is_shared
        return is_shared and self._reads(context.principal.tenant)

    def _may_ask(self, call: ToolCall, account: str) -> bool:
        """Whether a person is asked for more than their account has: a few times in an hour for
        each tool, where each time they have connected another one."""
        key, now = (*call.context.principal.key, call.tool.id), time.monotonic()
        rounds = self._rounds.pop(key, {})
        rounds = {name: since for name, since in rounds.items() if now - since < HOUR_S}
        is_asked = account in rounds or len(rounds) < self._limits.scope_rounds
        if is_asked:
            rounds.setdefault(account, now)
        self._rounds[key] = rounds
        while len(self._rounds) > self._limits.cached:
            self._rounds.popitem(last=False)
        return is_asked
