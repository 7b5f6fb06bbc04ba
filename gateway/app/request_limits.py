"""Limits of requests: rates, circuit breakers, request bodies, connections and load."""

from config.access import LimitsSettings
from config.settings import Settings
from gateway.guards.body_budget import BodyBudget
from gateway.guards.connection_limits import BoundedProtocol, bounded_protocol
from gateway.guards.load_shedding import Shedding
from gateway.interfaces import Counter, Events, Rates
from gateway.middleware.circuit_breaker import Breaker
from gateway.middleware.message_metrics import Metrics
from gateway.middleware.rate_limits import RateLimits, RefusalCounts
from gateway.state.rate_windows import LeasedRates, LocalRates


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
