"""Accounts that people have connected at sources, for operators: states, and never a secret."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.access import RESERVED_ISSUER
from config.settings import Settings
from config.sources import SourceSettings
from gateway.admin.registry_parts import Disconnect, JobParts
from gateway.admin.resources.keys import Words
from gateway.admin.resources.member_texts import SHARED_ROLES
from gateway.operations.operation import (
    Identifier,
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, not_found
from registry.access.secrets import Keys
from registry.connections.accounts import Connection, Connections, Kind


class ConnectionView(Struct, frozen=True):
    """A connection of a person. `failing`: its token could not be renewed at the last attempt."""

    id: str
    source: str
    principal: str
    scheme: str
    kind: Kind
    state: Literal["ok", "failing", "expired", "suspended"]
    failure: str
    scopes: tuple[str, ...]
    issuer: str
    away: bool
    shared_with: tuple[str, ...]
    created: datetime
    used: datetime | None


class ConnectionFilter(Paging, frozen=True):
    source: Annotated[Line | None, Meta(description="only connections to this source")] = None
    principal: Annotated[Line | None, Meta(description="only connections of this person")] = None


class SharedRoles(Struct, frozen=True, forbid_unknown_fields=True):
    """All roles that use an account, too, in place of those before."""

    roles: Annotated[
        Words, Meta(description="roles whose people use it, too; none: its owner alone")
    ] = ()


class ConnectionOperations:
    _is_on = True  # for the lists of commands, which are made without settings

    def __init__(
        self,
        dependencies: OperationDependencies,
        settings: Settings,
        disconnect: Disconnect,
        sources: Callable[[], Mapping[str, SourceSettings]],
    ) -> None:
        self._dependencies = dependencies
        self._sources = sources
        self._disconnect = disconnect
        self._keys = Keys.of(settings.secrets)
        self._is_on = settings.login.enabled

    @classmethod
    def of(cls, parts: JobParts) -> "ConnectionOperations":
        return cls(parts.dependencies, parts.settings, parts.disconnect, parts.sources)

    @property
    def operations(self) -> Sequence[Operation]:
        if not self._is_on:
            return ()
        read_scope, write_scope = "admin:connections:read", "admin:connections:write"
        item, types = "/connections/{connection}", {"connection": Identifier}
        return (
            Operation(
                "listConnections", "GET", "/connections",
                "List the accounts that people have connected at sources.", read_scope, self.list,
                ListPage[ConnectionView], query=ConnectionFilter,
            ),
            Operation(
                "getConnection", "GET", item, "Show a connection.", read_scope, self.get,
                ConnectionView, types=types,
            ),
            Operation(
                "shareConnection", "PUT", f"{item}/roles",
                "Share your own connection, or one of an API key, with roles.",
                write_scope, self.share, ConnectionView, body=SharedRoles, members=SHARED_ROLES,
                types=types,
            ),
            Operation(
                "deleteConnection", "DELETE", item,
                "End a connection at all gateways, and revoke its token if there is one.",
                write_scope, self.delete, status=204, types=types,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[ConnectionView]:
        query = request.query
        rows = await self._connections.all(request.tenant, query.principal, query.source)
        views = [_view(row) for row in rows]
        return self._dependencies.pages.page(query, views, lambda view: view.id)

    async def get(self, request: OperationInput) -> ConnectionView:
        return _view(await self._find(request))

    async def share(self, request: OperationInput) -> ConnectionView:
        row = await self._find(request)
        roles: tuple[str, ...] = request.body.roles
        if roles and not self._sources().get(row.source, SourceSettings()).connect.is_shared:
            expected = "expected one of a source whose connect.mode is shared or user_or_shared"
            raise ProblemDetails(422, "invalid", f"{row.source}: {expected}")
        is_own = row.principal == request.principal.id or row.principal.startswith(
            f"{RESERVED_ISSUER}:"
        )
        if roles and not is_own:
            raise ProblemDetails(403, "forbidden", "People share their accounts themselves.")
        await self._connections.share(request.tenant, row, roles)
        return _view(await self._find(request))

    async def delete(self, request: OperationInput) -> None:
        id_ = request.names["connection"]
        if await self._disconnect(request.tenant, id_) is None:
            raise not_found("connection", id_)

    async def forget(self, tenant: str, source: str) -> None:
        """End the connections to a removed source: a namesake must not be called with them."""
        if not self._is_on:
            return
        for row in await self._connections.all(tenant, source=source):
            await self._disconnect(tenant, str(row.id))

    async def _find(self, request: OperationInput) -> Connection:
        id_ = request.names["connection"]
        row = await self._connections.find(request.tenant, id_)
        if row is None:
            raise not_found("connection", id_)
        return row

    @property
    def _connections(self) -> Connections:
        return Connections(self._dependencies.pool, self._dependencies.host_id, self._keys)


def _view(row: Connection) -> ConnectionView:
    is_failing = row.state == "ok" and row.failure
    return ConnectionView(
        id=str(row.id),
        source=row.source,
        principal=row.principal,
        scheme=row.scheme,
        kind=row.kind,
        state="failing" if is_failing else row.state,
        failure=row.failure,
        scopes=tuple(row.scopes),
        issuer=row.issuer,
        away=row.away,
        shared_with=tuple(row.shared_with or ()),
        created=row.created,
        used=row.used,
    )
