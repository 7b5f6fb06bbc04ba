"""The objects that the endpoints of the login share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from config.settings import Settings
from gateway.login.browser_sessions import Accounts
from gateway.login.clients import LoginClients
from gateway.login.login_records import RecordLogin
from gateway.login.providers import Provider
from gateway.login.scopes import Resources, Scopes
from registry.database.postgres import Pool
from registry.login.logins_and_grants import Logins


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginParts:
    settings: Settings
    issuer: str  # the public URL
    clients: LoginClients
    resources: Resources
    scopes: Scopes
    accounts: Accounts
    providers: dict[str, Provider]
    pool: Callable[[], Pool]  # raises LoginError without a database
    record: RecordLogin
    revoke_at_once: Callable[[], Awaitable[None]]  # after logins ended, for their tokens

    @property
    def logins(self) -> Logins:
        """Raises LoginError."""
        return Logins(self.pool(), self.settings.tenant.host_id)
