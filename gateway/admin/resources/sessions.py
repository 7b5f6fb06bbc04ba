"""Sessions of MCP clients, at all gateways that share their state.

Session ids are not returned, because they could be used to hijack a session; a handle replaces
them, which is useless elsewhere.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from gateway.interfaces import SessionRecord
from gateway.operations.operation import Line, Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import not_found
from gateway.state.sessions import Sessions


class SessionView(Struct, frozen=True):
    """An open session. `client` is the client's own description."""

    id: str
    principal: str
    revision: str
    toolset: str | None
    client: str
    subscriptions: int


class SessionFilter(Paging, frozen=True):
    principal: Annotated[Line | None, Meta(description="only sessions of this caller")] = None


class SessionOperations:
    def __init__(self, dependencies: OperationDependencies, sessions: Sessions) -> None:
        self._dependencies = dependencies
        self._sessions = sessions

    @property
    def operations(self) -> Sequence[Operation]:
        read_scope, write_scope, item = (
            "admin:sessions:read",
            "admin:sessions:write",
            "/sessions/{session}",
        )
        return (
            Operation(
                "listSessions", "GET", "/sessions", "List the open sessions.",
                read_scope, self.list, ListPage[SessionView], query=SessionFilter,
            ),
            Operation(
                "getSession", "GET", item, "Show a session.", read_scope, self.get, SessionView
            ),
            Operation(
                "endSession", "DELETE", item, "End a session at all gateways.", write_scope,
                self.end, status=204,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[SessionView]:
        whose = request.query.principal
        sessions = await self._sessions.all(request.tenant)
        views = [_view(session) for session in sessions if whose in {None, session.principal}]
        return self._dependencies.pages.page(request.query, views, lambda view: view.id)

    async def get(self, request: OperationInput) -> SessionView:
        return _view(await self._find_session(request))

    async def end(self, request: OperationInput) -> None:
        await self._sessions.end(await self._find_session(request))

    async def _find_session(self, request: OperationInput) -> SessionRecord:
        name = request.names["session"]
        for record in await self._sessions.all(request.tenant):
            if _handle(record) == name:
                return record
        raise not_found("session", name)


def _handle(record: SessionRecord) -> str:
    return hashlib.sha256(b"session " + record.id.encode()).hexdigest()[:32]


def _view(record: SessionRecord) -> SessionView:
    client_names = (record.client.get("name"), record.client.get("version"))
    client = " ".join(part for part in client_names if isinstance(part, str))[:255]
    return SessionView(
        id=_handle(record),
        principal=record.principal,
        revision=record.revision,
        toolset=record.toolset,
        client=client,
        subscriptions=len(record.subscriptions),
    )
