"""The tool by which callers see and disconnect their own accounts, and get links to connect."""

from collections.abc import Callable, Iterable
from typing import Any

from gateway.connections.connect_pages import ServiceFacts
from gateway.connections.connector import PersonalConnector
from gateway.context import Context
from gateway.login.login_records import LoginAct, RecordLogin
from gateway.methods.describe_tools import answer
from registry.connections.accounts import Connection, Owner
from schemas.errors import Forbidden, InvalidParams
from schemas.source import Source
from schemas.tool import Tool, ToolResult


class AccountsTool:
    """Implements `Upstream`."""

    def __init__(
        self,
        connector: PersonalConnector,
        *,
        facts: Callable[[str, str], ServiceFacts | None],
        sources: Callable[[Context], Iterable[Source]],
        record: RecordLogin,
    ) -> None:
        """`facts`: of a source, by tenant and place; `sources`: those that a caller sees at an
        endpoint."""
        self._connector = connector
        self._facts = facts
        self._sources = sources
        self._record = record

    async def call(
        self, _tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        """Raises InvalidParams for what is not the caller's, and Forbidden for nobody."""
        if not context.identity.verified:
            raise Forbidden(
                "Callers who are not known have no accounts. Log in, or send an API key."
            )
        match arguments["action"]:
            case "list":
                return await self._list(context)
            case "link":
                return await self._link(context, arguments.get("source", ""))
            case _:
                return await self._disconnect(context, arguments.get("connection", ""))

    async def _list(self, context: Context) -> ToolResult:
        connections = await self._connector.connections.all(*context.principal.key)
        listed = []
        for source in self._personal(context):
            rows = [_view(row) for row in connections if row.source == source.place]
            listed.append({"source": source.name, "connections": rows})
        return answer({"services": listed})

    async def _link(self, context: Context, name: str) -> ToolResult:
        source = next((each for each in self._personal(context) if each.name == name), None)
        facts = None if source is None else self._facts(context.principal.tenant, source.place)
        if source is None or facts is None:
            raise InvalidParams("source: expected one that list names")
        if self._connector.connect_of(source.place).mode == "shared":
            raise Forbidden(f"{name} takes accounts that others share, whoever calls its tools.")
        principal = context.principal
        owner = Owner(principal.tenant, principal.id, source.place)
        return answer({"source": name, "url": await self._connector.offer(owner, facts.needed)})

    async def _disconnect(self, context: Context, id_: str) -> ToolResult:
        tenant, principal = context.principal.key
        places = {source.place for source in self._personal(context)}
        connections = await self._connector.connections.all(tenant, principal)
        row = next(
            (row for row in connections if str(row.id) == id_ and row.source in places), None
        )
        if row is None:
            raise InvalidParams("connection: expected the id of one that list names")
        await self._connector.disconnect(tenant, id_, principal)
        subject = f"{row.source}/{row.id}"
        self._record(LoginAct("disconnect", subject, "allow", tenant, principal))
        return answer({"disconnected": id_})

    def _personal(self, context: Context) -> list[Source]:
        """The sources that the caller sees, and that may use an account of theirs."""
        return [
            source
            for source in self._sources(context)
            if self._connector.connect_of(source.place).has_page
        ]


def _view(row: Connection) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "scheme": row.scheme,
        "state": row.state,
        "scopes": row.scopes,
        "away": row.away,
        "sharedWith": row.shared_with or [],
        "used": row.used,
    }
