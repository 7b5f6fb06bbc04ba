"""What bounds how much anybody may have, wired: limits, breakers, and what is shed."""

from config.access import LimitsSettings
from config.settings import Settings
from gateway.abc import Counter, Rates
from gateway.guards.bodies import BodyBudget
from gateway.guards.connections import BoundedProtocol, bounded
from gateway.guards.shedding import Shedding
from gateway.middleware.breaker import Breaker
from gateway.middleware.limits import Limiting
from gateway.middleware.refusals import RefusalCounts
from gateway.middleware.telemetry import Metrics
from gateway.state.rates import LeasedRates, LocalRates


class Bounds:
    def __init__(self, settings: Settings, counter: Counter) -> None:
        """`counter` is that of all gateways together."""
        refused = RefusalCounts()
        self.refusals = refused
        self.limiting = Limiting(settings.limits, _rates(settings, counter), refused.add)
        self.breaker = Breaker(settings.breaker, refused.add)
        self.bodies = BodyBudget(settings.limits, refused.add)
        self.shedding = Shedding(settings.limits, refused.add, running=self._running)
        self._limits = settings.limits

    def reconfigure(self, limits: LimitsSettings) -> None:
        """Hold the calls from now on against other limits; those that run count on."""
        self.limiting = self.limiting.with_limits(limits)
        self.shedding.reconfigure(limits)
        self.bodies.reconfigure(limits)

    def protocol(self) -> type[BoundedProtocol]:
        """Of the connections of clients, for uvicorn."""
        return bounded(self._limits, self.refusals.add)

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
