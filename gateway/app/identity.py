"""Who is calling, wired: keys that are fetched, what was revoked, streams of who may no longer."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

import anyio
import psycopg
from psycopg_pool import PoolTimeout

from config.settings import Settings
from gateway.app.oauth import resources_of
from gateway.guards.api_keys import USED_EVERY_S
from gateway.guards.authentication import Authenticator
from gateway.guards.resources import ResourceIdentifiers
from registry.access.follower import Load
from registry.database.postgres import Pool

ENDPOINTS = 1024  # whose audiences are remembered


class Identities:
    def __init__(
        self,
        settings: Settings,
        sweep: Callable[[], None],
        resources: ResourceIdentifiers | None = None,
    ) -> None:
        """`sweep` ends the streams of those who are known no longer. `resources`: the endpoints,
        where they may change. Raises ToolgateError for keys that are of no use."""
        auth = settings.auth
        self._sweep = sweep
        self._every_s = auth.revocation_s
        self._identifies = auth.mode != "none"
        self.authenticator = Authenticator(
            auth,
            settings.tenant.host_id,
            public_url=settings.server.public_url,
            bound=bound_audiences(settings, resources),
        )

    @property
    def loads(self) -> Mapping[str, Load]:
        """By the names of notices."""
        if not self._identifies:
            return {}
        keys = {"keys": self._load_keys} if self.authenticator.keys is not None else {}
        return {**keys, "revocations": self._load_revocations}

    async def run(self) -> None:
        """What needs no database, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.authenticator.run)
            if self._identifies:
                tasks.start_soon(self._sweep_often)

    async def tidy(self, pool: Pool) -> None:
        """Until cancelled."""
        while self._identifies:
            await asyncio.sleep(USED_EVERY_S)
            await self.settle(pool)

    async def settle(self, pool: Pool | None) -> None:
        """Write what the registry does not know yet, if it is there."""
        if pool is not None and self._identifies:
            with suppress(psycopg.OperationalError, PoolTimeout):
                await self.authenticator.tidy(pool)

    async def _load_keys(self, pool: Pool) -> None:
        if self.authenticator.keys is not None:
            await self.authenticator.keys.load(pool)
            self._sweep()

    async def _load_revocations(self, pool: Pool) -> None:
        await self.authenticator.load_revocations(pool)
        self._sweep()

    async def _sweep_often(self) -> None:
        """Tokens expire, and keys are taken back, without anybody's saying so."""
        while True:
            await asyncio.sleep(self._every_s)
            self._sweep()


def bound_audiences(
    settings: Settings, resources: ResourceIdentifiers | None = None
) -> Callable[[str], frozenset[str]]:
    """What the audience of who calls a path has to be, while `auth.bind_audience` is "endpoint"."""
    resources, mcp = resources or resources_of(settings), settings.mcp.path
    public = settings.server.public_url.rstrip("/")

    @lru_cache(ENDPOINTS)
    def audiences(endpoint: str) -> frozenset[str]:
        own = f"{public}{endpoint}"
        of_mcp = endpoint == mcp or endpoint.startswith(f"{mcp}/")
        return frozenset({own} if of_mcp else {own, public})

    def bound(path: str) -> frozenset[str]:
        return audiences(resources.endpoint(path) or "")

    return bound
