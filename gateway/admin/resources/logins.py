"""People who have logged in, their logins, and the clients that got something by these."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from config.settings import Settings
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.keys import Reload
from gateway.operations.operation import (
    Identifier,
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import not_found
from registry.login.logins_and_grants import LoginRow, Logins
from registry.login.people import People
from registry.login.registered_clients import Clients, Kind

READ, WRITE = "admin:logins:read", "admin:logins:write"


class PersonView(Struct, frozen=True):
    """A person, as their provider described them at the last login."""

    id: str
    principal: str
    name: str
    provider: str
    roles: tuple[str, ...]
    first: datetime
    last: datetime
    disabled: datetime | None


class ClientView(Struct, frozen=True):
    """A client that registered itself, or whose document is remembered; `grants` are those that
    people gave it and that have not ended."""

    id: str
    client_id: str
    name: str
    kind: Kind
    redirects: tuple[str, ...]
    created: datetime
    used: datetime | None
    grants: int


class LoginFilter(Paging, frozen=True):
    principal: Annotated[Line | None, Meta(description="only logins of this person")] = None


class LoginOperations:
    _is_on = True  # for the lists of commands, which are made without settings

    def __init__(
        self, dependencies: OperationDependencies, settings: Settings, reload: Reload
    ) -> None:
        """`reload` makes revocations count in this process."""
        self._dependencies = dependencies
        self._reload = reload
        self._is_on = settings.login.enabled

    @classmethod
    def of(cls, parts: RegistryParts) -> "LoginOperations":
        return cls(parts.dependencies, parts.settings, parts.reload)

    @property
    def operations(self) -> Sequence[Operation]:
        if not self._is_on:
            return ()
        person, login = {"person": Identifier}, {"login": Identifier}
        return (
            Operation(
                "listPeople", "GET", "/people", "List the people who have logged in.", READ,
                self.people, ListPage[PersonView], query=Paging,
            ),
            Operation(
                "getPerson", "GET", "/people/{person}", "Show a person.", READ, self.person,
                PersonView, types=person,
            ),
            Operation(
                "disablePerson", "POST", "/people/{person}/disable",
                "Disable a person, whose logins end.", WRITE, self.disable, PersonView,
                types=person,
            ),
            Operation(
                "enablePerson", "POST", "/people/{person}/enable", "Enable a person again.", WRITE,
                self.enable, PersonView, types=person,
            ),
            Operation(
                "listLogins", "GET", "/logins",
                "List the logins of people, and what programs have by them.", READ, self.logins,
                ListPage[LoginRow], query=LoginFilter,
            ),
            Operation(
                "getLogin", "GET", "/logins/{login}", "Show a login.", READ, self.login, LoginRow,
                types=login,
            ),
            Operation(
                "endLogin", "DELETE", "/logins/{login}",
                "End a login, with what programs have by it.", WRITE, self.end, status=204,
                types=login,
            ),
            Operation(
                "listClients", "GET", "/clients",
                "List the clients that registered, or that publish a document about themselves.",
                READ, self.clients, ListPage[ClientView], query=Paging, problems=(403,),
            ),
            Operation(
                "getClient", "GET", "/clients/{client}", "Show a client.", READ, self.client,
                ClientView, types={"client": Identifier}, problems=(403,),
            ),
            Operation(
                "deleteClient", "DELETE", "/clients/{client}",
                "Remove a client, whose grants end.", WRITE, self.remove_client, status=204,
                types={"client": Identifier}, problems=(403,),
            ),
        )  # fmt: skip

    async def people(self, request: OperationInput) -> ListPage[PersonView]:
        rows = await self._people.all(request.tenant)
        views = convert(rows, list[PersonView], from_attributes=True)
        return self._dependencies.pages.page(request.query, views, lambda view: view.principal)

    async def person(self, request: OperationInput) -> PersonView:
        person = await self._find_person(request)
        if person is None:
            raise not_found("person", request.names["person"])
        return person

    async def disable(self, request: OperationInput) -> PersonView:
        return await self._set_disabled(request, True)

    async def enable(self, request: OperationInput) -> PersonView:
        return await self._set_disabled(request, False)

    async def logins(self, request: OperationInput) -> ListPage[LoginRow]:
        rows = await self._logins.all(request.tenant, request.query.principal)
        return self._dependencies.pages.page(request.query, rows, lambda row: row.id)

    async def login(self, request: OperationInput) -> LoginRow:
        for row in await self._logins.all(request.tenant):
            if row.id == request.names["login"]:
                return row
        raise not_found("login", request.names["login"])

    async def end(self, request: OperationInput) -> None:
        if not await self._logins.end(request.tenant, request.names["login"]):
            raise not_found("login", request.names["login"])
        await self._reload("revocations")

    async def clients(self, request: OperationInput) -> ListPage[ClientView]:
        rows = await self._clients(request).all()
        views = convert(rows, list[ClientView], from_attributes=True)
        return self._dependencies.pages.page(request.query, views, lambda view: view.client_id)

    async def client(self, request: OperationInput) -> ClientView:
        for row in await self._clients(request).all():
            if row.id == request.names["client"]:
                return convert(row, ClientView, from_attributes=True)
        raise not_found("client", request.names["client"])

    async def remove_client(self, request: OperationInput) -> None:
        client = await self.client(request)
        await self._clients(request).remove(client.client_id)
        await self._reload("revocations")

    async def _set_disabled(self, request: OperationInput, disabled: bool) -> PersonView:
        person = await self.person(request)
        await self._people.set_disabled(request.tenant, person.principal, disabled)
        await self._reload("revocations")
        # one who was erased while disabled is gone when enabled
        return await self._find_person(request) or replace(person, disabled=None)

    async def _find_person(self, request: OperationInput) -> PersonView | None:
        for row in await self._people.all(request.tenant):
            if row.id == request.names["person"]:
                return convert(row, PersonView, from_attributes=True)
        return None

    @property
    def _people(self) -> People:
        return People(self._dependencies.pool, self._dependencies.host_id)

    def _clients(self, request: OperationInput) -> Clients:
        """Raises ProblemDetails for callers who are no operators."""
        self._dependencies.require_operator(request)
        return Clients(self._dependencies.pool, self._dependencies.host_id)

    @property
    def _logins(self) -> Logins:
        return Logins(self._dependencies.pool, self._dependencies.host_id)
