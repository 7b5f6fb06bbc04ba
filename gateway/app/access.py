"""Wiring of access control: identities, limits and circuit breakers, stored secrets, guards, policy
and audit.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from gateway.events import Events
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
from registry.database.postgres import DatabaseHandle, Pool

log = logging.getLogger("toolgate.access")

Take = Callable[[Mapping[str, Mapping[str, SchemeSettings]]], None]


class StoredSecrets:
    def __init__(self, settings: SecretsSettings, host_id: str, take: Take) -> None:
        """`take` is called with all entries, by source and scheme, after each load."""
        self._keys = Keys.of(settings)
        self._host_id = host_id
        self._take = take
        self._complaints: list[str] = []

    async def load(self, pool: Pool) -> None:
        """Load all secrets; an unreadable one does not affect the others."""
        entries, refused = await Secrets(pool, self._host_id, self._keys).read()
        complaints = [str(error) for error in refused]
        if complaints != self._complaints:  # log only changes: secrets are read every few seconds
            for complaint in complaints:
                log.error("secret_unreadable", extra={"reason": complaint})
        self._complaints = complaints
        self._take(entries)


ENDPOINTS = 1024  # size of the audience cache


class Identities:
    def __init__(
        self,
        settings: Settings,
        sweep: Callable[[], None],
        resources: ResourceIdentifiers | None = None,
    ) -> None:
        """`sweep` closes the streams of callers that are no longer authenticated. `resources`: the
        endpoints, where they may change. Raises ToolgateError for unusable keys."""
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
        """Loaders by the name of the notification that triggers them."""
        if not self._identifies:
            return {}
        keys = {"keys": self._load_keys} if self.authenticator.keys is not None else {}
        return {**keys, "revocations": self._load_revocations}

    async def run(self) -> None:
        """Tasks without a database, until cancelled."""
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
        """Periodic sweep: tokens expire, and keys are withdrawn, without a notification."""
        while True:
            await asyncio.sleep(self._every_s)
            self._sweep()


def bound_audiences(
    settings: Settings, resources: ResourceIdentifiers | None = None
) -> Callable[[str], frozenset[str]]:
    """Accepted audiences by path, while `auth.bind_audience` is "endpoint"."""
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
    def __init__(self, settings: Settings, counter: Counter, events: Events) -> None:
        """`counter` is shared by all gateways."""
        refused = RefusalCounts()
        self.refusals = refused
        self.limiting = Limiting(settings.limits, _rates(settings, counter), refused.add)
        self.breaker = Breaker(settings.breaker, refused.add)
        events.source_recovered.subscribe(self.breaker.close)
        self.bodies = BodyBudget(settings.limits, refused.add)
        self._parts = BodyBudget(settings.limits, refused.add)  # of incomplete requests
        self.shedding = Shedding(settings.limits, refused.add, running=self._running)
        self._limits = settings.limits
        self._proxies = settings.server.trusted_proxies

    def reconfigure(self, limits: LimitsSettings) -> None:
        """Replace the limits for new calls; running calls stay counted."""
        self.limiting = self.limiting.with_limits(limits)
        self.shedding.reconfigure(limits)
        self.bodies.reconfigure(limits)
        self._parts.reconfigure(limits)

    def protocol(self) -> type[BoundedProtocol]:
        """Protocol class of client connections, for uvicorn."""
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
        handle: DatabaseHandle,
        *,
        sweep: Callable[[], None],
        counter: Counter,
        secrets: Load,
        sight: Sight,
        catalogs: Catalogs,
        events: Events,
    ) -> None:
        """`sweep` closes the streams of callers that are no longer authenticated. `counter` is
        shared by all gateways. `secrets` reads the credentials of sources."""
        self._handle = handle
        self.bounds = Bounds(settings, counter, events)
        self._resources = resources_of(settings)
        self.identities = Identities(settings, sweep, self._resources)
        self.authenticator = self.identities.authenticator
        self.sight = sight
        self.auditing = Auditing(settings, handle.pool, Refusals(self.sight, catalogs))
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
        events.database_connected.subscribe(self._load)

    def reconfigure(self, settings: Settings) -> None:
        """Replace rules, limits, guardrails and endpoints; `guards` and `middleware` use them from
        now on. Raises InvalidExpression, before anything has changed."""
        guardrails = Guardrails(settings.guardrails)
        self.sight.reconfigure(settings.policy, settings.limits.json_depth)
        self._guardrails, self._judging = guardrails, self._judges(settings)
        self.bounds.reconfigure(settings.limits)
        self._resources.serve(endpoints_of(settings))

    def _judges(self, settings: Settings) -> Judging:
        return Judging(self.sight, Approving(settings.policy, self._handle.pool, shown_to_people))

    async def _load(self, pool: Pool) -> None:
        """Load keys, revocations, rules and secrets, before the first request."""
        await self._feed.load(pool)
        await self.auditing.begin(pool)

    @property
    def middleware(self) -> Sequence[Middleware]:
        """Middleware of every message, outermost first."""
        return [*self.auditing.middleware, self.bounds.limiting.middleware]

    @property
    def guards(self) -> Sequence[Guard]:
        """Guards of every tool call, outermost first: audit, policy, limits, guardrails on
        arguments and results, circuit breaker."""
        bounds = self.bounds
        before = [*self.auditing.guards, self._judging.guard, bounds.limiting.guard]
        return [*before, self._guardrails.guard, bounds.breaker.guard]

    def remember(self, action: AdminAction) -> None:
        """Record an action of the admin API in the audit log."""
        self.auditing.remember(action)

    async def run(self) -> None:
        """Background tasks until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.identities.run)
            await self._handle.settled.wait()
            database = self._handle.opened
            if database is None:
                return
            tasks.start_soon(self.auditing.run)
            tasks.start_soon(self.identities.tidy, database.pool)
            await self._feed.run(database)

    async def settle(self) -> None:
        """Flush pending writes after the last call, while the database is open."""
        await self.auditing.settle()
        await self.identities.settle(self._handle.pool())

    async def close(self) -> None:
        """Release resources after the last call."""
        await self.auditing.close()
