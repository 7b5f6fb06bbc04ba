"""The /health, /ready and /metrics endpoints, and the state behind them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.admin.worker_peers import STATUS_S, WorkerPeers, registry_of_all
from gateway.guards.error_responses import refusal
from gateway.guards.metrics_access import MetricsAccess
from gateway.interfaces import Events
from registry.catalog.feed import FeedState
from schemas.errors import Forbidden

CHALLENGE = 'Bearer realm="toolgate metrics"'
CLOSED = "Metrics are served to this machine only (metrics.public, metrics.token)"
PROTECTED = "Metrics require the token of metrics.token"

OPENMETRICS = "application/openmetrics-text"

WELL = frozenset({"ok", "disabled"})  # states that do not degrade the status


class Health:
    """Readiness and health of this process."""

    def __init__(
        self,
        feed: FeedState,
        broken: Callable[[], Mapping[str, str]] = dict,
        parts: Callable[[], Mapping[str, str]] = dict,
        *,
        unopened: Callable[[], Collection[str]] = tuple,
        events: Events | None = None,
    ) -> None:
        """Health of `feed`. `broken`: sources whose circuit breaker is "open" or "half-open".
        `parts`: other dependencies of serving, by name, with their state. `unopened`: wings that
        have to be open once before this process is ready."""
        self.feed = feed
        self.broken = broken
        self.parts = parts
        self._unopened = unopened
        self.draining = False
        (events or Events()).draining.subscribe(self._drain)

    def _drain(self) -> None:
        self.draining = True

    @property
    def serves(self) -> bool:
        """Whether requests can be served. Losing the database alone does not prevent that."""
        return self.feed.loaded and not self.draining

    @property
    def ready(self) -> bool:
        """Whether all that is switched on has been there to serve requests."""
        return self.serves and not self._unopened()

    @property
    def status(self) -> str:
        if self.draining:
            return "draining"
        if not self.feed.loaded:
            return "failed" if self.feed.failure else "starting"
        if self._unopened():
            return "starting"
        impaired = any(state not in WELL for state in self.parts().values())
        return "degraded" if impaired or self.feed.is_degraded or self.broken() else "ok"

    @property
    def details(self) -> dict[str, object]:
        """States that the status is derived from."""
        feed, broken = self.feed, self.broken()
        return {
            "database": feed.database,
            "catalog": feed.catalog,
            **self.parts(),
            "sources": feed.sources,
            **({"breakers": broken} if broken else {}),
        }


@dataclass(eq=False)
class Probes:
    """The HTTP endpoints. Sources appear with name and state, never with their address."""

    health: Health
    registry: CollectorRegistry
    metrics_access: MetricsAccess
    siblings: WorkerPeers | None = None  # workers of this machine, which each answers for

    async def alive(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """The status; with its details for authorized clients."""
        health = self.health
        details = health.details if self.metrics_access.allows(request.scope) else {}
        body = {"status": health.status, **details}
        if details and self.siblings is not None:
            answers = await self.siblings.ask("status", STATUS_S)
            body["workers"] = workers = states(self.siblings.slot, health.status, answers)
            if health.status == "ok" and set(workers.values()) != {"ok"}:
                body["status"] = "degraded"
        return JSONResponse(body, 200 if health.ready else 503)

    async def metrics(self, request: Request) -> Response:
        if self.metrics_access.allows(request.scope):
            return exposition(await self._of_all(), request.headers.get("accept", ""))
        if not self.metrics_access.takes_token:
            return refusal(Forbidden(CLOSED))
        response = refusal(Forbidden(PROTECTED), 401)
        response.headers["WWW-Authenticate"] = CHALLENGE
        return response

    async def _of_all(self) -> CollectorRegistry:
        """The metrics of all workers."""
        if self.siblings is None:
            return self.registry
        own_metrics = openmetrics.generate_latest(self.registry)
        answers = await self.siblings.ask("metrics")
        return registry_of_all({self.siblings.slot: own_metrics, **answers})


def exposition(registry: CollectorRegistry, accept: str) -> Response:
    """The metrics as OpenMetrics, with exemplars, for scrapers that ask for it; else as text."""
    if OPENMETRICS in accept:
        body = openmetrics.generate_latest(registry)
        return Response(body, media_type=openmetrics.CONTENT_TYPE_LATEST)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def states(own_slot: int, status: str, answers: Mapping[int, bytes | None]) -> dict[str, str]:
    """The status of each worker by number; "away" without an answer."""
    others = {slot: answer.decode() if answer else "away" for slot, answer in answers.items()}
    return {str(slot): state for slot, state in sorted({**others, own_slot: status}.items())}
