"""The ASGI application: what is served at which path, and what stands before all of it."""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from config.settings import Settings
from gateway.admin.health import Health, Probes
from gateway.app.access import Access
from gateway.app.admin import Below
from gateway.app.index import index
from gateway.guards.access_log import AccessLog
from gateway.guards.bodies import BodyGuard
from gateway.guards.front_door import FrontDoor
from gateway.guards.insight import Insight
from gateway.guards.origin import OriginGuard
from gateway.guards.refusal import crashed, not_found


def application(
    settings: Settings,
    access: Access,
    fronts: Mapping[str, ASGIApp],
    admin: ASGIApp | None,
    health: Health,
    metrics: CollectorRegistry,
    lifespan: Lifespan[Starlette],
) -> Starlette:
    """`fronts` by their paths; `admin` is None where there is no admin API."""
    probes = Probes(health, metrics, Insight(settings.metrics))
    largest = max(settings.server.body_limit_bytes, settings.admin.body_limit_bytes)
    return Starlette(
        routes=[
            Route("/health", probes.alive),
            Route("/ready", probes.ready),
            Route("/metrics", probes.metrics),
            *([Below(settings.admin.path, admin)] if admin is not None else []),
            Route("/", index(settings)),
            *access.told.routes,
        ],
        middleware=[
            *proxies(settings.server.trusted_proxies),
            *([Middleware(AccessLog)] if settings.logging.access else []),
            Middleware(
                OriginGuard,
                hosts=settings.server.allowed_hosts,
                origins=settings.server.allowed_origins,
            ),
            Middleware(BodyGuard, budget=access.bounds.bodies, largest_bytes=largest),
            *access.told.middleware,
            Middleware(
                FrontDoor,
                fronts=fronts,
                ready=lambda: health.ready,
                shed=access.bounds.shedding.refusal,
            ),
        ],
        exception_handlers={404: not_found, 500: crashed},
        lifespan=lifespan,
    )


def proxies(trusted: Sequence[str]) -> list[Middleware]:
    """What gives a request the address of the client that one of these proxies names."""
    if not trusted:
        return []
    return [Middleware(ProxyHeadersMiddleware, trusted_hosts=list(trusted))]
