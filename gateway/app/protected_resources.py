"""Endpoints as protected resources of OAuth: their paths, audiences, metadata and challenges."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.middleware import Middleware as HttpMiddleware
from starlette.routing import Route

from config.access import ADMIN_TOOLSET
from config.settings import Settings
from gateway.guards.protected_resource import WELL_KNOWN, Challenges, ResourceIdentifiers, WellKnown

if TYPE_CHECKING:  # a gateway without a login does not import it
    from gateway.app.login import LoginAccess

ENDPOINTS = 1024  # size of the audience cache
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
OPENID_CONFIGURATION = "/.well-known/openid-configuration"


class ProtectedResource:
    """The routes and the ASGI middleware of a protected resource; empty without token
    authentication or a known authorization server."""

    def __init__(
        self,
        settings: Settings,
        resources: ResourceIdentifiers,
        login: "LoginAccess | None" = None,
    ) -> None:
        oauth = settings.oauth
        self.routes: list[Route] = []
        self.middleware: list[HttpMiddleware] = []
        if settings.auth.mode != "jwt" or not (oauth.authorization_servers or login):
            return
        places: tuple[str, ...] = (AUTHORIZATION_SERVER,)
        if login is not None:
            well_known = WellKnown(
                oauth, resources, login.metadata, own_server=login.issuer.iss, scopes=login.scopes
            )
            places = (AUTHORIZATION_SERVER, OPENID_CONFIGURATION)
        else:
            from gateway.guards.authorization_server_proxy import AuthorizationServer

            server = AuthorizationServer(oauth.authorization_servers[0], oauth)
            legacy = server.metadata if oauth.legacy_metadata else None
            well_known = WellKnown(oauth, resources, legacy)
        self.routes = [
            Route(path, serve)
            for root, serve in (
                (WELL_KNOWN, well_known.resource),
                *((place, well_known.authorization_server) for place in places),
            )
            for path in (root, root + "/{path:path}")
        ]
        self.middleware = [
            HttpMiddleware(Challenges, resources=resources, scopes=oauth.required_scopes)
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


def bound_audiences(
    settings: Settings, resources: ResourceIdentifiers | None = None
) -> Callable[[str], frozenset[str]]:
    """Accepted audiences by path, while `auth.bind_audience` is "endpoint"."""
    resources, mcp = resources or resources_of(settings), settings.mcp.path
    public = settings.server.public_url.rstrip("/")

    @lru_cache(ENDPOINTS)
    def audiences(endpoint: str) -> frozenset[str]:
        resource_url = f"{public}{endpoint}"
        of_mcp = endpoint == mcp or endpoint.startswith(f"{mcp}/")
        return frozenset({resource_url} if of_mcp else {resource_url, public})

    def audiences_of(path: str) -> frozenset[str]:
        return audiences(resources.endpoint(path) or "")

    return audiences_of
