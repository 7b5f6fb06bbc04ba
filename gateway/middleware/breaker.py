"""Circuit breaker middleware: one circuit per source.

A failure is an outage: no connection, timeout, HTTP 502, 503 or 504. Errors about the call itself,
500 and 4xx included, count as success.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Raw
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.access import BreakerSettings as Settings
from gateway.abc import Execute, ToolCall
from gateway.middleware.circuit import Circuit, State
from schemas.errors import RelayedFault, SourceDown, whole_seconds
from schemas.hybrid import UNAVAILABLE, Status, status_members
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import Outage, RelayedResult, TextContent, Tool, ToolResult

log = logging.getLogger("toolgate.upstream")

GAUGE = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


def _random() -> float:
    return secrets.randbelow(1001) / 1000


class Breaker(Collector):
    def __init__(
        self,
        settings: Settings,
        refused: Callable[[str], None] = lambda _limit: None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = _random,
    ) -> None:
        """`refused` is called with "breaker" for each rejected call; `clock` is in seconds."""
        self._settings = settings
        self._refused = refused
        self._clock = clock
        self._jitter = jitter
        self._circuits: dict[str, Circuit] = {}  # by `Source.place`

    def collect(self) -> Iterator[Metric]:
        text = "1 while calls to a source are refused because it fails, 0.5 while it is tried."
        gauge = GaugeMetricFamily("toolgate_breaker", text, labels=("source",))
        for source, circuit in list(self._circuits.items()):
            gauge.add_metric((source,), GAUGE[circuit.state])
        yield gauge

    def broken(self) -> dict[str, str]:
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

    def applies(self, tool: Tool, source: Source | None) -> bool:
        return self._settings.enabled and source is not None and tool.binding.facts.remote

    def guard(self, execute: Execute) -> Execute:
        circuits, clock = self._circuits, self._clock

        async def protected(call: ToolCall) -> ToolResult | RelayedResult:
            source = call.source
            if source is None:
                return await execute(call)
            name, place = source.name, source.place
            circuit = circuits.get(place)
            if circuit is None:
                circuit = circuits[place] = Circuit(self._settings, self._jitter)
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
                circuit.done(began, failed, now)
                if circuit.state != before:
                    self._log_change(name, circuit, before, now)

        return protected

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
        told: dict[str, Any] = {"retryAfter": retry_after}
        binding = call.tool.binding
        if binding.facts.relayed:
            raise SourceDown(text, told)
        status, code, message = UNAVAILABLE.http, UNAVAILABLE.code, UNAVAILABLE.message
        body: Any = text
        if binding.action is not None:
            body = status_members(Status(status, code, message, text, told))
        structure = Raw(encode({"status": status, "body": body, **told}))
        return ToolResult((TextContent(text),), structure, is_error=True)
