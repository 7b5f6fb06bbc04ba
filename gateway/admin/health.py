"""/health, /ready and /metrics, and what they know."""

from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from registry.feed import FeedState


class Health:
    """Whether this process can serve, and how well."""

    def __init__(self, feed: FeedState, broken: Callable[[], Mapping[str, str]] = dict) -> None:
        """`broken`: the sources that are not called because they fail, with "open" or
        "half-open"."""
        self.feed = feed
        self.broken = broken
        self.draining = False

    @property
    def ready(self) -> bool:
        """Whether requests can be served. A lost database alone does not prevent that."""
        return self.feed.loaded and not self.draining

    @property
    def status(self) -> str:
        if self.draining:
            return "draining"
        if not self.feed.loaded:
            return "failed" if self.feed.failure else "starting"
        return "degraded" if self.feed.degraded or self.broken() else "ok"


class Probes:
    """The endpoints. Sources are named with their state, never with their address."""

    def __init__(self, health: Health, registry: CollectorRegistry) -> None:
        self._health = health
        self._registry = registry

    async def alive(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        feed = self._health.feed
        body: dict[str, object] = {
            "status": self._health.status,
            "database": feed.database,
            "catalog": "ok" if feed.loaded else "loading",
            "sources": feed.sources,
        }
        if broken := self._health.broken():
            body["breakers"] = broken
        return JSONResponse(body, 200 if self._health.ready else 503)

    async def metrics(self, _request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
