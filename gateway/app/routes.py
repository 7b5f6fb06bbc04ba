"""The ASGI application: its routes, and the guards in front of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Lifespan
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from config.access import ADMIN_TOOLSET
from config.conflicts import LOGIN_PATHS
from config.settings import Portal, Settings
from gateway.admin.health import Health, Probes
from gateway.admin.worker_peers import WorkerPeers
from gateway.app.access import Access
from gateway.app.admin import PathPrefix
from gateway.app.shared_state import SharedState
from gateway.context import Identify, Principal
from gateway.guards.access_log import AccessLog
from gateway.guards.body_budget import BodyGuard
from gateway.guards.error_responses import not_found, on_crash
from gateway.guards.front_door import FrontDoor
from gateway.guards.host_and_origin import OriginGuard
from gateway.guards.local_only import LocalOnly
from gateway.guards.metrics_access import MetricsAccess
from gateway.methods.results_by_revision import SERVER
from gateway.protocol.batches import Batches, BatchLimits
from gateway.protocol.dialects import Rules
from gateway.protocol.dispatcher import Dispatcher
from gateway.transports.jsonrpc_http import Front, JsonRpcHTTP
from gateway.transports.mcp_endpoint import NO_TOOLSET, McpFront
from gateway.transports.streamable_http import toolset_fronts
from gateway.wings.table import enabled_wings, load_wing
from registry.catalog.catalogs import Catalogs
from registry.display.profiles import BUILT_IN
from schemas.errors import ToolgateError, UnknownToolset
from schemas.hybrid import Side
from schemas.mcp.revisions import JSON_RPC, PORTAL


def index(settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    index = {"name": SERVER.name, "version": SERVER.version, "endpoints": _paths(settings)}

    async def answer(_request: Request) -> Response:
        return JSONResponse(index)

    return answer


def _paths(settings: Settings) -> dict[str, str]:
    mcp, rpc, portal = settings.mcp.path, settings.rpc.path, settings.portal
    paths = {"mcp": mcp, "mcp-2024-11-05": f"{mcp}/sse", "jsonrpc": rpc}
    if portal.enabled:
        paths |= {"portal-query": portal.query_path, "portal-command": portal.command_path}
    if settings.admin.enabled and settings.auth.mode != "none":
        paths["admin"] = settings.admin.path
    if settings.console.enabled:
        paths["console"] = settings.console.path
    if settings.login.enabled:
        paths["login"] = "/login"
        paths["connections"] = "/connect"
    if settings.admin.tools:
        paths |= {"admin-mcp": f"{mcp}/{ADMIN_TOOLSET}", "admin-jsonrpc": f"{rpc}/{ADMIN_TOOLSET}"}
    return paths | _paths_of_wings(settings)


def _paths_of_wings(settings: Settings) -> dict[str, str]:
    """The paths of the wings that are switched on, by the name of the wing, or that of the path."""
    paths: dict[str, str] = {}
    for name in enabled_wings(settings):
        with suppress(ToolgateError):  # of a wing that cannot be imported, which the log tells
            wing = load_wing(name)
            mounts = {f"{name}{path.replace('/', '-')}": path for path in wing.mounts}
            paths |= {**mounts, name: wing.root}
    return paths


def fronts(settings: Settings, mcp: McpFront, on_portal: Dispatcher) -> dict[str, ASGIApp]:
    """Fronts by path, without those of stored toolsets. `/rpc` has the dispatcher of `mcp`;
    `on_portal` is that of the portal paths."""
    front = rpc_front(settings, mcp.dispatcher, mcp.identify, mcp.batches)
    portal = replace(front, dispatcher=on_portal)
    of_toolsets = (toolset_fronts(mcp, toolset) for toolset in (None, *settings.toolsets))
    return {
        **{path: front for served in of_toolsets for path, front in served.items()},
        settings.rpc.path: JsonRpcHTTP(front, rpc_rules(settings)),
        **{path: JsonRpcHTTP(portal, rules) for path, rules in _portal(settings.portal).items()},
    }


def batches_of(settings: Settings) -> Batches:
    """The batch runner that all fronts share."""
    rpc = settings.rpc
    return Batches(
        BatchLimits(
            items=rpc.batch_limit,
            concurrency=rpc.batch_concurrency,
            timeout_s=rpc.batch_timeout_s,
            answer_bytes=rpc.batch_answer_limit_bytes,
            connections=settings.upstream.connections,
            depth=settings.limits.json_depth,
        )
    )


def mcp_front(
    settings: Settings,
    state: SharedState,
    *,
    dispatcher: Dispatcher,
    identify: Identify,
    batches: Batches,
    admit: Callable[[Principal, str], None],
) -> McpFront:
    """The parts shared by the paths of MCP. `admit`: as `McpFront` has it."""
    mcp, server = settings.mcp, settings.server
    return McpFront(
        dispatcher=dispatcher,
        sessions=state.sessions,
        hub=state.hub,
        streams=state.streams,
        asks=state.asks,
        identify=identify,
        batches=batches,
        body_limit_bytes=server.body_limit_bytes,
        keep_alive_s=mcp.keep_alive_s,
        drain_s=server.drain_s,
        retry_ms=mcp.retry_ms,
        sessionless=mcp.sessionless,
        get_opens_sse=mcp.get_opens_sse,
        path=mcp.path,
        admit=admit,
        profiles=_profiles(settings),
    )


def admission(catalogs: Catalogs) -> Callable[[Principal, str], None]:
    """Whether a caller may use the endpoint of a toolset, by its tenant and its roles."""

    def admit(principal: Principal, name: str) -> None:
        toolset = catalogs.toolset(principal.tenant, name)
        if toolset is None or (toolset.roles and principal.roles.isdisjoint(toolset.roles)):
            raise UnknownToolset(NO_TOOLSET)

    return admit


def rpc_front(
    settings: Settings, dispatcher: Dispatcher, identify: Identify, batches: Batches
) -> Front:
    """The parts shared by the paths of JSON-RPC."""
    return Front(
        dispatcher=dispatcher,
        identify=identify,
        batches=batches,
        body_limit_bytes=settings.server.body_limit_bytes,
        unauthenticated_body_bytes=settings.limits.unauthenticated_body_bytes,
        profiles=_profiles(settings),
        mcp_path=settings.mcp.path,
    )


def rpc_rules(settings: Settings) -> Rules:
    """Parsing and response rules of `/rpc`."""
    headers = deprecation(settings.portal)
    return Rules(JSON_RPC, spec=True, legacy=settings.rpc.legacy, legacy_headers=headers)


def deprecation(portal: Portal) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of answers to legacy payloads: Deprecation (RFC 9745), Sunset (RFC 8594), and
    where to read more."""
    headers = {
        b"deprecation": portal.legacy_deprecated and f"@{_midnight(portal.legacy_deprecated)}",
        b"sunset": portal.legacy_sunset
        and formatdate(_midnight(portal.legacy_sunset), usegmt=True),
        b"link": portal.legacy_link and f'<{portal.legacy_link}>; rel="deprecation"',
    }
    return tuple((name, value.encode()) for name, value in headers.items() if value)


