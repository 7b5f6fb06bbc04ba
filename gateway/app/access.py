"""Wiring of access control: identities, limits and circuit breakers, stored secrets, guards, policy
and audit."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from config.settings import Settings
from gateway.app.access_hooks import AccessHooks
from gateway.app.audit_log import AuditCollector
from gateway.app.identities import USED_EVERY_S, Identities
from gateway.app.protected_resources import ProtectedResource, endpoints_of, resources_of
from gateway.app.request_limits import Bounds
from gateway.context import Context
from gateway.guards.protected_resource import demanding
from gateway.interfaces import Counter, Events, Guard
from gateway.middleware.guardrails import Guardrails
from gateway.middleware.policy_guard import ForwarderGuard, PolicyGuard, arguments_for_approvers
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.engine import callers_rules
from gateway.policy.visibility import Denials, PolicyView
from gateway.protocol.sealed_state import Sealer
from registry.access.access_feed import AccessFeed, Load
from registry.access.approvals import count_waiting
from registry.catalog.catalogs import Catalogs
from registry.catalog.stored_toolsets import ToolsetFeed
from registry.database.postgres import AWAY, DatabaseHandle, Pool

if TYPE_CHECKING:  # a gateway without them does not import them
    from gateway.app.login import LoginAccess
    from gateway.middleware.hooks.configured_hook import Hooks


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
        login: "LoginAccess | None" = None,
        connections: Load | None = None,
        sealer: Callable[[], Awaitable[Sealer]],
    ) -> None:
        """Access control of a gateway. `sweep` closes the streams of callers that are no longer
        authenticated. `counter` is shared by all gateways. `secrets` reads the credentials of
        sources, `connections` people's accounts there. `before_rules`: guards whose findings rules
        read; `innermost`: guards behind all others. `sealer`: of what hooks decided for a call that
        its client goes on with. Raises ToolgateError for hooks that cannot be loaded."""
        self._handle = handle
        self.before_rules = before_rules
        self.innermost = innermost
        self.bounds = Bounds(settings, counter, events)
        self._resources = resources_of(settings)
        self.identities = Identities(settings, sweep, self._resources, login)
        self.authenticator = self.identities.authenticator
        self.policy_view = policy_view
        self.guardrails = Guardrails(settings.guardrails)
        self.hooks = AccessHooks(settings, sealer)
        denials = Denials(self.policy_view, catalogs)
        self.auditing = AuditCollector(settings, handle.pool, denials, self.hooks.copy_record)
        own_identify = self.hooks.identifying(self.authenticator.identify)
        identify = demanding(own_identify, settings.oauth.required_scopes)
        self.identify = self.auditing.identifying(identify)
        self.identify_admin = self.auditing.identifying(own_identify)
        self.protected_resource = ProtectedResource(settings, self._resources, login)
        self._catalogs = catalogs
        self.policy_guards = self._guards_of(settings)
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

    def reconfigure(self, settings: Settings, hooks: "Hooks | None") -> None:
        """Replace rules, limits, guardrails, hooks and endpoints; chains that are
        composed from now on use them. Raises InvalidExpression, before anything has changed."""
        guardrails = Guardrails(settings.guardrails)
        callers = callers_rules(settings.code, settings.toolsets)
        self.policy_view.reconfigure(settings.policy, settings.limits.json_depth, callers)
        self.guardrails, self.policy_guards = guardrails, self._guards_of(settings)
        self.hooks.replace(hooks)
        self.bounds.reconfigure(settings.limits)
        self._resources.serve(endpoints_of(settings))

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

    async def reload(self, name: str) -> None:
        """Act by a change that this process has made, before it is answered."""
        if (pool := self._handle.pool()) is not None:
            await self._access_feed.reload(name, pool)

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
        await self.hooks.settle()
        await self.identities.settle(self._handle.pool())

    async def close(self) -> None:
        """Release resources after the last call."""
        await self.auditing.close()
        await self.hooks.close()
