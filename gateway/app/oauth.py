"""Wiring of OAuth metadata for clients."""

from starlette.middleware import Middleware
from starlette.routing import Route

from config.access import ADMIN_TOOLSET
from config.settings import Settings
from gateway.guards.authorization_server import AuthorizationServer
from gateway.guards.oauth import WELL_KNOWN, Challenges, ResourceIdentifiers, WellKnown

AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"


class ToldToClients:
    """The routes and the ASGI middleware of a protected resource; empty without token
    authentication or a known authorization server."""

    def __init__(self, settings: Settings, resources: ResourceIdentifiers) -> None:
        oauth = settings.oauth
        self.routes: list[Route] = []
        self.middleware: list[Middleware] = []
        if settings.auth.mode != "jwt" or not oauth.authorization_servers:
            return
        server = AuthorizationServer(oauth.authorization_servers[0], oauth)
        told = WellKnown(oauth, resources, server.metadata if oauth.legacy_metadata else None)
        self.routes = [
            Route(path, serve)
            for root, serve in (
                (WELL_KNOWN, told.resource),
                (AUTHORIZATION_SERVER, told.authorization_server),
            )
            for path in (root, root + "/{path:path}")
        ]
        self.middleware = [
            Middleware(Challenges, resources=resources, required=oauth.required_scopes)
        ]


def endpoints_of(settings: Settings) -> list[str]:
    """Paths of all endpoints that accept tokens."""
    mcp, portal, admin = settings.mcp.path, settings.portal, settings.admin
    endpoints = [mcp, *(f"{mcp}/{name}" for name in settings.toolsets), settings.rpc.path]
    if portal.enabled:
        endpoints += [portal.query_path, portal.command_path]
    if admin.enabled:
        endpoints.append(admin.path)
    if admin.tools:
        endpoints += [f"{mcp}/{ADMIN_TOOLSET}", f"{settings.rpc.path}/{ADMIN_TOOLSET}"]
    return endpoints


def resources_of(settings: Settings) -> ResourceIdentifiers:
    bound = settings.auth.bind_audience
    return ResourceIdentifiers(
        settings.server.public_url,
        endpoints_of(settings),
        main=settings.mcp.path if bound == "endpoint" else "",
        whole=bound == "server",
    )