def _midnight(day: str) -> int:
    """The beginning of a day in UTC, seconds since 1970."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def _profiles(settings: Settings) -> frozenset[str]:
    return frozenset({*BUILT_IN, *settings.profiles.custom})


def _portal(portal: Portal) -> dict[str, Rules]:
    if not portal.enabled:
        return {}

    def rules(side: Side, legacy: bool) -> Rules:
        return Rules(
            PORTAL,
            spec=portal.compat == "spec",
            legacy=legacy,
            wrapped=portal.pre_handler_errors == "wrapped",
            side=side,
            auth_first=portal.auth_first,
            void_body=b"{}" if portal.void_body == "object" else b"",
            legacy_headers=deprecation(portal),
        )

    return {
        portal.query_path: rules("query", portal.query_legacy),
        portal.command_path: rules("command", portal.command_legacy),
    }


def application(
    settings: Settings,
    access: Access,
    *,
    fronts: Mapping[str, ASGIApp],
    find_front: Callable[[str], ASGIApp | None],
    admin: ASGIApp | None,
    console: ASGIApp | None,
    wings: Sequence[BaseRoute],
    public: Sequence[str],
    login: Sequence[BaseRoute],
    health: Health,
    metrics: CollectorRegistry,
    lifespan: Lifespan[Starlette],
    largest_body: int,
    siblings: WorkerPeers | None = None,
) -> Starlette:
    """The ASGI application. `fronts` by path; `find_front` makes those that they lack; `admin` and
    `console` are None without one; `wings` and `login`: their routes; `public`: paths that pages of
    any origin may read; `largest_body`: the highest of all limits of bodies, in bytes; `siblings`
    as in `Probes`."""
    if console is not None and settings.auth.mode == "none":
        console = LocalOnly(console)
    probes = Probes(health, metrics, MetricsAccess(settings.metrics), siblings)
    return Starlette(
        routes=[
            Route("/health", probes.alive),
            Route("/ready", probes.ready),
            Route("/metrics", probes.metrics),
            *([PathPrefix(settings.admin.path, admin)] if admin is not None else []),
            *([PathPrefix(settings.console.path, console)] if console is not None else []),
            *wings,
            *login,
            Route("/", index(settings)),
            *access.protected_resource.routes,
        ],
        middleware=[
            *proxies(settings.server.trusted_proxies),
            *([Middleware(AccessLog)] if settings.logging.access else []),
            Middleware(
                OriginGuard,
                hosts=settings.server.allowed_hosts,
                origins=settings.server.allowed_origins,
                any_origin=(*public, *((*LOGIN_PATHS, "/.well-known") if login else ())),
            ),
            Middleware(BodyGuard, budget=access.bounds.bodies, largest_bytes=largest_body),
            *access.protected_resource.middleware,
            Middleware(
                FrontDoor,
                fronts=fronts,
                ready=lambda: health.serves,
                shed=access.bounds.shedding.refusal,
                find=find_front,
            ),
        ],
        exception_handlers={404: not_found, 500: on_crash},
        lifespan=lifespan,
    )


def proxies(trusted: Sequence[str]) -> list[Middleware]:
    """Middleware that replaces the client address by the one that a trusted proxy names."""
    if not trusted:
        return []
    return [Middleware(ProxyHeadersMiddleware, trusted_hosts=list(trusted))]
