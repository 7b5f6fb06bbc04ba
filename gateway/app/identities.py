"""Identities of callers: authentication, its keys and revocations."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from config.settings import Settings
from gateway.app.protected_resources import bound_audiences
from gateway.guards.open_access import OpenAccess
from gateway.guards.protected_resource import ResourceIdentifiers
from registry.access.access_feed import Load
from registry.database.postgres import AWAY, Pool

if TYPE_CHECKING:  # a gateway without a login does not import it, nor one without authentication
    from gateway.app.login import LoginAccess
    from gateway.guards.authentication import Authenticator

USED_EVERY_S = 60.0  # minimum interval between writes of `last_used`


class Identities:
    def __init__(
        self,
        settings: Settings,
        sweep: Callable[[], None],
        resources: ResourceIdentifiers | None = None,
        login: "LoginAccess | None" = None,
    ) -> None:
        """Identities from the settings. `sweep` closes the streams of callers that are no longer
        authenticated. `resources`: the endpoints, where they may change. Raises ToolgateError for
        unusable keys."""
        auth = settings.auth
        self._login = login
        self._sweep = sweep
        self._every_s = auth.revocation_s
        self._identifies = auth.mode != "none"
        self.authenticator = (
            _authenticator(settings, resources, login)
            if self._identifies
            else OpenAccess(settings.tenant.host_id)
        )

    @property
    def loads(self) -> Mapping[str, Load]:
        """Loaders by the name of the notification that triggers them."""
        if not self._identifies:
            return {}
        keys = {"keys": self._load_keys} if self.authenticator.keys is not None else {}
        return {**keys, "revocations": self._load_revocations}

    async def run(self) -> None:
        """Run the tasks without a database, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.authenticator.run)
            if self._identifies:
                tasks.start_soon(self._sweep_often)

    async def tidy(self, pool: Pool) -> None:
        """Periodic maintenance until cancelled."""
        while self._identifies:
            await asyncio.sleep(USED_EVERY_S)
            await self.settle(pool)

    async def settle(self, pool: Pool | None) -> None:
        """Flush pending writes to the registry, if it is available."""
        if pool is not None and self._identifies:
            with suppress(*AWAY):
                await self.authenticator.tidy(pool)
                if self._login is not None:
                    await self._login.sweep(pool)

    async def _load_keys(self, pool: Pool) -> None:
        if self.authenticator.keys is not None:
            await self.authenticator.keys.load(pool)
            self._sweep()

    async def _load_revocations(self, pool: Pool) -> None:
        await self.authenticator.load_revocations(pool)
        self._sweep()
        if self._login is not None:
            await self._login.end_revoked(pool)

    async def _sweep_often(self) -> None:
        """Sweep periodically: tokens expire, and keys are withdrawn, without a notification."""
        while True:
            await asyncio.sleep(self._every_s)
            self._sweep()


def _authenticator(
    settings: Settings, resources: ResourceIdentifiers | None, login: "LoginAccess | None"
) -> "Authenticator":
    """Raises ToolgateError for unusable keys."""
    from gateway.guards.authentication import Authenticator  # with libraries of tokens

    return Authenticator(
        settings.auth,
        settings.tenant.host_id,
        public_url=settings.server.public_url,
        bound=bound_audiences(settings, resources),
        own_issuer=None if login is None else login.issuer,
        reserved=() if login is None else login.reserved,
    )
