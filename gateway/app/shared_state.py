"""Wiring and expiry of the state that gateways of the same clients share."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from config.access import LimitsSettings
from config.settings import AnswersSettings, Settings
from gateway.interfaces import Events
from gateway.methods.capabilities import announced_lists
from gateway.state.change_streams import Hub, fingerprint
from gateway.state.client_requests import ClientRequests, RemoteAnswers
from gateway.state.idempotency import Idempotency
from gateway.state.node_bus import Bus
from gateway.state.open_sessions import SessionLimits
from gateway.state.peer_nodes import send_heartbeats
from gateway.state.session_streams import Streams
from gateway.state.sessions import Sessions
from gateway.state.stored_answers import StoredAnswerLimits, StoredAnswers
from gateway.state.stores import Retention, make_stores
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import AWAY, Database
from schemas.errors import Unavailable
from schemas.mcp.messages import ListKind

log = logging.getLogger("toolgate.app")


REAP_EVERY_S = 30


class SharedState:
    def __init__(
        self,
        settings: Settings,
        catalogs: Catalogs,
        database: Callable[[], Database | None],
        *,
        rules: Callable[[str], bytes],
        events: Events,
    ) -> None:
        """State shared by gateways. `database` returns the registry's database, None until it has
        answered; `rules` the version of a tenant's policy rules."""
        mcp = settings.mcp
        self._distinct_principals = settings.auth.mode != "none"
        self._catalogs = catalogs
        self._heartbeat_s = settings.state.heartbeat_s
        self._rules = rules
        self.stores = make_stores(settings.state, _retention(settings), database)
        log, sessions, counter = self.stores.log, self.stores.sessions, self.stores.counter
        limits = _stored_answer_limits(settings.answers)
        self.kept = StoredAnswers(self.stores.answers, counter, limits)
        self.bus = Bus(log, sessions.shared)
        self.hub = Hub(
            mcp.stream_limit,
            mcp.debounce_ms / 1000,
            self._version,
            owner_limit=settings.limits.principal_streams,
            owner_subscriptions=settings.limits.principal_subscriptions,
            distinct_principals=self._distinct_principals,
            events=events,
        )
        self.sessions = Sessions(
            self.hub,
            self.bus,
            store=sessions,
            counter=counter,
            limits=self._session_limits(settings),
            announces=self._announces,
            change_wait_s=settings.state.change_wait_s,
            events=events,
        )
        later, replay_s = self.sessions.background, mcp.replay_s
        self.streams = Streams(
            log,
            sessions,
            counter,
            self.bus,
            replay_s=replay_s,
            background=later,
            heartbeat_s=self._heartbeat_s,
        )
        answers = RemoteAnswers(log, sessions.shared, later, replay_s)
        self.asks = ClientRequests(
            self.bus.node, answers, mcp.client_request_timeout_s, mcp.client_requests
        )

    def reconfigure(self, limits: LimitsSettings) -> None:
        """Replace the limits of open resources per principal."""
        self.hub.set_owner_limit(limits.principal_streams)
        self.hub.watches.owner_limit = limits.principal_subscriptions
        self.sessions.set_principal_limit(self._per_principal(limits))

    async def run(self) -> None:
        """Receive messages of other nodes, and send heartbeats, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.stores.run)
            tasks.start_soon(self.bus.run)
            tasks.start_soon(
                send_heartbeats, self.stores.sessions, self.bus.node, self._heartbeat_s
            )

    def _session_limits(self, settings: Settings) -> SessionLimits:
        mcp = settings.mcp
        return SessionLimits(
            idle_s=mcp.session_idle_s,
            sessions=mcp.session_limit,
            calls=mcp.session_calls,
            rate=mcp.session_rate,
            per_principal=self._per_principal(settings.limits),
        )

    def _per_principal(self, limits: LimitsSettings) -> int:
        """Session limit of one principal; 0: unlimited, as all callers are the same one."""
        return limits.principal_sessions if self._distinct_principals else 0

    def _version(self, tenant: str, toolset: str | None) -> str:
        return fingerprint(self._catalogs.of(tenant, toolset), self._rules(tenant))

    def _announces(self, tenant: str, toolset: str | None) -> Sequence[ListKind]:
        return announced_lists(self._catalogs.of(tenant, toolset))


def _retention(settings: Settings) -> Retention:
    mcp, answers = settings.mcp, settings.answers
    return Retention(mcp.replay_events, mcp.replay_s, answers.ttl_s, answers.stored_bytes)


def _stored_answer_limits(answers: AnswersSettings) -> StoredAnswerLimits:
    shares = answers.tenant_share < 1
    return StoredAnswerLimits(
        keep_s=answers.ttl_s,
        caller_bytes=answers.caller_bytes,
        kept_bytes=answers.stored_bytes,
        tenant_bytes=max(1, int(answers.stored_bytes * answers.tenant_share)) if shares else 0,
    )


async def reap(state: SharedState, idempotency: Idempotency) -> None:
    """Periodic expiry until cancelled; also renews state in use."""
    while True:
        await asyncio.sleep(REAP_EVERY_S)
        reaped = state.sessions.reap()
        if reaped:
            log.info("sessions_reaped", extra={"count": reaped})
        with suppress(Unavailable):
            await state.sessions.renew()
        await state.stores.purge()
        with suppress(*AWAY):
            await idempotency.purge()
