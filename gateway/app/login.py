"""Wiring of the login. Imported only where it is switched on."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial

from config.access import CLIENT_PROVIDER, USERS_PROVIDER
from config.login import LoginSettings
from config.settings import Settings
from gateway.app.access import Access
from gateway.app.protected_resources import ENDPOINTS, resources_of
from gateway.audit.records import AuditEntry, storable_text
from gateway.guards.token_claims import Claims
from gateway.guards.token_issuers import Issuer, Tenants
from gateway.login.access_tokens import LoginKeys
from gateway.login.login_records import LoginAct, RecordLogin
from gateway.login.scopes import Scopes
from gateway.login.server import LoginServer
from registry.access.access_feed import Load
from registry.access.secrets import Keys
from registry.database.postgres import Pool
from registry.login.logins_and_grants import Logins
from registry.login.password_users import erase_login


class Login:
    """The login of a gateway, which its access control knows before it is served."""

    def __init__(self, settings: Settings, pool: Callable[[], Pool | None]) -> None:
        self._settings = settings
        self._pool = pool
        host_id = settings.tenant.host_id
        self._keys = LoginKeys(settings.login, Keys.of(settings.secrets), host_id, pool)
        self.sign_detached = self._keys.sign_detached
        self._server: LoginServer | None = None
        self.access = LoginAccess(
            issuer=Issuer(
                iss=settings.server.public_url.rstrip("/"),
                keys=self._keys,
                tenants=Tenants(host_id, "tenant"),
                roles_claim="roles",
                bound=_audiences(settings),
                knows=_machines(settings.login),
            ),
            reserved=(*settings.login.providers, USERS_PROVIDER, CLIENT_PROVIDER),
            metadata=self._metadata,
            scopes=Scopes(settings).possible,
            end_revoked=self._end_revoked,
            sweep=self._sweep,
        )

    def serve(self, access: Access) -> LoginServer:
        def endpoints() -> Collection[str]:
            return access.endpoints

        self._server = LoginServer(
            self._settings,
            keys=self._keys,
            endpoints=endpoints,
            pool=self._pool,
            record=record_acts(lambda: access, "login", self._settings.tenant.host_id),
            reload=access.reload,
        )
        return self._server

    async def erase(self, tenant: str, principal: str) -> None:
        """Delete what is known of a person, whose tokens are good at no node any more."""
        if (pool := self._pool()) is not None:
            await erase_login(pool, self._settings.tenant.host_id, tenant, principal)
            if self._server is not None:
                await self._server.revoke_at_once()

    async def _metadata(self) -> bytes:
        if self._server is None:
            raise LookupError("the login is made by `app`")
        return await self._server.metadata()

    async def _end_revoked(self, pool: Pool) -> None:
        """End logins that are older than a revocation of their person."""
        await self._logins(pool).end_revoked()

    async def _sweep(self, pool: Pool) -> None:
        """Delete logins that are over, and what nobody uses of them."""
        settings = self._settings
        await self._logins(pool).sweep(settings.login.idle_s, settings.console.session_s)

    def _logins(self, pool: Pool) -> Logins:
        return Logins(pool, self._settings.tenant.host_id)


def _audiences(settings: Settings) -> Callable[[str], frozenset[str]]:
    """Audiences of the login's tokens by path: the endpoint, or the whole gateway, for which a
    client that names no resource is given one."""
    resources, public = resources_of(settings), settings.server.public_url.rstrip("/")

    @lru_cache(ENDPOINTS)
    def audiences(endpoint: str) -> frozenset[str]:
        return frozenset({f"{public}{endpoint}", public})

    def audiences_of(path: str) -> frozenset[str]:
        return audiences(resources.endpoint(path) or "")

    return audiences_of


def _machines(login: LoginSettings) -> Callable[[Claims], bool]:
    """Whether a token is of a person, or of a client that may still act for itself: what a client
    has ends with its entry, as what a person has ends when they leave."""
    prefix = f"{CLIENT_PROVIDER}:"
    names = {
        f"{prefix}{name}"
        for name, client in login.clients.items()
        if "client_credentials" in client.grants
    }

    def knows(claims: Claims) -> bool:
        subject = claims.get("sub")
        return subject in names or not str(subject).startswith(prefix)

    return knows


def record_acts(access: Callable[[], Access], front: str, host_id: str) -> RecordLogin:
    """Records of acts at a front; refusals that are repeated are counted."""

    def record(act: LoginAct) -> None:
        is_allowed = act.decision == "allow"
        auditing = access().auditing
        remember = auditing.remember_entry if is_allowed else auditing.remember_refusal
        remember(partial(entry_of_act, act, front, host_id))

    return record


def entry_of_act(act: LoginAct, front: str, host_id: str, now: datetime) -> AuditEntry:
    """The audit record of an act at a front."""
    return AuditEntry(
        act.tenant or host_id,
        now,
        storable_text(act.principal),
        "",
        front,
        method=act.act,
        subject=storable_text(act.subject),
        decision=act.decision,
        outcome="ok" if act.decision == "allow" else "403",
        client=act.address,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAccess:
    """The login of a gateway, as its access control needs it."""

    issuer: Issuer
    reserved: Collection[str]  # prefixes of its principals
    metadata: Callable[[], Awaitable[bytes]]  # of the authorization server
    scopes: Sequence[str]  # that somebody may have
    end_revoked: Load  # ends logins of people whose tokens were revoked
    sweep: Load  # deletes what is over
