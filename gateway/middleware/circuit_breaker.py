"""Circuit breaker middleware: one circuit per source.

A failure is an outage: no connection, timeout, HTTP 502, 503 or 504. Errors about the call itself,
500 and 4xx included, count as success. A circuit is a state machine, whose time is an argument:

closed      calls pass and are counted; a failure rate above the threshold opens it
open        calls are rejected; half-open after the open period
half-open   probes pass one at a time: the configured number of successes closes it, one failure
            opens it again, for twice as long
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Raw
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.access import BreakerSettings
from config.access import BreakerSettings as Settings
from gateway.interfaces import Execute, ToolCall
from schemas.errors import RelayedFault, SourceDown
from schemas.hybrid import UNAVAILABLE, Status, status_members
from schemas.jsonrpc import encode
from schemas.retry_after import whole_seconds
from schemas.signals import Signal
from schemas.source import Source
from schemas.tool import Outage, RelayedResult, TextContent, Tool, ToolResult

SLOTS = 10  # of the window
LEAST = 0.8  # of the open period (jitter): nodes must not probe simultaneously

State = Literal["closed", "open", "half-open"]


class Circuit:
    __slots__ = ("_counts", "_jitter", "_passed", "_pause_s", "_probe_until", "_settings", "_slot",
                 "_slot_ends", "_until", "calls", "failures", "round", "state")  # fmt: skip

    def __init__(self, settings: BreakerSettings, jitter: Callable[[], float]) -> None:
        """`jitter` returns numbers from 0 to 1."""
        self._settings = settings
        self._jitter = jitter
        self._counts: deque[list[int]] = deque()  # slot, calls, failures; oldest first
        self._slot = [0, 0, 0]  # the newest of them
        self._slot_ends = 0.0
        self._pause_s = settings.open_s  # next open period
        self._until = 0.0
        self._probe_until = 0.0  # deadline of the running probe
        self._passed = 0  # successful probes
        self.calls = self.failures = 0  # in the window
        self.round = 0  # generation of the state: outcomes of calls of earlier rounds are ignored
        self.state: State = "closed"

    def admit(self, now: float) -> int | None:
        """The round of an admitted call; None when it is rejected."""
        if self.state == "closed":
            return self.round
        if self.state == "open":
            if now < self._until:
                return None
            self._enter("half-open")
            self._passed, self._probe_until = 0, now
        elif now < self._probe_until:
            return None
        self._probe_until = now + self._settings.open_s
        return self.round

    def wait_s(self, now: float) -> float:
        """Estimated time until calls are admitted again."""
        return (self._until if self.state == "open" else self._probe_until) - now

    def record(self, began: int, failed: bool | None, now: float) -> None:
        """Record the outcome of a call of the round `began`; None: inconclusive."""
        if began != self.round:
            return
        if self.state == "half-open":
            self._probe_until = now
            if failed:
                self._open(now)
            elif failed is False:
                self._passed += 1
                if self._passed >= self._settings.probes:
                    self._close()
        elif failed is not None:
            if now >= self._slot_ends:
                self._begin_slot(now)
            self._slot[1] += 1
            self.calls += 1
            if failed:
                self._slot[2] += 1
                self.failures += 1
                enough = self.calls >= self._settings.calls
                if enough and self.failures >= self._settings.failures * self.calls:
                    self._open(now)

    def _begin_slot(self, now: float) -> None:
        """Count in the slot of `now` from here on, and forget those that have left the window."""
        length_s, counts = self._settings.window_s / SLOTS, self._counts
        slot = int(now / length_s)
        while counts and counts[0][0] <= slot - SLOTS:
            _, calls, failures = counts.popleft()
            self.calls -= calls
            self.failures -= failures
        self._slot, self._slot_ends = [slot, 0, 0], (slot + 1) * length_s
        counts.append(self._slot)

    def open(self, now: float) -> None:
        """Open a closed circuit, as another process did that calls the same source."""
        if self.state == "closed":
            self._open(now)

    def close(self) -> None:
        """Close the circuit; outcomes of running calls are ignored."""
        if self.state != "closed":
            self._close()

    def _open(self, now: float) -> None:
        self._until = now + self._pause_s * (LEAST + (1 - LEAST) * self._jitter())
        self._pause_s = min(2 * self._pause_s, max(self._settings.longest_s, self._pause_s))
        self._enter("open")

    def _close(self) -> None:
        self._pause_s = self._settings.open_s
        self._counts.clear()
        self._slot_ends = 0.0
        self.calls = self.failures = 0
        self._enter("closed")

    def _enter(self, state: State) -> None:
        self.state = state
        self.round += 1


log = logging.getLogger("toolgate.upstream")

GAUGE = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


def _random() -> float:
    return secrets.randbelow(1001) / 1000


class Breaker(Collector):
    def __init__(
        self,
        settings: Settings,
        on_refusal: Callable[[str], None] = lambda _limit: None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = _random,
    ) -> None:
        """`on_refusal` is called with "breaker" for each rejected call; `clock` is in seconds."""
        self._settings = settings
        self._refused = on_refusal
        self._clock = clock
        self._jitter = jitter
        self._circuits: dict[str, Circuit] = {}  # by `Source.place`
        self.changed: Signal[str, str] = Signal()  # `Source.place`, and "open" or "closed"

    def collect(self) -> Iterator[Metric]:
        text = "1 while calls to a source are refused because it fails, 0.5 while it is tried."
        gauge = GaugeMetricFamily("toolgate_breaker", text, labels=("source",))
        for source, circuit in list(self._circuits.items()):
            gauge.add_metric((source,), GAUGE[circuit.state])
        yield gauge

    def states(self) -> dict[str, str]:
        """State (open or half-open) of each source whose circuit is not closed."""
        return {
            source: circuit.state
            for source, circuit in self._circuits.items()
            if circuit.state != "closed"
        }

    def close(self, place: str) -> None:
        """Close the circuit of the source at `place`, which was seen to answer."""
        circuit = self._circuits.get(place)
        if circuit is not None and circuit.state != "closed":
            circuit.close()
            log.info("breaker_closed", extra={"source": place})

    def follow(self, place: str, state: str) -> None:
        """Take over a state that another worker of this machine has found out."""
        if state == "open":
            self._circuit(place).open(self._clock())
        else:
            self.close(place)

    def applies(self, tool: Tool, source: Source | None) -> bool:
        return self._settings.enabled and source is not None and tool.binding.facts.remote

    def guard(self, execute: Execute) -> Execute:
        circuits, clock = self._circuits, self._clock

        async def protect(call: ToolCall) -> ToolResult | RelayedResult:
            source = call.source
            if source is None:
                return await execute(call)
            name, place = source.name, source.place
            circuit = circuits.get(place) or self._circuit(place)
            began = circuit.round if circuit.state == "closed" else circuit.admit(clock())
            if began is None:
                return self._refusal(call, name, circuit.wait_s(clock()))
            failed: bool | None = None  # stays None if cancelled or not sent
            try:
                result = await execute(call)
                failed = type(result) is Outage
                return result
            except SourceDown:
                failed = True
                raise
            except RelayedFault:
                failed = False
                raise
            finally:
                before, now = circuit.state, clock()
                circuit.record(began, failed, now)
                if circuit.state != before:
                    self._log_change(name, circuit, before, now)
                    self._publish(place, circuit.state)

        return protect

    def _circuit(self, place: str) -> Circuit:
        circuit = self._circuits.get(place)
        if circuit is None:
            circuit = self._circuits[place] = Circuit(self._settings, self._jitter)
        return circuit

    def _publish(self, place: str, state: State) -> None:
        if state != "half-open":
            self.changed.publish(place, state)

    def _log_change(self, name: str, circuit: Circuit, before: State, now: float) -> None:
        if circuit.state == "open":
            extra = {"source": name, "open_s": round(circuit.wait_s(now), 1)}
            if before == "closed":
                extra |= {"calls": circuit.calls, "failures": circuit.failures}
            log.warning("breaker_opened", extra=extra)
        else:
            log.info("breaker_closed", extra={"source": name})

    def _refusal(self, call: ToolCall, name: str, wait_s: float) -> ToolResult:
        """Result of a rejected call. Raises SourceDown for tools of MCP servers, whose failures
        are errors."""
        self._refused("breaker")
        retry_after = whole_seconds(wait_s)
        text = (
            f"{name} does not answer at the moment, and was not asked again; "
            f"try again in {retry_after} s"
        )
        data: dict[str, Any] = {"retryAfter": retry_after}
        binding = call.tool.binding
        if binding.facts.relayed:
            raise SourceDown(text, data)
        status, code, message = UNAVAILABLE.http, UNAVAILABLE.code, UNAVAILABLE.message
        body: Any = text
        if binding.action is not None:
            body = status_members(Status(status, code, message, text, data))
        structure = Raw(encode({"status": status, "body": body, **data}))
        return ToolResult((TextContent(text),), structure, is_error=True)
