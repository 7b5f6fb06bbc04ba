"""Users of the gateway's own, who log in with a password (`login.users`).

Whoever makes a user holds the invitation, and could be that user: this takes the scope `admin`, as
keys of other principals do.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from config.settings import Settings
from config.value_types import END
from gateway.admin.registry_parts import RegistryParts
from gateway.admin.resources.keys import Reload, Words, check_given
from gateway.admin.resources.member_texts import NEW_USER, ROLES
from gateway.operations.operation import (
    ALL,
    Operation,
    OperationDependencies,
    OperationInput,
    OperationOutput,
)
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import conflict, not_found
from registry.login.password_users import NAME, User, Users, principal_of

READ, WRITE = "admin:logins:read", "admin:logins:write"
NAME_RULE = "a name of a-z, 0-9, . _ @ + and -, at most 64 characters, that begins with a-z or 0-9"
UserName = Annotated[str, Meta(pattern=NAME.removesuffix("$") + END, description=NAME_RULE)]


class NewUser(Struct, frozen=True, forbid_unknown_fields=True):
    """A user and their roles."""

    name: UserName
    roles: Annotated[Words, Meta(description="roles of the user")] = ()
    again: Annotated[
        bool,
        Meta(
            description="give the name of a user who was removed to another one, who gets what "
            "belongs to that name"
        ),
    ] = False


class UserRoles(Struct, frozen=True, forbid_unknown_fields=True):
    """All roles of a user, in place of those before."""

    roles: Annotated[Words, Meta(description="roles of the user; none: no roles")] = ()


class UserView(Struct, frozen=True):
    """A user; `invited` is the end of an invitation that waits."""

    name: str
    principal: str
    roles: tuple[str, ...]
    has_password: bool
    has_totp: bool
    invited: datetime | None
    created: datetime
    disabled: datetime | None


class InvitedUser(Struct, frozen=True):
    """`invitation` is the address at which the user sets a password, once; it is returned once, and
    not for a repeated request."""

    user: UserView
    invitation: str | None


class LoginUserOperations:
    _is_on = True  # for the lists of commands, which are made without settings

    def __init__(
        self, dependencies: OperationDependencies, settings: Settings, reload: Reload
    ) -> None:
        """`reload` makes revocations count in this process."""
        self._dependencies = dependencies
        self._settings = settings
        self._reload = reload
        self._is_on = settings.login.enabled and settings.login.users

    @classmethod
    def of(cls, parts: RegistryParts) -> "LoginUserOperations":
        return cls(parts.dependencies, parts.settings, parts.reload)

    @property
    def operations(self) -> Sequence[Operation]:
        if not self._is_on:
            return ()
        item, types = "/users/{user}", {"user": UserName}
        withheld = "its answer holds an invitation, which no model is to see"
        return (
            Operation(
                "listUsers", "GET", "/users", "List the users.", READ, self.list,
                ListPage[UserView], query=Paging,
            ),
            Operation(
                "getUser", "GET", item, "Show a user.", READ, self.get, UserView, types=types
            ),
            Operation(
                "createUser", "POST", "/users", "Add a user, and make an invitation.", ALL,
                self.create, InvitedUser, 201, body=NewUser, members=NEW_USER,
                problems=(409,), no_tool=withheld,
            ),
            Operation(
                "inviteUser", "POST", f"{item}/invitations",
                "Make another invitation, by which a user sets a new password.", ALL, self.invite,
                InvitedUser, 201, types=types, no_tool=withheld,
            ),
            Operation(
                "setUserRoles", "PUT", f"{item}/roles",
                "Set the roles of a user, whose logins end.", ALL, self.set_roles, UserView,
                body=UserRoles, members=ROLES, types=types,
            ),
            Operation(
                "disableUser", "POST", f"{item}/disable", "Disable a user, whose logins end.",
                WRITE, self.disable, UserView, types=types,
            ),
            Operation(
                "enableUser", "POST", f"{item}/enable", "Enable a user again.", WRITE, self.enable,
                UserView, types=types,
            ),
            Operation(
                "resetUserTotp", "DELETE", f"{item}/totp",
                "Take one-time codes from a user, who can set up others; their logins end.", ALL,
                self.reset_totp, UserView, types=types,
            ),
            Operation(
                "deleteUser", "DELETE", item, "Remove a user, whose logins end.", WRITE,
                self.delete, status=204, types=types,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[UserView]:
        views = [_view(user) for user in await self._users.all(request.tenant)]
        return self._dependencies.pages.page(request.query, views, lambda view: view.name)

    async def get(self, request: OperationInput) -> UserView:
        return _view(await self._find(request))

    async def create(self, request: OperationInput) -> OperationOutput:
        body: NewUser = request.body
        check_given(request.principal, (), body.roles, self._dependencies.operator_role, of="user")
        lasts_s = self._settings.login.password.invitation_s
        ticket = await self._users.add(
            request.tenant, body.name, body.roles, lasts_s, again=body.again
        )
        if ticket is None:
            raise conflict(
                f"The name {body.name} is in use, or was; `again` gives the name of a removed user "
                "to another one."
            )
        user = await self._users.find(body.name)
        return self._invitation_of(user, ticket, body.name)

    async def invite(self, request: OperationInput) -> OperationOutput:
        user = await self._find(request)
        # whoever has the invitation can be this user
        check_given(request.principal, (), user.roles, self._dependencies.operator_role, of="user")
        lasts_s = self._settings.login.password.invitation_s
        ticket = await self._users.invite(request.tenant, user.name, lasts_s)
        return self._invitation_of(await self._find(request), ticket, user.name)

    async def set_roles(self, request: OperationInput) -> UserView:
        await self._find(request)
        roles: tuple[str, ...] = request.body.roles
        check_given(request.principal, (), roles, self._dependencies.operator_role, of="user")
        return await self._after(
            request, self._users.set_roles(request.tenant, _name(request), roles)
        )

    async def disable(self, request: OperationInput) -> UserView:
        return await self._after(
            request, self._users.set_disabled(request.tenant, _name(request), True)
        )

    async def enable(self, request: OperationInput) -> UserView:
        return await self._after(
            request, self._users.set_disabled(request.tenant, _name(request), False)
        )

    async def reset_totp(self, request: OperationInput) -> UserView:
        user = await self._find(request)
        # the password alone is then enough to be this user
        check_given(request.principal, (), user.roles, self._dependencies.operator_role, of="user")
        return await self._after(request, self._users.reset_totp(request.tenant, user.name))

    async def delete(self, request: OperationInput) -> None:
        if not await self._users.remove(request.tenant, _name(request)):
            raise not_found("user", _name(request))
        await self._reload("revocations")

    async def _after(self, request: OperationInput, change: Any) -> UserView:
        """The user after a change that ended logins."""
        await change
        await self._reload("revocations")
        return await self.get(request)

    async def _find(self, request: OperationInput) -> User:
        user = await self._users.find(_name(request))
        if user is None or user.tenant != request.tenant:
            raise not_found("user", _name(request))
        return user

    def _invitation_of(self, user: User | None, ticket: str | None, name: str) -> OperationOutput:
        if user is None or ticket is None:  # removed at the same time
            raise not_found("user", name)
        link = f"{self._settings.server.public_url.rstrip('/')}/login/invitation?ticket={ticket}"
        return OperationOutput(
            InvitedUser(_view(user), link),
            location=f"/users/{name}",
            untold=InvitedUser(_view(user), None),
        )

    @property
    def _users(self) -> Users:
        return Users(self._dependencies.pool, self._dependencies.host_id)


def _name(request: OperationInput) -> str:
    return request.names["user"]


def _view(user: User) -> UserView:
    return UserView(
        name=user.name,
        principal=principal_of(user.name),
        roles=tuple(user.roles),
        has_password=user.password is not None,
        has_totp=user.totp is not None,
        invited=user.invited,
        created=user.created,
        disabled=user.disabled,
    )
