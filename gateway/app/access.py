"""Wiring of access control: identities, limits and circuit breakers, stored secrets, guards, policy
and audit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.middleware import Middleware as HttpMiddleware
from starlette.routing import Route

from config.access import ADMIN_TOOLSET, LimitsSettings, SecretsSettings
from config.hooks import HookPoint
from config.settings import Settings
from config.sources import SchemeSettings
from gateway.admin.http_api import AdminAction
from gateway.audit.database_writer import AuditWriter, is_recorded
from gateway.audit.records import AuditEntry, printable
from gateway.audit.retention import maintain_regularly
from gateway.context import Context, Identify
from gateway.guards.authentication import USED_EVERY_S, Authenticator
from gateway.guards.authorization_server_proxy import AuthorizationServer
from gateway.guards.body_budget import BodyBudget
from gateway.guards.connection_limits import BoundedProtocol, bounded_protocol
from gateway.guards.load_shedding import Shedding
from gateway.guards.protected_resource import (
    WELL_KNOWN,
    Challenges,
    ResourceIdentifiers,
    WellKnown,
    demanding,
)
from gateway.guards.token_issuers import Issuer
from gateway.interfaces import Counter, Events, Guard, Middleware, Rates
from gateway.middleware.audit_trail import AuditTrail
from gateway.middleware.circuit_breaker import Breaker
from gateway.middleware.guardrails import Guardrails
from gateway.middleware.message_metrics import Metrics
from gateway.middleware.policy_guard import ForwarderGuard, PolicyGuard, arguments_for_approvers
from gateway.middleware.rate_limits import RateLimits, RefusalCounts
from gateway.operations.job_declarations import JobAct
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.engine import callers_rules
from gateway.policy.visibility import Denials, PolicyView
from gateway.protocol.sealed_state import Sealer
from gateway.state.rate_windows import LeasedRates, LocalRates
from registry.access.access_feed import AccessFeed, Load
from registry.access.approvals import count_waiting
from registry.access.secrets import Keys, Secrets
from registry.catalog.catalogs import Catalogs
from registry.catalog.stored_toolsets import ToolsetFeed
from registry.database.embedded_server import directory_of
from registry.database.postgres import AWAY, DatabaseHandle, Pool
from schemas.errors import ToolgateError

if TYPE_CHECKING:  # a gateway without hooks does not import them
    from gateway.middleware.hooks.configured_hook import Hook, Hooks
    from gateway.middleware.hooks.identity_and_list_hooks import AuditHooks, IdentityHooks, Outcome

log = logging.getLogger("toolgate.access")

Take = Callable[[Mapping[str, Mapping[str, SchemeSettings]]], None]

ENDPOINTS = 1024  # size of the audience cache

AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
OPENID_CONFIGURATION = "/.well-known/openid-configuration"


class StoredSecrets:
    def __init__(self, settings: SecretsSettings, host_id: str, take: Take) -> None:
        """Stored secrets of a tenant; `take` is called with all entries, by source and scheme,
        after each load."""
        self._keys = Keys.of(settings)
        self._host_id = host_id
        self._take = take
        self.entries: Mapping[str, Mapping[str, SchemeSettings]] = {}  # of the last load
        self._complaints: list[str] = []

    async def load(self, pool: Pool) -> None:
        """Load all secrets; an unreadable one does not affect the others."""
        entries, refused = await Secrets(pool, self._host_id, self._keys).read()
        complaints = [str(error) for error in refused]
        if complaints != self._complaints:  # log only changes: secrets are read every few seconds
            for complaint in complaints:
                log.error("secret_unreadable", extra={"reason": complaint})
        self._complaints = complaints
        self.entries = entries
        self._take(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAccess:
    """The login of a gateway, as its access control needs it."""

    issuer: Issuer
    reserved: Collection[str]  # prefixes of its principals
    metadata: Callable[[], Awaitable[bytes]]  # of the authorization server
    scopes: Sequence[str]  # that somebody may have
    end_revoked: Load  # ends logins of people whose tokens were revoked
    sweep: Load  # deletes what is over


class Identities:
    def __init__(
        self,
        settings: Settings,
        sweep: Callable[[], None],
        resources: ResourceIdentifiers | None = None,
        login: LoginAccess | None = None,
    ) -> None:
        """Identities from the settings. `sweep` closes the streams of callers that are no longer
        authenticated. `resources`: the endpoints, where they may change. Raises ToolgateError for
        unusable keys."""
        auth = settings.auth
        self._login = login
        self._sweep = sweep
        self._every_s = auth.revocation_s
        self._identifies = auth.mode != "none"
        self.authenticator = Authenticator(
            auth,
            settings.tenant.host_id,
            public_url=settings.server.public_url,
            bound=bound_audiences(settings, resources),
            own=None if login is None else login.issuer,
            reserved=() if login is None else login.reserved,
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

    def audiences_of(path: str) -> frozenset[str]:
        return audiences(resources.endpoint(path) or "")

    return audiences_of


class Bounds:
    def __init__(self, settings: Settings, counter: Counter, events: Events) -> None:
        """Limits from the settings; `counter` is shared by all gateways."""
        refused = RefusalCounts()
        self.refusals = refused
        self._rates = _rates(settings, counter)
        self.rate_limits = RateLimits(settings.limits, self._rates, refused.add)
        self.breaker = Breaker(settings.breaker, refused.add)
        events.source_recovered.subscribe(self.breaker.close)
        self.bodies = BodyBudget(settings.limits, refused.add)
        self._parts = BodyBudget(settings.limits, refused.add)  # of incomplete requests
        self.shedding = Shedding(settings.limits, refused.add, running=self._running)
        self._limits = settings.limits
        self._proxies = settings.server.trusted_proxies

    def reconfigure(self, limits: LimitsSettings) -> None:
        """Replace the limits for new calls; running calls stay counted."""
        self.rate_limits = self.rate_limits.with_limits(limits)
        self.shedding.reconfigure(limits)
        self.bodies.reconfigure(limits)
        self._parts.reconfigure(limits)

    async def settle(self) -> None:
        """Wait for renewals of rate limits, while the shared counter is open."""
        await self._rates.settle()

    def protocol(self) -> type[BoundedProtocol]:
        """Protocol class of client connections, for uvicorn."""
        return bounded_protocol(self._limits, self.refusals.add, self._parts, self._proxies)

    def show(self, metrics: Metrics) -> None:
        metrics.registry.register(self.refusals)
        metrics.registry.register(self.breaker)
        shedding = self.shedding
        text = "Lag of the event loop at the last sample."
        metrics.gauge("toolgate_loop_lag_seconds", text, lambda: shedding.lag_s)
        text = "Resident memory of the process."
        metrics.gauge("toolgate_memory_bytes", text, lambda: shedding.memory_bytes)
        text = "Bytes of large request bodies that are on their way or in use."
        metrics.gauge("toolgate_body_bytes", text, lambda: self.bodies.held_bytes)

    def _running(self) -> int:
        return self.rate_limits.running + self.bodies.held_bytes


def _rates(settings: Settings, counter: Counter) -> Rates:
    alone = LocalRates()
    if settings.state.backend == "memory":
        return alone
    return LeasedRates(counter, alone if settings.limits.when_down == "local" else None)


class Access:
    def __init__(
        self,
        settings: Settings,
        handle: DatabaseHandle,
        *,
        sweep: Callable[[], None],
        counter: Counter,
        secrets: Load,
        policy_view: PolicyView,
        catalogs: Catalogs,
        events: Events,
        before_rules: Sequence[Guard] = (),
        innermost: Sequence[Guard] = (),
        login: LoginAccess | None = None,
        connections: Load | None = None,
        sealer: Callable[[], Awaitable[Sealer]],
    ) -> None:
        """Access control of a gateway. `sweep` closes the streams of callers that are no longer
        authenticated. `counter` is shared by all gateways. `secrets` reads the credentials of
        sources, `connections` people's accounts there. `before_rules`: guards whose findings rules
        read; `innermost`: guards behind all others. `sealer`: of what hooks decided for a call that
        its client goes on with. Raises ToolgateError for hooks that cannot be loaded."""
        self._handle = handle
        self._before_rules = before_rules
        self._innermost = innermost
        self.bounds = Bounds(settings, counter, events)
        self._resources = resources_of(settings)
        self.identities = Identities(settings, sweep, self._resources, login)
        self.authenticator = self.identities.authenticator
        self.policy_view = policy_view
        self._guardrails = Guardrails(settings.guardrails)
        self._sealer = sealer
        self._rounds_s = settings.mcp.parked_s
        # points that have listeners, from the start on; None: it has not begun
        self._begun: frozenset[str] | None = None
        self._hooks: Hooks | None = None
        self._hooks = self.load_hooks(settings)
        self._begun = frozenset(hook.at for hook in settings.hooks.values())
        self.hook_calls = HookCalls(lambda: self._hooks)
        self._audit_hooks = self._listen_to_records()
        copy = None if self._audit_hooks is None else self._audit_hooks.add
        denials = Denials(self.policy_view, catalogs)
        self.auditing = AuditCollector(settings, handle.pool, denials, copy)
        self._identity_hooks = self._hooks_of_identities()
        own_identify: Identify = self.authenticator.identify
        if self._identity_hooks is not None:
            own_identify = self._identity_hooks.identifying(own_identify)
        identify = demanding(own_identify, settings.oauth.required_scopes)
        self.identify = self.auditing.identifying(identify)
        self.identify_admin = self.auditing.identifying(own_identify)
        self.protected_resource = ProtectedResource(settings, self._resources, login)
        self._catalogs = catalogs
        self._policy_guards = self._guards_of(settings)
        loads: dict[str, Load] = {
            **self.identities.loads,
            "policy": self.policy_view.load,
            "secrets": secrets,
            "toolsets": ToolsetFeed(catalogs).load,
            **({} if connections is None else {"connections": connections}),
        }
        self._access_feed = AccessFeed(loads, settings.auth.revocation_s)
        self.approvals_waiting = 0  # as counted last
        events.database_connected.subscribe(self._load)

    def load_hooks(self, settings: Settings) -> "Hooks | None":
        """The hooks of settings; None: there are none. Raises ToolgateError."""
        if not settings.hooks and self._hooks is None:
            return None
        for name, hook in settings.hooks.items():
            if self._begun is not None and hook.at in {"identity", "audit"} - self._begun:
                text = "needs a restart: the gateway began without a hook there"
                raise ToolgateError(f"hooks.{name}.at: {hook.at} {text}")
        from gateway.middleware.hooks.configured_hook import Hooks

        return Hooks(settings, self._hooks)

    def reconfigure(self, settings: Settings, hooks: "Hooks | None") -> None:
        """Replace rules, limits, guardrails, hooks and endpoints; `guards` and `middleware` use
        them from now on. Raises InvalidExpression, before anything has changed."""
        guardrails = Guardrails(settings.guardrails)
        callers = callers_rules(settings.code, settings.toolsets)
        self.policy_view.reconfigure(settings.policy, settings.limits.json_depth, callers)
        self._guardrails, self._policy_guards = guardrails, self._guards_of(settings)
        self._hooks = hooks
        self.bounds.reconfigure(settings.limits)
        self._resources.serve(endpoints_of(settings))

    @property
    def guardrails(self) -> Guardrails:
        """Guardrails of the present settings."""
        return self._guardrails

    def _guards_of(self, settings: Settings) -> Sequence[Guard]:
        approving = ApprovalGate(settings.policy, self._handle.pool, arguments_for_approvers)
        view, audited = self.policy_view, self.auditing.enabled

        def calls_tool(context: Context, name: str) -> bool:
            """Whether the name is that of a tool; a skill of workers goes before it."""
            catalog = self._catalogs.addressable(context.principal.tenant, context.toolset)
            return name not in settings.events.skills and catalog.find_called(name) is not None

        return [
            PolicyGuard(view, approving, audited=audited),
            ForwarderGuard(view, approving, calls_tool=calls_tool, audited=audited),
        ]

    async def _load(self, pool: Pool) -> None:
        """Load keys, revocations, rules and secrets, before the first request."""
        await self._access_feed.load(pool)
        await self.auditing.begin(pool)

    @property
    def middleware(self) -> Sequence[Middleware]:
        """Middleware of every message, outermost first."""
        limits = self.bounds.rate_limits.middleware
        return [*self.auditing.middleware, limits, *self._list_hooks()]

    @property
    def guards(self) -> Sequence[Guard]:
        """Guards of every tool call, outermost first: audit, hooks before calls, policy, limits,
        guardrails on arguments and results, hooks after calls, circuit breaker."""
        bounds = self.bounds
        hooks_before, hooks_after = self._hook_guards()
        noting = [*self.auditing.guards, *hooks_before, *self._before_rules]
        before = [*noting, *self._policy_guards, bounds.rate_limits]
        after = [self._guardrails, *hooks_after, bounds.breaker]
        return [*before, *after, *self._innermost]

    def _hooks_at(self, point: HookPoint) -> "Sequence[Hook]":
        return () if self._hooks is None else self._hooks.at(point)

    def asking_later(self, outcome: "Outcome") -> "Outcome":
        """The outcomes of requests of wings, some of which are made when their callers are gone."""
        hooks = self._identity_hooks
        return outcome if hooks is None else hooks.asking_later(outcome)

    def _hooks_of_identities(self) -> "IdentityHooks | None":
        if not self._hooks_at("identity"):
            return None
        from gateway.middleware.hooks.identity_and_list_hooks import IdentityHooks

        return IdentityHooks(lambda: self._hooks_at("identity"))

    def _listen_to_records(self) -> "AuditHooks | None":
        if not self._hooks_at("audit"):
            return None
        from gateway.middleware.hooks.identity_and_list_hooks import AuditHooks

        return AuditHooks(lambda: self._hooks_at("audit"))

    def _list_hooks(self) -> Sequence[Middleware]:
        if not (hooks := self._hooks_at("list")):
            return []
        from gateway.middleware.hooks.identity_and_list_hooks import ListHooks

        return [ListHooks(hooks).middleware]

    def _hook_guards(self) -> tuple[Sequence[Guard], Sequence[Guard]]:
        """The guards of hooks: in front of the rules, and next to the services."""
        if self._hooks is None:
            return (), ()
        from gateway.middleware.hooks.call_hooks import AfterHooks, BeforeHooks

        before, at = self._hooks.at("before"), self._hooks.at
        inner = AfterHooks(at("after"), before=before, credential=at("credential"))
        return [BeforeHooks(before, self._sealer, self._rounds_s)], [inner]

    async def reload(self, name: str) -> None:
        """Act by a change that this process has made, before it is answered."""
        if (pool := self._handle.pool()) is not None:
            await self._access_feed.reload(name, pool)

    def remember(self, action: AdminAction) -> None:
        """Record an action of the admin API in the audit log."""
        self.auditing.remember(action)

    def remember_job(self, act: JobAct) -> None:
        """Record a start or an end of a job in the audit log."""
        self.auditing.remember_job(act)

    def remember_entry(self, entry: Callable[[datetime], AuditEntry]) -> None:
        """Record what `entry` makes of the time."""
        self.auditing.remember_entry(entry)

    def remember_refusal(self, entry: Callable[[datetime], AuditEntry]) -> None:
        """Record what `entry` makes of the time, or count it where it is repeated."""
        self.auditing.remember_refusal(entry)

    @property
    def endpoints(self) -> Collection[str]:
        """The paths that tokens are made for."""
        return self._resources.endpoints

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
            tasks.start_soon(self._count_approvals, database.pool)
            await self._access_feed.run(database)

    async def _count_approvals(self, pool: Pool) -> None:
        while True:
            with suppress(*AWAY):
                self.approvals_waiting = await count_waiting(pool)
            await asyncio.sleep(USED_EVERY_S)

    async def settle(self) -> None:
        """Flush pending writes after the last call, while the database is open."""
        await self.bounds.settle()
        await self.auditing.settle()
        if self._audit_hooks is not None:
            await self._audit_hooks.settle()
        await self.identities.settle(self._handle.pool())

    async def close(self) -> None:
        """Release resources after the last call."""
        await self.auditing.close()
        if self._hooks is not None:
            await self._hooks.close()


class HookCalls(Collector):
    def __init__(self, hooks: "Callable[[], Hooks | None]") -> None:
        """Counts of the hooks of now."""
        self._hooks = hooks

    def collect(self) -> Iterator[Metric]:
        if (hooks := self._hooks()) is None:
            return
        calls = CounterMetricFamily(
            "toolgate_hook_calls",
            "Answers of hooks, by outcome; passed: a failure that passes; busy: there was no turn.",
            labels=("hook", "outcome"),
        )
        for hook in hooks.all:
            for outcome, count in hook.outcomes.items():
                calls.add_metric([hook.name, outcome], count)
        yield calls


def job_entry(act: JobAct, now: datetime) -> AuditEntry:
    """The record of a start or an end of a job, whose id stands for that of a request."""
    principal = act.principal
    outcomes = {"succeeded": "ok", "failed": str(act.status)}
    return AuditEntry(
        principal.tenant,
        now,
        printable(principal.id),
        principal.mark,
        "job",
        method=act.operation,
        subject=printable("/".join(act.names)),
        decision="deny" if act.status == 403 else "allow",
        outcome=outcomes.get(act.event, act.event),
        request_id=act.job_id,
    )


class AuditCollector(Collector):
    def __init__(
        self,
        settings: Settings,
        pool: Callable[[], Pool | None],
        refusals: Denials,
        copy: Callable[[AuditEntry], None] | None = None,
    ) -> None:
        """The audit log of a gateway; `pool` returns None until the database has answered. `copy`
        gets each entry."""
        audit = settings.audit
        self._settings = audit
        self._pool = pool
        self.enabled = is_recorded(settings)
        spool, host_id = spool_dir(settings), settings.tenant.host_id
        self._writer = AuditWriter(audit, spool, host_id, pool, copy=copy)
        self._trail = AuditTrail(audit, self._writer, refusals, refusals.tool)

    @property
    def middleware(self) -> Sequence[Middleware]:
        return [self._trail.middleware] if self.enabled else []

    @property
    def guards(self) -> Sequence[Guard]:
        return [self._trail] if self.enabled else []

    def identifying(self, identify: Identify) -> Identify:
        return self._trail.identifying(identify) if self.enabled else identify

    def remember(self, action: AdminAction) -> None:
        """Record an action of the admin API."""
        if not self.enabled:
            return
        self._writer.add(action.entry(self._writer.now(), self._writer.key))

    def remember_job(self, act: JobAct) -> None:
        """Record a start or an end of a job."""
        if self.enabled:
            self._writer.add(job_entry(act, self._writer.now()))

    def remember_entry(self, entry: Callable[[datetime], AuditEntry]) -> None:
        if self.enabled:
            self._writer.add(entry(self._writer.now()))

    def remember_refusal(self, entry: Callable[[datetime], AuditEntry]) -> None:
        if self.enabled:
            self._trail.add_repeated(entry(self._writer.now()))

    async def begin(self, pool: Pool) -> None:
        """Open the chain, before the first request. Raises psycopg.Error and PoolTimeout."""
        if self.enabled:
            await self._writer.begin(pool)

    async def run(self) -> None:
        """Write records until cancelled; requires the database."""
        pool = self._pool()
        if not self.enabled or pool is None:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                maintain_regularly, pool, self._writer.key, self._settings.retention_days
            )
            tasks.start_soon(self._writer.run)
            tasks.start_soon(self._sum_up)

    async def _sum_up(self) -> None:
        while True:
            await anyio.sleep(self._settings.refusals_s)
            self._trail.sum_up()

    async def settle(self) -> None:
        """Flush while the database is still open."""
        if self.enabled:
            self._trail.sum_up()
            await self._writer.settle()

    async def close(self) -> None:
        if self.enabled:
            await self._writer.close()

    def collect(self) -> Iterator[Metric]:
        if not self.enabled:
            return
        writer = self._writer
        records = CounterMetricFamily(
            "toolgate_audit_records", "Records of the audit log, by outcome.",
            labels=("outcome",),
        )  # fmt: skip
        for outcome in ("written", "spooled", "dropped"):
            records.add_metric([outcome], getattr(writer, outcome))
        yield records
        spooled = writer.spool.size if writer.spool is not None else 0
        gauges = [
            (
                "toolgate_audit_queued_records",
                "Records of the audit log in memory.",
                writer.waiting,
            ),
            ("toolgate_audit_lag_seconds", "How long the oldest of them has waited.", writer.lag_s),
            (
                "toolgate_audit_spool_bytes",
                "Files with records that the database does not have.",
                spooled,
            ),
        ]
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value)


def spool_dir(settings: Settings) -> Path:
    """Directory of records that wait for the database."""
    if settings.audit.spool_dir:
        return Path(settings.audit.spool_dir).expanduser()
    data_dir = directory_of(settings.database)
    return data_dir.with_name(f"{data_dir.name}-audit")


class ProtectedResource:
    """The routes and the ASGI middleware of a protected resource; empty without token
    authentication or a known authorization server."""

    def __init__(
        self,
        settings: Settings,
        resources: ResourceIdentifiers,
        login: LoginAccess | None = None,
    ) -> None:
        oauth = settings.oauth
        self.routes: list[Route] = []
        self.middleware: list[HttpMiddleware] = []
        if settings.auth.mode != "jwt" or not (oauth.authorization_servers or login):
            return
        places: tuple[str, ...] = (AUTHORIZATION_SERVER,)
        if login is not None:
            well_known = WellKnown(
                oauth, resources, login.metadata, own=login.issuer.iss, scopes=login.scopes
            )
            places = (AUTHORIZATION_SERVER, OPENID_CONFIGURATION)
        else:
            server = AuthorizationServer(oauth.authorization_servers[0], oauth)
            legacy = server.metadata if oauth.legacy_metadata else None
            well_known = WellKnown(oauth, resources, legacy)
        self.routes = [
            Route(path, serve)
            for root, serve in (
                (WELL_KNOWN, well_known.resource),
                *((place, well_known.authorization_server) for place in places),
            )
            for path in (root, root + "/{path:path}")
        ]
        self.middleware = [
            HttpMiddleware(Challenges, resources=resources, required=oauth.required_scopes)
        ]


def endpoints_of(settings: Settings) -> list[str]:
    """Paths of all endpoints that accept tokens."""
    mcp, portal, admin = settings.mcp.path, settings.portal, settings.admin
    endpoints = [mcp, *(f"{mcp}/{name}" for name in settings.toolsets), settings.rpc.path]
    if portal.enabled:
        endpoints += [portal.query_path, portal.command_path]
    if admin.enabled:
        endpoints.append(admin.path)
    if admin.tools:
        endpoints += [f"{mcp}/{ADMIN_TOOLSET}", f"{settings.rpc.path}/{ADMIN_TOOLSET}"]
    return endpoints


def resources_of(settings: Settings) -> ResourceIdentifiers:
    bound = settings.auth.bind_audience
    return ResourceIdentifiers(
        settings.server.public_url,
        endpoints_of(settings),
        main=settings.mcp.path if bound == "endpoint" else "",
        whole=bound == "server",
    )
