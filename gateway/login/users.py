"""Users of the gateway's own: their passwords at a login, by an invitation, and when they change.

A wrong name costs what a wrong password costs, and is answered the same. Attempts are counted by
name and address, in the database, so that they count at all nodes, and that a stranger who guesses
from elsewhere keeps nobody out.
"""

from collections.abc import Callable

from msgspec import Struct

from config.login import PasswordSettings
from gateway.login import texts
from gateway.login.passwords import Busy, Passwords, weakness
from gateway.state.rates import network_of
from registry.login.users import User, Users
from schemas.errors import whole_seconds


class PasswordRefused(Exception):
    """A password that does not do; `text` and its `values` say why. `name` is of a user who
    exists."""

    def __init__(self, text: str, status: int = 403, name: str = "", **values: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.name = name
        self.values = values


class PasswordForm(Struct, frozen=True):
    """The fields of a form with a password."""

    name: str = ""
    password: str = ""
    new: str = ""
    repeated: str = ""


class UserLogins:
    """Methods raise PasswordRefused, and LoginError without a database."""

    def __init__(self, settings: PasswordSettings, users: Callable[[], Users]) -> None:
        self._settings = settings
        self._users = users
        self.passwords = Passwords(settings.hashes)

    @property
    def least(self) -> int:
        return self._settings.length

    async def log_in(self, form: PasswordForm, address: str) -> User:
        """The user of a name and a password."""
        name, users = form.name.strip().casefold(), self._users()
        network, settings = network_of(address), self._settings
        wait_s = await users.count_attempt(name, network, settings.failures, settings.delay_s)
        if wait_s:
            raise PasswordRefused(texts.TOO_OFTEN, 429, seconds=whole_seconds(wait_s))
        user = await users.find(name)
        known = None if user is None or user.disabled else user
        hashed = None if known is None else known.password
        if not await self._is_right(form.password, hashed) or known is None:
            raise PasswordRefused(texts.WRONG, name="" if user is None else user.name)
        await users.forget_attempts(name, network)
        return known

    async def find_invited(self, ticket: str) -> User:
        user = await self._users().find_by_invitation(ticket)
        if user is None:
            raise PasswordRefused(texts.USED, 404)
        return user

    async def accept(self, ticket: str, form: PasswordForm) -> User:
        """Set the password of an invitation's user."""
        user = await self.find_invited(ticket)
        accepted = await self._users().accept(ticket, await self._new_hash(form, user.name))
        if accepted is None:
            raise PasswordRefused(texts.USED, 404)
        return accepted

    async def change(self, name: str, form: PasswordForm, address: str) -> User:
        """Replace the password of a user who says the present one."""
        user = await self.log_in(PasswordForm(name, form.password), address)
        if form.new == form.password:
            raise PasswordRefused(texts.SAME)
        hashed = await self._new_hash(form, user.name)
        changed = await self._users().change_password(user, hashed)
        if changed is None:
            raise PasswordRefused(texts.WRONG, name=user.name)
        return changed

    async def _new_hash(self, form: PasswordForm, name: str) -> str:
        if form.new != form.repeated:
            raise PasswordRefused(texts.DIFFERENT)
        if reason := weakness(form.new, name, self.least):
            raise PasswordRefused(reason, least=self.least)
        try:
            return await self.passwords.hash(form.new)
        except Busy as error:
            raise PasswordRefused(texts.BUSY, 503) from error

    async def _is_right(self, password: str, hashed: str | None) -> bool:
        try:
            return await self.passwords.check(password, hashed)
        except Busy as error:
            raise PasswordRefused(texts.BUSY, 503) from error
