"""Users of the gateway's own: their passwords at a login, by an invitation, and when they change.

A wrong name costs what a wrong password costs, and is answered the same. Attempts are counted by
name and address, in the database, so that they count at all nodes, and that a stranger who guesses
from elsewhere keeps nobody out.
"""

import logging
import time
from collections.abc import Callable

from msgspec import Struct

from config.login import LoginSettings
from gateway.login import texts, totp
from gateway.login.passwords import PasswordRefused, Passwords, weakness
from gateway.state.rate_windows import network_of
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secret_digests import secret_digest
from registry.access.secrets import SecretRefused
from registry.login.password_users import User, Users
from schemas.retry_after import whole_seconds

log = logging.getLogger("toolgate.login")


class PasswordForm(Struct, frozen=True):
    """The fields of a form with a password."""

    name: str = ""
    password: str = ""
    new: str = ""
    repeated: str = ""
    code: str = ""
    secret: str = ""


class UserLogins:
    """Methods raise PasswordRefused, and LoginError without a database."""

    def __init__(
        self, settings: LoginSettings, users: Callable[[], Users], *, vault: Vault
    ) -> None:
        """`vault` encrypts the secrets of one-time codes."""
        self._settings = settings.password
        self._needs_code = settings.users_totp == "required"
        self._users = users
        self._vault = vault
        self.passwords = Passwords(settings.password.hashes)

    @property
    def least(self) -> int:
        return self._settings.length

    async def log_in(self, form: PasswordForm, address: str) -> User:
        """The user of a name, a password and, where they are set up or required, a one-time
        code."""
        user = await self._check_password(form, address)
        if user.totp is None:
            if self._needs_code:
                raise PasswordRefused(texts.NEEDS_CODE, name=user.name)
            return user
        # whoever gets here has the password: guesses are counted whatever address they come from
        counted, users, settings = f"code {user.name}", self._users(), self._settings
        wait_s = await users.count_attempt(counted, "", settings.failures, settings.delay_s)
        if wait_s:
            raise PasswordRefused(texts.TOO_OFTEN, 429, seconds=whole_seconds(wait_s))
        if not await self._uses_code(user, user.totp, form.code):
            raise PasswordRefused(texts.WRONG_CODE, name=user.name)
        await users.forget_attempts(counted, "")
        return user

    async def set_up_codes(self, form: PasswordForm, address: str) -> tuple[User, list[str]]:
        """Set one-time codes up for a user who has none; returns their recovery codes."""
        user = await self._check_password(form, address)
        if user.totp is not None:
            raise PasswordRefused(texts.HAS_CODES, name=user.name)
        step = totp.step_of(form.secret, form.code, time.time())
        if step is None:
            raise PasswordRefused(texts.WRONG_CODE, name=user.name)
        codes = totp.new_recovery_codes()
        digests = [secret_digest(totp.plain_recovery_code(code)) for code in codes]
        sealed = self._vault.seal(form.secret.encode(), SealedColumn.TOTP_SECRET, user.name)
        if not await self._users().set_totp(user, sealed, step, digests):
            raise PasswordRefused(texts.HAS_CODES, name=user.name)
        return user, codes

    async def _uses_code(self, user: User, sealed_secret: bytes, code: str) -> bool:
        """Whether a code is one of the user's, which is then good no longer."""
        try:
            secret = self._vault.unseal(sealed_secret, SealedColumn.TOTP_SECRET, user.name).decode()
        except SecretRefused as error:
            log.error("totp_unreadable", extra={"user": user.name, "reason": str(error)})
            raise PasswordRefused(texts.AWAY, 503) from error
        step = totp.step_of(secret, code, time.time())
        if step is not None:
            return await self._users().use_step(user, step)
        return await self._users().use_recovery(user, secret_digest(totp.plain_recovery_code(code)))

    async def _check_password(self, form: PasswordForm, address: str) -> User:
        name, users = form.name.strip().casefold(), self._users()
        network, settings = network_of(address), self._settings
        wait_s = await users.count_attempt(name, network, settings.failures, settings.delay_s)
        if wait_s:
            raise PasswordRefused(texts.TOO_OFTEN, 429, seconds=whole_seconds(wait_s))
        user = await users.find(name)
        active_user = None if user is None or user.disabled else user
        hashed = None if active_user is None else active_user.password
        if not await self.passwords.check(form.password, hashed) or active_user is None:
            raise PasswordRefused(texts.WRONG, name="" if user is None else user.name)
        await users.forget_attempts(name, network)
        return active_user

    async def find_invited(self, ticket: str) -> User:
        user = await self._users().find_by_invitation(ticket)
        if user is None:
            raise PasswordRefused(texts.INVITATION_USED, 404)
        return user

    async def accept(self, ticket: str, form: PasswordForm) -> User:
        """Set the password of an invitation's user."""
        user = await self.find_invited(ticket)
        accepted = await self._users().accept(ticket, await self._new_hash(form, user.name))
        if accepted is None:
            raise PasswordRefused(texts.INVITATION_USED, 404)
        return accepted

    async def change(self, name: str, form: PasswordForm, address: str) -> User:
        """Replace the password of a user who says the present one."""
        user = await self._check_password(PasswordForm(name, form.password), address)
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
        return await self.passwords.hash(form.new)
