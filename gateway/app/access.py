"""Who may come in and what they may do: the parts that decide, guard and remember, wired."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from config.settings import Settings
from gateway.abc import Counter, Guard, Middleware
from gateway.admin.service import AdminAction
from gateway.app.auditing import Auditing
from gateway.app.bounds import Bounds
from gateway.app.identity import Identities
from gateway.app.oauth import ToldToClients, endpoints_of, resources_of
from gateway.guards.oauth import demanding
from gateway.middleware.guardrails import Guardrails
from gateway.middleware.policy import Judging, shown_to_people
from gateway.policy.approvals import Approving
from gateway.policy.refusals import Refusals
from gateway.policy.visibility import Sight
from registry.access.follower import AccessFeed, Load
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Database, Pool


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
