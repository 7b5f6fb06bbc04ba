"""Access, wired: identities, limits and breakers, stored secrets, guards, policy and audit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import anyio
import psycopg
from psycopg_pool import PoolTimeout

from config.access import LimitsSettings, SecretsSettings
from config.settings import Settings
from config.sources import SchemeSettings
from gateway.abc import Counter, Guard, Middleware, Rates
from gateway.admin.service import AdminAction
from gateway.app.auditing import Auditing
from gateway.app.oauth import ToldToClients, endpoints_of, resources_of
from gateway.guards.authentication import USED_EVERY_S, Authenticator
from gateway.guards.bodies import BodyBudget
from gateway.guards.connections import BoundedProtocol, bounded
from gateway.guards.oauth import ResourceIdentifiers, demanding
from gateway.guards.shedding import Shedding
from gateway.middleware.breaker import Breaker
from gateway.middleware.guardrails import Guardrails
from gateway.middleware.limits import Limiting, RefusalCounts
from gateway.middleware.policy import Judging, shown_to_people
from gateway.middleware.telemetry import Metrics
from gateway.policy.approvals import Approving
from gateway.policy.refusals import Refusals
from gateway.policy.visibility import Sight
from gateway.state.rates import LeasedRates, LocalRates
from registry.access.follower import AccessFeed, Load
from registry.access.secrets import Keys, Secrets
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Database, Pool

log = logging.getLogger("toolgate.access")

Take = Callable[[Mapping[str, Mapping[str, SchemeSettings]]], None]


class StoredSecrets:
    def __init__(self, settings: SecretsSettings, host_id: str, take: Take) -> None:
        """`take` gets them by source and scheme, whenever they have been read."""
        self._keys = Keys.of(settings)
        self._host_id = host_id
        self._take = take
        self._complaints: list[str] = []

    async def load(self, pool: Pool) -> None:
        """One that cannot be read takes nothing from the others."""
        entries, refused = await Secrets(pool, self._host_id, self._keys).read()
        complaints = [str(error) for error in refused]
        if complaints != self._complaints:  # it is read every few seconds
            for complaint in complaints:
                log.error("secret_unreadable", extra={"reason": complaint})
        self._complaints = complaints
        self._take(entries)


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


class Bounds:
    def __init__(self, settings: Settings, counter: Counter) -> None:
        """`counter` is that of all gateways together."""
        refused = RefusalCounts()
        self.refusals = refused
        self.limiting = Limiting(settings.limits, _rates(settings, counter), refused.add)
        self.breaker = Breaker(settings.breaker, refused.add)
        self.bodies = BodyBudget(settings.limits, refused.add)
        self._parts = BodyBudget(settings.limits, refused.add)  # of requests on their way
        self.shedding = Shedding(settings.limits, refused.add, running=self._running)
        self._limits = settings.limits
        self._proxies = settings.server.trusted_proxies

    def reconfigure(self, limits: LimitsSettings) -> None:
        """Hold the calls from now on against other limits; those that run count on."""
        self.limiting = self.limiting.with_limits(limits)
        self.shedding.reconfigure(limits)
        self.bodies.reconfigure(limits)
        self._parts.reconfigure(limits)

    def protocol(self) -> type[BoundedProtocol]:
        """Of the connections of clients, for uvicorn."""
        return bounded(self._limits, self.refusals.add, self._parts, self._proxies)

    def show(self, metrics: Metrics) -> None:
        metrics.registry.register(self.refusals)
        metrics.registry.register(self.breaker)
        shedding = self.shedding
        text = "How late the event loop was when last looked at."
        metrics.gauge("toolgate_loop_lag_seconds", text, lambda: shedding.lag_s)
        text = "Resident memory of the process."
        metrics.gauge("toolgate_memory_bytes", text, lambda: shedding.memory_bytes)
        text = "Bytes of large request bodies that are on their way or in use."
        metrics.gauge("toolgate_body_bytes", text, lambda: self.bodies.held_bytes)

    def _running(self) -> int:
        return self.limiting.running + self.bodies.held_bytes


def _rates(settings: Settings, counter: Counter) -> Rates:
    alone = LocalRates()
    if settings.state.backend == "memory":
        return alone
    return LeasedRates(counter, alone if settings.limits.when_away == "local" else None)


class Access:
    def __init__(
        self,
        settings: Settings,
        database: Callable[[], Database | None],
        settled: Callable[[], Awaitable[object]],
        sweep: Callable[[], None],
        counter: Counter,
        secrets: Load,
        catalogs: Catalogs,
    ) -> None:
        """`settled` returns when the database is there, or will never be. `sweep` ends the streams
        of those who are known no longer. `counter` is that of all gateways together. `secrets`
        reads the credentials of sources."""
        self._database = database
        self._settled = settled
        self.bounds = Bounds(settings, counter)
        self._resources = resources_of(settings)
        self.identities = Identities(settings, sweep, self._resources)
        self.authenticator = self.identities.authenticator
        self.sight = Sight(settings.policy, settings.limits.json_depth)
        self.auditing = Auditing(settings, self._pool, Refusals(self.sight, catalogs))
        self._guardrails = Guardrails(settings.guardrails)
        identify = demanding(self.authenticator.identify, settings.oauth.required_scopes)
        self.identify = self.auditing.identifying(identify)
        self.identify_admin = self.auditing.identifying(self.authenticator.identify)
        self.told = ToldToClients(settings, self._resources)
        self._judging = self._judges(settings)
        loads: dict[str, Load] = {
            **self.identities.loads,
            "policy": self.sight.load,
            "secrets": secrets,
        }
        self._feed = AccessFeed(loads, settings.auth.revocation_s)

    def reconfigure(self, settings: Settings) -> None:
        """Take other rules, limits, guardrails and endpoints; `guards` and `middleware` are of them
        from now on. Raises InvalidExpression, before anything has changed."""
        guardrails = Guardrails(settings.guardrails)
        self.sight.reconfigure(settings.policy, settings.limits.json_depth)
        self._guardrails, self._judging = guardrails, self._judges(settings)
        self.bounds.reconfigure(settings.limits)
        self._resources.serve(endpoints_of(settings))

    def _judges(self, settings: Settings) -> Judging:
        return Judging(self.sight, Approving(settings.policy, self._pool, shown_to_people))

    async def load(self, pool: Pool) -> None:
        """Before anybody is served: keys, revocations, rules, secrets."""
        await self._feed.load(pool)
        await self.auditing.begin(pool)

    def _pool(self) -> Pool | None:
        database = self._database()
        return database.pool if database else None

    @property
    def middleware(self) -> Sequence[Middleware]:
        """Around every message, from the outside in."""
        return [*self.auditing.middleware, self.bounds.limiting.middleware]

    @property
    def guards(self) -> Sequence[Guard]:
        """Around every call of a tool, from the outside in: what remembers, what decides, what
        limits, what looks at arguments and results, what spares a source that fails."""
        bounds = self.bounds
        before = [*self.auditing.guards, self._judging.guard, bounds.limiting.guard]
        return [*before, self._guardrails.guard, bounds.breaker.guard]

    def remember(self, action: AdminAction) -> None:
        """What somebody did by the admin API."""
        self.auditing.remember(action)

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.identities.run)
            await self._settled()
            database = self._database()
            if database is None:
                return
            tasks.start_soon(self.auditing.run)
            tasks.start_soon(self.identities.tidy, database.pool)
            await self._feed.run(database)

    async def settle(self) -> None:
        """After the last call, while the database is open: what must be in it."""
        await self.auditing.settle()
        await self.identities.settle(self._pool())

    async def close(self) -> None:
        """After the last call."""
        await self.auditing.close()
